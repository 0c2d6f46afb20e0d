//! The script as it ships, on Redis' own clock: counts, expiry, foreign values, memory.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis::{Connection, Pipeline, Value};
use weir_protocol::{CheckRequest, LimitRequest, MAX_QUANTITY, MAX_WINDOW_MS};
use weir_service::config::Config;
use weir_service::limiter::Limiter;
use weir_service::metrics::Metrics;
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::script;
use weir_service::store::{Charge, Decision, Store};

use crate::server::Server;

const ALL: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket];
const HOUR_MS: u64 = 3_600_000;

fn charge(key: &str, algorithm: Algorithm, limit: u64, window_ms: u64, cost: u64) -> Charge {
    let quota = Quota { algorithm, limit, window_ms, burst: limit };
    Charge { state_key: format!("{key}:{}", algorithm.code()), quota, cost, mode: Mode::Enforce }
}

fn add_check(pipeline: &mut Pipeline, charges: &[Charge]) {
    let (keys, args) = script::keys_and_args(charges);
    pipeline.cmd("EVALSHA").arg(script::sha1()).arg(keys.len()).arg(keys).arg(args);
}

fn load(connection: &mut Connection) {
    let sha1: String = redis::cmd("SCRIPT").arg("LOAD").arg(script::text()).query(connection).unwrap();
    assert_eq!(sha1, script::sha1());
}

fn check(connection: &mut Connection, charges: &[Charge]) -> Vec<Decision> {
    let mut pipeline = redis::pipe();
    add_check(&mut pipeline, charges);
    let replies: Vec<Value> = pipeline.query(connection).unwrap();
    script::decode(&replies[0], charges).unwrap()
}

fn one(connection: &mut Connection, charge: Charge) -> Decision {
    check(connection, &[charge])[0]
}

fn query<T: redis::FromRedisValue>(connection: &mut Connection, command: &str, key: &str) -> T {
    redis::cmd(command).arg(key).query(connection).unwrap()
}

/// Redis' own time, for windows that must not end during a test.
fn server_us(connection: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(connection).unwrap();
    seconds * 1_000_000 + micros
}

/// Aligned windows of an hour end now and then: waits, if one ends within 10 s, until it has.
fn away_from_an_edge(connection: &mut Connection) {
    while server_us(connection) % (HOUR_MS * 1000) > (HOUR_MS - 10_000) * 1000 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn pipelined_requests_are_all_counted() {
    // A01, A02, A03: whatever the clock's resolution, every admission is an event of its own.
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    away_from_an_edge(&mut connection);
    for algorithm in ALL {
        let charges = [charge("pipelined", algorithm, 50, HOUR_MS, 1)];
        let mut pipeline = redis::pipe();
        for _ in 0..200 {
            add_check(&mut pipeline, &charges);
        }
        let replies: Vec<Value> = pipeline.query(&mut connection).unwrap();
        let decisions: Vec<_> = replies.iter().map(|reply| script::decode(reply, &charges).unwrap()[0]).collect();
        assert_eq!(decisions.iter().filter(|decision| decision.allowed).count(), 50, "{algorithm:?}");
        let remaining: Vec<_> = decisions.iter().map(|decision| decision.remaining).collect();
        let expected: Vec<_> = (0..50).rev().chain(std::iter::repeat_n(0, 150)).collect();
        assert_eq!(remaining, expected, "{algorithm:?}");
    }
    // Header and events.
    assert_eq!(query::<u64>(&mut connection, "LLEN", "pipelined:sl"), 51);
}

#[test]
fn concurrent_connections_never_admit_more_than_the_limit() {
    // A03
    let server = Server::start();
    load(&mut server.connect());
    away_from_an_edge(&mut server.connect());
    for algorithm in ALL {
        let barrier = std::sync::Barrier::new(8);
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut connection = server.connect();
                        let charge = charge("concurrent", algorithm, 100, HOUR_MS, 1);
                        barrier.wait();
                        (0..50).filter(|_| one(&mut connection, charge.clone()).allowed).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 100, "{algorithm:?}");
    }
}

