use std::time::{Duration, Instant};

use harness::{Options, Stack, long_window};
use serde_json::json;

use crate::support::{ALGORITHMS, per_key, policy};

const LIMIT: usize = 30;

async fn exactly_the_limit_passes(concurrency: u32) {
    for algorithm in ALGORITHMS {
        let window = long_window(Duration::from_secs(60));
        // A bucket that refills one an hour holds still like a window.
        let policies = match algorithm {
            "token_bucket" => {
                format!("[{{name: p, algorithm: token_bucket, limit: 1, window: 1h, burst: {LIMIT}}}]")
            }
            _ => policy("p", algorithm, LIMIT as u64, window),
        };
        let stack =
            Stack::start(Options { policies, plugin: Some(per_key("p")), concurrency, ..Options::default() }).await;
        for round in 0..3 {
            let key = format!("client-{round}");
            stack.upstream.forget();
            let statuses = stack.burst("/", &[("x-api-key", &key)], LIMIT + 20).await;
            assert_eq!(statuses, [(200, LIMIT), (429, 20)].into(), "{algorithm}, concurrency {concurrency}");
            assert_eq!(stack.upstream.count(), LIMIT, "what is refused never reaches the upstream");
        }
        stack.envoy.assert_no_trap();
    }
}

/// A03: the limit holds when all come at once.
#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_limit_passes_on_one_worker() {
    exactly_the_limit_passes(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_limit_passes_on_four_workers() {
    exactly_the_limit_passes(4).await;
}

/// A04, A05: limits of 1, 2 and 3, and what is left after each request.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_told_on_every_answer() {
    let policies: Vec<_> = ALGORITHMS
        .iter()
        .flat_map(|algorithm| (1..=3).map(move |limit| json!({ "name": format!("{algorithm}-{limit}"), "algorithm": algorithm, "limit": limit, "window": "30d" })))
        .collect();
    let rules: Vec<_> = policies
        .iter()
        .map(|policy| {
            let name = &policy["name"];
            json!({ "name": name, "match": { "path": { "exact": format!("/{}", name.as_str().unwrap()) } },
                    "limits": [{ "policy": name, "key": [{ "literal": "all" }] }] })
        })
        .collect();
    let stack = Stack::start(Options {
        policies: json!(policies).to_string(),
        plugin: Some(json!({ "rules": rules, "headers": ["x-ratelimit"] })),
        ..Options::default()
    })
    .await;
    for policy in &policies {
        let limit = policy["limit"].as_u64().unwrap();
        let path = format!("/{}", policy["name"].as_str().unwrap());
        for sent in 1..=limit + 2 {
            let answer = stack.get(&path, &[]).await;
            assert_eq!(answer.status, if sent <= limit { 200 } else { 429 }, "{path}, request {sent}");
            let left = limit.saturating_sub(sent).to_string();
            assert_eq!(answer.header("x-ratelimit-remaining"), Some(left), "{path}, request {sent}");
            assert_eq!(answer.header("x-ratelimit-limit"), Some(limit.to_string()));
        }
    }
}

/// A17: who waits exactly as long as the 429 says gets in.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_exactly_retry_after_gets_in() {
    let policies: Vec<_> = ALGORITHMS
        .iter()
        .map(|algorithm| json!({ "name": algorithm, "algorithm": algorithm, "limit": 3, "window": "2s" }))
        .collect();
    let rules: Vec<_> = ALGORITHMS
        .iter()
        .map(|algorithm| {
            json!({ "name": algorithm, "match": { "path": { "exact": format!("/{algorithm}") } },
                    "limits": [{ "policy": algorithm, "key": [{ "header": "x-api-key" }] }] })
        })
        .collect();
    let stack = Stack::start(Options {
        policies: json!(policies).to_string(),
        plugin: Some(json!({ "rules": rules })),
        ..Options::default()
    })
    .await;
    let clients = ALGORITHMS.iter().flat_map(|algorithm| (0..6).map(move |client| (algorithm, client)));
    let waits = clients.map(async |(algorithm, client)| {
        // Each at another moment of the window.
        tokio::time::sleep(Duration::from_millis(331 * client)).await;
        let (path, key) = (format!("/{algorithm}"), format!("client-{client}"));
        for round in 0..2 {
            let refused = loop {
                let answer = stack.get(&path, &[("x-api-key", &key)]).await;
                if answer.status == 429 {
                    break answer;
                }
            };
            let seen = Instant::now();
            let wait = refused.header("retry-after").expect("a Retry-After on a 429 that can pass");
            assert!(wait.chars().all(|c| c.is_ascii_digit()) && !wait.starts_with('0'), "{wait}");
            tokio::time::sleep_until((seen + Duration::from_secs(wait.parse().unwrap())).into()).await;
            let answer = stack.get(&path, &[("x-api-key", &key)]).await;
            assert_eq!(answer.status, 200, "{algorithm}, round {round}, after {wait} s: {}", answer.text());
        }
    });
    futures_util::future::join_all(waits).await;
}

/// A30: a request that one limit refuses costs nothing in the others, in either order.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_one_limit_charges_no_other() {
    let window = long_window(Duration::from_secs(60));
    for order in [["per-user", "global"], ["global", "per-user"]] {
        let policies = format!(
            "[{{name: per-user, algorithm: fixed_window, limit: 1, window: {window}}},
              {{name: global, algorithm: sliding_window_log, limit: 10, window: 1h}}]"
        );
        let limits = order.map(|policy| match policy {
            "global" => json!({ "policy": "global", "key": [{ "literal": "all" }] }),
            other => json!({ "policy": other, "key": [{ "header": "x-api-key" }] }),
        });
        let stack = Stack::start(Options {
            policies,
            plugin: Some(json!({ "rules": [{ "name": "all", "limits": limits }] })),
            ..Options::default()
        })
        .await;
        assert_eq!(stack.burst("/", &[("x-api-key", "A")], 20).await, [(200, 1), (429, 19)].into());
        for user in ["B", "C", "D", "E", "F", "G", "H", "I", "J"] {
            assert_eq!(stack.get("/", &[("x-api-key", user)]).await.status, 200, "{user}, {order:?}");
        }
        let full = stack.get("/", &[("x-api-key", "K")]).await;
        assert_eq!(full.json()["violated-policies"], json!(["global"]));
    }
}

/// A15, A31: the wait of a month is whole seconds in plain digits, and true.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_of_a_month_is_told_in_plain_digits() {
    let stack = Stack::start(Options {
        policies: "[{name: p, algorithm: token_bucket, limit: 1, window: 30d}]".into(),
        plugin: Some(per_key("p")),
        ..Options::default()
    })
    .await;
    assert_eq!(stack.get("/", &[("x-api-key", "a")]).await.status, 200);
    let refused = stack.get("/", &[("x-api-key", "a")]).await;
    assert_eq!(refused.status, 429);
    for field in ["retry-after", "ratelimit-reset"] {
        let value = refused.header(field).expect("on a 429");
        assert!(value.bytes().all(|byte| byte.is_ascii_digit()), "{field}: {value}");
        let seconds: u64 = value.parse().expect("a number");
        assert!((2_591_990..=2_592_000).contains(&seconds), "{field}: {value}");
    }
}
