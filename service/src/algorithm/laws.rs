//! Laws that hold whatever the formulas: brute force over random histories.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use weir_protocol::{MAX_QUANTITY, MAX_WINDOW_MS};

use super::{LifeUs, State, decide};
use crate::policy::{Algorithm, Mode, Quota};
use crate::store::{Charge, Decision};

const START_US: u64 = 1_800_000_000_000_000;

const ALL: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket];

fn charge(quota: Quota, cost: u64) -> Charge {
    Charge { state_key: "state".to_owned(), quota, cost, mode: Mode::Enforce }
}

fn take(state: &mut Option<State>, now_us: u64, quota: Quota, cost: u64) -> (Decision, Option<LifeUs>) {
    decide(now_us, &[charge(quota, cost)], &mut [state]).remove(0)
}

/// What would be decided, had this been asked; the state stays.
fn look(state: &Option<State>, now_us: u64, quota: Quota, cost: u64) -> Decision {
    take(&mut state.clone(), now_us, quota, cost).0
}

fn quota_of(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let numbers = || prop_oneof![3 => 1..=12u64, 1 => 1..=1000u64, 1 => 1..=MAX_QUANTITY, 1 => Just(MAX_QUANTITY)];
    let window_ms = prop_oneof![Just(1), 1..=5u64, Just(60_000), 1..=MAX_WINDOW_MS, Just(MAX_WINDOW_MS)];
    (numbers(), window_ms, numbers()).prop_map(move |(limit, window_ms, burst)| {
        let fills = u128::from(limit) * u128::from(MAX_WINDOW_MS) / u128::from(window_ms);
        let burst = match algorithm {
            Algorithm::TokenBucket => u64::try_from(fills.min(u128::from(burst))).unwrap(),
            _ => limit,
        };
        Quota { algorithm, limit, window_ms, burst }
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    proptest::sample::select(&ALL[..]).prop_flat_map(quota_of)
}

/// Time steps as 1/100 of a window plus a few µs, and costs as a share of the capacity plus a few.
fn takes() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
    let steps = prop_oneof![2 => Just(0u64), 3 => 0..30u64, 1 => 0..250u64];
    let shares = prop_oneof![3 => Just(0u64), 2 => 0..60u64, 1 => Just(100)];
    proptest::collection::vec((steps, 0..4u64, shares, 0..4u64), 1..60)
}

fn history(quota: Quota, takes: &[(u64, u64, u64, u64)]) -> Vec<(u64, u64)> {
    let mut now_us = START_US;
    takes
        .iter()
        .map(|(hundredths, micros, share, units)| {
            now_us += quota.window_us() / 100 * hundredths + micros;
            let cost = quota.capacity() / 100 * share + units;
            (now_us, cost.min(MAX_QUANTITY))
        })
        .collect()
}

/// Plays a history and returns what was admitted, when.
fn admitted(quota: Quota, history: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut state = None;
    history.iter().copied().filter(|(now_us, cost)| take(&mut state, *now_us, quota, *cost).0.allowed).collect()
}

fn offset_us(state: &State) -> u64 {
    match state {
        State::FixedWindow(window) => window.moment.offset_us,
        State::CalendarWindow(window) => window.moment.offset_us,
        State::SlidingWindowLog(log) => log.offset_us,
        State::SlidingWindowCounter(counter) => counter.moment.offset_us,
        State::TokenBucket(bucket) => bucket.moment.offset_us,
    }
}

fn sum(events: impl Iterator<Item = u64>) -> u128 {
    events.map(u128::from).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/laws.txt"))), ..ProptestConfig::default() })]

    #[test]
    fn a_log_never_holds_more_than_the_limit_in_any_window(quota in quota_of(Algorithm::SlidingWindowLog), takes in takes()) {
        let admitted = admitted(quota, &history(quota, &takes));
        for (start, _) in &admitted {
            let in_window = admitted.iter().filter(|(at, _)| at >= start && *at < start + quota.window_us());
            prop_assert!(sum(in_window.map(|(_, cost)| *cost)) <= u128::from(quota.limit));
        }
    }

    #[test]
    fn a_fixed_window_never_holds_more_than_the_limit(quota in quota_of(Algorithm::FixedWindow), takes in takes()) {
        let mut counts: HashMap<u64, u128> = HashMap::new();
        for (at, cost) in admitted(quota, &history(quota, &takes)) {
            *counts.entry(at / quota.window_us()).or_default() += u128::from(cost);
        }
        prop_assert!(counts.values().all(|count| *count <= u128::from(quota.limit)));
    }

    #[test]
    fn a_counter_admits_exactly_what_its_formula_does(quota in quota_of(Algorithm::SlidingWindowCounter), takes in takes()) {
        let window_us = quota.window_us();
        let mut counts: HashMap<u64, u128> = HashMap::new();
        let mut state = None;
        for (now_us, cost) in history(quota, &takes) {
            let (index, elapsed) = (now_us / window_us, now_us % window_us);
            let previous = counts.get(&(index - 1)).copied().unwrap_or(0);
            let current = counts.get(&index).copied().unwrap_or(0);
            // previous * (W - elapsed) / W + current + cost <= limit, without a division
            let left = previous * u128::from(window_us - elapsed) + (current + u128::from(cost)) * u128::from(window_us);
            let fits = left <= u128::from(quota.limit) * u128::from(window_us);
            prop_assert_eq!(take(&mut state, now_us, quota, cost).0.allowed, fits || cost == 0);
            if fits {
                *counts.entry(index).or_default() += u128::from(cost);
            }
        }
    }

    #[test]
    fn a_bucket_admits_at_most_burst_and_rate_in_any_span(quota in quota_of(Algorithm::TokenBucket), takes in takes()) {
        let admitted = admitted(quota, &history(quota, &takes));
        for (first, (start, _)) in admitted.iter().enumerate() {
            let mut taken = 0;
            for (end, cost) in &admitted[first..] {
                taken += u128::from(*cost);
                // taken <= burst + limit * span / W, without a division
                let window_us = u128::from(quota.window_us());
                let most = u128::from(quota.burst) * window_us + u128::from(quota.limit) * u128::from(end - start);
                prop_assert!(taken * window_us <= most);
            }
        }
    }

    #[test]
    fn a_bucket_that_is_polled_loses_nothing(quota in quota_of(Algorithm::TokenBucket), polls in proptest::collection::vec(0..2000u64, 1..200)) {
        // Drained at once, then everything taken as soon as it is there: after any time the whole is what the rate gives.
        prop_assume!(quota.burst > 1);
        let mut state = None;
        take(&mut state, START_US, quota, quota.burst);
        let (mut now_us, mut taken) = (START_US, 0u128);
        for step in polls {
            let unit_us = (quota.window_us() / quota.limit).max(1);
            now_us += unit_us * step / 1000;
            let remaining = look(&state, now_us, quota, 0).remaining;
            if remaining == quota.burst {
                break; // full: from here on refill is lost, as it should be
            }
            taken += u128::from(remaining);
            prop_assert!(take(&mut state, now_us, quota, remaining).0.allowed);
            prop_assert_eq!(taken, u128::from(quota.limit) * u128::from(now_us - START_US) / u128::from(quota.window_us()));
        }
    }

    #[test]
    fn what_remains_falls_by_what_is_taken_and_by_nothing_else(quota in quota(), takes in takes()) {
        let mut state = None;
        let mut last = quota.capacity();
        for (now_us, cost) in history(quota, &takes) {
            let remaining = look(&state, now_us, quota, 0).remaining;
            prop_assert!(remaining >= last, "time alone takes nothing");
            let decision = take(&mut state, now_us, quota, cost).0;
            last = if decision.allowed { remaining - cost } else { remaining };
            prop_assert_eq!(decision.remaining, last);
        }
    }

    #[test]
    fn the_numbers_mean_what_they_say(quota in quota(), takes in takes(), asked in 1..=MAX_QUANTITY, small in 1..20u64) {
        let mut state = None;
        let capacity = quota.capacity();
        for (now_us, cost) in history(quota, &takes) {
            let before = state.clone();
            let (decision, life_us) = take(&mut state, now_us, quota, cost);
            prop_assert_eq!(decision.allowed && cost > 0, life_us.is_some());
            if life_us.is_none() {
                prop_assert_eq!(&before, &state, "what is refused or only looks changes nothing");
            }
            // Remaining is the largest cost that fits.
            let remaining = decision.remaining;
            prop_assert!(look(&state, now_us, quota, remaining).allowed);
            prop_assert!(!look(&state, now_us, quota, remaining + 1).allowed);
            // Reset is when it grows, and not sooner.
            if decision.reset_us == 0 {
                prop_assert_eq!(remaining, capacity);
            } else {
                prop_assert!(look(&state, now_us + decision.reset_us, quota, 0).remaining > remaining);
                prop_assert!(look(&state, now_us + decision.reset_us - 1, quota, 0).remaining <= remaining);
            }
            // Whoever waits gets in, a microsecond sooner does not; above the capacity never.
            for cost in [cost, asked, small, remaining + 1, capacity, capacity + 1] {
                let asked = look(&state, now_us, quota, cost);
                match asked.retry_after_us {
                    None => prop_assert!(cost > capacity),
                    Some(0) => prop_assert!(asked.allowed && cost <= remaining),
                    Some(wait_us) => {
                        prop_assert!(!asked.allowed && cost <= capacity);
                        prop_assert!(look(&state, now_us + wait_us, quota, cost).allowed);
                        prop_assert!(!look(&state, now_us + wait_us - 1, quota, cost).allowed);
                    }
                }
            }
            // Expiry is garbage collection: when the life is over, nothing is left.
            if let Some(life_us) = life_us {
                let over = look(&state, now_us + life_us, quota, 0);
                prop_assert_eq!((over.remaining, over.reset_us), (capacity, 0));
                prop_assert!(look(&state, now_us + life_us - 1, quota, 0).remaining < capacity);
            }
        }
    }

    #[test]
    fn a_clock_set_back_stands_still_and_runs_on(quota in quota(), takes in takes(), back in 1..=1_000_000_000_000_000u64) {
        // A16: as if the clock had not been set back, but for the time between the last charge and the step.
        let mut history = history(quota, &takes);
        let after = history.split_off(history.len() / 2);
        let mut steady = None;
        let mut charged_us = START_US;
        for (now_us, cost) in history {
            if take(&mut steady, now_us, quota, cost).1.is_some() {
                charged_us = now_us;
            }
        }
        prop_assume!(steady.is_some());
        let mut stepped = steady.clone();
        for (now_us, cost) in &after {
            let since_us = now_us - after[0].0;
            // Once the state has run out, the windows are those of the stepped clock.
            if look(&steady, charged_us + since_us, quota, 0).reset_us == 0 {
                break;
            }
            let expected = take(&mut steady, charged_us + since_us, quota, *cost);
            let got = take(&mut stepped, charged_us - back + since_us, quota, *cost);
            prop_assert_eq!(got, expected);
            prop_assert_eq!(stepped.as_ref().map(offset_us), Some(back));
        }
    }
}

#[test]
fn all_limits_are_charged_or_none() {
    // A30
    let user = Quota { algorithm: Algorithm::FixedWindow, limit: 1, window_ms: 10_000, burst: 1 };
    let global = Quota { algorithm: Algorithm::SlidingWindowLog, limit: 10, window_ms: 60_000, burst: 10 };
    let mut shared = None;
    for client in 0..10 {
        let mut own = None;
        for attempt in 0..20 {
            let outcomes = decide(START_US, &[charge(user, 1), charge(global, 1)], &mut [&mut own, &mut shared]);
            let decisions: Vec<Decision> = outcomes.into_iter().map(|(decision, _)| decision).collect();
            assert_eq!(decisions[0].allowed, attempt == 0);
            assert_eq!(decisions[1].remaining, 9 - client);
        }
    }
}

/// A million polls, each of which takes whatever is there: after any time the sum is what the rate gives, whole units
/// of it, and the rate of the polls, which changes under way, does not matter.
#[test]
fn a_million_polls_of_a_bucket_lose_nothing() {
    const POLLS: u64 = 1_000_000;
    const DAY_MS: u64 = 86_400_000;
    let polled = |limit: u64, window_ms: u64, steps_us: [u64; 4]| {
        // As large as it may be, so that it is never full again.
        let fills = u128::from(limit) * u128::from(MAX_WINDOW_MS) / u128::from(window_ms);
        let burst = u64::try_from(fills).unwrap().min(MAX_QUANTITY);
        let quota = Quota { algorithm: Algorithm::TokenBucket, limit, window_ms, burst };
        let mut state = None;
        take(&mut state, START_US, quota, burst);
        let (mut now_us, mut taken) = (START_US, 0u128);
        for poll in 0..POLLS {
            now_us += steps_us[usize::try_from(poll * 4 / POLLS).unwrap()];
            let remaining = look(&state, now_us, quota, 0).remaining;
            assert!(remaining < burst, "{quota:?}, poll {poll}: full");
            if remaining > 0 {
                take(&mut state, now_us, quota, remaining);
                taken += u128::from(remaining);
            }
            let given = u128::from(limit) * u128::from(now_us - START_US) / u128::from(quota.window_us());
            assert_eq!(taken, given, "{quota:?}, poll {poll}");
        }
        assert!(taken > 100, "{quota:?}: {taken}");
    };
    std::thread::scope(|scope| {
        // From many polls a unit to many units a poll.
        scope.spawn(|| polled(3, 7000, [1, 1_170_001, 997, 77_777_777]));
        scope.spawn(|| polled(1, 30 * DAY_MS, [1_000, 1_000_003, 800_000_007, 300_000_007]));
        scope.spawn(|| polled(1_000_000_000, 1000, [1, 997, 31_337, 13]));
    });
}
