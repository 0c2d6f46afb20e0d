use std::time::{Duration, Instant};

use harness::{Service, until_edge};
use serde_json::json;
use tokio::time::{sleep, sleep_until};

use crate::support::{ALGORITHMS, allowed, on_redis};

/// A11: two requests a second for 30 s against 5 in 5 s. Refused ones do not push recovery away.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_keeps_trying_keeps_being_served() {
    let policies: Vec<_> = ALGORITHMS
        .iter()
        .map(|algorithm| json!({ "name": name(algorithm), "algorithm": algorithm, "limit": 5, "window": "5s" }))
        .collect();
    let (service, _redis) = on_redis(&json!(policies).to_string()).await;
    let mut served = ALGORITHMS.map(|_| Vec::new());
    let start = tokio::time::Instant::now();
    for half_second in 0..60 {
        sleep_until(start + Duration::from_millis(500) * half_second).await;
        for (algorithm, served) in ALGORITHMS.iter().zip(&mut served) {
            if allowed(&service.check(&name(algorithm), "a", 1).await) {
                served.push(start.elapsed());
            }
        }
    }
    for (algorithm, served) in ALGORITHMS.iter().zip(&served) {
        assert!((24..=36).contains(&served.len()), "{algorithm}: {served:?}");
        let longest = if *algorithm == "sliding_window_counter" { 10 } else { 6 };
        for pair in served.windows(2) {
            assert!(pair[1] - pair[0] <= Duration::from_secs(longest), "{algorithm}: {pair:?}");
        }
    }
}

/// A06: a full quota on either side of an edge, by Redis' real clock. The fixed window lets both through, the log one;
/// the counter adds what the share of the last window leaves, the bucket what was refilled.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_on_either_side_of_an_edge() {
    const WINDOW: Duration = Duration::from_secs(10);
    let policies: Vec<_> = ALGORITHMS
        .iter()
        .map(|algorithm| json!({ "name": name(algorithm), "algorithm": algorithm, "limit": 100, "window": "10s" }))
        .collect();
    let (service, _redis) = on_redis(&json!(policies).to_string()).await;
    let mut to_edge = until_edge(WINDOW);
    if to_edge < Duration::from_secs(2) {
        to_edge += WINDOW;
    }
    let edge = Instant::now() + to_edge;
    sleep(to_edge - Duration::from_millis(500)).await;
    for algorithm in ALGORITHMS {
        assert!(allowed(&service.check(&name(algorithm), "a", 100).await), "{algorithm}");
    }
    assert!(Instant::now() < edge, "this machine is too slow to tell");
    sleep(edge + Duration::from_millis(500) - Instant::now()).await;
    for algorithm in ALGORITHMS {
        let before = edge.elapsed();
        let admitted = drain(&service, &name(algorithm), 100).await;
        // The share of a moment between the two, for a machine that stalls in between.
        let (from, to) = (share(before), share(edge.elapsed()));
        let expected = match algorithm {
            "fixed_window" => 100..=100,
            "sliding_window_log" => 0..=0,
            "sliding_window_counter" => from.saturating_sub(1)..=to + 1,
            // And the half second before the edge.
            _ => (from + 4).saturating_sub(1)..=to + 7,
        };
        assert!(expected.contains(&admitted), "{algorithm}: {admitted}, expected {expected:?}");
    }
}

/// How many of 100 units of a window of 10 s so much time is.
fn share(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 100).expect("a short time").min(100)
}

/// Takes all there is, one by one, at most so many.
async fn drain(service: &Service, policy: &str, most: u64) -> u64 {
    let mut taken = 0;
    while taken < most && allowed(&service.check(policy, "a", 1).await) {
        taken += 1;
    }
    taken
}

fn name(algorithm: &str) -> String {
    algorithm.replace('_', "-")
}
