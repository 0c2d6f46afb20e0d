use std::time::{Duration, Instant};

use harness::{Redis, Service, Store, eventually};
use serde_json::json;

use crate::support::{ALGORITHMS, allowed};

const LIMIT: u64 = 4;
const WINDOW: Duration = Duration::from_secs(8);
const RECONNECTED: Duration = Duration::from_secs(20);

/// A16: a replica whose clock is behind takes over. Nobody's quota is full again at once, nobody has less than none, and
/// nobody is locked out for as long as the clock is behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_clock_that_is_behind_neither_refills_nor_locks_out() {
    tokio::join!(fail_over(-5), fail_over(-3600));
}

async fn fail_over(offset_s: i64) {
    let mut master = Redis::start().await;
    let mut replica = Redis::start_with_clock_off(offset_s).await;
    replica.replicate(&master).await;
    let (master_s, replica_s) = (time_s(&master).await, time_s(&replica).await);
    assert!((master_s + offset_s - replica_s).abs() <= 2, "{master_s}, {replica_s}: the clock is not set off");

    let policies: Vec<_> = ALGORITHMS
        .iter()
        .map(|algorithm| {
            json!({ "name": algorithm.replace('_', "-"), "algorithm": algorithm, "limit": LIMIT, "window": "8s" })
        })
        .collect();
    let file = json!({ "store": { "timeout": "2s" }, "policies": policies }).to_string();
    let service = Service::start(&file, Store::Redis(&master)).await;
    let names: Vec<String> = ALGORITHMS.iter().map(|algorithm| algorithm.replace('_', "-")).collect();
    // A fresh window for the aligned ones: they are used up and failed over inside of it.
    tokio::time::sleep(harness::until_edge(WINDOW)).await;
    for name in &names {
        assert!(allowed(&service.check(name, "a", LIMIT).await), "{name}");
        assert!(!allowed(&service.check(name, "a", LIMIT).await), "{name}");
    }
    master.replicated().await;
    replica.take_over(&mut master).await;
    eventually("a verdict", RECONNECTED, async || {
        (service.check("fixed-window", "other", 0).await.status == 200).then_some(())
    })
    .await;
    let taken_over = Instant::now();

    for name in &names {
        let reply = service.check(name, "a", LIMIT).await;
        assert!(!allowed(&reply), "{name}, {offset_s} s: all of it is back at once");
        let limit = &reply.json()["limits"][0];
        assert!(limit["remaining"].as_u64().expect("a number") < LIMIT, "{limit}");
        let wait = limit["retry_after_ms"].as_u64().expect("a wait");
        // A counter's last unit leaves with the end of the next window.
        let windows = if name == "sliding-window-counter" { 2 } else { 1 };
        assert!(wait <= windows * 8000, "{name}, {offset_s} s: {wait} ms");
    }
    // Whoever waits as long as it was told is admitted; and every answer on the way is a verdict.
    for name in &names {
        eventually(name, 3 * WINDOW, async || allowed(&service.check(name, "a", 1).await).then_some(())).await;
    }
    let recovered = taken_over.elapsed();
    assert!(recovered < 3 * WINDOW, "{offset_s} s: {recovered:?}");
}

async fn time_s(redis: &Redis) -> i64 {
    let time: (String, String) = redis.command(&["TIME"]).await;
    time.0.parse().expect("seconds")
}
