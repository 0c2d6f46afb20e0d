//! The script on Redis against laws of its own: the definitions of the four algorithms, tried out by brute force.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use redis::{Connection, Value};
use weir_protocol::{MAX_QUANTITY, MAX_WINDOW_MS};
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::script;
use weir_service::store::{Charge, Decision};

use crate::fake_clock::{self, Expiry, Step};
use crate::model::{Model, Numbers};
use crate::server::Server;

const START_US: u64 = 1_800_000_000_000_000;
/// The year 2250: what is promised from here on still lies below 2^53 µs.
const LATEST_US: u64 = 8_300_000_000_000_000;
const ALL: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket];

/// What is asked: at so many 1/240 windows and µs after the last time, a share of the capacity and a few units.
type Ask = (u64, u64, u64, u64);

fn quota() -> impl Strategy<Value = Quota> {
    let quantity = || {
        prop_oneof![
            3 => 1..=3u64,
            2 => 1..=1000u64,
            1 => 1..=MAX_QUANTITY,
            2 => (MAX_QUANTITY - 3)..=MAX_QUANTITY,
        ]
    };
    let window_ms = prop_oneof![2 => Just(1), 2 => Just(7000), 2 => 1..=MAX_WINDOW_MS, 2 => Just(MAX_WINDOW_MS)];
    (proptest::sample::select(&ALL[..]), quantity(), window_ms, quantity()).prop_map(
        |(algorithm, limit, window_ms, burst)| {
            let fills = u128::from(limit) * u128::from(MAX_WINDOW_MS) / u128::from(window_ms);
            let burst = match algorithm {
                Algorithm::TokenBucket => u64::try_from(fills.min(u128::from(burst))).unwrap(),
                _ => limit,
            };
            Quota { algorithm, limit, window_ms, burst }
        },
    )
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let steps = prop_oneof![3 => Just(0u64), 3 => 0..60u64, 1 => 0..600u64];
    let shares = prop_oneof![3 => Just(0u64), 2 => 0..60u64, 1 => Just(100)];
    proptest::collection::vec((steps, 0..4u64, shares, 0..4u64), 1..30)
}

fn charge(key: &str, quota: Quota, cost: u64) -> Charge {
    Charge { state_key: key.to_owned(), quota, cost, mode: Mode::Enforce }
}

fn numbers(decision: Decision) -> Numbers {
    Numbers {
        allowed: decision.allowed,
        remaining: decision.remaining,
        reset_us: decision.reset_us,
        retry_after_us: decision.retry_after_us,
    }
}

/// Plays a history on Redis. After each step its state is copied, and the copies are asked one microsecond before and
/// at each time that the step promised.
fn follows_its_definition(connection: &mut Connection, quota: Quota, asks: &[Ask]) -> Result<(), TestCaseError> {
    const KEY: &str = "law";
    const COPY: &str = "copy";
    let mut model = Model::new(quota);
    let mut pipeline = redis::pipe();
    // For each command its step and what it must say; None for what only moves states about.
    let mut expected: Vec<Option<(Step, Result<Numbers, bool>)>> = vec![None];
    pipeline.cmd("DEL").arg(KEY);
    let mut now_us = START_US;
    for (parts, micros, share, units) in asks {
        now_us += quota.window_us() / 240 * parts + micros;
        if now_us > LATEST_US {
            break;
        }
        let cost = (quota.capacity() / 100 * share + units).min(MAX_QUANTITY);
        let says = model.decide(now_us, cost);
        let step = Step { now_us, charges: vec![charge(KEY, quota, cost)] };
        fake_clock::add(&mut pipeline, Expiry::Ignores, &step);
        expected.push(Some((step, Ok(says))));
        let promises = [(says.retry_after_us.unwrap_or(0), cost), (says.reset_us, says.remaining + 1)];
        for (wait_us, cost) in promises.into_iter().filter(|(wait_us, _)| *wait_us > 0) {
            for (at_us, fits) in [(now_us + wait_us - 1, false), (now_us + wait_us, true)] {
                pipeline.cmd("DEL").arg(COPY);
                pipeline.cmd("COPY").arg(KEY).arg(COPY);
                let step = Step { now_us: at_us, charges: vec![charge(COPY, quota, cost)] };
                fake_clock::add(&mut pipeline, Expiry::Ignores, &step);
                expected.extend([None, None, Some((step, Err(fits)))]);
            }
        }
    }
    let replies: Vec<Value> = pipeline.query(connection).unwrap();
    prop_assert_eq!(replies.len(), expected.len());
    for (reply, expected) in replies.into_iter().zip(expected) {
        let Some((step, says)) = expected else { continue };
        let decision = fake_clock::outcome(reply, &step).decisions[0];
        match says {
            Ok(says) => prop_assert_eq!(numbers(decision), says, "{:?}", step),
            Err(fits) => prop_assert_eq!(decision.allowed, fits, "promised for {:?}", step),
        }
    }
    Ok(())
}

