//! Many processes, connections and keys at once: what is admitted is exactly what the limits say.
//!
//! Windows are of about an hour and far from an edge, and buckets refill one unit an hour: nothing leaves meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use harness::{Connection, H2, Redis, Service, Store, long_window};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{ALGORITHMS, allowed, check_of};

const JSON: (&str, &str) = ("content-type", "application/json");

/// Checks that are all alike: so many of them, of which so many are admitted, by these limits.
struct Group {
    check: Value,
    count: usize,
    admitted: usize,
}

/// A policy for each algorithm, named for it, of this limit.
fn policies(limit: u64) -> Vec<Value> {
    let window = long_window(Duration::from_secs(5 * 60));
    ALGORITHMS
        .iter()
        .map(|algorithm| match *algorithm {
            "token_bucket" => {
                json!({ "name": algorithm, "algorithm": algorithm, "limit": 1, "window": "1h", "burst": limit })
            }
            _ => json!({ "name": algorithm, "algorithm": algorithm, "limit": limit, "window": window }),
        })
        .collect()
}

/// So many processes that share a Redis, started at once.
async fn processes(count: usize, policies: &[Value], redis: &Redis) -> Vec<Service> {
    let file = json!({ "store": { "timeout": "10s" }, "policies": policies }).to_string();
    join_all((0..count).map(|_| Service::start(&file, Store::Redis(redis)))).await
}

/// Sends all checks at once, each process its part of each group over a few connections of either version of HTTP;
/// returns how many of each group were admitted.
async fn released_at_once(services: &[Service], groups: &[Group]) -> Vec<usize> {
    const CONNECTIONS: usize = 4;
    let total = services.len() * CONNECTIONS;
    let mut parts: Vec<Vec<(usize, Value)>> = vec![Vec::new(); total];
    let checks = groups.iter().enumerate().flat_map(|(group, of)| std::iter::repeat_n((group, &of.check), of.count));
    for (number, (group, check)) in checks.enumerate() {
        parts[number % total].push((group, check.clone()));
    }
    let barrier = Arc::new(Barrier::new(total));
    let mut tasks = JoinSet::new();
    for (number, part) in parts.into_iter().enumerate() {
        let url = services[number / CONNECTIONS].url("");
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            let mut admitted = Vec::new();
            if number % 2 == 0 {
                let mut connection = Connection::open(&url).await;
                barrier.wait().await;
                for (group, check) in part {
                    let answer =
                        connection.try_send(Method::POST, "/v1/check", &[JSON], check.to_string().into()).await;
                    admitted.push((group, allowed(&answer.expect("an answer"))));
                }
            } else {
                let connection = H2::connect(&url).await;
                barrier.wait().await;
                let streams = part.into_iter().map(|(group, check)| {
                    let connection = connection.clone();
                    async move {
                        (group, allowed(&connection.post_json("/v1/check", &check).await.expect("an answer")))
                    }
                });
                admitted = join_all(streams).await;
            }
            admitted
        });
    }
    let mut counts = vec![0; groups.len()];
    for (group, admitted) in tasks.join_all().await.into_iter().flatten() {
        counts[group] += usize::from(admitted);
    }
    counts
}

async fn used(service: &Service, policy: &str, key: &str, limit: u64) -> u64 {
    let reply = service.check(policy, key, 0).await.json();
    limit - reply["limits"][0]["remaining"].as_u64().expect("a number")
}

async fn assert_all_expire(redis: &Redis) {
    let keys = redis.keys().await;
    assert!(!keys.is_empty());
    for key in keys {
        assert!(redis.command::<i64>(&["PTTL", &key]).await > 0, "{key}");
    }
}

/// A03: eight processes start in the same instant and are asked at once, on one key and on many, fifty times.
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_admit_exactly_what_the_limits_say() {
    const LIMIT: u64 = 25;
    let redis = Redis::start().await;
    let mut services = processes(8, &policies(LIMIT), &redis).await;
    for repeat in 0..50 {
        if repeat > 0 {
            join_all(services.iter_mut().map(Service::restart)).await;
        }
        let mut groups = Vec::new();
        let mut expected_use = BTreeMap::new();
        for algorithm in ALGORITHMS {
            // One key for all, and many of which each is asked a few times for more than one unit.
            let keys = std::iter::once((format!("all-{repeat}"), 1, 64))
                .chain((2..=6).map(|cost| (format!("some-{repeat}-{cost}"), cost, 14)));
            for (key, cost, count) in keys {
                let admitted = (LIMIT / cost).min(count);
                groups.push(Group {
                    check: check_of(&[(algorithm, &key, cost)]),
                    count: usize::try_from(count).expect("a count"),
                    admitted: usize::try_from(admitted).expect("a count"),
                });
                expected_use.insert((algorithm, key), admitted * cost);
            }
        }
        let counts = released_at_once(&services, &groups).await;
        for (group, admitted) in groups.iter().zip(counts) {
            assert_eq!(admitted, group.admitted, "repeat {repeat}: {}", group.check);
        }
        for (number, ((algorithm, key), expected)) in expected_use.into_iter().enumerate() {
            let service = &services[number % services.len()];
            assert_eq!(used(service, algorithm, &key, LIMIT).await, expected, "{algorithm}, {key}");
        }
    }
    assert_all_expire(&redis).await;
}