#[test]
fn refused_and_looking_requests_change_neither_value_nor_expiry() {
    // A11, A12, A25
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    away_from_an_edge(&mut connection);
    for algorithm in ALL {
        let of = |cost| charge("untouched", algorithm, 10, HOUR_MS, cost);
        let key = of(0).state_key;
        assert_eq!(one(&mut connection, of(0)).remaining, 10, "{algorithm:?}");
        assert_eq!(query::<u64>(&mut connection, "EXISTS", &key), 0, "a look leaves no state: {algorithm:?}");
        one(&mut connection, of(8));
        let state = |connection: &mut Connection| -> (Vec<u8>, u64) {
            (query(connection, "DUMP", &key), query(connection, "PEXPIRETIME", &key))
        };
        let before = state(&mut connection);
        for cost in [5, 1_000_000, 0, 3, MAX_QUANTITY] {
            let decision = one(&mut connection, of(cost));
            assert_eq!((decision.allowed, decision.remaining), (cost == 0, 2), "{algorithm:?}");
            assert_eq!(decision.retry_after_us.is_none(), cost > 10, "{algorithm:?}");
        }
        // Refused by another limit of the same request.
        let refusing = charge("refusing", Algorithm::FixedWindow, 1, HOUR_MS, 2);
        for charges in [[of(1), refusing.clone()], [refusing.clone(), of(1)]] {
            assert!(check(&mut connection, &charges).iter().any(|decision| !decision.allowed));
        }
        assert_eq!(query::<u64>(&mut connection, "EXISTS", &refusing.state_key), 0);
        assert_eq!(state(&mut connection), before, "{algorithm:?}");
        assert_eq!(one(&mut connection, of(1)).remaining, 1, "{algorithm:?}");
    }
}

#[test]
fn state_lives_as_long_as_its_content() {
    // A14, A15, A31, A32
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    for window_ms in [1000, HOUR_MS, 25 * 24 * HOUR_MS, MAX_WINDOW_MS] {
        for algorithm in ALL {
            let (limit, cost) = (3, 2);
            let charge = charge(&format!("lives:{window_ms}"), algorithm, limit, window_ms, cost);
            let key = charge.state_key.clone();
            let before = server_us(&mut connection);
            assert!(one(&mut connection, charge).allowed);
            let after = server_us(&mut connection);
            let expires: u64 = query(&mut connection, "PEXPIRETIME", &key);
            // From either end of the call to when the content expires, in ms; Redis keeps a key through that ms.
            let expected = |now_us: u64| match algorithm {
                Algorithm::FixedWindow => (now_us / 1000 / window_ms + 1) * window_ms,
                Algorithm::SlidingWindowCounter => (now_us / 1000 / window_ms + 2) * window_ms,
                Algorithm::CalendarWindow(_) => panic!("see calendar.rs"),
                Algorithm::SlidingWindowLog => now_us / 1000 + window_ms,
                Algorithm::TokenBucket => now_us / 1000 + (window_ms * 1000 * cost).div_ceil(limit * 1000),
            };
            // An aligned end is exact in µs; counted from a time within a ms and rounded up it may be the next ms.
            let range = expected(before)..=expected(after) + 1;
            assert!(range.contains(&expires), "{algorithm:?}, {window_ms}: {expires} in {range:?}");
        }
    }
    // 5000 units a second: full again after 200 µs, but never a state without expiry or an expiry of 0.
    let charge = charge("short", Algorithm::TokenBucket, 5, 1, 1);
    for _ in 0..2000 {
        one(&mut connection, charge.clone());
        let left: i64 = query(&mut connection, "PTTL", &charge.state_key);
        assert!(left == -2 || (0..=2).contains(&left), "{left}");
    }
}

#[test]
fn an_event_leaves_exactly_one_window_after_it() {
    // A09: asked without a pause. Bounds are Redis' own time on either side of each call.
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    const WINDOW_MS: u64 = 60;
    let charge = charge("half open", Algorithm::SlidingWindowLog, 1, WINDOW_MS, 1);
    let mut ask = || {
        let before = server_us(&mut connection);
        let decision = one(&mut connection, charge.clone());
        (before, decision, server_us(&mut connection))
    };
    let mut admitted = ask();
    assert!(admitted.1.allowed);
    for _ in 0..50 {
        loop {
            let asked = ask();
            if asked.1.allowed {
                assert!(asked.2 >= admitted.0 + WINDOW_MS * 1000, "too early: {asked:?} after {admitted:?}");
                admitted = asked;
                break;
            }
            assert!(asked.0 < admitted.2 + WINDOW_MS * 1000, "too late: {asked:?} after {admitted:?}");
            assert!(asked.1.retry_after_us > Some(0), "{asked:?}");
        }
    }
}

