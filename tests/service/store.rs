//! Redis away, killed, paused, flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Connection, Redis, Response, Service, Store, eventually, free_port, get};
use http::Method;
use tokio::task::JoinSet;

use crate::support::check_of;

const POLICIES: &str = "policies: [{name: p, algorithm: token_bucket, limit: 999999999, window: 1d}]\n";
/// Above what a loaded test machine adds to an answer now and then.
const SLACK: Duration = Duration::from_millis(30);
/// Within it a Redis that is back must be used.
const RECOVERY: Duration = Duration::from_secs(3);

async fn start(redis: &Redis) -> Service {
    Service::start(&format!("store: {{ timeout: 25ms }}\n{POLICIES}"), Store::Redis(redis)).await
}

async fn timed(connection: &mut Connection) -> (Response, Duration) {
    let body = check_of(&[("p", "a", 1)]).to_string();
    let start = Instant::now();
    let response = connection
        .try_send(Method::POST, "/v1/check", &[("content-type", "application/json")], body.into())
        .await
        .expect("an answer");
    (response, start.elapsed())
}

async fn recovers(service: &Service) {
    eventually("checks work again", RECOVERY, async || (service.check("p", "a", 1).await.status == 200).then_some(()))
        .await;
}

/// Every answer came in time, but for a few that the machine held up.
fn assert_in_time(mut times: Vec<Duration>, deadline: Duration) {
    times.sort();
    let most = times[times.len() * 9 / 10];
    assert!(most <= deadline + SLACK, "nine of ten within {most:?}");
    let last = times.last().expect("some");
    assert!(*last <= deadline + Duration::from_secs(1), "the slowest took {last:?}");
}

