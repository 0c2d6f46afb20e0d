use std::time::Duration;

use harness::{Answer, Connection, H2, Options, Stack, long_window, send};
use http::Method;
use serde_json::{Value, json};

use crate::support::{connection_manager, has_limit_fields, per_key, policy};

async fn stack(limit: u64, plugin: Value, edit: Option<harness::Edit>) -> Stack {
    let policies = policy("p", "fixed_window", limit, long_window(Duration::from_secs(60)));
    Stack::start(Options { policies, plugin: Some(plugin), edit, ..Options::default() }).await
}

/// C22: one set of fields on every answer to a request that was charged, also where Envoy gives the answer itself.
#[tokio::test(flavor = "multi_thread")]
async fn fields_are_on_every_answer_to_a_checked_request() {
    let edit = |config: &mut Value| {
        let manager = connection_manager(config);
        let routes = manager["route_config"]["virtual_hosts"][0]["routes"].as_array_mut().unwrap();
        routes.insert(0, json!({ "match": { "path": "/direct" }, "direct_response": { "status": 204 } }));
        routes.insert(0, json!({ "match": { "path": "/redirect" }, "redirect": { "path_redirect": "/" } }));
        routes
            .insert(0, json!({ "match": { "path": "/slow" }, "route": { "cluster": "upstream", "timeout": "0.1s" } }));
        routes.insert(0, json!({ "match": { "path": "/dead" }, "route": { "cluster": "dead" } }));
        config["static_resources"]["clusters"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "name": "dead", "type": "STATIC" }));
    };
    let plugin = json!({
        "headers": ["ietf", "ratelimit", "x-ratelimit"],
        "rules": [
            { "name": "health", "match": { "path": { "exact": "/healthz" } }, "skip": true },
            { "name": "all", "limits": [{ "policy": "p", "key": [{ "literal": "all" }] }] },
        ],
    });
    let stack = stack(100, plugin, Some(Box::new(edit))).await;
    let mut left = 100;
    let mut expect = async |path: &str, status: u16| {
        let answer = stack.get(path, &[]).await;
        left -= 1;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("ratelimit-policy").unwrap().split(";w=").next(), Some("\"p\";q=100"), "{path}");
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"p\";r={left};t=")), "{path}");
        for prefix in ["", "x-"] {
            assert_eq!(answer.header(&format!("{prefix}ratelimit-limit")).as_deref(), Some("100"));
            assert_eq!(answer.header(&format!("{prefix}ratelimit-remaining")), Some(left.to_string()));
            assert!(answer.header(&format!("{prefix}ratelimit-reset")).unwrap().parse::<u64>().unwrap() > 60);
        }
    };
    for status in [200, 204, 304, 404, 500] {
        // 204 and 304 have no body.
        stack.upstream.answer(Answer { status, body: Some(Default::default()), ..Answer::default() });
        expect("/", status).await;
    }
    expect("/direct", 204).await;
    expect("/redirect", 301).await;
    expect("/dead", 503).await;
    stack.upstream.answer(Answer { delay: Duration::from_secs(2), ..Answer::default() });
    expect("/slow", 504).await;
    stack.upstream.answer(Answer::default());
    let skipped = stack.get("/healthz", &[]).await;
    assert_eq!((skipped.status, has_limit_fields(&skipped)), (200, false));
    stack.envoy.assert_no_trap();
}

