//! What limits mean, on both stores.

use std::time::Duration;

use harness::{Service, long_window};
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

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_as_told_gets_in() {
    let policies: Vec<String> = ALGORITHMS
        .iter()
        .map(|algorithm| {
            format!("{{name: {}, algorithm: {algorithm}, limit: 2, window: 700ms}}", algorithm.replace('_', "-"))
        })
        .collect();
    on_both(&format!("[{}]", policies.join(", ")), async |service| {
        for algorithm in ALGORITHMS {
            let policy = algorithm.replace('_', "-");
            let wait = loop {
                let reply = service.check(&policy, "a", 1).await.json();
                if reply["allowed"] == false {
                    break reply["limits"][0]["retry_after_ms"].as_u64().expect("a wait");
                }
            };
            assert!((1..=1400).contains(&wait), "{algorithm}: {wait}");
            tokio::time::sleep(Duration::from_millis(wait)).await;
            assert!(allowed(&service.check(&policy, "a", 1).await), "{algorithm} after {wait} ms");
        }
    })
    .await;
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
