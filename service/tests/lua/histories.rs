//! Random histories: Redis and the Rust algorithms give equal replies and leave equal states.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use weir_protocol::{MAX_QUANTITY, MAX_WINDOW_MS};
use weir_service::algorithm::sliding_window_log::{Event, SlidingWindowLog};
use weir_service::algorithm::{self, State};
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::store::{Charge, Decision};

use crate::fake_clock::{self, Expiry, Step};
use crate::server::Server;

const START_US: u64 = 1_800_000_000_000_000;
/// All steps forward together: effective times stay below 2^53.
const FORWARD_US: u64 = 5_000_000_000_000_000;
const HISTORIES: u32 = 300;
/// Each of these moves long states about.
const LONG_HISTORIES: u32 = 60;

/// A limit of a history, before it is made to fit its bounds.
#[derive(Clone, Copy, Debug)]
struct Limit {
    algorithm: Algorithm,
    limit: u64,
    window_ms: u64,
    burst: u64,
    mode: Mode,
}

#[derive(Clone, Debug)]
struct Move {
    time: Time,
    /// One for each limit.
    costs: Vec<Cost>,
    /// Now and then, a new limit and burst for the limit of this index.
    change: Option<(usize, u64, u64)>,
}

/// A log with far more events than one charge trims, most of which leave its window together.
#[derive(Clone, Copy, Debug)]
struct LongLog {
    events: u64,
    /// So many of them, the older ones, at one instant; the others after it, within a window of each other.
    percent: u64,
    /// That instant lies so many half windows before the first step.
    windows: u64,
}

/// How time goes on, as seen from the first limit.
#[derive(Clone, Copy, Debug)]
enum Time {
    Still,
    Micros(u64),
    /// So many 1/60 of its window.
    Sixtieths(u64),
    Windows(u64, i8),
    /// What the last decision of the limit of this index said, and that many µs more.
    Retry(usize, i8),
    Reset(usize, i8),
    BackMicros(u64),
    BackSixtieths(u64),
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    Zero,
    One,
    Units(u64),
    /// As much as remained, and that much more.
    Remaining(i8),
    Capacity(i8),
}

fn quantity() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1..=5u64,
        2 => 1..=1000u64,
        1 => Just(MAX_QUANTITY),
        1 => 1..=MAX_QUANTITY,
        1 => (MAX_QUANTITY - 1000)..=MAX_QUANTITY,
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    let algorithm = prop_oneof![
        Just(Algorithm::FixedWindow),
        Just(Algorithm::SlidingWindowLog),
        Just(Algorithm::SlidingWindowCounter),
        Just(Algorithm::TokenBucket),
    ];
    let window_ms = prop_oneof![
        1 => Just(1),
        2 => 1..=10_000u64,
        1 => Just(60_000),
        1 => 1..=MAX_WINDOW_MS,
        1 => Just(MAX_WINDOW_MS),
    ];
    let mode = prop_oneof![3 => Just(Mode::Enforce), 1 => Just(Mode::Shadow)];
    (algorithm, quantity(), window_ms, quantity(), mode).prop_map(|(algorithm, limit, window_ms, burst, mode)| Limit {
        algorithm,
        limit,
        window_ms,
        burst,
        mode,
    })
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        2 => Just(Time::Still),
        2 => (0..2000u64).prop_map(Time::Micros),
        4 => (0..130u64).prop_map(Time::Sixtieths),
        1 => (1..4u64, -1..=1i8).prop_map(|(windows, more)| Time::Windows(windows, more)),
        2 => (0..4usize, -1..=1i8).prop_map(|(index, more)| Time::Retry(index, more)),
        2 => (0..4usize, -1..=1i8).prop_map(|(index, more)| Time::Reset(index, more)),
        1 => (0..2000u64).prop_map(Time::BackMicros),
        1 => (0..200u64).prop_map(Time::BackSixtieths),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        1 => Just(Cost::Zero),
        4 => Just(Cost::One),
        2 => quantity().prop_map(Cost::Units),
        3 => (-2..=2i8).prop_map(Cost::Remaining),
        1 => (-1..=1i8).prop_map(Cost::Capacity),
    ]
}

fn history() -> impl Strategy<Value = (Vec<Limit>, Vec<Move>)> {
    (proptest::collection::vec(limit(), 1..=4), proptest::collection::vec(step(), 1..80))
}

fn step() -> impl Strategy<Value = Move> {
    let change = proptest::option::weighted(0.1, (0..4usize, quantity(), quantity()));
    (time(), proptest::collection::vec(cost(), 4), change).prop_map(|(time, costs, change)| Move {
        time,
        costs,
        change,
    })
}

fn long_log() -> impl Strategy<Value = LongLog> {
    (1..4000u64, 0..=100u64, 0..=2u64).prop_map(|(events, percent, windows)| LongLog { events, percent, windows })
}

