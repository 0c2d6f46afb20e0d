//! What limits mean, on both stores.

use std::time::Duration;

use harness::{Service, long_window, until_edge};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{ALGORITHMS, allowed, check_of, in_memory, on_redis};

/// Runs a test on both stores.
async fn on_both(policies: &str, test: impl AsyncFn(&Service)) {
    test(&in_memory(policies).await).await;
    let (service, _redis) = on_redis(policies).await;
    test(&service).await;
}

async fn remaining(service: &Service, policy: &str, key: &str) -> u64 {
    service.check(policy, key, 0).await.json()["limits"][0]["remaining"].as_u64().expect("a number")
}

fn window() -> &'static str {
    long_window(Duration::from_secs(60))
}

/// A reply whose times are only told to be there or not: the two stores are asked one after the other.
fn without_times(mut reply: Value) -> Value {
    for limit in reply["limits"].as_array_mut().expect("limits") {
        for time in ["reset_ms", "retry_after_ms"] {
            limit[time] = limit[time].as_u64().map(|ms| ms > 0).into();
        }
    }
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_redis_answer_alike() {
    let policies: Vec<String> = ALGORITHMS
        .iter()
        .map(|algorithm| {
            format!("{{name: {}, algorithm: {algorithm}, limit: 10, window: 90d}}", &algorithm.replace('_', "-"))
        })
        .collect();
    let policies = format!("[{}]", policies.join(", "));
    let memory = in_memory(&policies).await;
    let (on_redis, _redis) = on_redis(&policies).await;
    for cost in [0, 3, 8, 1, 6, 1, 11, 0, 999_999_999_999_999] {
        for pair in [["fixed-window", "token-bucket"], ["sliding-window-log", "sliding-window-counter"]] {
            for key in ["a", "b c", "{}"] {
                let check = check_of(&[(pair[0], key, cost), (pair[1], key, cost / 2)]);
                let (left, right) = (memory.post_check(&check).await.json(), on_redis.post_check(&check).await.json());
                assert_eq!(without_times(left), without_times(right), "{check}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refusal_charges_nothing_in_either_order() {
    let policies = format!(
        "[{{name: tight, algorithm: fixed_window, limit: 1, window: {0}}}, \
         {{name: wide, algorithm: token_bucket, limit: 10, window: 90d}}]",
        window()
    );
    on_both(&policies, async |service| {
        assert!(allowed(&service.check("tight", "a", 1).await));
        for order in [[("tight", "a", 1), ("wide", "a", 4)], [("wide", "a", 4), ("tight", "a", 1)]] {
            let reply = service.post_check(&check_of(&order)).await.json();
            assert_eq!(reply["allowed"], false);
            for (limit, (policy, ..)) in reply["limits"].as_array().expect("limits").iter().zip(order) {
                assert_eq!(limit["allowed"], policy == "wide", "each limit says what it would");
            }
            assert_eq!(remaining(service, "wide", "a").await, 10);
        }
        assert!(allowed(&service.post_check(&check_of(&[("wide", "a", 4), ("tight", "b", 1)])).await));
        assert_eq!(remaining(service, "wide", "a").await, 6);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overrides_are_for_their_key_alone() {
    let policies = format!(
        "[{{name: p, algorithm: fixed_window, limit: 1, window: {}, overrides: [{{key: vip, limit: 3}}, \
         {{key: staff, limit: unlimited}}]}}, \
         {{name: bucket, algorithm: token_bucket, limit: 10, burst: 5, window: 90d, overrides: [{{key: vip, limit: 100}}]}}]",
        window()
    );
    on_both(&policies, async |service| {
        for (key, limit) in [("anyone", 1), ("vip", 3)] {
            for _ in 0..limit {
                assert!(allowed(&service.check("p", key, 1).await), "{key}");
            }
            assert!(!allowed(&service.check("p", key, 1).await), "{key}");
        }
        let bucket = service.check("bucket", "vip", 0).await.json();
        assert_eq!((&bucket["limits"][0]["limit"], &bucket["limits"][0]["burst"]), (&json!(100), &json!(50)));
        let reply = service.check("p", "staff", 999_999_999_999_999).await.json();
        let unlimited = &reply["limits"][0];
        for (member, value) in [
            ("allowed", json!(true)),
            ("limit", json!(null)),
            ("remaining", json!(null)),
            ("reset_ms", json!(0)),
            ("retry_after_ms", json!(0)),
        ] {
            assert_eq!(unlimited[member], value, "{member}");
        }
        assert!(unlimited.as_object().expect("an object").contains_key("limit"), "null, not absent");
        // Beside a limit that refuses.
        let mixed = service.post_check(&check_of(&[("p", "staff", 1), ("p", "anyone", 1)])).await.json();
        assert_eq!(mixed["allowed"], false);
        assert_eq!(mixed["limits"][0]["limit"], json!(null));
        assert_eq!(mixed["limits"][1]["limit"], json!(1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlimited_bucket_says_so() {
    let service = in_memory("[{name: p, algorithm: token_bucket, limit: unlimited, window: 1m}]").await;
    let reply = service.check("p", "a", 1).await.json();
    assert_eq!(reply["limits"][0].get("burst"), Some(&json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_limit_reports_and_never_refuses() {
    let policies = format!(
        "[{{name: dry, algorithm: fixed_window, limit: 2, window: {0}, mode: shadow}}, \
         {{name: real, algorithm: fixed_window, limit: 4, window: {0}}}]",
        window()
    );
    on_both(&policies, async |service| {
        for number in 0..5 {
            let reply = service.post_check(&check_of(&[("dry", "a", 1), ("real", "a", 1)])).await.json();
            assert_eq!(reply["allowed"], number < 4, "only the enforced limit counts");
            let dry = &reply["limits"][0];
            assert_eq!((&dry["mode"], &dry["allowed"]), (&json!("shadow"), &json!(number < 2)));
            assert_eq!(reply["limits"][1].get("mode"), None);
        }
        // A refused check charges no shadow either.
        assert!(!allowed(&service.post_check(&check_of(&[("dry", "b", 1), ("real", "a", 1)])).await));
        assert_eq!(remaining(service, "dry", "b").await, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_limit_of_a_hundred_at_once() {
    let policies: Vec<String> = ALGORITHMS
        .iter()
        .map(|algorithm| {
            // A bucket that refills nothing to speak of meanwhile.
            let window = if *algorithm == "token_bucket" { "90d" } else { window() };
            format!("{{name: {}, algorithm: {algorithm}, limit: 30, window: {window}}}", algorithm.replace('_', "-"))
        })
        .collect();
    on_both(&format!("[{}]", policies.join(", ")), async |service| {
        for algorithm in ALGORITHMS {
            let mut checks = JoinSet::new();
            for _ in 0..100 {
                let (url, policy) = (service.url("/v1/check"), algorithm.replace('_', "-"));
                checks
                    .spawn(async move { allowed(&harness::post_json(&url, &check_of(&[(&policy, "one", 1)])).await) });
            }
            let admitted = checks.join_all().await.into_iter().filter(|allowed| *allowed).count();
            assert_eq!(admitted, 30, "{algorithm}");
        }
    })
    .await;
}

/// A17: two hundred clients, refused at as many moments of a window.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_as_told_gets_in() {
    let policies: Vec<String> = ALGORITHMS
        .iter()
        .map(|algorithm| format!("{{name: {algorithm}, algorithm: {algorithm}, limit: 2, window: 700ms}}"))
        .collect();
    on_both(&format!("[{}]", policies.join(", ")), async |service| {
        let clients = (0..50).flat_map(|client| ALGORITHMS.map(|algorithm| (client, algorithm)));
        let waits = clients.map(async |(client, algorithm)| {
            tokio::time::sleep(Duration::from_millis(29 * client)).await;
            let key = client.to_string();
            let wait = loop {
                let reply = service.check(algorithm, &key, 1).await.json();
                if reply["allowed"] == false {
                    break reply["limits"][0]["retry_after_ms"].as_u64().expect("a wait");
                }
            };
            assert!((1..=1400).contains(&wait), "{algorithm}: {wait}");
            tokio::time::sleep(Duration::from_millis(wait)).await;
            assert!(allowed(&service.check(algorithm, &key, 1).await), "{algorithm} after {wait} ms");
        });
        futures_util::future::join_all(waits).await;
    })
    .await;
}

/// The four algorithms under their own names, where nothing leaves during a test.
fn all_of_limit(limit: u64) -> String {
    let policies = ALGORITHMS.map(|algorithm| match algorithm {
        "token_bucket" => {
            format!("{{name: {algorithm}, algorithm: {algorithm}, limit: 1, window: 1h, burst: {limit}}}")
        }
        _ => format!("{{name: {algorithm}, algorithm: {algorithm}, limit: {limit}, window: {}}}", window()),
    });
    format!("[{}]", policies.join(", "))
}

/// A12: a request that is too heavy burns nothing of what was left.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_heavy_request_takes_nothing() {
    on_both(&all_of_limit(10), async |service| {
        for algorithm in ALGORITHMS {
            for (key, cost, times) in [("once", 5, 1), ("often", 1_000_000, 10)] {
                assert!(allowed(&service.check(algorithm, key, 8).await), "{algorithm}");
                for _ in 0..times {
                    let reply = service.check(algorithm, key, cost).await.json();
                    assert_eq!((&reply["allowed"], &reply["limits"][0]["remaining"]), (&json!(false), &json!(2)));
                }
                let reply = service.check(algorithm, key, 1).await.json();
                assert_eq!((&reply["allowed"], &reply["limits"][0]["remaining"]), (&json!(true), &json!(1)));
            }
        }
    })
    .await;
}

/// A25: a cost of 0 looks, no cost is 1, and who looks at an exhausted limit is told so and not refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_cost_of_zero_is_not_one() {
    on_both(&all_of_limit(3), async |service| {
        for algorithm in ALGORITHMS {
            let mut said = Vec::new();
            for cost in [0; 10].into_iter().chain([1, 1, 1, 0]) {
                let reply = service.check(algorithm, "a", cost).await.json();
                said.push((reply["allowed"].clone(), reply["limits"][0]["remaining"].as_u64().expect("a number")));
            }
            let expected = [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1, 0, 0].map(|remaining| (json!(true), remaining));
            assert_eq!(said, expected, "{algorithm}");
            let without = json!({ "limits": [{ "policy": algorithm, "key": "a" }] });
            assert!(!allowed(&service.post_check(&without).await), "{algorithm}");
        }
    })
    .await;
}

/// A14: a bucket is remembered until it is full, not for the time of one unit. A unit a second, three at most.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_bucket_refills_no_faster_than_its_rate() {
    let (service, redis) = on_redis("[{name: p, algorithm: token_bucket, limit: 1, window: 1s, burst: 3}]").await;
    assert!(allowed(&service.check("p", "a", 3).await));
    let ttl: i64 = redis.command(&["PTTL", &redis.keys().await[0]]).await;
    assert!((1500..=3001).contains(&ttl), "{ttl}");
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let reply = service.check("p", "a", 2).await.json();
    assert_eq!((&reply["allowed"], &reply["limits"][0]["remaining"]), (&json!(true), &json!(0)));
    let wait = service.check("p", "a", 1).await.json()["limits"][0]["retry_after_ms"].as_u64().expect("a wait");
    assert!((1..=900).contains(&wait), "{wait}");
}

/// A15, A31: windows of years, and rates of a unit a month: waits and lifetimes are true, nothing wraps.
#[tokio::test(flavor = "multi_thread")]
async fn long_windows_are_as_long_as_they_say() {
    const DAY_MS: u64 = 86_400_000;
    let days = [25, 30, 366, 3650, 3660];
    let policies: Vec<_> = days
        .iter()
        .flat_map(|days| ALGORITHMS.map(|algorithm| json!({ "name": format!("{algorithm}-{days}"), "algorithm": algorithm, "limit": 1, "window": format!("{days}d") })))
        .collect();
    let (service, redis) = on_redis(&json!(policies).to_string()).await;
    for days in days {
        for algorithm in ALGORITHMS {
            let policy = format!("{algorithm}-{days}");
            assert!(allowed(&service.check(&policy, "a", 1).await), "{policy}");
            let reply = service.check(&policy, "a", 1).await.json();
            assert_eq!(reply["allowed"], false, "{policy}");
            let wait = reply["limits"][0]["retry_after_ms"].as_u64().expect("a wait");
            let window = days * DAY_MS;
            let left = u64::try_from(until_edge(Duration::from_millis(window)).as_millis()).expect("a window");
            let (wait_of, life_of) = match algorithm {
                "fixed_window" => (left, left),
                "sliding_window_counter" => (left + window, left + window),
                _ => (window, window),
            };
            assert!(wait.abs_diff(wait_of) < 2000, "{policy}: {wait} of {wait_of}");
            let stored = redis.keys().await;
            let key = stored.iter().find(|key| key.contains(&format!(":{policy}:"))).expect("its state");
            let life: u64 = redis.command(&["PTTL", key]).await;
            assert!(life.abs_diff(life_of) < 2000, "{policy}: {life} of {life_of}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_any_bytes_are_told_apart_and_share_a_slot_by_client() {
    let policies = format!(
        "[{{name: p, algorithm: fixed_window, limit: 1, window: {0}}}, {{name: q, algorithm: token_bucket, limit: 1, window: 90d}}]",
        window()
    );
    let (service, redis) = on_redis(&policies).await;
    let long = "k".repeat(4096);
    let keys = ["a", "A", "a}", "{a", "{a}", "a%7D", "a b", "a\u{0}b", "a\r\nb", "ключ", "}:p:fw:1", &long, &long[1..]];
    for key in keys {
        assert!(allowed(&service.post_check(&check_of(&[("p", key, 1), ("q", key, 1)])).await), "{key:?}");
    }
    let stored = redis.keys().await;
    assert_eq!(stored.len(), 2 * keys.len(), "{stored:?}");
    let tag =
        |name: &String| name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag.to_owned());
    let tags: std::collections::BTreeSet<_> = stored.iter().map(tag).collect();
    assert_eq!(tags.len(), keys.len(), "one slot a client: {tags:?}");
    for name in &stored {
        assert!(name.starts_with("weir:1:{") && name.len() <= 256 && name.is_ascii(), "{name}");
        assert!(redis.command::<i64>(&["PTTL", name]).await > 0, "{name}");
    }
}
