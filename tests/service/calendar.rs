//! Quotas by day, week and month.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::{Redis, Service, Store, eventually};
use serde_json::{Value, json};

use crate::support::{allowed, check_of, in_memory, on_redis};

const DAY_MS: u64 = 86_400_000;
/// What an answer may be late by on a loaded machine.
const SLACK_MS: u64 = 30_000;

/// A time zone without daylight saving.
struct Zone {
    name: &'static str,
    offset_ms: u64,
}

/// One in which no day ends during a test.
fn zone() -> Zone {
    [("UTC", 0), ("Asia/Kolkata", 19_800_000)]
        .map(|(name, offset_ms)| Zone { name, offset_ms })
        .into_iter()
        .find(|zone| (now_ms() + zone.offset_ms) % DAY_MS < DAY_MS - 4 * SLACK_MS)
        .expect("they lie hours apart")
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(now.as_millis()).expect("a time")
}

impl Zone {
    /// Start and end of the current window, in milliseconds since the Unix epoch, by arithmetic of our own.
    fn window(&self, unit: &str) -> (u64, u64) {
        let today = (now_ms() + self.offset_ms) / DAY_MS;
        let (first, days) = match unit {
            "day" => (today, 1),
            // The epoch was a Thursday.
            "week" => (today - (today + 3) % 7, 7),
            "month" => {
                let (mut first, mut year, mut month) = (0, 1970, 0);
                loop {
                    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                    let february = if leap { 29 } else { 28 };
                    let days = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
                    if today < first + days {
                        break (first, days);
                    }
                    first += days;
                    month = (month + 1) % 12;
                    year += u64::from(month == 0);
                }
            }
            other => panic!("{other}"),
        };
        (first * DAY_MS - self.offset_ms, (first + days) * DAY_MS - self.offset_ms)
    }
}

fn policies(zone: &Zone) -> String {
    let policy = |unit, limit| {
        format!("{{name: {unit}, algorithm: fixed_window, limit: {limit}, window: {unit}, time_zone: {}}}", zone.name)
    };
    format!("[{}, {}, {}]", policy("day", 3), policy("week", 9), policy("month", 5))
}

async fn one(service: &Service, policy: &str, key: &str, cost: u64) -> Value {
    service.check(policy, key, cost).await.json()["limits"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_tell_the_windows_true_length_and_end() {
    let zone = zone();
    let test = async |service: &Service| {
        for unit in ["day", "week", "month"] {
            let (start, end) = zone.window(unit);
            let fresh = one(service, unit, "a", 0).await;
            assert_eq!(fresh["window_ms"], json!(end - start), "{unit}");
            assert_eq!((&fresh["calendar"], &fresh["reset_ms"]), (&json!(unit), &json!(0)));
            let limit = fresh["limit"].as_u64().expect("a limit");
            let before = now_ms();
            assert!(one(service, unit, "a", limit).await["allowed"] == true);
            let refused = one(service, unit, "a", 1).await;
            let after = now_ms();
            assert_eq!(refused["allowed"], false);
            for wait in ["reset_ms", "retry_after_ms"] {
                let wait = refused[wait].as_u64().expect("a wait");
                assert!((end - after..=end - before + 1).contains(&wait), "{unit}: {wait}");
            }
            assert_eq!(one(service, unit, "a", limit + 1).await["retry_after_ms"], json!(null));
        }
        // All or nothing, beside others.
        assert!(!allowed(
            &service.post_check(&check_of(&[("day", "b", 1), ("month", "a", 1), ("week", "b", 1)])).await
        ));
        assert_eq!(one(service, "day", "b", 0).await["remaining"], 3);
    };
    test(&in_memory(&policies(&zone)).await).await;
    let (service, _redis) = on_redis(&policies(&zone)).await;
    test(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_over_a_restart_and_between_replicas() {
    let zone = zone();
    let file = format!("store: {{ timeout: 2s }}\npolicies: {}\n", policies(&zone));
    let redis = Redis::start().await;
    let mut first = Service::start(&file, Store::Redis(&redis)).await;
    let second = Service::start(&file, Store::Redis(&redis)).await;
    for service in [&first, &second] {
        assert!(allowed(&service.post_check(&check_of(&[("month", "org_9921", 2), ("day", "org_9921", 1)])).await));
    }
    first.restart().await;
    assert_eq!(one(&first, "month", "org_9921", 0).await["remaining"], 1);
    assert!(!allowed(&first.check("month", "org_9921", 2).await));
    assert!(allowed(&first.check("month", "org_9921", 1).await));
    assert!(!allowed(&second.check("month", "org_9921", 1).await));

    let name = |unit: &str| format!("weir:1:{{org_9921}}:{unit}:fw:{unit}@{}", zone.name);
    assert_eq!(redis.keys().await, [name("day"), name("month")]);
    for unit in ["day", "month"] {
        let (_, end) = zone.window(unit);
        let expires: u64 = redis.command(&["PEXPIRETIME", &name(unit)]).await;
        assert!((end..=end + 1).contains(&expires), "{unit}: {expires}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_unit_or_zone_is_another_count() {
    let zone = zone();
    let file = |window: &str| format!("[{{name: p, algorithm: fixed_window, limit: 5, {window}}}]");
    let month = format!("window: month, time_zone: {}", zone.name);
    let (service, _redis) = on_redis(&file(&month)).await;
    let path = service.policy_path();
    let written: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("the policy file")).expect("the harness writes JSON");
    assert_eq!(one(&service, "p", "a", 2).await["remaining"], 3);
    for (window, time_zone, remaining) in [
        ("day", Some(zone.name), 5),
        ("month", Some("Europe/Berlin"), 5),
        ("30d", None, 5),
        ("month", Some(zone.name), 3),
    ] {
        let mut file = written.clone();
        let policy = &mut file["policies"][0];
        policy["window"] = json!(window);
        // Tells the files apart, and changes nothing else.
        policy["unit"] = json!(format!("{}-{remaining}", window.trim_start_matches("30")));
        match time_zone {
            Some(name) => policy["time_zone"] = json!(name),
            None => drop(policy.as_object_mut().expect("an object").remove("time_zone")),
        }
        let unit = policy["unit"].clone();
        fs::write(&path, file.to_string()).expect("the policy file");
        service.reload();
        let now = eventually("the changed file", Duration::from_secs(10), async || {
            let now = one(&service, "p", "a", 0).await;
            (now["unit"] == unit).then_some(now)
        })
        .await;
        assert_eq!(now["remaining"], remaining, "{window} {time_zone:?}");
        assert_eq!(now.get("calendar").is_some(), time_zone.is_some());
    }
}