impl LongLog {
    fn state(self, quota: &Quota) -> Option<State> {
        let window_us = quota.window_us();
        let begin_us = START_US - window_us / 2 * self.windows;
        let burst = self.events * self.percent / 100;
        let events = (0..self.events).map(|event| Event {
            at_us: begin_us + window_us / 2 / self.events * event.saturating_sub(burst),
            // Costs of 1 and 2, from a base that lets it wrap around.
            cumulated: ((1 << 52) - 1000 + event * 3 / 2) % (1 << 52),
        });
        let base = (1 << 52) - 1002;
        Some(State::SlidingWindowLog(SlidingWindowLog { offset_us: 0, base, events: events.collect() }))
    }
}

impl Limit {
    fn quota(self) -> Quota {
        // The bound of a bucket's time to fill.
        let fills = u128::from(self.limit) * u128::from(MAX_WINDOW_MS) / u128::from(self.window_ms);
        let burst = match self.algorithm {
            Algorithm::TokenBucket => self.burst.min(u64::try_from(fills).unwrap_or(u64::MAX)),
            _ => self.limit,
        };
        Quota { algorithm: self.algorithm, limit: self.limit, window_ms: self.window_ms, burst }
    }
}

fn offset(number: u64, more: i8) -> u64 {
    number.saturating_add_signed(more.into())
}

/// The steps of a history and what the Rust algorithms make of them: decisions, states, expiries.
struct Expected {
    /// The keys, and what they hold before the first step.
    before: Vec<(String, Vec<Vec<u8>>)>,
    steps: Vec<Step>,
    decisions: Vec<Vec<Decision>>,
    states: Vec<Vec<Vec<Vec<u8>>>>,
    expiries_ms: Vec<Vec<u64>>,
}

fn expected(mut limits: Vec<Limit>, moves: &[Move], expiry: Expiry, long_log: Option<LongLog>) -> Expected {
    static HISTORY: AtomicU64 = AtomicU64::new(0);
    let history = HISTORY.fetch_add(1, Ordering::Relaxed);
    let mut states: Vec<Option<State>> =
        limits.iter().map(|limit| long_log.and_then(|log| log.state(&limit.quota()))).collect();
    let mut expiries = vec![0; limits.len()];
    let mut last: Option<Vec<Decision>> = None;
    let (mut now_us, mut forward_us) = (START_US, 0);
    let keys = (0..limits.len()).map(|index| format!("history:{history}:{index}"));
    let before = keys.zip(states.iter().map(|state| fake_clock::encode(state.as_ref()))).collect();
    let mut all = Expected { before, steps: vec![], decisions: vec![], states: vec![], expiries_ms: vec![] };
    for step in moves {
        let window_us = limits[0].window_ms * 1000;
        let decided = |index: usize| last.as_ref().map(|decisions| decisions[index % decisions.len()]);
        let on = match step.time {
            Time::Still | Time::BackMicros(_) | Time::BackSixtieths(_) => 0,
            Time::Micros(micros) => micros,
            Time::Sixtieths(parts) => window_us / 60 * parts,
            Time::Windows(windows, more) => offset(window_us * windows, more),
            Time::Retry(index, more) => {
                offset(decided(index).and_then(|decision| decision.retry_after_us).unwrap_or(0), more)
            }
            Time::Reset(index, more) => offset(decided(index).map_or(0, |decision| decision.reset_us), more),
        };
        let back = match step.time {
            Time::BackMicros(micros) => micros,
            Time::BackSixtieths(parts) => window_us / 60 * parts,
            _ => 0,
        };
        if forward_us + on <= FORWARD_US {
            forward_us += on;
            now_us += on;
        }
        now_us = now_us.saturating_sub(back).max(1);

        if let Some((index, limit, burst)) = step.change {
            let count = limits.len();
            let changed = &mut limits[index % count];
            (changed.limit, changed.burst) = (limit, burst);
        }
        let charges: Vec<Charge> = limits
            .iter()
            .enumerate()
            .map(|(index, limit)| {
                let quota = limit.quota();
                let remaining = decided(index).map_or(quota.capacity(), |decision| decision.remaining);
                let cost = match step.costs[index] {
                    Cost::Zero => 0,
                    Cost::One => 1,
                    Cost::Units(units) => units,
                    Cost::Remaining(more) => offset(remaining, more),
                    Cost::Capacity(more) => offset(quota.capacity(), more),
                };
                let state_key = format!("history:{history}:{index}");
                Charge { state_key, quota, cost: cost.min(MAX_QUANTITY), mode: limit.mode }
            })
            .collect();
        if expiry == Expiry::Meets {
            for (state, expiry) in states.iter_mut().zip(&expiries) {
                if now_us / 1000 > *expiry {
                    *state = None;
                }
            }
        }
        let outcomes = algorithm::decide(now_us, &charges, &mut states.iter_mut().collect::<Vec<_>>());
        for ((_, life_us), expiry) in outcomes.iter().zip(&mut expiries) {
            if let Some(life_us) = life_us {
                *expiry = now_us / 1000 + life_us.div_ceil(1000);
            }
        }
        let decisions: Vec<Decision> = outcomes.into_iter().map(|(decision, _)| decision).collect();
        last = Some(decisions.clone());
        all.steps.push(Step { now_us, charges });
        all.decisions.push(decisions);
        all.states.push(states.iter().map(|state| fake_clock::encode(state.as_ref())).collect());
        all.expiries_ms.push(expiries.clone());
    }
    all
}