#[test]
fn fast_buckets_admit_their_rate_and_no_more() {
    // A32: a unit lives for less than a millisecond.
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    for (limit_per_ms, burst) in [(2, 5), (5, 1)] {
        let quota = Quota { algorithm: Algorithm::TokenBucket, limit: limit_per_ms, window_ms: 1, burst };
        let charges = [Charge { state_key: format!("fast:{burst}"), quota, cost: 1, mode: Mode::Enforce }];
        let start = server_us(&mut connection);
        let (mut admitted, mut elapsed_us) = (0, 0);
        while elapsed_us < 1_000_000 {
            let mut pipeline = redis::pipe();
            for _ in 0..100 {
                add_check(&mut pipeline, &charges);
            }
            let replies: Vec<Value> = pipeline.query(&mut connection).unwrap();
            admitted +=
                replies.iter().filter(|reply| script::decode(reply, &charges).unwrap()[0].allowed).count() as u64;
            elapsed_us = server_us(&mut connection) - start;
        }
        let most = burst + limit_per_ms * elapsed_us / 1000;
        assert!(admitted <= most, "{admitted} in {elapsed_us} µs, at most {most}");
        assert!(admitted > 100, "and it does refill: {admitted}");
    }
}

#[test]
fn a_missing_expiry_is_repaired_by_the_next_charge() {
    // A29
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    away_from_an_edge(&mut connection);
    for algorithm in ALL {
        let of = |cost| charge("repaired", algorithm, 10, HOUR_MS, cost);
        let key = of(0).state_key;
        one(&mut connection, of(2));
        assert_eq!(query::<u64>(&mut connection, "PERSIST", &key), 1);
        assert!(!one(&mut connection, of(9)).allowed);
        assert_eq!(one(&mut connection, of(1)).remaining, 7, "{algorithm:?}");
        assert!(query::<i64>(&mut connection, "PTTL", &key) > 0, "{algorithm:?}");
    }
}

#[test]
fn state_without_expiry_does_not_outlive_its_content() {
    // A29
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    for algorithm in ALL {
        let of = |cost| charge("outlived", algorithm, 2, 20, cost);
        let key = of(0).state_key;
        // Charge and persist until both happened within the lifetime of the state.
        while {
            one(&mut connection, of(2));
            query::<u64>(&mut connection, "PERSIST", &key) == 0
        } {}
        let deadline = server_us(&mut connection) + 40_000;
        while !one(&mut connection, of(2)).allowed {
            assert!(server_us(&mut connection) < deadline + 5_000_000, "{algorithm:?} locks its client out");
        }
        assert!(query::<i64>(&mut connection, "PTTL", &key) != -1, "{algorithm:?}");
    }
}

#[test]
fn foreign_values_count_as_absent_and_are_replaced_by_the_next_charge() {
    // A20: neither fails for ever nor admits without counting.
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    away_from_an_edge(&mut connection);
    let foreign: [&[&str]; 9] = [
        &["SET", "key", "7"],
        &["SET", "key", ""],
        &["SET", "key", "a string that is a good deal longer than any state"],
        &["HSET", "key", "field", "1"],
        &["ZADD", "key", "1", "1700000000"],
        &["RPUSH", "key", "1"],
        &["RPUSH", "key", "1", "2", "3"],
        &["RPUSH", "key", "fourteen bytes", "2", "3"],
        &["RPUSH", "key", "fourteen bytes", "an event", "3"],
    ];
    for algorithm in ALL {
        for value in foreign {
            let key = charge("foreign", algorithm, 3, HOUR_MS, 0).state_key;
            let mut command = redis::cmd(value[0]);
            command.arg(&key).arg(&value[2..]);
            redis::cmd("DEL").arg(&key).exec(&mut connection).unwrap();
            command.exec(&mut connection).unwrap();
            let decided: Vec<_> = [0, 4, 1, 1, 1, 1]
                .into_iter()
                .map(|cost| one(&mut connection, charge("foreign", algorithm, 3, HOUR_MS, cost)))
                .map(|decision| (decision.allowed, decision.remaining))
                .collect();
            assert_eq!(
                decided,
                [(true, 3), (false, 3), (true, 2), (true, 1), (true, 0), (false, 0)],
                "{algorithm:?} on {value:?}"
            );
            assert!(query::<i64>(&mut connection, "PTTL", &key) > 0);
        }
    }
}

