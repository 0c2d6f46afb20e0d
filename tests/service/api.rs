//! What callers see.

use std::time::Duration;

use harness::{Connection, H2, Response, eventually, get, send};
use http::Method;
use serde_json::json;

use crate::support::{Weir, allowed, check_of, in_memory, temporary};

const JSON: (&str, &str) = ("content-type", "application/json");
const POLICIES: &str = "[{name: one, algorithm: token_bucket, limit: 100, window: 1d, burst: 50, unit: tokens}]";

async fn post(url: &str, body: impl Into<String>) -> Response {
    send(Method::POST, url, &[JSON], body.into().into()).await
}

fn assert_problem(response: &Response, status: u16, detail: &str) {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("content-type").as_deref(), Some("application/problem+json"));
    let problem = response.json();
    assert_eq!(problem["status"], status, "{problem}");
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains(detail)), "{detail:?} is not in {problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_has_the_documented_members_and_no_other() {
    let service = in_memory(POLICIES).await;
    let reply = service.check("one", "a", 10).await;
    assert_eq!(reply.header("content-type").as_deref(), Some("application/json"));
    let mut reply = reply.json();
    let reset = reply["limits"][0]["reset_ms"].take();
    assert!(reset.as_u64().is_some_and(|ms| (1..=864_000).contains(&ms)), "{reset}");
    assert_eq!(
        reply,
        json!({ "allowed": true, "limits": [{
            "policy": "one", "allowed": true, "limit": 100, "burst": 50, "window_ms": 86_400_000, "unit": "tokens",
            "remaining": 40, "reset_ms": null, "retry_after_ms": 0,
        }] })
    );
}