fn redis_and_rust_agree(
    expiry: Expiry,
    cases: u32,
    histories: impl Strategy<Value = (Vec<Limit>, Vec<Move>, Option<LongLog>)>,
) {
    let server = Server::start();
    let connection = std::cell::RefCell::new(server.connect());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/histories.txt"))),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    });
    runner
        .run(&histories, |(limits, moves, long_log)| {
            let all = expected(limits, &moves, expiry, long_log);
            let connection = &mut *connection.borrow_mut();
            for (key, elements) in all.before.iter().filter(|(_, elements)| !elements.is_empty()) {
                redis::cmd("RPUSH").arg(key).arg(elements).exec(connection).unwrap();
            }
            let outcomes = fake_clock::run(connection, expiry, &all.steps);
            prop_assert_eq!(outcomes.len(), all.steps.len());
            for (index, outcome) in outcomes.iter().enumerate() {
                prop_assert_eq!(&outcome.decisions, &all.decisions[index], "step {} of {:#?}", index, &all.steps);
                prop_assert!(outcome.states == all.states[index], "state after step {} of {:#?}", index, &all.steps);
                prop_assert_eq!(&outcome.expiries_ms, &all.expiries_ms[index], "step {} of {:#?}", index, &all.steps);
            }
            for (key, _) in all.before {
                redis::cmd("DEL").arg(key).exec(connection).unwrap();
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn redis_and_rust_agree_on_every_reply_state_and_expiry() {
    redis_and_rust_agree(Expiry::Ignores, HISTORIES, history().prop_map(|(limits, moves)| (limits, moves, None)));
}

#[test]
fn redis_and_rust_agree_where_state_expires() {
    redis_and_rust_agree(Expiry::Meets, HISTORIES, history().prop_map(|(limits, moves)| (limits, moves, None)));
}

#[test]
fn redis_and_rust_agree_on_logs_that_are_trimmed_in_parts() {
    let log = limit().prop_map(|limit| Limit {
        algorithm: Algorithm::SlidingWindowLog,
        // About what the log holds: some charges fit before all of it has left.
        limit: limit.limit % 10_000 + 3000,
        ..limit
    });
    let moves = proptest::collection::vec(step(), 1..30);
    let histories = (log, moves, long_log()).prop_map(|(log, moves, long)| (vec![log], moves, Some(long)));
    redis_and_rust_agree(Expiry::Ignores, LONG_HISTORIES, histories);
}

#[test]
fn redis_and_rust_agree_on_long_logs() {
    // Searches that leave the head of the list: seeded with the Rust state, asked at many times and for many costs.
    const EVENTS: u64 = 5000;
    let server = Server::start();
    let mut connection = server.connect();
    let quota = |limit| Quota { algorithm: Algorithm::SlidingWindowLog, limit, window_ms: EVENTS, burst: limit };
    let charge = |limit, cost| Charge { state_key: "long".to_owned(), quota: quota(limit), cost, mode: Mode::Enforce };
    // One event a ms, of costs 1 to 3: 10 000 units or one less.
    let mut state = None;
    for event in 0..EVENTS {
        algorithm::decide(START_US + event * 1000, &[charge(MAX_QUANTITY, event % 3 + 1)], &mut [&mut state]);
    }
    redis::cmd("RPUSH").arg("long").arg(fake_clock::encode(state.as_ref())).exec(&mut connection).unwrap();
    let mut now_us = START_US + EVENTS * 1000 - 1000;
    // Refused ones first, then charges that trim ever more of it.
    let steps: Vec<Step> = [1, 2, 3, 4, 500, 5000, 9000, 9999]
        .into_iter()
        .map(|cost| (9999, cost, 0))
        .chain([(9999, 9998, 1), (9999, 9000, 499_999), (9999, 0, 700_000), (500, 499, 1), (9999, 1000, 0)])
        .chain((0..20).map(|step| (9999, step % 4, 150_500)))
        .map(|(limit, cost, later_us)| {
            now_us += later_us;
            Step { now_us, charges: vec![charge(limit, cost)] }
        })
        .collect();
    let outcomes = fake_clock::run(&mut connection, Expiry::Ignores, &steps);
    for (index, (step, outcome)) in steps.iter().zip(outcomes).enumerate() {
        let expected = algorithm::decide(step.now_us, &step.charges, &mut [&mut state]);
        assert_eq!(outcome.decisions, [expected[0].0], "step {index}");
        assert!(outcome.states[0] == fake_clock::encode(state.as_ref()), "state after step {index}");
    }
}
