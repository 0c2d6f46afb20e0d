//! What went wrong in other limiters, in the numbers of their bug reports, on Redis with a clock that the test sets.

use redis::Connection;
use weir_protocol::MAX_WINDOW_MS;
use weir_service::algorithm::{self, State};
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::store::{Charge, Decision};

use crate::fake_clock::{self, Expiry, Outcome, Step};
use crate::server::Server;

/// An edge of every window of whole minutes and of 10 s.
const EDGE_US: u64 = 1_800_000_000_000_000;
const SECOND_US: u64 = 1_000_000;
const ALL: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket];

/// One client of one limit on a Redis of its own.
struct Client {
    _server: Server,
    connection: Connection,
    quota: Quota,
    key: String,
}

impl Client {
    fn new(algorithm: Algorithm, limit: u64, window_ms: u64, burst: u64) -> Self {
        let server = Server::start();
        let connection = server.connect();
        let burst = if algorithm == Algorithm::TokenBucket { burst } else { limit };
        let quota = Quota { algorithm, limit, window_ms, burst };
        Self { _server: server, connection, quota, key: "client 0".to_owned() }
    }

    /// From here on another client.
    fn renew(&mut self) {
        let number: u64 = self.key.trim_start_matches("client ").parse().unwrap();
        self.key = format!("client {}", number + 1);
    }

    fn step(&self, now_us: u64, cost: u64) -> Step {
        let charge = Charge { state_key: self.key.clone(), quota: self.quota, cost, mode: Mode::Enforce };
        Step { now_us, charges: vec![charge] }
    }

    /// Asks at all these times for these costs, in their order.
    fn all(&mut self, asks: impl IntoIterator<Item = (u64, u64)>) -> Vec<Outcome> {
        let steps: Vec<_> = asks.into_iter().map(|(now_us, cost)| self.step(now_us, cost)).collect();
        fake_clock::run(&mut self.connection, Expiry::Meets, &steps)
    }

    fn ask(&mut self, now_us: u64, cost: u64) -> Decision {
        self.all([(now_us, cost)])[0].decisions[0]
    }

    /// How many of so many requests at this time are admitted.
    fn admits(&mut self, now_us: u64, requests: usize) -> usize {
        let outcomes = self.all(std::iter::repeat_n((now_us, 1), requests));
        outcomes.iter().filter(|outcome| outcome.decisions[0].allowed).count()
    }
}

/// `Retry-After`: whole seconds, rounded up.
fn retry_after_s(decision: Decision) -> u64 {
    decision.retry_after_us.unwrap().div_ceil(SECOND_US)
}

/// A04, A05: exactly the limit, also where it is 1, and what is left after each request.
#[test]
fn limits_of_1_2_and_3_admit_as_many_and_count_down_to_0() {
    for algorithm in ALL {
        for limit in 1..=3 {
            let mut client = Client::new(algorithm, limit, 60_000, limit);
            let outcomes = client.all((0..limit + 2).map(|request| (EDGE_US + request, 1)));
            let said: Vec<_> = outcomes.iter().map(|o| (o.decisions[0].allowed, o.decisions[0].remaining)).collect();
            let expected: Vec<_> = (1..=limit + 2).map(|sent| (sent <= limit, limit.saturating_sub(sent))).collect();
            assert_eq!(said, expected, "{algorithm:?}");
        }
    }
}

/// A06: a full quota on either side of an edge.
#[test]
fn a_burst_across_an_edge_passes_as_the_algorithm_says() {
    let across = |algorithm, before_us: u64, after_us: u64| {
        let mut client = Client::new(algorithm, 100, 10_000, 100);
        (client.admits(EDGE_US - before_us, 100), client.admits(EDGE_US + after_us, 100))
    };
    assert_eq!(across(Algorithm::FixedWindow, 500_000, 500_000), (100, 100), "twice the limit, as documented");
    assert_eq!(across(Algorithm::SlidingWindowLog, 500_000, 500_000), (100, 0));
    assert_eq!(across(Algorithm::SlidingWindowCounter, 500_000, 500_000), (100, 5), "95 of the previous still count");
    assert_eq!(across(Algorithm::TokenBucket, 500_000, 500_000), (100, 10), "10 a second");
}

