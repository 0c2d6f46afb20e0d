use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::{Connection, H2, Options, Stack, long_window, raw, send};
use http::Method;
use serde_json::{Value, json};

use crate::support::{connection_manager, has_limit_fields, per_key, policy};

const KEY: (&str, &str) = ("x-api-key", "k");

async fn stack(plugin: Value, edit: Option<harness::Edit>) -> Stack {
    let policies = policy("p", "fixed_window", 1, long_window(Duration::from_secs(60)));
    Stack::start(Options { policies, plugin: Some(plugin), edit, ..Options::default() }).await
}

/// An empty message of gRPC: not compressed, of length 0.
const MESSAGE: &[u8] = &[0, 0, 0, 0, 0];

/// Unary and streaming calls look alike until the first answer: the refusal is a response of trailers only, and comes
/// whether or not the client has finished sending.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_clients_are_refused_in_grpc() {
    let mut plugin = per_key("p");
    plugin["refusal"] =
        json!({ "status": 503, "body": "for people", "headers": [{ "name": "x-reason", "value": "quota" }] });
    plugin["rules"][0]["limits"][0]["on_missing_key"] = json!("reject");
    let stack = stack(plugin, None).await;
    let h2 = H2::connect(&stack.envoy.address()).await;
    let grpc = [KEY, ("content-type", "application/grpc+proto"), ("te", "trailers")];
    let call = async |headers: &[(&str, &str)]| h2.request(Method::POST, "/pkg.Service/Method", headers).await.unwrap();
    assert_eq!(call(&grpc).await.status, 200);
    for _ in 0..3 {
        let refused = call(&grpc).await;
        let of = |name: &str| refused.header(name);
        assert_eq!((refused.status, of("grpc-status").as_deref()), (200, Some("8")));
        assert!(of("content-type").unwrap().starts_with("application/grpc"));
        assert!(of("grpc-message").unwrap().starts_with("p has no quota left"));
        let wait: u64 = of("retry-after").unwrap().parse().unwrap();
        assert_eq!(of("grpc-retry-pushback-ms"), Some((wait * 1000).to_string()));
        assert_eq!((of("x-reason").as_deref(), refused.body.len()), (Some("quota"), 0));
        assert!(has_limit_fields(&refused));
    }
    // A client stream that stays open, message after message.
    let mut streaming = h2.open(Method::POST, "/pkg.Service/Stream", &grpc).await.unwrap();
    let _ = streaming.send(MESSAGE, false);
    let refused = streaming.response().await.unwrap();
    assert_eq!((refused.status, refused.header("grpc-status").as_deref()), (200, Some("8")));
    // A missing key is an invalid argument, and plain HTTP on the same route is refused as the rule says.
    assert_eq!(call(&grpc[1..]).await.header("grpc-status").as_deref(), Some("3"));
    let plain = h2.get("/", &[KEY]).await;
    assert_eq!((plain.status, plain.text().as_str()), (503, "for people"));
    assert_eq!(plain.header("content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(stack.upstream.count(), 1);
    stack.envoy.assert_no_trap();
}

/// In front of Envoy's own translation the filter answers itself; behind it, Envoy makes HTTP's 429 of the refusal and
/// UNAVAILABLE of that, as it does with any filter's: hence the order that the documentation gives.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_clients_are_refused_in_grpc_web() {
    let with_translation = |at_the_end: bool| -> harness::Edit {
        Box::new(move |config: &mut Value| {
            let filters = connection_manager(config)["http_filters"].as_array_mut().unwrap();
            let grpc_web = "type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb";
            let at = if at_the_end { filters.len() - 1 } else { 0 };
            filters.insert(at, json!({ "name": "envoy.filters.http.grpc_web", "typed_config": { "@type": grpc_web } }));
        })
    };
    let refused = async |stack: &Stack, content_type: &str| {
        let headers = [("x-api-key", content_type), ("content-type", content_type), ("x-grpc-web", "1")];
        let is_text = content_type.ends_with("-text");
        let body = if is_text { STANDARD.encode(MESSAGE).into() } else { MESSAGE.into() };
        let url = stack.envoy.url("/pkg.Service/Method");
        let post = async || send(Method::POST, &url, &headers, bytes::Bytes::clone(&body)).await;
        assert_eq!(post().await.status, 200);
        let refused = post().await;
        assert!(has_limit_fields(&refused));
        stack.envoy.assert_no_trap();
        refused
    };
    for edit in [None, Some(with_translation(true))] {
        let stack = stack(per_key("p"), edit).await;
        for content_type in ["application/grpc-web+proto", "application/grpc-web-text"] {
            let refused = refused(&stack, content_type).await;
            assert_eq!((refused.status, refused.header("content-type").as_deref()), (200, Some(content_type)));
            let body = match content_type {
                "application/grpc-web-text" => STANDARD.decode(&refused.body).unwrap(),
                _ => refused.body.to_vec(),
            };
            assert!(
                body[5..].starts_with(b"grpc-status:8\r\ngrpc-message:p has no quota left"),
                "{}",
                body.escape_ascii()
            );
        }
    }
    let refused =
        refused(&stack(per_key("p"), Some(with_translation(false))).await, "application/grpc-web+proto").await;
    assert_eq!((refused.status, refused.header("grpc-status").as_deref()), (429, Some("14")));
    assert!(refused.header("grpc-message").unwrap().starts_with("p has no quota left"));
}