fn assert_unavailable(response: &Response) {
    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(response.header("retry-after").as_deref(), Some("1"));
    assert_eq!(response.header("content-type").as_deref(), Some("application/problem+json"));
    assert_eq!(response.json()["type"], "urn:weir:problem:store-unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_starts_while_redis_is_away_and_uses_it_when_it_comes() {
    let port = free_port();
    let store = format!("store: {{ timeout: 25ms, redis: {{ url: \"redis://:hunter2@127.0.0.1:{port}\" }} }}\n");
    let service = Service::start(&format!("{store}{POLICIES}"), Store::AsWritten).await;
    let mut connection = Connection::open(&service.url("")).await;
    let mut times = Vec::new();
    for _ in 0..50 {
        let (response, took) = timed(&mut connection).await;
        assert_unavailable(&response);
        assert!(!response.text().contains("hunter2") && !response.text().contains(&port.to_string()));
        times.push(took);
    }
    assert_in_time(times, Duration::from_millis(25));
    let ready = get(&service.admin_url("/readyz"), &[]).await;
    assert_eq!((ready.status, &ready.json()["store"]["state"]), (200, &"down".into()));
    let log = service.log();
    assert!(log.contains("store is down"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    assert!(log.lines().count() < 50, "one line a second, not one a check:\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_work_once_redis_is_there() {
    let port = free_port();
    let store = format!("store: {{ timeout: 25ms, redis: {{ url: \"redis://127.0.0.1:{port}\" }} }}\n");
    let service = Service::start(&format!("{store}{POLICIES}"), Store::AsWritten).await;
    assert_unavailable(&service.check("p", "a", 1).await);
    let _redis = Redis::start_on(port).await;
    recovers(&service).await;
    assert_eq!(get(&service.admin_url("/readyz"), &[]).await.json()["store"]["state"], "up");
    assert!(service.log().contains("store is up"));
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_and_started_again_under_load() {
    let mut redis = Redis::start().await;
    let service = start(&redis).await;
    recovers(&service).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let (url, stop) = (service.url(""), Arc::clone(&stop));
        load.spawn(async move {
            let mut connection = Connection::open(&url).await;
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let (response, took) = timed(&mut connection).await;
                assert!([200, 503].contains(&response.status), "{}", response.text());
                times.push(took);
            }
            times
        });
    }
    for _ in 0..3 {
        redis.kill();
        eventually("checks fail", RECOVERY, async || (service.check("p", "a", 1).await.status == 503).then_some(()))
            .await;
        redis.restart().await;
        recovers(&service).await;
    }
    stop.store(true, Ordering::Relaxed);
    let times: Vec<Duration> = load.join_all().await.into_iter().flatten().collect();
    assert!(times.len() > 100, "{}", times.len());
    assert_in_time(times, Duration::from_millis(25));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_redis_holds_no_check_beyond_its_deadline() {
    let redis = Redis::start().await;
    let service = start(&redis).await;
    recovers(&service).await;
    redis.pause();
    let mut connection = Connection::open(&service.url("")).await;
    let mut times = Vec::new();
    // Longer than it takes to give the connection up and to fail to connect again.
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        let (response, took) = timed(&mut connection).await;
        assert_unavailable(&response);
        times.push(took);
    }
    assert_in_time(times, Duration::from_millis(25));
    let metrics = get(&service.admin_url("/metrics"), &[]).await.text();
    assert!(metrics.contains(r#"weir_store_errors_total{kind="timeout"}"#), "{metrics}");
    redis.resume();
    recovers(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_timed_out_is_charged_once_at_most() {
    let redis = Redis::start().await;
    let policies = "policies: [{name: p, algorithm: fixed_window, limit: 1000, window: 3660d}]\n";
    let service = Service::start(&format!("store: {{ timeout: 25ms }}\n{policies}"), Store::Redis(&redis)).await;
    recovers(&service).await;
    let mut connection = Connection::open(&service.url("")).await;
    let used = async || {
        let look = async || {
            let reply = service.check("p", "a", 0).await;
            (reply.status == 200).then(|| 1000 - reply.json()["limits"][0]["remaining"].as_u64().expect("a number"))
        };
        eventually("an answer", RECOVERY, look).await
    };
    let before = used().await;
    redis.pause();
    for _ in 0..20 {
        assert_unavailable(&timed(&mut connection).await.0);
    }
    redis.resume();
    let taken = used().await - before;
    assert!(taken <= 20, "{taken} taken by 20 checks");
}

/// As if a client had sent CLIENT KILL: the next check finds a new connection, not a dead one.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_is_noticed_without_a_check() {
    let redis = Redis::start().await;
    let service = start(&redis).await;
    recovers(&service).await;
    let () = redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    eventually("it is connected again", RECOVERY, async || {
        let clients: String = redis.command(&["CLIENT", "LIST", "TYPE", "normal"]).await;
        (clients.lines().count() >= 2).then_some(())
    })
    .await;
    recovers(&service).await;
    assert!(service.log().contains("closed by the server"), "{}", service.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn flushing_scripts_under_load_fails_no_check() {
    let redis = Redis::start().await;
    let service = Service::start(&format!("store: {{ timeout: 2s }}\n{POLICIES}"), Store::Redis(&redis)).await;
    recovers(&service).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for _ in 0..8 {
        let (url, stop) = (service.url(""), Arc::clone(&stop));
        load.spawn(async move {
            let mut connection = Connection::open(&url).await;
            let mut checks = 0;
            while !stop.load(Ordering::Relaxed) {
                let (response, _) = timed(&mut connection).await;
                assert_eq!(response.status, 200, "{}", response.text());
                checks += 1;
            }
            checks
        });
    }
    let end = Instant::now() + Duration::from_secs(1);
    let mut flushes = 0;
    while Instant::now() < end {
        let () = redis.command(&["SCRIPT", "FLUSH"]).await;
        flushes += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let checks: u64 = load.join_all().await.into_iter().sum();
    assert!(flushes > 10 && checks > 100, "{flushes} flushes, {checks} checks");
    let reply = service.check("p", "a", 0).await.json();
    let used = 999_999_999 - reply["limits"][0]["remaining"].as_u64().expect("a number");
    // The bucket refills 11 574 a millisecond, so it is only said that it is no more than was asked.
    assert!(used <= checks + 1, "{used} taken by {checks} checks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_refuses_access_is_told_so_in_the_log() {
    let redis = Redis::start().await;
    let url = redis.url().replace("redis://", "redis://:hunter2@");
    let store = format!("store: {{ redis: {{ url: \"{url}\" }} }}\n");
    let () = redis.command(&["CONFIG", "SET", "requirepass", "other"]).await;
    let service = Service::start(&format!("{store}{POLICIES}"), Store::AsWritten).await;
    eventually("it says so", RECOVERY, async || service.log().contains("access").then_some(())).await;
    assert_unavailable(&service.check("p", "a", 1).await);
    assert!(!service.log().contains("hunter2"), "{}", service.log());
}

/// As old servers, and proxies in front of a server, know it.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_resp3_is_a_store_too() {
    let redis = Redis::start().await;
    let () = redis.command(&["ACL", "SETUSER", "default", "-hello"]).await;
    let service = start(&redis).await;
    recovers(&service).await;
    let () = redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    recovers(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_no_store() {
    let redis = Redis::start().await;
    let service = start(&redis).await;
    recovers(&service).await;
    let () = redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_unavailable(&service.check("p", "a", 1).await);
    let metrics = get(&service.admin_url("/metrics"), &[]).await.text();
    assert!(metrics.contains(r#"weir_store_errors_total{kind="read_only"} 1"#), "{metrics}");
    let () = redis.command(&["REPLICAOF", "NO", "ONE"]).await;
    recovers(&service).await;
}