#[test]
fn every_number_is_what_the_definition_says_and_every_wait_is_exact() {
    let server = Server::start();
    let connection = RefCell::new(server.connect());
    fake_clock::load(&mut connection.borrow_mut());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/definitions.txt"))),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    });
    runner
        .run(&(quota(), asks()), |(quota, asks)| follows_its_definition(&mut connection.borrow_mut(), quota, &asks))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Every pairing of the smallest and largest numbers that a policy may have.
#[test]
fn the_extremes_follow_the_definition() {
    let server = Server::start();
    let mut connection = server.connect();
    fake_clock::load(&mut connection);
    let asks: Vec<Ask> = [(0, 0, 99, 0), (0, 0, 0, 1), (7, 1, 100, 0), (120, 0, 30, 2), (113, 3, 0, 1), (1, 0, 100, 0)]
        .into_iter()
        .cycle()
        .take(30)
        .collect();
    for algorithm in ALL {
        for limit in [1, 2, 3, MAX_QUANTITY - 1, MAX_QUANTITY] {
            for window_ms in [1, MAX_WINDOW_MS - 1, MAX_WINDOW_MS] {
                for burst in [1, 2, MAX_QUANTITY] {
                    if algorithm != Algorithm::TokenBucket && burst != 1 {
                        continue; // has none
                    }
                    let fills = u128::from(limit) * u128::from(MAX_WINDOW_MS) / u128::from(window_ms);
                    let burst = match algorithm {
                        Algorithm::TokenBucket => u64::try_from(fills.min(u128::from(burst))).unwrap(),
                        _ => limit,
                    };
                    let quota = Quota { algorithm, limit, window_ms, burst };
                    follows_its_definition(&mut connection, quota, &asks).unwrap_or_else(|error| panic!("{error}"));
                }
            }
        }
    }
}

/// After any time, a bucket that is polled has given exactly what its rate gives. The pure algorithm, which leaves the
/// same state after every step, is asked a million times in its own tests.
#[test]
fn a_bucket_that_is_polled_on_redis_loses_nothing() {
    let server = Server::start();
    let mut connection = server.connect();
    let text = script::with_clock(include_str!("fake_clock.lua")) + include_str!("polls.lua");
    let script = redis::Script::new(&text);
    // Limit, window, burst; polls, and µs between them. None of the bursts is full again before the last poll.
    for (limit, window_ms, burst, polls, step_us) in [
        (3, 7000, 1_000_000, 600_000u64, 1_170_001u64),
        (1, 30 * 86_400_000, 122, 200_000, 1_577_880_001),
        (1_000_000_000, 1000, 2_000_000_000_000, 200_000, 997),
    ] {
        let quota = Quota { algorithm: Algorithm::TokenBucket, limit, window_ms, burst };
        let drain = Step { now_us: START_US, charges: vec![charge("polled", quota, burst)] };
        assert!(fake_clock::run(&mut connection, Expiry::Ignores, &[drain])[0].decisions[0].allowed);
        // In parts: a script that runs for seconds on end is taken for one that hangs.
        let part = 10_000;
        let (mut now_us, mut taken) = (START_US, 0u128);
        for _ in 0..polls / part {
            let looks = [charge("polled", quota, 0)];
            let (keys, args) = script::keys_and_args(&looks);
            let mut call = script.prepare_invoke();
            call.key(keys).arg(args).arg(part).arg(step_us).arg("keep").arg(now_us);
            taken += u128::from(call.invoke::<u64>(&mut connection).unwrap());
            now_us += part * step_us;
            let elapsed = u128::from(now_us - START_US);
            assert_eq!(taken, u128::from(limit) * elapsed / u128::from(quota.window_us()), "{quota:?}");
        }
        assert!(taken > 0 && taken < u128::from(burst), "{quota:?}: {taken}");
        redis::cmd("DEL").arg("polled").exec(&mut connection).unwrap();
    }
}