/// D24: failure mode closed is UNAVAILABLE, and in shadow mode no failure changes an answer.
#[tokio::test(flavor = "multi_thread")]
async fn failures_have_their_own_form_and_none_in_shadow_mode() {
    let rule = |name: &str, mode: &str| {
        json!({ "name": name, "match": { "path": { "prefix": format!("/{name}") } }, "failure_mode": "closed", "mode": mode,
            "limits": [{ "policy": "p", "key": [{ "header": "x-api-key" }] }] })
    };
    let plugin = json!({ "service": { "cluster": "nowhere" }, "rules": [rule("enforced", "enforce"), rule("shadow", "shadow")] });
    let stack = stack(plugin, None).await;
    // First, since log lines are throttled.
    let passed = stack.get("/shadow", &[KEY]).await;
    assert_eq!((passed.status, passed.header("weir-shadow").as_deref()), (200, Some("failed_closed;rule=\"shadow\"")));
    assert!(stack.envoy.log().contains("the request passes unlimited (mode shadow)"));
    let h2 = H2::connect(&stack.envoy.address()).await;
    let grpc = [KEY, ("content-type", "application/grpc")];
    let closed = h2.request(Method::POST, "/enforced", &grpc).await.unwrap();
    assert_eq!(closed.header("grpc-status").as_deref(), Some("14"));
    assert_eq!(closed.header("grpc-retry-pushback-ms").as_deref(), Some("1000"));
    assert_eq!(stack.get("/enforced", &[KEY]).await.status, 503);
}

/// A rule in shadow mode asks, counts and tells, and changes no answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_in_shadow_mode_only_tells() {
    let mut plugin = per_key("p");
    plugin["rules"][0]["mode"] = json!("shadow");
    let stack = stack(plugin, None).await;
    for would_be in ["allowed", "refused", "refused"] {
        let answer = stack.get("/", &[KEY]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("weir-shadow"), Some(format!("{would_be};rule=\"all\"")));
        assert!(!has_limit_fields(&answer));
    }
    let outcome = async |outcome: &str| stack.envoy.stat(&format!("wasmcustom.weir.rule.all.outcome.{outcome}")).await;
    assert_eq!([outcome("allowed").await, outcome("shadow").await, outcome("refused").await], [1, 2, 0]);
    harness::eventually("the access log", Duration::from_secs(10), async || {
        stack.envoy.access_log().contains("weir=shadow").then_some(())
    })
    .await;
}

/// C23: a handshake is charged once and held until it is decided; frames after it are nobody's business.
#[tokio::test(flavor = "multi_thread")]
async fn upgrades_and_connect_are_decided_before_the_upstream_sees_them() {
    let mut plugin = per_key("p");
    plugin["rules"][0]["limits"][0]["key"] = json!([{ "header": "x-api-key" }, { "path": {} }]);
    let edit = |config: &mut Value| {
        let manager = connection_manager(config);
        manager["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }, { "upgrade_type": "CONNECT" }]);
        manager["route_config"]["virtual_hosts"][0]["routes"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "match": { "connect_matcher": {} }, "route": { "cluster": "upstream" } }));
    };
    let stack = stack(plugin, Some(Box::new(edit))).await;
    let head = |line: &str, rest: &str| format!("{line} HTTP/1.1\r\nhost: a:80\r\nx-api-key: k\r\n{rest}\r\n");
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let status = async |request: String| {
        let answer = raw(&stack.envoy.address(), request.as_bytes()).await;
        String::from_utf8_lossy(&answer).get(9..12).unwrap_or_default().to_owned()
    };
    // This upstream takes no upgrade and answers 200, which ends the tunnel that was never opened.
    let first = status(head("GET /ws", upgrade)).await;
    assert_ne!(first, "429");
    let seen = stack.upstream.count();
    assert_eq!(seen, 1);
    // Bytes behind the handshake, before any answer, wait as well.
    assert_eq!(status(head("GET /ws", upgrade) + "frames").await, "429");
    assert_eq!(stack.upstream.count(), seen, "a refused handshake does not arrive");

    let first = status(head("CONNECT a:80", "connection: close\r\n")).await;
    assert_ne!(first, "429");
    // Without a path the key has a part that is missing: the address takes its place, and it has a limit of its own.
    assert_eq!(status(head("CONNECT a:80", "connection: close\r\n")).await, "429");
    stack.envoy.assert_no_trap();
}

