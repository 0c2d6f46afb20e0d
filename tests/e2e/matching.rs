use std::time::Duration;

use harness::{Options, Stack, long_window};
use http::Method;
use serde_json::{Value, json};

use crate::support::{connection_manager, policy};

/// A rule on `match`, by the client's address, under a policy of one request; what it is not for passes.
async fn stack(matching: Value) -> Stack {
    let plugin = json!({ "rules": [{ "name": "some", "match": matching,
        "limits": [{ "policy": "p", "key": [{ "literal": "all" }] }] }] });
    let policies = policy("p", "fixed_window", 1, long_window(Duration::from_secs(60)));
    Stack::start(Options { policies, plugin: Some(plugin), edit: Some(Box::new(as_they_come)), ..Options::default() })
        .await
}

/// Envoy passes paths on as they come: the filter must do without its help.
fn as_they_come(config: &mut Value) {
    let manager = connection_manager(config);
    manager["normalize_path"] = json!(false);
    manager["merge_slashes"] = json!(false);
    manager["path_with_escaped_slashes_action"] = json!("KEEP_UNCHANGED");
}

/// Whether a request is for the rule, once the limit is used up.
async fn is_limited(stack: &Stack, path: &str, headers: &[(&str, &str)]) -> bool {
    match stack.get(path, headers).await.status {
        429 => true,
        200 => false,
        other => panic!("{path}: {other}"),
    }
}

/// No spelling of a path is a way around a rule, with nobody in front who would tidy it up.
#[tokio::test(flavor = "multi_thread")]
async fn spellings_of_a_path_are_one_path() {
    let spellings = [
        "/api/users",
        "/api//users",
        "//api/users",
        "/./api/users",
        "/x/../api/users",
        "/x/%2e%2E/api/users",
        "/%61pi/%75sers",
        "/api/users?a=/b",
        "/api/users#a",
    ];
    for matching in [
        json!({ "path": { "exact": "/api/users" } }),
        json!({ "path": { "prefix": "/api/" } }),
        json!({ "path": { "regex": "/a.i/[a-z]+" } }),
    ] {
        let stack = stack(matching.clone()).await;
        assert_eq!(stack.get("/api/users", &[]).await.status, 200);
        for path in spellings {
            // A fragment is refused by Envoy itself.
            let status = stack.get(path, &[]).await.status;
            assert!(status == 429 || (path.contains('#') && status == 400), "{matching} {path}: {status}");
        }
        for path in
            ["/", "/API/users", "/apis/users", "/x/api/users", "/a%2Fpi/users", "/api%2Fusers", "/api%252Fusers"]
        {
            assert!(!is_limited(&stack, path, &[]).await, "{matching} {path}");
        }
        assert_eq!(stack.upstream.seen().last().unwrap().path, "/api%252Fusers", "the path itself is not changed");
        stack.envoy.assert_no_trap();
    }
}

