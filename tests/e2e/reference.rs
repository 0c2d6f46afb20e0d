use std::time::Duration;

use harness::{Envoy, EnvoyOptions, Redis, Service, Store, Upstream, eventually, get, send, statuses};
use http::Method;
use serde_json::json;

use crate::support::{file, has_limit_fields};

/// `envoy.yaml` and `examples/weir.yaml` as they are, but for ports and paths.
struct Reference {
    envoy: Envoy,
    _upstream: Upstream,
    _service: Service,
    _redis: Redis,
}

async fn reference() -> Reference {
    let redis = Redis::start().await;
    let service = Service::start(&file("examples/weir.yaml"), Store::Redis(&redis)).await;
    let upstream = Upstream::start().await;
    let envoy = Envoy::start(EnvoyOptions {
        service: service.check_port(),
        upstream: upstream.port(),
        concurrency: 2,
        ..EnvoyOptions::default()
    })
    .await;
    Reference { envoy, _upstream: upstream, _service: service, _redis: redis }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_deployment_limits_by_key_and_by_address() {
    let stack = reference().await;
    let url = stack.envoy.url("/");
    // The deadlines of the file are short, and the first request may find everything cold: then it fails open.
    let first = eventually("a checked request", Duration::from_secs(10), async || {
        let answer = get(&url, &[("x-api-key", "org_1")]).await;
        (answer.status == 200 && has_limit_fields(&answer)).then_some(answer)
    })
    .await;
    let policies = first.header("ratelimit-policy").unwrap();
    assert!(policies.starts_with("\"per-key\";q=") && policies.contains(", \"per-ip\";q="), "{policies}");
    assert!(first.header("ratelimit").unwrap().starts_with("\"per-key\";r="));

    // Until somebody is refused: by then the access log and the counters have something to tell.
    let mut refused = None;
    for _ in 0..20 {
        let answers = harness::burst(&url, 100, |_| vec![("x-api-key", "org_1")]).await;
        refused = answers.into_iter().find(|answer| answer.status == 429);
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("a 429 within 2000 requests");
    let problem = refused.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["status"], 429);
    assert!(!problem["violated-policies"].as_array().unwrap().is_empty());
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
    assert_eq!(refused.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(refused.header("ratelimit-remaining").as_deref(), Some("0"));

    let health = get(&stack.envoy.url("/healthz"), &[]).await;
    assert_eq!((health.status, has_limit_fields(&health)), (200, false));

    eventually("the access log tells of the refusal", Duration::from_secs(15), async || {
        let log = stack.envoy.access_log();
        let told = log.lines().any(|line| line.contains(" 429 ") && line.ends_with("weir=refused"));
        (told && log.lines().any(|line| line.contains(" 200 ") && line.ends_with("weir=-"))).then_some(())
    })
    .await;
    let prometheus = get(&stack.envoy.admin_url("/stats/prometheus"), &[]).await.text();
    for outcome in ["allowed", "refused"] {
        let line = prometheus.lines().find(|line| {
            line.starts_with("weir_rule_outcome{")
                && line.contains("weir_rule=\"api\"")
                && line.contains(&format!("weir_outcome=\"{outcome}\""))
        });
        assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{outcome}: {line:?}");
    }
    stack.envoy.assert_no_trap();
}

/// D05, D06: a browser may read the 429 and the fields; preflights are free.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_of_the_allowed_origin_can_read_the_limits() {
    let stack = reference().await;
    let url = stack.envoy.url("/");
    let preflight = [("origin", "https://app.example.com"), ("access-control-request-method", "PUT")];
    for _ in 0..20 {
        let answer = send(Method::OPTIONS, &url, &preflight, Default::default()).await;
        assert_eq!((answer.status, has_limit_fields(&answer)), (200, false));
    }
    for (origin, readable) in [("https://app.example.com", true), ("https://evil.example", false)] {
        let headers = [("origin", origin), ("x-api-key", origin)];
        let mut seen = statuses(&[]);
        while seen.len() < 2 {
            for answer in harness::burst(&url, 100, |_| headers.to_vec()).await {
                *seen.entry(answer.status).or_default() += 1;
                let allowed = answer.header("access-control-allow-origin");
                assert_eq!(allowed.as_deref(), readable.then_some(origin), "{}", answer.status);
                let exposed = answer.header("access-control-expose-headers").unwrap_or_default();
                assert_eq!(exposed.contains("ratelimit") && exposed.contains("retry-after"), readable);
            }
            assert!(seen.values().sum::<usize>() < 3000, "{seen:?}");
        }
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [200, 429]);
    }
}

/// Paths that name the same resource meet the same rule.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_has_no_second_spelling() {
    let stack = reference().await;
    for path in ["/healthz", "/./healthz", "/a/../healthz", "//healthz", "/%68ealthz"] {
        let answer = get(&stack.envoy.url(path), &[]).await;
        assert_eq!((answer.status, has_limit_fields(&answer)), (200, false), "{path}");
        assert_eq!(answer.json()["path"], json!("/healthz"), "{path}");
    }
    let escaped = get(&stack.envoy.url("/a%2fhealthz"), &[]).await;
    assert_eq!((escaped.status, escaped.header("location").is_some()), (307, true), "escaped slashes are redirected");
}