/// C26: two filters in one chain charge twice, as the documentation says, and send one set of fields.
#[tokio::test(flavor = "multi_thread")]
async fn two_filters_in_one_chain_charge_twice() {
    let policies = policy("p", "fixed_window", 100, long_window(Duration::from_secs(60)));
    let mut plugin = per_key("p");
    plugin["headers"] = json!(["x-ratelimit"]);
    let edit = |config: &mut Value| {
        let filters = connection_manager(config)["http_filters"].as_array_mut().unwrap();
        let at = filters.iter().position(|filter| filter["name"] == "weir").unwrap();
        let mut second = filters[at].clone();
        second["typed_config"]["config"]["root_id"] = json!("second");
        filters.insert(at, second);
    };
    let options = Options { policies, plugin: Some(plugin), edit: Some(Box::new(edit)), ..Options::default() };
    let stack = Stack::start(options).await;
    let mut last = None;
    for _ in 0..10 {
        let answer = stack.get("/", &[KEY]).await;
        assert_eq!((answer.status, answer.all("x-ratelimit-remaining").len()), (200, 1));
        last = answer.header("x-ratelimit-remaining");
    }
    // The filter in front writes last, and was asked first: it does not know yet of the second one's charge.
    assert_eq!(last.as_deref(), Some("81"));
    stack.envoy.assert_no_trap();
}

/// D05, D06: a CORS filter behind the filter: refusals lack its fields, and preflights are still free.
#[tokio::test(flavor = "multi_thread")]
async fn with_cors_behind_only_admitted_answers_have_its_fields() {
    let edit = |config: &mut Value| {
        let filters = connection_manager(config)["http_filters"].as_array_mut().unwrap();
        let cors =
            filters.remove(filters.iter().position(|filter| filter["name"] == "envoy.filters.http.cors").unwrap());
        let weir = filters.iter().position(|filter| filter["name"] == "weir").unwrap();
        filters.insert(weir + 1, cors);
    };
    let stack = stack(per_key("p"), Some(Box::new(edit))).await;
    let origin = ("origin", "https://app.example.com");
    let preflight = [KEY, origin, ("access-control-request-method", "PUT")];
    for _ in 0..5 {
        let answer = send(Method::OPTIONS, &stack.envoy.url("/"), &preflight, Default::default()).await;
        assert_eq!((answer.status, has_limit_fields(&answer)), (200, false));
        assert!(answer.header("access-control-allow-origin").is_some());
    }
    let admitted = stack.get("/", &[KEY, origin]).await;
    assert_eq!((admitted.status, admitted.header("access-control-allow-origin").is_some()), (200, true));
    let refused = stack.get("/", &[KEY, origin]).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (429, None));
}

/// D03: the fields of a refusal describe the limit that refuses; D01: they are what RFC 9651 says.
#[tokio::test(flavor = "multi_thread")]
async fn fields_describe_the_limit_that_was_exceeded() {
    let window = long_window(Duration::from_secs(60));
    let policies = format!(
        "[{{name: wide, algorithm: token_bucket, limit: 60, window: 1m}}, \
          {{name: tight, algorithm: fixed_window, limit: 5, window: {window}}}]"
    );
    let plugin = json!({ "headers": ["ietf", "ratelimit", "x-ratelimit"], "retry_after_jitter": "3s", "rules": [{ "name": "all",
        "limits": [{ "policy": "wide", "key": [{ "header": "x-api-key" }] },
            { "policy": "tight", "key": [{ "header": "x-api-key" }] }] }] });
    let stack = Stack::start(Options { policies, plugin: Some(plugin), ..Options::default() }).await;
    let mut connection = Connection::open(&stack.envoy.address()).await;
    for number in 0..8u64 {
        let answer = connection.get("/", &[KEY]).await;
        let left = 4u64.saturating_sub(number);
        assert_eq!(answer.status, if number < 5 { 200 } else { 429 });
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string()));
        let list = |name: &str| sfv::Parser::new(&answer.header(name).unwrap()).parse::<sfv::List>().unwrap();
        let names = |list: &sfv::List| -> Vec<String> {
            list.iter()
                .map(|entry| match entry {
                    sfv::ListEntry::Item(item) => item.bare_item.as_string().unwrap().as_str().to_owned(),
                    sfv::ListEntry::InnerList(_) => panic!("an inner list"),
                })
                .collect()
        };
        let numbers = |list: &sfv::List, key: &str| -> Vec<i64> {
            list.iter()
                .map(|entry| match entry {
                    sfv::ListEntry::Item(item) => item.params[key].as_integer().unwrap().into(),
                    sfv::ListEntry::InnerList(_) => panic!("an inner list"),
                })
                .collect()
        };
        let (policy, state) = (list("ratelimit-policy"), list("ratelimit"));
        assert_eq!(names(&policy), ["wide", "tight"]);
        assert_eq!(names(&state), names(&policy));
        assert_eq!(numbers(&policy, "q"), [60, 5]);
        assert_eq!(numbers(&state, "r")[1], i64::try_from(left).unwrap());
        assert!(numbers(&state, "r").iter().chain(&numbers(&state, "t")).all(|number| *number >= 0));
        if answer.status == 429 {
            // Never earlier than the truth, and at most the jitter later.
            let wait: i64 = answer.header("retry-after").unwrap().parse().unwrap();
            let truth = numbers(&state, "t")[1];
            assert!((truth..=truth + 3).contains(&wait), "{wait} {truth}");
            assert_eq!(answer.json()["violated-policies"], json!(["tight"]));
        }
    }
}