/// A06: nearly twice the limit can fall into one trailing window of the counter; of the log never more than the limit.
#[test]
fn a_saturated_window_after_an_edge_is_what_the_counter_cannot_see() {
    for (algorithm, expected) in [(Algorithm::SlidingWindowCounter, 47..=53), (Algorithm::SlidingWindowLog, 0..=0)] {
        let mut client = Client::new(algorithm, 100, 10_000, 100);
        assert_eq!(client.admits(EDGE_US - 100_000, 100), 100);
        let outcomes = client.all((0..1000).map(|step| (EDGE_US + step * 10_000, 1)));
        let by = |seconds: u64| outcomes[..seconds as usize * 100].iter().filter(|o| o.decisions[0].allowed).count();
        assert!(expected.contains(&by(5)), "{algorithm:?}: {}", by(5));
        if algorithm == Algorithm::SlidingWindowCounter {
            assert!((97..=100).contains(&by(10)), "100 at the edge and these within 10.1 s: {}", by(10));
        }
    }
}

/// A09: an event is gone exactly one window after it; no wait is 0.
#[test]
fn a_window_is_half_open() {
    let mut client = Client::new(Algorithm::SlidingWindowLog, 1, 5000, 1);
    for round in 0..50 {
        client.renew();
        let start = EDGE_US + round * 7_777_777;
        assert!(client.ask(start, 1).allowed);
        let outcomes = client.all((4_950_000..5_000_000).step_by(5000).map(|later| (start + later, 1)));
        for outcome in outcomes {
            let decision = outcome.decisions[0];
            assert!(!decision.allowed && decision.retry_after_us > Some(0), "{decision:?}");
        }
        assert_eq!(client.ask(start + 4_999_999, 1).retry_after_us, Some(1));
        assert!(client.ask(start + 5_000_000, 1).allowed);
    }
}

/// A11: two requests a second for 30 s against 5 in 5 s: refused ones do not push recovery away.
#[test]
fn a_client_that_keeps_trying_is_not_locked_out() {
    for algorithm in ALL {
        let mut client = Client::new(algorithm, 5, 5000, 5);
        let times: Vec<_> = (0..60).map(|request| EDGE_US + 1_234_567 + request * SECOND_US / 2).collect();
        let outcomes = client.all(times.iter().map(|time| (*time, 1)));
        let admitted: Vec<_> =
            times.iter().zip(outcomes).filter(|(_, o)| o.decisions[0].allowed).map(|(t, _)| *t).collect();
        assert!((24..=36).contains(&admitted.len()), "{algorithm:?}: {}", admitted.len());
        let widest = admitted.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        let most = if algorithm == Algorithm::SlidingWindowCounter { 10 } else { 6 };
        assert!(widest <= most * SECOND_US, "{algorithm:?}: {widest} µs without an admission");
    }
}

/// A12: what is refused takes nothing, whatever it cost; neither value nor expiry of the state changes.
#[test]
fn a_refused_heavy_request_burns_nothing() {
    for algorithm in ALL {
        for (cost, times) in [(5, 1), (1_000_000, 10)] {
            let mut client = Client::new(algorithm, 10, 3_600_000, 10);
            let asks = std::iter::once(8).chain(std::iter::repeat_n(cost, times));
            let outcomes = client.all(asks.map(|cost| (EDGE_US, cost)));
            for refused in &outcomes[1..] {
                assert_eq!((refused.decisions[0].allowed, refused.decisions[0].remaining), (false, 2), "{algorithm:?}");
                assert_eq!((&refused.states, &refused.expiries_ms), (&outcomes[0].states, &outcomes[0].expiries_ms));
            }
            let last = client.ask(EDGE_US, 1);
            assert_eq!((last.allowed, last.remaining), (true, 1), "{algorithm:?}");
        }
    }
}

