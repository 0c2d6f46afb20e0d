//! Windows of a calendar: the script picks one by Redis' clock, whatever the service's clock shows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use redis::Connection;
use weir_protocol::{CheckReply, CheckRequest, LimitRequest};
use weir_service::algorithm::{self, State};
use weir_service::calendar::{Calendar, Edges, Unit};
use weir_service::config::Config;
use weir_service::limiter::Limiter;
use weir_service::metrics::Metrics;
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::script;
use weir_service::store::{Charge, Decision, Store, StoreError};

use crate::fake_clock::{self, Expiry, Step};
use crate::server::Server;

/// 2026-03-28T12:00:00Z, the day before clocks are put forward in Europe.
const START_US: u64 = 1_774_699_200_000_000;
const HOUR_US: u64 = 3_600_000_000;
const YEAR_US: u64 = 365 * 24 * HOUR_US;

fn calendar(unit: Unit, zone: &str) -> Calendar {
    Calendar::new(unit, zone).unwrap()
}

fn charge(key: &str, limit: u64, edges: Edges, cost: u64) -> Charge {
    let algorithm = Algorithm::CalendarWindow(edges);
    let quota = Quota { algorithm, limit, window_ms: edges.length_us() / 1000, burst: limit };
    Charge { state_key: key.to_owned(), quota, cost, mode: Mode::Enforce }
}

fn step(now_us: u64, charges: &[Charge]) -> Step {
    Step { now_us, charges: charges.to_vec() }
}

/// A limit of a history: of a calendar, or a fixed window or bucket beside it.
#[derive(Clone, Debug)]
struct Limit {
    calendar: Option<Calendar>,
    other: Algorithm,
    limit: u64,
    mode: Mode,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    Still,
    Micros(u64),
    Minutes(u64),
    Days(u64),
    /// To the edge of this index of the first limit's windows, and that many µs more.
    Edge(usize, i8),
    BackMinutes(u64),
    BackDays(u64),
}

/// Where the service's clock is, seen from the window that Redis' clock is in.
#[derive(Clone, Copy, Debug)]
enum Service {
    Right,
    StartOfPrevious,
    EndOfPrevious,
    StartOfNext,
    EndOfNext,
}

#[derive(Clone, Debug)]
struct Move {
    time: Time,
    service: Service,
    costs: Vec<u64>,
    change: Option<u64>,
}

impl Service {
    fn now_us(self, now_us: u64, Edges(edges): Edges) -> u64 {
        match self {
            Self::Right => now_us,
            Self::StartOfPrevious => edges[0],
            Self::EndOfPrevious => edges[1] - 1,
            Self::StartOfNext => edges[2],
            Self::EndOfNext => edges[3] - 1,
        }
    }
}