/// D04: fields of the upstream are replaced or kept, its Retry-After stays.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_upstream_are_replaced_or_kept() {
    let answer = Answer {
        status: 503,
        headers: [
            ("ratelimit", "\"theirs\";r=1"),
            ("ratelimit", "\"more\";r=2"),
            ("x-ratelimit-limit", "9"),
            ("retry-after", "77"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..Answer::default()
    };
    let mut plugin = per_key("p");
    plugin["headers"] = json!(["ietf", "x-ratelimit"]);
    let replacing = stack(10, plugin.clone(), None).await;
    replacing.upstream.answer(answer.clone());
    let got = replacing.get("/", &[("x-api-key", "k")]).await;
    assert!(got.header("ratelimit").unwrap().starts_with("\"p\";r=9;"));
    assert_eq!(got.header("x-ratelimit-limit").as_deref(), Some("10"));
    assert_eq!((got.status, got.header("retry-after").as_deref()), (503, Some("77")));

    plugin["upstream_headers"] = json!("keep");
    let keeping = stack(10, plugin, None).await;
    keeping.upstream.answer(answer);
    let got = keeping.get("/", &[("x-api-key", "k")]).await;
    assert_eq!(got.all("ratelimit"), ["\"theirs\";r=1", "\"more\";r=2"]);
    assert_eq!(got.header("x-ratelimit-limit").as_deref(), Some("9"));
    assert_eq!(got.header("x-ratelimit-remaining"), None);
}

/// D08: HEAD is a request like any other; a refused one leaves the connection in order.
#[tokio::test(flavor = "multi_thread")]
async fn head_counts_and_its_refusal_has_no_body() {
    let stack = stack(5, per_key("p"), None).await;
    let key = [("x-api-key", "k")];
    let mut connection = Connection::open(&stack.envoy.address()).await;
    for method in [Method::GET, Method::HEAD, Method::GET, Method::HEAD, Method::PATCH] {
        let answer = connection.try_send(method.clone(), "/", &key, Default::default()).await.unwrap();
        assert_eq!(answer.status, 200, "{method}");
    }
    let refused = connection.try_send(Method::HEAD, "/", &key, Default::default()).await.unwrap();
    assert_eq!((refused.status, refused.body.len()), (429, 0));
    assert!(refused.header("retry-after").is_some() && refused.header("ratelimit").is_some());
    let next = connection.get("/", &key).await;
    assert_eq!((next.status, next.json()["status"].clone()), (429, json!(429)), "the connection is in step");
}

/// C10: one whole answer a request, whether or not its body has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_one_answer_also_while_the_body_arrives() {
    let stack = stack(1, per_key("p"), None).await;
    let key = [("x-api-key", "k")];
    let body = vec![b'x'; 300_000];
    let first = send(Method::POST, &stack.envoy.url("/"), &key, body.clone().into()).await;
    assert_eq!(first.status, 200);
    for _ in 0..20 {
        let refused = send(Method::POST, &stack.envoy.url("/"), &key, body.clone().into()).await;
        assert_eq!(refused.status, 429);
        assert!(refused.header("ratelimit").is_some());
    }
    let h2 = H2::connect(&stack.envoy.address()).await;
    let refused = h2.get("/", &key).await;
    assert_eq!((refused.status, refused.json()["title"].clone()), (429, json!("Quota exceeded")));
    assert_eq!(stack.upstream.count(), 1);
    stack.envoy.assert_no_trap();
}

/// Methods and hosts decide which rule a request meets; what no rule is for passes.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_matching_rule_decides() {
    let limits = json!([{ "policy": "p", "key": [{ "literal": "all" }] }]);
    let plugin = json!({ "rules": [
        { "name": "partners", "match": { "hosts": ["*.partner.example"] }, "skip": true },
        { "name": "writes", "match": { "path": { "prefix": "/api/" }, "methods": ["POST", "PUT"] }, "limits": limits },
    ] });
    let stack = stack(1, plugin, None).await;
    let post = async |path: &str, host: &str| {
        send(Method::POST, &stack.envoy.url(path), &[("host", host)], Default::default()).await.status
    };
    assert_eq!(post("/api/x", "api.example.com").await, 200);
    assert_eq!(post("/api/x", "api.example.com").await, 429);
    assert_eq!(post("/api/x", "a.PARTNER.example:80").await, 200);
    assert_eq!(post("/other", "api.example.com").await, 200);
    assert_eq!(stack.get("/api/x", &[]).await.status, 200);
    assert_eq!(stack.envoy.stat("wasmcustom.weir.rule.writes.outcome.refused").await, 1);
    assert_eq!(stack.envoy.stat("wasmcustom.weir.rule.writes.outcome.allowed").await, 1);
}

/// A month has no one length: its policy is named without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_calendar_window_is_told_without_a_length() {
    let stack = Stack::start(Options {
        policies: "[{name: p, algorithm: fixed_window, limit: 5, window: month, time_zone: Europe/Berlin}]".to_owned(),
        plugin: Some(per_key("p")),
        ..Options::default()
    })
    .await;
    assert_eq!(stack.burst("/", &[("x-api-key", "k")], 8).await, [(200, 5), (429, 3)].into());
    let refused = stack.get("/", &[("x-api-key", "k")]).await;
    assert_eq!(refused.header("ratelimit-policy").as_deref(), Some("\"p\";q=5"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=31 * 24 * 3600 + 3600).contains(&wait), "{wait}");
    let keys = stack.redis().keys().await;
    assert_eq!(keys, ["weir:1:{k}:p:fw:month@Europe/Berlin"]);
}