/// A14: state outlives the time that a bucket takes to fill, and not only one refill.
#[test]
fn a_drained_bucket_is_not_forgotten_early() {
    let mut client = Client::new(Algorithm::TokenBucket, 1, 15_000, 3);
    let drained = client.all([(EDGE_US, 3)]).remove(0);
    assert!(drained.decisions[0].allowed);
    assert_eq!(drained.expiries_ms, [EDGE_US / 1000 + 45_000]);
    let idle = EDGE_US + 31 * SECOND_US;
    let outcomes = client.all([(idle, 1), (idle, 1), (idle, 1)]);
    let allowed: Vec<_> = outcomes.iter().map(|outcome| outcome.decisions[0].allowed).collect();
    assert_eq!(allowed, [true, true, false]);
    assert_eq!(retry_after_s(outcomes[2].decisions[0]), 14);
}

/// A15: rates of less than one unit in days, in numbers that are whole.
#[test]
fn slow_rates_have_whole_waits_and_true_expiries() {
    let day_ms = 86_400_000;
    for (limit, window_ms, wait_s) in [
        (1, 30 * day_ms, 30 * 86_400),
        (1, 7000, 7),
        // The slowest that a file may ask for: about 3e-9 a second.
        (1, MAX_WINDOW_MS, MAX_WINDOW_MS / 1000),
    ] {
        let mut client = Client::new(Algorithm::TokenBucket, limit, window_ms, 1);
        let outcomes = client.all([(EDGE_US, 1), (EDGE_US, 1)]);
        assert!(outcomes[0].decisions[0].allowed && !outcomes[1].decisions[0].allowed);
        assert_eq!(retry_after_s(outcomes[1].decisions[0]), wait_s);
        assert_eq!(outcomes[0].expiries_ms, [EDGE_US / 1000 + window_ms]);
    }
}

/// A16: a failover to a clock 5 s or an hour behind hands out no refill, and locks nobody out for that hour.
#[test]
fn a_clock_that_goes_back_refills_nothing_and_locks_nobody_out() {
    for algorithm in ALL {
        for behind_s in [5, 3600] {
            let mut client = Client::new(algorithm, 4, 2000, 4);
            assert_eq!(client.admits(EDGE_US, 20), 4, "{algorithm:?}");
            let after = EDGE_US - behind_s * SECOND_US;
            let refused = client.ask(after, 1);
            assert_eq!((refused.allowed, refused.remaining), (false, 0), "{algorithm:?}, {behind_s} s behind");
            assert_eq!(client.admits(after, 20), 0, "{algorithm:?}, {behind_s} s behind");
            // Twenty requests in the next second: what a second refills, as if nothing had happened.
            let outcomes = client.all((1..=20).map(|request| (after + request * 50_000, 1)));
            let admitted = outcomes.iter().filter(|outcome| outcome.decisions[0].allowed).count();
            assert!(admitted <= 2, "{algorithm:?}, {behind_s} s behind: {admitted}");
            // And a full quota is there within two windows.
            let mut client = Client::new(algorithm, 4, 2000, 4);
            assert_eq!(client.admits(EDGE_US, 4), 4);
            assert!(!client.ask(after, 1).allowed);
            assert_eq!(client.ask(after + 4 * SECOND_US, 0).remaining, 4, "{algorithm:?}, {behind_s} s behind");
        }
    }
}

/// A17: who sleeps exactly the seconds of Retry-After gets in, at whatever moment it was refused.
#[test]
fn the_seconds_of_retry_after_are_enough() {
    for algorithm in ALL {
        let mut client = Client::new(algorithm, 3, 2000, 3);
        for run in 0..200 {
            client.renew();
            let mut now_us = EDGE_US + run * 1_618_033_988_749 % (10 * SECOND_US);
            // As fast as it can, until it is refused.
            let refused = loop {
                let decision = client.ask(now_us, 1);
                if !decision.allowed {
                    break decision;
                }
                now_us += run * 271_828 % 300_001;
            };
            let wait_s = retry_after_s(refused);
            assert!(wait_s >= 1, "{algorithm:?}: {refused:?}");
            assert!(client.ask(now_us + wait_s * SECOND_US, 1).allowed, "{algorithm:?}, run {run}, after {wait_s} s");
        }
    }
}