/// A26: a cost that is no quantity is refused, and mints nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_is_a_400_that_names_the_field() {
    let service = in_memory(POLICIES).await;
    let url = service.url("/v1/check");
    let limit = |fields: &str| format!("{{\"limits\":[{{\"policy\":\"one\",\"key\":\"a\"{fields}}}]}}");
    let whole = "expected a whole number from 0 to 999999999999999";
    for cost in ["-1", "\"1\"", "1.5", "1.0", "true", "null", "[]", "9223372036854775808", "1000000000000000"] {
        let response = post(&url, limit(&format!(",\"cost\":{cost}"))).await;
        assert_problem(&response, 400, "limits[0].cost: ");
        assert!(response.text().contains(whole), "{cost}: {}", response.text());
    }
    for cost in ["1e400", "NaN", "Infinity", "18446744073709551616", "+1", "01", ""] {
        assert_problem(&post(&url, limit(&format!(",\"cost\":{cost}"))).await, 400, "");
    }
    let many: Vec<_> = (0..33).map(|number| json!({ "policy": "one", "key": number.to_string() })).collect();
    for (body, detail) in [
        (String::new(), "the body is no check"),
        ("{".into(), "the body is no check"),
        ("[]".into(), ""),
        ("{}".into(), "limits"),
        (r#"{"limits":null}"#.into(), "limits: "),
        (r#"{"limits":[]}"#.into(), "limits: expected 1 to 32 limits, found 0"),
        (json!({ "limits": many }).to_string(), "limits: expected 1 to 32 limits, found 33"),
        (r#"{"limits":[{"key":"a"}]}"#.into(), "limits[0]: missing field `policy`"),
        (r#"{"limits":[{"policy":"one"}]}"#.into(), "limits[0]: missing field `key`"),
        (r#"{"limits":[{"policy":"one","key":7}]}"#.into(), "limits[0].key: "),
        (r#"{"limits":[{"policy":"one","key":""}]}"#.into(), "limits[0].key: expected 1 to 4096 bytes, found 0"),
        (
            json!({ "limits": [{ "policy": "one", "key": "k".repeat(4097) }] }).to_string(),
            "limits[0].key: expected 1 to 4096 bytes, found 4097",
        ),
        (check_of(&[("one", "a", 1), ("one", "b", 1), ("one", "a", 2)]).to_string(), "limits[2]: "),
        (limit(",\"cost\":1,\"cost\":2"), "limits[0]: duplicate field `cost`"),
        (format!("{} x", limit("")), ""),
    ] {
        assert_problem(&post(&url, body).await, 400, detail);
    }
    let not_utf8 = b"{\"limits\":[{\"policy\":\"one\",\"key\":\"\xff\"}]}".to_vec();
    assert_problem(&send(Method::POST, &url, &[JSON], not_utf8.into()).await, 400, "");
    let reply = service.check("one", "a", 0).await.json();
    assert_eq!(reply["limits"][0]["remaining"], 50, "nothing of all that was charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_may_be_left_out_and_unknown_members_are_ignored() {
    let service = in_memory(POLICIES).await;
    let url = service.url("/v1/check");
    let reply = post(&url, r#"{"limits":[{"policy":"one","key":"a","later":1}],"later":{}}"#).await.json();
    assert_eq!(reply["limits"][0]["remaining"], 49);
    let reply = post(&url, r#"{"limits":[{"policy":"one","key":"a","cost":0}]}"#).await.json();
    assert_eq!(reply["limits"][0]["remaining"], 49);
    let largest = post(&url, r#"{"limits":[{"policy":"one","key":"a","cost":999999999999999}]}"#).await.json();
    assert_eq!((&largest["allowed"], &largest["limits"][0]["retry_after_ms"]), (&json!(false), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_failure_is_a_problem_too() {
    let service = in_memory(POLICIES).await;
    let url = service.url("/v1/check");
    let unknown = service.post_check(&check_of(&[("one", "a", 1), ("two", "a", 1)])).await;
    assert_problem(&unknown, 404, "limits[1].policy: no policy is named \"two\"");
    assert_eq!(unknown.json()["type"], "urn:weir:problem:unknown-policy");
    let look = service.check("one", "a", 0).await.json();
    assert_eq!(look["limits"][0]["remaining"], 50, "an unknown policy beside it charges nothing");
    assert_problem(&get(&service.url("/"), &[]).await, 404, "/v1/check");
    assert_problem(&get(&service.url("/v1/check/"), &[]).await, 404, "/v1/check");
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let response = send(method, &url, &[], "".into()).await;
        assert_problem(&response, 405, "POST");
        assert_eq!(response.header("allow").as_deref(), Some("POST"));
    }
    let body = check_of(&[("one", "a", 1)]).to_string();
    for headers in [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/jsonp")]] {
        let response = send(Method::POST, &url, headers, body.clone().into()).await;
        assert_problem(&response, 415, "application/json");
    }
    for value in ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=\"utf-8\""] {
        let response = send(Method::POST, &url, &[("content-type", value)], body.clone().into()).await;
        assert_eq!(response.status, 200, "{value}");
    }
    let long = format!("{body}{}", " ".repeat(1024 * 1024));
    assert_problem(&post(&url, long).await, 413, "1048576 bytes");
    let longest = format!("{body}{}", " ".repeat(1024 * 1024 - body.len()));
    assert_eq!(post(&url, longest).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_demanded_where_the_file_says_so() {
    let file = temporary(
        "token.yaml",
        "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\nauth: token\nstore: { memory: {} }\npolicies:\n  \
         - { name: one, algorithm: fixed_window, limit: 9, window: 1d }\n",
    );
    let weir = Weir::start(&file, &["--log-level", "debug"], &[("WEIR_TOKEN", "old-token,new-token")]);
    let url = format!("http://{}/v1/check", weir.check);
    let body = check_of(&[("one", "a", 1)]).to_string();
    for token in ["Bearer old-token", "Bearer new-token", "bearer new-token"] {
        let response = send(Method::POST, &url, &[JSON, ("authorization", token)], body.clone().into()).await;
        assert_eq!(response.status, 200, "{token}");
    }
    for headers in [
        &[JSON][..],
        &[JSON, ("authorization", "Bearer wrong")],
        &[JSON, ("authorization", "Basic old-token")],
        &[JSON, ("authorization", "Bearer old-token,new-token")],
    ] {
        let response = send(Method::POST, &url, headers, body.clone().into()).await;
        assert_problem(&response, 401, "bearer token");
        assert_eq!(response.header("www-authenticate").as_deref(), Some("Bearer"));
    }
    assert_eq!(get(&format!("http://{}/readyz", weir.admin), &[]).await.status, 200);
    assert!(!weir.log.join("\n").contains("-token"), "{:?}", weir.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_http2_connection_carries_a_thousand_checks_at_once() {
    let service = in_memory(POLICIES).await;
    let h2 = H2::connect(&service.url("")).await;
    let checks = (0..1000).map(|number| {
        let h2 = h2.clone();
        tokio::spawn(async move { h2.post_json("/v1/check", &check_of(&[("one", &number.to_string(), 1)])).await })
    });
    for check in checks.collect::<Vec<_>>() {
        assert!(allowed(&check.await.expect("no panic").expect("an answer")));
    }
}

/// A proxy resets every callout that times out; that is no attack.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_resets_does_not_end_the_connection() {
    let service = in_memory(POLICIES).await;
    let h2 = H2::connect(&service.url("")).await;
    for _ in 0..1000 {
        h2.start(Method::POST, "/v1/check", &[JSON]).await.expect("a stream").reset();
    }
    assert!(allowed(&h2.post_json("/v1/check", &check_of(&[("one", "a", 1)])).await.expect("an answer")));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_and_never_show_a_key() {
    let service = in_memory(
        "[{name: one, algorithm: fixed_window, limit: 1, window: 1d, overrides: [{key: vip, limit: unlimited}]}, \
         {name: dry, algorithm: fixed_window, limit: 1, window: 1d, mode: shadow}]",
    )
    .await;
    for (policy, key) in [("one", "a"), ("one", "a"), ("one", "vip"), ("dry", "a"), ("dry", "a"), ("none", "a")] {
        service.check(policy, key, 1).await;
    }
    let response = get(&service.admin_url("/metrics"), &[]).await;
    assert_eq!(response.status, 200);
    let metrics = response.text();
    for line in [
        r#"weir_checks_total{outcome="allowed"} 4"#,
        r#"weir_checks_total{outcome="refused"} 1"#,
        r#"weir_checks_total{outcome="error"} 1"#,
        r#"weir_limit_decisions_total{policy="one",outcome="refused"} 1"#,
        r#"weir_limit_decisions_total{policy="one",outcome="unlimited"} 1"#,
        r#"weir_limit_decisions_total{policy="dry",outcome="shadow_refused"} 1"#,
        r#"weir_http_requests_total{status="404",problem="unknown_policy"} 1"#,
        "weir_store_seconds_count 4",
        "weir_build_info{version=",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    assert!(!metrics.contains("vip"));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_are_served() {
    let service = in_memory(POLICIES).await;
    assert_eq!(get(&service.admin_url("/healthz"), &[]).await.status, 200);
    for (answer, status) in
        [(get(&service.admin_url("/nowhere"), &[]).await, 404), (post(&service.admin_url("/metrics"), "{}").await, 405)]
    {
        assert_eq!((answer.status, answer.json()["status"].clone()), (status, json!(status)));
        assert_eq!(answer.header("content-type").as_deref(), Some("application/problem+json"));
    }
    let ready = get(&service.admin_url("/readyz"), &[]).await.json();
    assert_eq!((&ready["ready"], &ready["policies"]), (&json!(true), &json!(1)));
    assert_eq!(ready["store"], json!({ "kind": "memory", "state": "up" }));
}

/// A client that breaks off in the middle harms nobody.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_is_no_harm() {
    let service = in_memory(POLICIES).await;
    for _ in 0..20 {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", service.check_port())).await.expect("connects");
        let half =
            b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{";
        tokio::io::AsyncWriteExt::write_all(&mut stream, half).await.expect("writes");
    }
    let mut connection = Connection::open(&service.url("")).await;
    eventually("it answers", Duration::from_secs(5), async || {
        let body = check_of(&[("one", "a", 1)]).to_string();
        connection.try_send(Method::POST, "/v1/check", &[JSON], body.into()).await.ok().filter(|r| r.status == 200)
    })
    .await;
}