fn limit() -> impl Strategy<Value = Limit> {
    const ZONES: [&str; 5] = ["UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "America/St_Johns"];
    let calendar = (proptest::sample::select(&Unit::ALL[..]), proptest::sample::select(&ZONES[..]))
        .prop_map(|(unit, zone)| calendar(unit, zone));
    let other = prop_oneof![Just(Algorithm::FixedWindow), Just(Algorithm::TokenBucket)];
    let mode = prop_oneof![3 => Just(Mode::Enforce), 1 => Just(Mode::Shadow)];
    let units = prop_oneof![4 => 1..=6u64, 1 => Just(weir_protocol::MAX_QUANTITY)];
    (proptest::option::weighted(0.8, calendar), other, units, mode).prop_map(|(calendar, other, limit, mode)| Limit {
        calendar,
        other,
        limit,
        mode,
    })
}

fn history() -> impl Strategy<Value = (Vec<Limit>, Vec<Move>)> {
    let time = prop_oneof![
        2 => Just(Time::Still),
        1 => (0..2000u64).prop_map(Time::Micros),
        3 => (0..600u64).prop_map(Time::Minutes),
        1 => (0..40u64).prop_map(Time::Days),
        4 => (0..4usize, -1..=1i8).prop_map(|(index, more)| Time::Edge(index, more)),
        1 => (0..600u64).prop_map(Time::BackMinutes),
        1 => (0..70u64).prop_map(Time::BackDays),
    ];
    let service = proptest::sample::select(vec![
        Service::Right,
        Service::StartOfPrevious,
        Service::EndOfPrevious,
        Service::StartOfNext,
        Service::EndOfNext,
    ]);
    let costs = proptest::collection::vec(0..5u64, 3);
    let change = proptest::option::weighted(0.1, 1..=6u64);
    let step =
        (time, service, costs, change).prop_map(|(time, service, costs, change)| Move { time, service, costs, change });
    (proptest::collection::vec(limit(), 1..=3), proptest::collection::vec(step, 1..80))
}

/// Steps in which Redis is passed the windows of the service's clock, and the same with those of its own.
fn steps(mut limits: Vec<Limit>, moves: &[Move]) -> Vec<(Step, Step)> {
    static HISTORY: AtomicU64 = AtomicU64::new(0);
    let history = HISTORY.fetch_add(1, Ordering::Relaxed);
    let mut now_us = START_US;
    let edges_of = |limit: &Limit, now_us| limit.calendar.as_ref().map(|calendar| calendar.edges(now_us));
    moves
        .iter()
        .map(|step| {
            now_us = match step.time {
                Time::Still => now_us,
                Time::Micros(micros) => now_us + micros,
                Time::Minutes(minutes) => now_us + minutes * HOUR_US / 60,
                Time::Days(days) => now_us + days * 24 * HOUR_US,
                Time::Edge(index, more) => edges_of(&limits[0], now_us)
                    .map_or(now_us, |Edges(edges)| edges[index].saturating_add_signed(more.into())),
                Time::BackMinutes(minutes) => now_us - minutes * HOUR_US / 60,
                Time::BackDays(days) => now_us - days * 24 * HOUR_US,
            };
            if let Some(limit) = step.change {
                limits[0].limit = limit;
            }
            let charges = |service: Service| {
                let charge_of = |(index, limit): (usize, &Limit)| {
                    let state_key = format!("calendar:{history}:{index}");
                    let charge = match edges_of(limit, now_us) {
                        None => Charge {
                            state_key,
                            quota: Quota {
                                algorithm: limit.other,
                                limit: limit.limit,
                                window_ms: 86_400_000,
                                burst: limit.limit,
                            },
                            cost: step.costs[index],
                            mode: Mode::Enforce,
                        },
                        Some(right) => {
                            let passed = edges_of(limit, service.now_us(now_us, right)).unwrap();
                            charge(&state_key, limit.limit, passed, step.costs[index])
                        }
                    };
                    Charge { mode: limit.mode, ..charge }
                };
                limits.iter().enumerate().map(charge_of).collect::<Vec<_>>()
            };
            (step_at(now_us, charges(step.service)), step_at(now_us, charges(Service::Right)))
        })
        .collect()
}

fn step_at(now_us: u64, charges: Vec<Charge>) -> Step {
    Step { now_us, charges }
}

#[test]
fn redis_and_rust_agree_whatever_the_services_clock_shows() {
    let server = Server::start();
    let connection = RefCell::new(server.connect());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/calendar.txt"))),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    });
    runner
        .run(&(history(), any::<bool>()), |((limits, moves), expires)| {
            let expiry = if expires { Expiry::Meets } else { Expiry::Ignores };
            let steps = steps(limits, &moves);
            let asked: Vec<Step> = steps.iter().map(|(asked, _)| asked.clone()).collect();
            let outcomes = fake_clock::run(&mut connection.borrow_mut(), expiry, &asked);
            let count = asked[0].charges.len();
            let mut states: Vec<Option<State>> = vec![None; count];
            let mut expiries_ms = vec![0; count];
            for (index, ((_, Step { now_us, charges }), outcome)) in steps.iter().zip(outcomes).enumerate() {
                if expiry == Expiry::Meets {
                    for (state, expiry_ms) in states.iter_mut().zip(&expiries_ms) {
                        if now_us / 1000 > *expiry_ms {
                            *state = None;
                        }
                    }
                }
                prop_assert!(algorithm::covers(*now_us, &asked[index].charges));
                let expected = algorithm::decide(*now_us, charges, &mut states.iter_mut().collect::<Vec<_>>());
                for ((_, life_us), expiry_ms) in expected.iter().zip(&mut expiries_ms) {
                    if let Some(life_us) = life_us {
                        *expiry_ms = now_us / 1000 + life_us.div_ceil(1000);
                    }
                }
                let decisions: Vec<Decision> = expected.into_iter().map(|(decision, _)| decision).collect();
                let held: Vec<_> = states.iter().map(|state| fake_clock::encode(state.as_ref())).collect();
                prop_assert_eq!(&outcome.decisions, &decisions, "step {} of {:#?}", index, asked);
                prop_assert_eq!(&outcome.states, &held, "step {} of {:#?}", index, asked);
                prop_assert_eq!(&outcome.expiries_ms, &expiries_ms, "step {} of {:#?}", index, asked);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/calendar.txt"))), ..ProptestConfig::default() })]

    #[test]
    fn each_window_admits_its_limit_and_no_less((limits, moves) in history()) {
        // While the clock does not go back, a count by window is all there is to it.
        let Some(calendar) = limits[0].calendar.clone() else { return Ok(()) };
        let moves: Vec<Move> = moves
            .into_iter()
            .filter(|step| !matches!(step.time, Time::BackMinutes(_) | Time::BackDays(_) | Time::Edge(0 | 1, _)))
            .map(|step| Move { change: None, ..step })
            .collect();
        let limit = limits[0].limit;
        let mut counts: HashMap<u64, u64> = HashMap::new();
        let mut state = None;
        let mut last_us = 0;
        for (asked, _) in steps(limits[..1].to_vec(), &moves) {
            if asked.now_us < last_us {
                continue; // one µs before an edge that it was at
            }
            last_us = asked.now_us;
            let cost = asked.charges[0].cost;
            let Edges([_, start, end, _]) = calendar.edges(asked.now_us);
            prop_assert!((start..end).contains(&asked.now_us));
            let count = counts.entry(end).or_default();
            let decision = algorithm::decide(asked.now_us, &asked.charges, &mut [&mut state]).remove(0).0;
            prop_assert_eq!(decision.allowed, *count + cost <= limit);
            if decision.allowed {
                *count += cost;
            }
            prop_assert_eq!(decision.remaining, limit - *count);
            prop_assert_eq!(decision.reset_us, if *count > 0 { end - asked.now_us } else { 0 });
            prop_assert_eq!(decision.window_end_us, Some(end));
            let wait_us = match (decision.allowed, cost <= limit) {
                (true, _) => Some(0),
                (false, true) => Some(end - asked.now_us),
                (false, false) => None,
            };
            prop_assert_eq!(decision.retry_after_us, wait_us);
        }
    }
}

#[test]
fn a_window_ends_to_the_microsecond() {
    let server = Server::start();
    let mut connection = server.connect();
    for (unit, zone, inside, hours) in [
        (Unit::Month, "UTC", "2026-01-31T23:00:00Z", 31 * 24),
        (Unit::Month, "UTC", "2028-02-29T12:00:00Z", 29 * 24),
        (Unit::Month, "UTC", "2026-12-31T12:00:00Z", 31 * 24),
        (Unit::Week, "UTC", "2027-01-01T12:00:00Z", 7 * 24),
        (Unit::Day, "Europe/Berlin", "2026-03-29T12:00:00Z", 23),
        (Unit::Day, "Europe/Berlin", "2026-10-25T12:00:00Z", 25),
        (Unit::Day, "Asia/Kolkata", "2026-10-25T12:00:00Z", 24),
        (Unit::Day, "America/Santiago", "2026-09-06T12:00:00Z", 23),
        (Unit::Day, "America/Santiago", "2026-04-04T12:00:00Z", 25),
    ] {
        let calendar = calendar(unit, zone);
        let inside: jiff::Timestamp = inside.parse().unwrap();
        let Edges([_, start, end, next_end]) = calendar.edges(inside.as_microsecond().unsigned_abs());
        assert_eq!(end - start, hours * HOUR_US, "{unit:?} of {zone}");
        // The service's clock may be in the window before, in this one and in the next.
        for service_us in [start - 1, start, end - 1, end] {
            let key = format!("{calendar}:{service_us}");
            let one = [charge(&key, 1, calendar.edges(service_us), 1)];
            let all = [start, end - 1, end, end + 1].map(|now_us| step(now_us, &one));
            let decided: Vec<_> = fake_clock::run(&mut connection, Expiry::Meets, &all)
                .into_iter()
                .map(|outcome| (outcome.outside_us, outcome.decisions))
                .collect();
            let decision = |allowed, wait_us, end_us| {
                let retry_after_us = Some(if allowed { 0 } else { wait_us });
                let decision =
                    Decision { allowed, remaining: 0, reset_us: wait_us, retry_after_us, window_end_us: Some(end_us) };
                (None, vec![decision])
            };
            let mut expected = vec![
                decision(true, end - start, end),
                decision(false, 1, end),
                decision(true, next_end - end, next_end),
                decision(false, next_end - end - 1, next_end),
            ];
            if service_us < start {
                // The windows around its time end where this one does.
                expected[2] = (Some(end), vec![]);
                expected[3] = (Some(end + 1), vec![]);
            }
            assert_eq!(decided, expected, "{key}");
        }
    }
}

#[test]
fn outside_all_windows_nothing_is_written_for_any_limit() {
    let server = Server::start();
    let mut connection = server.connect();
    let months = calendar(Unit::Month, "Europe/Berlin");
    let Edges(edges) = months.edges(START_US);
    let fixed = Charge {
        quota: Quota { algorithm: Algorithm::FixedWindow, limit: 9, window_ms: 1000, burst: 9 },
        ..charge("outside:fixed", 9, Edges(edges), 1)
    };
    let days = calendar(Unit::Day, "UTC").edges(START_US);
    let shadow = Charge { mode: Mode::Shadow, ..charge("outside:shadow", 9, days, 1) };
    let right = [fixed.clone(), charge("outside:month", 9, Edges(edges), 2), shadow.clone()];
    let charged = fake_clock::run(&mut connection, Expiry::Ignores, &[step(START_US, &right)]).remove(0);
    assert_eq!(charged.outside_us, None);
    assert!(charged.states.iter().all(|state| !state.is_empty()));
    // Outside of either calendar, on either side, by a microsecond or by far; in every order; also while the fixed
    // window would have to note that the clock was set back.
    let day_after = days.0[3];
    for now_us in [0, edges[0] - 1, edges[0], days.0[0] - 1, day_after, edges[3] - 1, edges[3], START_US + YEAR_US] {
        for turn in 0..3 {
            let mut charges = right.clone();
            charges.rotate_left(turn);
            let outcome = fake_clock::run(&mut connection, Expiry::Ignores, &[step(now_us, &charges)]).remove(0);
            assert_eq!(outcome.outside_us, Some(now_us));
            let (mut states, mut expiries) = (charged.states.clone(), charged.expiries_ms.clone());
            states.rotate_left(turn);
            expiries.rotate_left(turn);
            assert_eq!((outcome.states, outcome.expiries_ms), (states, expiries), "at {now_us}");
            let fresh = charges.map(|charge| Charge { state_key: format!("new:{}", charge.state_key), ..charge });
            let outcome = fake_clock::run(&mut connection, Expiry::Ignores, &[step(now_us, &fresh)]).remove(0);
            assert!(outcome.outside_us.is_some() && outcome.states.iter().all(Vec::is_empty));
        }
    }
    // Just inside.
    for now_us in [days.0[0], day_after - 1] {
        let outcome = fake_clock::run(&mut connection, Expiry::Ignores, &[step(now_us, &right)]).remove(0);
        assert_eq!((outcome.outside_us, outcome.decisions.len()), (None, 3));
    }
}

#[test]
fn a_count_keeps_its_age_when_the_clock_is_set_back() {
    let server = Server::start();
    let mut connection = server.connect();
    let months = calendar(Unit::Month, "UTC");
    let april = months.edges(START_US).0[2];
    let may = months.edges(START_US).0[3];
    // Ten minutes into April the limit is used up; then the clock goes back, by an hour or by a year.
    for back_us in [HOUR_US, YEAR_US] {
        let used_us = april + HOUR_US / 6;
        let key = format!("set back by {back_us}");
        let at = |now_us: u64, cost| step(now_us, &[charge(&key, 1, months.edges(now_us), cost)]);
        let end = may - back_us;
        let steps =
            [at(used_us, 1), at(used_us - back_us, 1), at(used_us - back_us + HOUR_US, 0), at(end - 1, 1), at(end, 0)];
        let decisions: Vec<Decision> = fake_clock::run(&mut connection, Expiry::Ignores, &steps)
            .into_iter()
            .map(|outcome| outcome.decisions[0])
            .collect();
        let left_us = may - used_us;
        let waits: Vec<_> = decisions.iter().map(|decision| decision.reset_us).collect();
        assert_eq!(waits, [left_us, left_us, left_us - HOUR_US, 1, 0], "as if it had stood still at the step");
        assert!(decisions[..4].iter().all(|decision| decision.window_end_us == Some(may)), "{decisions:?}");
        // Then the window is that of the clock again.
        assert_eq!(decisions[4].window_end_us, months.edges(end).end_us(end));
        assert_eq!(decisions[4].remaining, 1);
    }
}

#[test]
fn state_lives_to_the_end_of_its_window_and_is_small() {
    let server = Server::start();
    let mut connection = server.connect();
    let months = calendar(Unit::Month, "Europe/Berlin");
    let now = now_us();
    let key = format!("weir:1:{{org_9921}}:per-key:fw:{months}");
    let charges = [charge(&key, weir_protocol::MAX_QUANTITY, months.edges(now), 1)];
    let (keys, args) = script::keys_and_args(&charges);
    let reply =
        redis::cmd("EVAL").arg(script::text()).arg(keys.len()).arg(keys).arg(args).query(&mut connection).unwrap();
    let end = script::decode(&reply, &charges).unwrap()[0].window_end_us.unwrap();
    assert!(months.edges(now).0[2..].contains(&end));
    let expires: u64 = ask(&mut connection, &["PEXPIRETIME", &key]);
    assert!((end / 1000..=end / 1000 + 1).contains(&expires), "{expires} for {end}");
    let bytes: u64 = ask(&mut connection, &["MEMORY", "USAGE", &key]);
    println!("cw: {bytes} bytes");
    assert!(bytes <= 144, "{bytes} bytes, of which the name has {}", key.len());
}

fn ask<T: redis::FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(connection).unwrap()
}

fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A day ends now and then: a time zone in which none does within a minute.
fn zone() -> &'static str {
    let ends_late = |zone: &&str| calendar(Unit::Day, zone).edges(now_us()).0[2] - now_us() > HOUR_US / 60;
    ["UTC", "Asia/Kolkata"].into_iter().find(ends_late).unwrap()
}

fn config(store: &str) -> Config {
    let zone = zone();
    let policies = format!(
        "[{{name: daily, algorithm: fixed_window, limit: 5, window: day, time_zone: {zone}}},
          {{name: monthly, algorithm: fixed_window, limit: 9, window: month, time_zone: {zone},
            overrides: [{{key: vip, limit: unlimited}}]}},
          {{name: second, algorithm: token_bucket, limit: 7, window: 90d}}]"
    );
    Config::parse(&format!("store: {store}\npolicies: {policies}")).unwrap()
}

/// The stores that ship, each on its own clock, which is right.
fn stores(server: &Server) -> [String; 2] {
    ["{memory: {}}".to_owned(), format!("{{redis: {{url: \"{}\"}}, timeout: 5s}}", server.url())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_tells_its_time_when_it_is_asked_for_other_windows() {
    let server = Server::start();
    server.connect();
    for written in stores(&server) {
        let store = Store::open(&config(&written).store).unwrap();
        let days = calendar(Unit::Day, "UTC");
        for wrong_us in [0, now_us() - YEAR_US, now_us() + YEAR_US] {
            let wrong = [charge("asked", 3, days.edges(wrong_us), 1)];
            let before = now_us();
            let told = match store.check(&wrong, Instant::now()).await {
                Err(error @ StoreError::OutsideWindows { now_us }) => {
                    assert_eq!((error.kind(), error.is_transient()), ("clock", true));
                    now_us
                }
                other => panic!("{other:?}"),
            };
            assert!((before - 1_000_000..=now_us() + 1_000_000).contains(&told), "{told}");
            let look = [charge("asked", 3, days.edges(told), 0)];
            assert_eq!(store.check(&look, Instant::now()).await.unwrap()[0].remaining, 3, "nothing was charged");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_clock_is_wrong_decides_as_others_do() {
    let server = Server::start();
    server.connect();
    let check = |key: &str, policies: &[&str]| CheckRequest {
        limits: policies
            .iter()
            .map(|policy| LimitRequest { policy: (*policy).to_owned(), key: key.to_owned(), cost: 1 })
            .collect(),
    };
    for written in stores(&server) {
        let Config { store, policies, .. } = config(&written);
        let limiter = Limiter::new(policies, Store::open(&store).unwrap(), Arc::new(Metrics::new()));
        let clocks = [0, now_us(), now_us() - 3 * YEAR_US, now_us() + 10 * YEAR_US, u64::MAX];
        let mut last: Option<CheckReply> = None;
        for (index, service_us) in clocks.into_iter().enumerate() {
            let reply = limiter.check_at(service_us, &check("a", &["second", "daily", "monthly"])).await.unwrap();
            assert!(reply.allowed);
            let [_, daily, monthly] = &reply.limits[..] else { panic!("{reply:?}") };
            let left = u64::try_from(4 - index).unwrap();
            assert_eq!((daily.remaining, monthly.remaining), (Some(left), Some(left + 4)), "one charge a check");
            assert_eq!(daily.window_ms, 86_400_000);
            assert!((28..=31).contains(&(monthly.window_ms / 86_400_000)), "{}", monthly.window_ms);
            assert!(daily.reset_ms <= 86_400_000 && monthly.reset_ms <= monthly.window_ms);
            if let Some(last) = last.replace(reply.clone()) {
                assert_eq!(last.limits[2].window_ms, monthly.window_ms);
            }
        }
        let refused = limiter.check_at(0, &check("a", &["second", "daily"])).await.unwrap();
        assert!(!refused.allowed && refused.limits[0].allowed);
        // Nobody counts here, so there is only the service's own clock to ask.
        let june_us = START_US + 75 * 24 * HOUR_US;
        let unlimited = limiter.check_at(june_us, &check("vip", &["monthly"])).await.unwrap();
        assert_eq!((unlimited.limits[0].limit, unlimited.limits[0].window_ms), (None, 30 * 86_400_000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_again_has_no_second_deadline() {
    let server = Server::start();
    server.connect();
    let Config { store, .. } = config(&format!("{{redis: {{url: \"{}\"}}, timeout: 5s}}", server.url()));
    let store = Store::open(&store).unwrap();
    let charges = [charge("late", 3, calendar(Unit::Day, "UTC").edges(now_us()), 1)];
    assert!(store.check(&charges, Instant::now()).await.is_ok());
    let started = Instant::now().checked_sub(Duration::from_secs(6)).unwrap();
    assert!(matches!(store.check(&charges, started).await, Err(StoreError::Timeout)));
}