/// A19: a raised rate refuses nobody that the old one would have admitted, and keeps what was used.
#[test]
fn a_raised_limit_counts_at_once() {
    let mut window = Client::new(Algorithm::FixedWindow, 10, 60_000, 10);
    assert_eq!(window.admits(EDGE_US, 12), 10);
    window.quota.limit = 20;
    assert_eq!(window.admits(EDGE_US + SECOND_US, 12), 10);

    let mut bucket = Client::new(Algorithm::TokenBucket, 10, 20_000, 15);
    assert_eq!(bucket.admits(EDGE_US, 8), 8);
    bucket.quota.limit = 1000;
    assert!(bucket.admits(EDGE_US, 12) >= 7);
}

/// A25: looking takes nothing and leaves nothing behind.
#[test]
fn a_cost_of_0_only_looks() {
    for algorithm in ALL {
        let mut client = Client::new(algorithm, 3, 3_600_000, 3);
        let costs = [0; 10].into_iter().chain([1, 1, 1, 0]);
        let outcomes = client.all(costs.map(|cost| (EDGE_US, cost)));
        assert!(outcomes.iter().all(|outcome| outcome.decisions[0].allowed), "{algorithm:?}");
        let remaining: Vec<_> = outcomes.iter().map(|outcome| outcome.decisions[0].remaining).collect();
        assert_eq!(remaining, [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1, 0, 0], "{algorithm:?}");
        assert!(outcomes[9].states[0].is_empty() && outcomes[9].expiries_ms == [0], "{algorithm:?}");
    }
}

/// A30: what one limit refuses, the others do not pay for, in either order.
#[test]
fn a_refusal_by_one_limit_drains_no_other() {
    let server = Server::start();
    let mut connection = server.connect();
    for order in [[0, 1], [1, 0]] {
        let own = Quota { algorithm: Algorithm::FixedWindow, limit: 1, window_ms: 10_000, burst: 1 };
        let global = Quota { algorithm: Algorithm::SlidingWindowLog, limit: 10, window_ms: 60_000, burst: 10 };
        let mut ask = |user: &str| {
            let limits = [(format!("{order:?} {user}"), own), (format!("{order:?} global"), global)];
            let charges = order.map(|index: usize| {
                let (state_key, quota) = limits[index].clone();
                Charge { state_key, quota, cost: 1, mode: Mode::Enforce }
            });
            let step = Step { now_us: EDGE_US, charges: charges.to_vec() };
            let outcome = fake_clock::run(&mut connection, Expiry::Meets, &[step]).remove(0);
            outcome.decisions.iter().all(|decision| decision.allowed)
        };
        assert_eq!((0..20).filter(|_| ask("A")).count(), 1);
        assert!(["B", "C", "D", "E", "F", "G", "H", "I", "J"].into_iter().all(&mut ask));
        assert!(!ask("K"), "the global limit counts the ten that passed");
    }
}

/// A31: windows above 2^31 ms neither wrap nor end at once.
#[test]
fn long_windows_do_not_overflow() {
    let day_ms = 86_400_000;
    for algorithm in ALL {
        for window_ms in [25 * day_ms, 30 * day_ms, 366 * day_ms, 3652 * day_ms, MAX_WINDOW_MS] {
            let mut client = Client::new(algorithm, 1, window_ms, 1);
            // The first moment of an aligned window.
            let start = EDGE_US.next_multiple_of(window_ms * 1000);
            let outcomes = client.all([(start, 1), (start + 3 * SECOND_US, 1)]);
            assert!(outcomes[0].decisions[0].allowed, "{algorithm:?}, {window_ms}");
            let refused = outcomes[1].decisions[0];
            assert!(!refused.allowed, "{algorithm:?}, {window_ms}");
            let (wait_windows, life_windows) = match algorithm {
                // Room for one unit is there when none of the previous window counts any more.
                Algorithm::SlidingWindowCounter => (2, 2),
                _ => (1, 1),
            };
            assert_eq!(refused.retry_after_us, Some(wait_windows * window_ms * 1000 - 3 * SECOND_US), "{algorithm:?}");
            assert_eq!(outcomes[0].expiries_ms, [start / 1000 + life_windows * window_ms], "{algorithm:?}");
        }
    }
}