/// And the same goes for a key.
#[tokio::test(flavor = "multi_thread")]
async fn spellings_of_a_path_are_one_key() {
    let plugin = json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p",
        "key": [{ "path": {} }, { "path_segment": 2 }] }] }] });
    let policies = policy("p", "fixed_window", 3, long_window(Duration::from_secs(60)));
    let options = Options { policies, plugin: Some(plugin), edit: Some(Box::new(as_they_come)), ..Options::default() };
    let stack = Stack::start(options).await;
    for (path, expected) in [
        ("/v1/orgs", 200),
        ("/v1/x/../orgs", 200),
        ("/v1/%6Frgs?x", 200),
        ("/v1/./orgs", 429),
        ("/v1/orgs/", 200),
        ("/v1/org%2fs", 200),
    ] {
        assert_eq!(stack.get(path, &[]).await.status, expected, "{path}");
    }
    let keys = stack.redis().keys().await;
    for key in ["{path=/v1/orgs,seg.2=orgs}", "{path=/v1/org%25252Fs,seg.2=org%25252Fs}"] {
        assert!(keys.iter().any(|known| known.contains(key)), "{key}: {keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_parameters_choose_a_rule() {
    let stack = stack(json!({
        "methods": ["GET"],
        "hosts": ["*.example.org"],
        "headers": [{ "name": "X-Plan", "exact": "free" }, { "name": "x-trace", "present": false },
            { "name": "user-agent", "regex": "(curl|wget)/.*" }],
        "query": [{ "name": "q", "prefix": "a b" }, { "name": "page", "present": true }],
    }))
    .await;
    let headers = [("host", "api.example.org"), ("x-plan", "free"), ("user-agent", "curl/8")];
    let target = "/?page=1&q=a+b+c";
    assert_eq!(stack.get(target, &headers).await.status, 200);
    for target in [target, "/?q=a%20b&page=2", "/x?%71=a%20b&page=0&page=1"] {
        assert!(is_limited(&stack, target, &headers).await, "{target}");
    }
    for target in ["/?page=1", "/?page=1&q=ab", "/?q=a+b", "/?page=&q=a+b"] {
        assert!(!is_limited(&stack, target, &headers).await, "{target}");
    }
    for (name, value) in
        [("host", "example.org"), ("x-plan", "paid"), ("x-trace", "1"), ("user-agent", "curl"), ("x-plan", "free,paid")]
    {
        let mut headers: Vec<_> = headers.iter().copied().filter(|(known, _)| *known != name).collect();
        headers.push((name, value));
        assert!(!is_limited(&stack, target, &headers).await, "{name}: {value}");
    }
    // A second line hides none of the first.
    let twice: Vec<_> = headers.iter().chain([&("x-plan", "paid")]).copied().collect();
    assert!(is_limited(&stack, target, &twice).await);
    let post = harness::send(Method::POST, &stack.envoy.url(target), &headers, "".into()).await;
    assert_eq!(post.status, 200);
    stack.envoy.assert_no_trap();
}

/// C24: one host by every spelling, over HTTP/1.1 and HTTP/2, and in an absolute target.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_one_host_by_every_version_of_http() {
    let plugin = json!({ "rules": [{ "name": "all", "match": { "hosts": ["API.example.com"] },
        "limits": [{ "policy": "p", "key": [{ "host": {} }] }] }] });
    let policies = policy("p", "fixed_window", 5, long_window(Duration::from_secs(60)));
    let stack = Stack::start(Options { policies, plugin: Some(plugin), ..Options::default() }).await;
    for host in ["API.example.com", "api.example.com", "api.example.com:443"] {
        assert_eq!(stack.get("/", &[("host", host)]).await.status, 200, "{host}");
    }
    let raw = async |head: &str| {
        let request = format!("{head}\r\nconnection: close\r\n\r\n");
        let answer = harness::raw(&stack.envoy.address(), request.as_bytes()).await;
        String::from_utf8_lossy(&answer).get(9..12).unwrap_or_default().to_owned()
    };
    // RFC 9112 section 3.2.2: of an absolute target and a Host, the target counts.
    assert_eq!(raw("GET http://api.example.com/ HTTP/1.1\r\nhost: other.example").await, "200");
    let h2 = harness::H2::connect(&stack.envoy.address()).await;
    assert_eq!(h2.for_host("api.example.com:10000").get("/", &[]).await.status, 200);
    assert_eq!(h2.for_host("API.EXAMPLE.com").get("/", &[]).await.status, 429);
    assert_eq!(raw("GET / HTTP/1.1\r\nhost: api.example.com.").await, "429");
    assert_eq!(stack.get("/", &[("host", "other.example")]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rule_that_matches_decides_among_hundreds() {
    let mut rules: Vec<Value> = (0..100)
        .map(|number| {
            json!({ "name": format!("exact-{number}"), "match": { "path": { "exact": format!("/static/{number}") } },
                "skip": true })
        })
        .collect();
    rules.insert(
        50,
        json!({ "name": "early", "match": { "path": { "prefix": "/static/7" } },
        "limits": [{ "policy": "p", "key": [{ "literal": "early" }] }] }),
    );
    rules.push(json!({ "name": "rest", "limits": [{ "policy": "p", "key": [{ "literal": "rest" }] }] }));
    let policies = policy("p", "fixed_window", 1, long_window(Duration::from_secs(60)));
    let plugin = json!({ "rules": rules });
    let stack = Stack::start(Options { policies, plugin: Some(plugin), ..Options::default() }).await;
    // Rule 7 stands before `early`, rule 70 after it.
    assert_eq!(stack.burst("/static/7", &[], 5).await, [(200, 5)].into());
    assert_eq!(stack.burst("/static/70", &[], 5).await, [(200, 1), (429, 4)].into());
    assert_eq!(stack.burst("/static/99", &[], 5).await, [(200, 5)].into());
    assert_eq!(stack.burst("/static/x", &[], 5).await, [(200, 1), (429, 4)].into());
}