#[test]
fn a_log_with_a_foreign_element_inside_fails_no_call_and_admits_no_more() {
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    away_from_an_edge(&mut connection);
    let of = |cost| charge("foreign", Algorithm::SlidingWindowLog, 5, HOUR_MS, cost);
    let key = of(0).state_key;
    let event = |time: u64, cumulated: u8| {
        let mut bytes = time.to_be_bytes()[1..].to_vec();
        bytes.push(cumulated);
        bytes
    };
    let now = server_us(&mut connection);
    let left = now - 2 * 3_600_000_000;
    // The odd one as the second live event, among those that have left, and where a search probes.
    for (times, odd) in
        [([now; 4], 1), ([left, left, now, now], 1), ([left, left, left, now], 2), ([left, now, now, now], 2)]
    {
        redis::cmd("DEL").arg(&key).exec(&mut connection).unwrap();
        let mut command = redis::cmd("RPUSH");
        command.arg(&key).arg(&[0u8; 14]);
        for (index, time) in times.into_iter().enumerate() {
            command.arg(if index == odd { b"x".to_vec() } else { event(time, index as u8 + 1) });
        }
        command.exec(&mut connection).unwrap();
        let mut admitted = 0;
        for cost in [0, 4, 5, 3, 1, 1, 1, 1, 1, 1] {
            admitted += if one(&mut connection, of(cost)).allowed { cost } else { 0 };
        }
        assert!(admitted <= 5, "{times:?} {odd}: {admitted}");
    }
}

#[test]
fn errors_of_the_server_are_raised_and_nothing_is_charged() {
    // Only a value of another type counts as absent: who may not read must not admit.
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    let charges = [
        charge("errors", Algorithm::SlidingWindowLog, 3, HOUR_MS, 1),
        charge("errors", Algorithm::FixedWindow, 3, HOUR_MS, 1),
    ];
    let error = |connection: &mut Connection| -> String {
        let mut pipeline = redis::pipe();
        add_check(&mut pipeline, &charges);
        pipeline.query::<Vec<Value>>(connection).unwrap_err().to_string()
    };

    let user = ["SETUSER", "weak", "reset", "on", ">password", "~*", "+@all", "-get"];
    redis::cmd("ACL").arg(&user).exec(&mut connection).unwrap();
    let mut weak = server.connect();
    redis::cmd("AUTH").arg("weak").arg("password").exec(&mut weak).unwrap();
    let message = error(&mut weak);
    assert!(message.contains("can't run this command"), "{message}");

    redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(&mut connection).unwrap();
    let message = error(&mut connection);
    assert!(message.contains("OOM"), "{message}");

    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap(), 0);
    redis::cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec(&mut connection).unwrap();
    assert!(check(&mut connection, &charges).iter().all(|decision| decision.remaining == 2));
}