/// A32: lifetimes below a millisecond: never more than burst and rate, and no state without an expiry.
#[test]
fn a_lifetime_below_a_millisecond_is_one() {
    for (limit_a_second, burst, every_us) in [(2000, 5, 250), (5000, 1, 50)] {
        let mut client = Client::new(Algorithm::TokenBucket, limit_a_second / 1000, 1, burst);
        let requests = 20_000u64;
        let outcomes = client.all((0..requests).map(|request| (EDGE_US + request * every_us, 1)));
        let admitted = outcomes.iter().filter(|outcome| outcome.decisions[0].allowed).count() as u64;
        let elapsed_us = (requests - 1) * every_us;
        let most = burst + limit_a_second * elapsed_us / SECOND_US;
        assert_eq!(admitted, most.min(requests), "{limit_a_second} a second");
        for (request, outcome) in outcomes.iter().enumerate() {
            let now_ms = (EDGE_US + request as u64 * every_us) / 1000;
            assert!(outcome.expiries_ms[0] > now_ms || !outcome.decisions[0].allowed, "request {request}");
        }
    }
}

/// A02: each admission is an event, whatever the instant: twenty-five of each of four replicas, twice.
#[test]
fn events_of_one_instant_are_all_counted() {
    let mut client = Client::new(Algorithm::SlidingWindowLog, 1000, 60_000, 1000);
    for remaining in [900, 800] {
        assert_eq!(client.admits(EDGE_US, 100), 100);
        assert_eq!(client.ask(EDGE_US, 0).remaining, remaining);
    }
}

/// A limit of a log, lowered and with a backlog of dead events: nothing that has left counts, and the backlog shrinks
/// by more than a charge adds.
#[test]
fn a_backlog_of_dead_events_never_counts_and_shrinks_with_every_charge() {
    let quota = Quota { algorithm: Algorithm::SlidingWindowLog, limit: 5000, window_ms: 60_000, burst: 5000 };
    let mut client = Client::new(quota.algorithm, quota.limit, quota.window_ms, quota.burst);
    // All but one unit at one instant, the last at the end of the window: the log is not dead when the others are.
    let charge = |cost| Charge { state_key: client.key.clone(), quota, cost, mode: Mode::Enforce };
    let mut state: Option<State> = None;
    for event in 0..5000u64 {
        let now_us = EDGE_US + if event < 4999 { 0 } else { 59 * SECOND_US };
        algorithm::decide(now_us, &[charge(1)], &mut [&mut state]);
    }
    redis::cmd("RPUSH").arg(&client.key).arg(fake_clock::encode(state.as_ref())).exec(&mut client.connection).unwrap();
    let later = EDGE_US + 60 * SECOND_US;
    let mut length = 5001;
    for charged in 1..=20u64 {
        let steps = [client.step(later, 0), client.step(later, 5000), client.step(later, 1)];
        let outcomes = fake_clock::run(&mut client.connection, Expiry::Ignores, &steps);
        let [look, refused, admitted] = [0, 1, 2].map(|index: usize| outcomes[index].decisions[0]);
        assert_eq!(look.remaining, 5000 - charged);
        assert!(!refused.allowed && admitted.allowed);
        // Room for all of it is there when the last has left.
        let last_us = if charged == 1 { EDGE_US + 59 * SECOND_US } else { later };
        assert_eq!(refused.retry_after_us, Some(last_us + 60 * SECOND_US - later));
        let now: usize = outcomes[2].states[0].len();
        assert!(now + 1 < length || now == 2 + charged as usize, "{now} after {length}");
        assert!(length - now.min(length) <= 512, "bounded: {now} after {length}");
        length = now;
    }
    assert_eq!(length, 22, "header, the last unit and twenty charges");
}
