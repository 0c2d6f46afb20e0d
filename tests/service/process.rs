//! Starting and ending.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::{Connection, H2, Redis, Service, Store, eventually, get, try_get};
use http::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::{ALGORITHMS, Weir, allowed, check_of, in_memory, run, temporary};

const POLICIES: &str = "[{name: p, algorithm: token_bucket, limit: 999999999, window: 1d}]";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_bad_policy_file_ends_with_64_and_all_its_mistakes() {
    let file = temporary("bad.yaml", "store: { memory: {} }\npolicies: [{ name: A, limit: 0, window: 1 }]\n");
    for arguments in [&["check-config"][..], &["serve", "--config"]] {
        let output = run(arguments, &file);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let lines: Vec<String> = text(&output.stderr).lines().map(ToOwned::to_owned).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        for (line, field) in lines.iter().zip(["name", "algorithm", "limit", "window"]) {
            assert!(line.starts_with(&format!("{}: policies[0].{field}: ", file.display())), "{line}");
        }
    }
    assert_eq!(run(&["check-config"], Path::new("/nonexistent/weir.yaml")).status.code(), Some(64));
}

#[test]
fn a_good_policy_file_is_ok() {
    let file = temporary("good.yaml", &format!("store: {{ memory: {{}} }}\npolicies: {POLICIES}\n"));
    let output = run(&["check-config"], &file);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("ok; 1 policy"), "{output:?}");
}

/// The log is exact, and has its price: whoever would pay it unknowingly is told, and not refused.
#[test]
fn a_log_that_could_grow_large_is_a_warning() {
    let policies = "[{name: audit, algorithm: sliding_window_log, limit: 2000000, window: 1d}, \
                     {name: small, algorithm: sliding_window_log, limit: 100000, window: 1d}]";
    let text = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\nstore: { memory: {} }\n";
    let file = temporary("large_log.yaml", &format!("{text}policies: {policies}\n"));
    let output = run(&["check-config"], &file);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(self::text(&output.stdout).contains("ok; 2 policies"), "{output:?}");
    let warnings = self::text(&output.stderr);
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    for word in ["warning: policy \"audit\"", "2000000", "34.0 MB", "sliding_window_counter"] {
        assert!(warnings.contains(word), "{word} is missing in {warnings}");
    }
    let weir = Weir::start(&file, &[], &[]);
    assert!(weir.log.iter().any(|line| line.contains("WARN") && line.contains("audit")), "{:?}", weir.log);
}

/// A27: a limit of nothing is a mistake, never no limit.
#[test]
fn zero_is_refused_with_every_algorithm() {
    for algorithm in ALGORITHMS {
        for numbers in
            ["limit: 0, window: 1m", "limit: 5, window: 0s", "limit: -1, window: 1m", "limit: 0.5, window: 1m"]
        {
            let policies = format!("[{{name: p, algorithm: {algorithm}, {numbers}}}]");
            let file = temporary("zero.yaml", &format!("store: {{ memory: {{}} }}\npolicies: {policies}\n"));
            for arguments in [&["check-config"][..], &["serve", "--config"]] {
                assert_eq!(run(arguments, &file).status.code(), Some(64), "{algorithm}, {numbers}");
            }
        }
    }
    for burst in ["0", "-3", "0.9"] {
        let policies = format!("[{{name: p, algorithm: token_bucket, limit: 5, window: 1s, burst: {burst}}}]");
        let file = temporary("zero_burst.yaml", &format!("store: {{ memory: {{}} }}\npolicies: {policies}\n"));
        let output = run(&["check-config"], &file);
        assert_eq!(output.status.code(), Some(64), "{burst}");
        assert!(text(&output.stderr).contains("policies[0].burst"), "{output:?}");
    }
}