#[test]
fn the_commands_in_the_readme_are_all_that_the_script_needs() {
    // B19: the user that an operator makes from the documentation.
    let readme = include_str!("../../../lua/README.md");
    let rights = readme.lines().find_map(|line| line.trim().strip_prefix("ACL SETUSER ")).unwrap();
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    redis::cmd("ACL").arg("SETUSER").arg(rights.split_whitespace().collect::<Vec<_>>()).exec(&mut connection).unwrap();
    let mut words = rights.split_whitespace();
    let user = words.next().unwrap();
    let password = words.find_map(|word| word.strip_prefix('>')).unwrap();
    redis::cmd("AUTH").arg(user).arg(password).exec(&mut connection).unwrap();
    for algorithm in ALL {
        let mut charge = charge("weir:1:{a}:p", algorithm, 4, 10, 1);
        // Charges that trim what has left the window, and one refusal at least.
        let decisions: Vec<_> = (0..200).map(|_| one(&mut connection, charge.clone())).collect();
        assert!(decisions.iter().any(|decision| !decision.allowed), "{algorithm:?}");
        std::thread::sleep(std::time::Duration::from_millis(25));
        assert!(one(&mut connection, charge.clone()).allowed, "{algorithm:?}");
        charge.state_key = "elsewhere".to_owned();
        let mut pipeline = redis::pipe();
        add_check(&mut pipeline, &[charge]);
        assert!(pipeline.exec(&mut connection).is_err(), "{algorithm:?}");
    }
}

#[test]
fn state_is_small() {
    let server = Server::start();
    let mut connection = server.connect();
    load(&mut connection);
    for algorithm in ALL {
        let key = format!("weir:1:{{org_9921}}:per-key:{}:60000", algorithm.code());
        let quota = Quota { algorithm, limit: MAX_QUANTITY, window_ms: HOUR_MS, burst: MAX_QUANTITY };
        let charges = [Charge { state_key: key.clone(), quota, cost: 1, mode: Mode::Enforce }];
        check(&mut connection, &charges);
        let one = memory(&mut connection, &key);
        println!("{}: {one} bytes", algorithm.code());
        if algorithm != Algorithm::SlidingWindowLog {
            assert!(one <= 120, "{algorithm:?}: {one} bytes");
            continue;
        }
        let mut pipeline = redis::pipe();
        for _ in 0..9_999 {
            add_check(&mut pipeline, &charges);
        }
        pipeline.exec(&mut connection).unwrap();
        let all = memory(&mut connection, &key);
        println!("{}: {all} bytes for 10 000 events, {} an event", algorithm.code(), all / 10_000);
        assert!(all <= 160_000, "{all} bytes for 10 000 events");
    }
}

fn memory(connection: &mut Connection, key: &str) -> u64 {
    redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query(connection).unwrap()
}

/// A16: replicas whose clocks are 10 s behind and 10 s ahead decide as one, by Redis' clock.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_wrong_clocks_decide_as_one() {
    let server = Server::start();
    server.connect();
    let file = format!(
        "{{store: {{redis: {{url: \"{}\"}}, timeout: 5s}}, policies: [
           {{name: bucket, algorithm: token_bucket, limit: 2, window: 1s, burst: 4}},
           {{name: fixed, algorithm: fixed_window, limit: 10, window: 1d}}]}}",
        server.url()
    );
    let limiter = || {
        let Config { store, policies, .. } = Config::parse(&file).unwrap();
        Limiter::new(policies, Store::open(&store).unwrap(), Arc::new(Metrics::new()))
    };
    let (behind, ahead) = (limiter(), limiter());
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    let ask = async |number: usize, policy: &str| {
        let limits = vec![LimitRequest { policy: policy.to_owned(), key: "k".to_owned(), cost: 1 }];
        let (limiter, clock_us) =
            if number.is_multiple_of(2) { (&behind, now_us - 10_000_000) } else { (&ahead, now_us + 10_000_000) };
        limiter.check_at(clock_us, &CheckRequest { limits }).await.unwrap()
    };
    let started = Instant::now();
    let mut admitted = 0;
    for number in 0..20 {
        admitted += u64::from(ask(number, "bucket").await.allowed);
    }
    let refilled = 2 * (started.elapsed().as_secs() + 1);
    assert!((4..=4 + refilled).contains(&admitted), "{admitted}");

    let mut replies = Vec::new();
    for number in 0..12 {
        replies.push(ask(number, "fixed").await);
    }
    assert_eq!(replies.iter().filter(|reply| reply.allowed).count(), 10);
    let resets: Vec<_> = replies.iter().map(|reply| reply.limits[0].reset_ms).collect();
    let spread = resets.iter().max().unwrap() - resets.iter().min().unwrap();
    assert!(spread <= 1000 + started.elapsed().as_millis() as u64, "{resets:?}");
}