/// A30: limits that different checks share. What is admitted is the most that the shared one allows, and the limits of
/// the checks that were refused have lost nothing.
#[tokio::test(flavor = "multi_thread")]
async fn limits_shared_by_many_clients_are_charged_with_each_or_not_at_all() {
    const LIMIT: u64 = 25;
    let redis = Redis::start().await;
    let services = processes(3, &policies(LIMIT), &redis).await;
    for (own, shared) in [("token_bucket", "sliding_window_log"), ("sliding_window_counter", "fixed_window")] {
        let key = |client: usize| format!("{own}-{client}");
        let groups: Vec<Group> = (0..10)
            .map(|client| {
                let limits = [(own, &*key(client), 1), (shared, "shared", 2)];
                // In either order.
                let limits = if client % 2 == 0 { limits } else { [limits[1], limits[0]] };
                Group { check: check_of(&limits), count: 10, admitted: 0 }
            })
            .collect();
        let counts = released_at_once(&services, &groups).await;
        assert_eq!(counts.iter().sum::<usize>(), 12, "25 units are twelve times two: {counts:?}");
        assert_eq!(used(&services[0], shared, "shared", LIMIT).await, 24);
        for (client, admitted) in counts.into_iter().enumerate() {
            assert_eq!(used(&services[1], own, &key(client), LIMIT).await, admitted as u64, "client {client}");
        }
    }
}

/// A03: a thousand requests of three replicas onto one key.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_onto_one_key_admits_exactly_the_limit() {
    let redis = Redis::start().await;
    let services = processes(3, &policies(100), &redis).await;
    for algorithm in ALGORITHMS {
        let flood = Group { check: check_of(&[(algorithm, "flood", 1)]), count: 1000, admitted: 100 };
        assert_eq!(released_at_once(&services, &[flood]).await, [100], "{algorithm}");
    }
}

/// A01: each of fifty requests at once is an event of its own.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_instant_are_all_counted() {
    let redis = Redis::start().await;
    let services = processes(2, &policies(5), &redis).await;
    for repeat in 0..20 {
        let check = check_of(&[("sliding_window_log", &repeat.to_string(), 1)]);
        let group = Group { check, count: 50, admitted: 5 };
        assert_eq!(released_at_once(&services, &[group]).await, [5], "repeat {repeat}");
    }
}

/// A02: nothing in an event repeats between replicas that started together, nor after they started again.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_count_every_request() {
    let redis = Redis::start().await;
    let mut services = processes(4, &policies(1000), &redis).await;
    for expected in [100, 200] {
        let group = Group { check: check_of(&[("sliding_window_log", "key", 1)]), count: 100, admitted: 100 };
        assert_eq!(released_at_once(&services, &[group]).await, [100]);
        assert_eq!(used(&services[0], "sliding_window_log", "key", 1000).await, expected);
        join_all(services.iter_mut().map(Service::restart)).await;
    }
}

/// A29: a process that is killed in the middle of a check leaves no state without an expiry.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_kills_leave_no_state_that_lives_for_ever() {
    let redis = Redis::start().await;
    let mut service = processes(1, &policies(1000), &redis).await.remove(0);
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for client in 0..4 {
        let (url, stop) = (service.url(""), Arc::clone(&stop));
        load.spawn(async move {
            let mut answers = 0;
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut connection) = Connection::try_open(&url).await else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                };
                for number in 0.. {
                    let key = format!("{client}-{}", number % 50);
                    let limits = ALGORITHMS.map(|algorithm| (algorithm, &*key, 1));
                    let body = check_of(&limits).to_string();
                    if connection.try_send(Method::POST, "/v1/check", &[JSON], body.into()).await.is_err() {
                        break;
                    }
                    answers += 1;
                }
            }
            answers
        });
    }
    for _ in 0..100 {
        service.restart().await;
    }
    stop.store(true, Ordering::Relaxed);
    service.kill();
    let answers: u64 = load.join_all().await.into_iter().sum();
    assert!(answers > 100, "{answers}");
    assert_all_expire(&redis).await;
}