#[test]
fn a_token_that_is_demanded_and_missing_ends_with_64() {
    let file = temporary("no_token.yaml", &format!("auth: token\nstore: {{ memory: {{}} }}\npolicies: {POLICIES}\n"));
    let output = run(&["serve", "--config"], &file);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(text(&output.stderr).contains("WEIR_TOKEN"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_named_with_its_field() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = taken.local_addr().expect("an address");
    for (field, lines) in [
        ("listen", format!("listen: {address}\nadmin: {{ listen: 127.0.0.1:0 }}\n")),
        ("admin.listen", format!("listen: 127.0.0.1:0\nadmin: {{ listen: {address} }}\n")),
    ] {
        let file = temporary(
            &format!("taken-{field}.yaml"),
            &format!("{lines}store: {{ memory: {{}} }}\npolicies: {POLICIES}\n"),
        );
        let output = run(&["serve", "--config"], &file);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let expected = format!("{field}: cannot listen on {address}");
        assert!(text(&output.stderr).contains(&expected), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_logs_are_json() {
    let file = temporary(
        "json.yaml",
        &format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nstore: {{ memory: {{}} }}\npolicies: {POLICIES}\n"
        ),
    );
    let weir = Weir::start(&file, &["--log-format", "json"], &[]);
    for line in &weir.log {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert_eq!(get(&format!("http://{}/readyz", weir.admin), &[]).await.status, 200);
}

/// Clients that leave when the readiness turns red, as a load balancer does, see no failed check.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_fails_no_check() {
    let mut service = in_memory(POLICIES).await;
    let red = Arc::new(AtomicBool::new(false));
    let checks = Arc::new(AtomicU64::new(0));
    let mut load = JoinSet::new();
    let h2 = H2::connect(&service.url("")).await;
    for _ in 0..4 {
        let (h2, red, checks) = (h2.clone(), Arc::clone(&red), Arc::clone(&checks));
        load.spawn(async move {
            while !red.load(Ordering::Relaxed) {
                assert!(allowed(&h2.post_json("/v1/check", &check_of(&[("p", "a", 1)])).await.expect("an answer")));
                checks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..4 {
        let (url, red, checks) = (service.url("/v1/check"), Arc::clone(&red), Arc::clone(&checks));
        load.spawn(async move {
            while !red.load(Ordering::Relaxed) {
                assert!(allowed(&harness::post_json(&url, &check_of(&[("p", "a", 1)])).await));
                checks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut kept = Connection::open(&service.url("")).await;
    eventually("load", Duration::from_secs(10), async || (checks.load(Ordering::Relaxed) > 100).then_some(())).await;
    let ready = service.admin_url("/readyz");
    let leaving = tokio::task::spawn_blocking(move || service.terminate());
    eventually("readiness turns red", Duration::from_secs(10), async || {
        try_get(&ready, &[]).await.ok().filter(|response| response.status == 503)
    })
    .await;
    // Still served, and asked to go elsewhere.
    let body = check_of(&[("p", "a", 1)]).to_string();
    let answer = kept.try_send(Method::POST, "/v1/check", &[("content-type", "application/json")], body.into()).await;
    let answer = answer.expect("an answer");
    assert!(allowed(&answer));
    assert_eq!(answer.header("connection").as_deref(), Some("close"));
    red.store(true, Ordering::Relaxed);
    load.join_all().await;
    assert_eq!(leaving.await.expect("no panic").code(), Some(0));
}

/// What was begun is finished, even after the listener is closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_under_way_is_answered_after_sigterm() {
    let redis = Redis::start().await;
    let file = format!("store: {{ timeout: 8s }}\npolicies: {POLICIES}\n");
    let mut service = Service::start(&file, Store::Redis(&redis)).await;
    assert!(allowed(&service.check("p", "a", 1).await));
    let url = service.url("/v1/check");
    redis.pause();
    let check = tokio::spawn(async move { harness::post_json(&url, &check_of(&[("p", "a", 1)])).await });
    let port = service.check_port();
    let leaving = tokio::task::spawn_blocking(move || service.terminate());
    eventually("the listener is closed", Duration::from_secs(10), async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err().then_some(())
    })
    .await;
    redis.resume();
    let answer = check.await.expect("no panic");
    assert!([200, 503].contains(&answer.status), "{}", answer.text());
    assert_eq!(leaving.await.expect("no panic").code(), Some(0));
}

/// An idle connection does not hold up the end.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_closed_at_the_end() {
    let mut service = in_memory(POLICIES).await;
    let h2 = H2::connect(&service.url("")).await;
    assert!(allowed(&h2.post_json("/v1/check", &check_of(&[("p", "a", 1)])).await.expect("an answer")));
    let _idle = Connection::open(&service.url("")).await;
    let start = Instant::now();
    let status = tokio::task::spawn_blocking(move || service.terminate()).await.expect("no panic");
    assert_eq!(status.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}
