//! What a decision costs Redis, counted and not timed: commands, keys, elements.

use std::collections::BTreeMap;

use redis::{Connection, Script, Value};
use weir_protocol::MAX_QUANTITY;
use weir_service::algorithm::sliding_window_log::{Event, SlidingWindowLog};
use weir_service::algorithm::{self, State};
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::script;
use weir_service::store::{Charge, Decision};

use crate::fake_clock;
use crate::server::Server;

const START_US: u64 = 1_800_000_000_000_000;
const KEY: &str = "weir:1:{org_9921}:per-key:sl:60000";
const WINDOW_MS: u64 = 60_000;
const WINDOW_US: u64 = WINDOW_MS * 1000;

/// How often each command ran.
type Commands = BTreeMap<String, u64>;

/// A Redis, and the shipped script with a clock that the test sets.
struct Counted {
    _server: Server,
    connection: Connection,
    script: Script,
}

impl Counted {
    fn start() -> Self {
        let server = Server::start();
        let mut connection = server.connect();
        let text = script::with_clock(include_str!("fake_clock.lua")) + "end\nreturn shipped()\n";
        let script = Script::new(&text);
        script.prepare_invoke().load(&mut connection).unwrap();
        Self { _server: server, connection, script }
    }

    /// Decides a check, and counts the commands that it took but for those of the clock.
    fn decide(&mut self, now_us: u64, charges: &[Charge]) -> (Vec<Decision>, Commands) {
        reset(&mut self.connection);
        let (keys, args) = script::keys_and_args(charges);
        let mut call = self.script.prepare_invoke();
        let reply: Value = call.key(keys).arg(args).arg("keep").arg(now_us).invoke(&mut self.connection).unwrap();
        let mut commands = count(&mut self.connection);
        commands.remove("hset"); // the noted expiry
        (script::decode(&reply, charges).unwrap(), commands)
    }

    fn one(&mut self, now_us: u64, limit: u64, cost: u64) -> (Decision, Commands) {
        let (decisions, commands) = self.decide(now_us, &[log(limit, cost)]);
        (decisions[0], commands)
    }

    fn put(&mut self, state: Option<&State>) {
        redis::cmd("DEL").arg(KEY).exec(&mut self.connection).unwrap();
        for elements in fake_clock::encode(state).chunks(10_000) {
            redis::cmd("RPUSH").arg(KEY).arg(elements).exec(&mut self.connection).unwrap();
        }
    }

    fn elements(&mut self) -> u64 {
        redis::cmd("LLEN").arg(KEY).query(&mut self.connection).unwrap()
    }
}

fn log(limit: u64, cost: u64) -> Charge {
    let quota = Quota { algorithm: Algorithm::SlidingWindowLog, limit, window_ms: WINDOW_MS, burst: limit };
    Charge { state_key: KEY.to_owned(), quota, cost, mode: Mode::Enforce }
}

/// A log of events of cost 1 at these times.
fn log_of(times: impl IntoIterator<Item = u64>) -> State {
    let events = times.into_iter().zip(1..).map(|(at_us, cumulated)| Event { at_us, cumulated }).collect();
    State::SlidingWindowLog(SlidingWindowLog { offset_us: 0, base: 0, events })
}

fn reset(connection: &mut Connection) {
    redis::cmd("CONFIG").arg("RESETSTAT").exec(connection).unwrap();
}

/// What ran since the reset, without the call of the script itself.
fn count(connection: &mut Connection) -> Commands {
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection).unwrap();
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    };
    let outside = ["evalsha", "config|resetstat", "info"];
    let commands: Commands = info.lines().filter_map(calls).filter(|(name, _)| !outside.contains(&&**name)).collect();
    assert!(!commands.is_empty(), "{info}");
    commands
}

fn commands<const N: usize>(calls: [(&str, u64); N]) -> Commands {
    calls.into_iter().map(|(name, calls)| (name.to_owned(), calls)).collect()
}

fn sum(commands: &Commands) -> u64 {
    commands.values().sum()
}

/// Twice the logarithm, for a search that doubles its steps and then halves them, and a little.
fn logarithmic(events: u64) -> u64 {
    2 * u64::from(events.ilog2() + 1) + 4
}

#[test]
fn a_decision_is_one_look_at_the_clock_one_read_and_one_write() {
    // On Redis' own clock, in windows whose edge is far.
    let server = Server::start();
    let mut connection = server.connect();
    let _: String = redis::cmd("SCRIPT").arg("LOAD").arg(script::text()).query(&mut connection).unwrap();
    let mut decide = |charges: &[Charge]| {
        reset(&mut connection);
        let (keys, args) = script::keys_and_args(charges);
        let mut call = redis::cmd("EVALSHA");
        let reply = call.arg(script::sha1()).arg(keys.len()).arg(keys).arg(args).query(&mut connection).unwrap();
        let allowed = script::decode(&reply, charges).unwrap().iter().all(|decision| decision.allowed);
        (allowed, count(&mut connection))
    };
    let charge = |algorithm: Algorithm, cost| {
        let quota = Quota { algorithm, limit: 10, window_ms: 3_653 * 86_400_000, burst: 10 };
        Charge { state_key: format!("counted:{}", algorithm.code()), quota, cost, mode: Mode::Enforce }
    };
    let strings = [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket];
    for algorithm in strings {
        let read = commands([("time", 1), ("get", 1)]);
        let charged = commands([("time", 1), ("get", 1), ("set", 1)]);
        for (cost, allowed, expected) in
            [(1, true, &charged), (4, true, &charged), (0, true, &read), (6, false, &read), (11, false, &read)]
        {
            assert_eq!(decide(&[charge(algorithm, cost)]), (allowed, expected.clone()), "{algorithm:?}, cost {cost}");
        }
    }
    let of_log = |cost| [charge(Algorithm::SlidingWindowLog, cost)];
    let first = commands([("time", 1), ("lrange", 1), ("rpush", 1), ("pexpireat", 1)]);
    assert_eq!(decide(&of_log(1)), (true, first));
    let charged = commands([("time", 1), ("lrange", 1), ("lindex", 1), ("rpush", 1), ("pexpireat", 1)]);
    assert_eq!(decide(&of_log(1)), (true, charged.clone()));
    assert_eq!(decide(&of_log(8)), (true, charged), "a cost of 8 is one event too");
    let read = commands([("time", 1), ("lrange", 1), ("lindex", 1)]);
    assert_eq!(decide(&of_log(0)), (true, read.clone()));
    assert_eq!(decide(&of_log(1)), (false, read.clone()));
    assert_eq!(decide(&of_log(11)), (false, read));

    // All limits of a check at one instant.
    let all = strings.map(|algorithm| Charge { state_key: format!("all:{algorithm:?}"), ..charge(algorithm, 1) });
    assert_eq!(decide(&all), (true, commands([("time", 1), ("get", 3), ("set", 3)])));
}

#[test]
fn an_admission_to_a_log_and_a_refusal_cost_the_same_however_long_it_is() {
    let mut redis = Counted::start();
    let mut averages = vec![];
    for events in [100, 10_000u64] {
        // Full, with one event at a time, which leave one by one.
        let gap_us = WINDOW_US / events;
        redis.put(Some(&log_of((0..events).map(|event| START_US + event * gap_us))));
        let read = commands([("lrange", 1), ("lindex", 1)]);
        let full = redis.one(START_US + WINDOW_US - 1, events, 1);
        assert_eq!((full.0.allowed, &full.1), (false, &read), "{events} events");
        let (mut admitted, mut refused) = (0, 0);
        for step in 0..500 {
            let now_us = START_US + WINDOW_US + step * gap_us;
            let (decision, commands) = redis.one(now_us, events, 1);
            assert!(decision.allowed);
            admitted += sum(&commands);
            let (decision, commands) = redis.one(now_us, events, 1);
            assert!(!decision.allowed);
            refused += sum(&commands);
        }
        assert_eq!(redis.elements(), events + 1, "no backlog");
        assert_eq!(refused, 500 * 2, "{events} events");
        averages.push(admitted);
    }
    // LRANGE, LINDEX, LTRIM, LSET and RPUSH, while one event leaves with each that comes.
    assert_eq!(averages, [500 * 5, 500 * 5]);
}

/// Whatever a burst leaves behind is paid for by those who come: each charge trims many times what it adds.
#[test]
fn bursts_that_leave_a_log_cost_a_few_commands_a_charge() {
    let mut redis = Counted::start();
    let (mut charges, mut total) = (0, 0);
    let mut now_us = START_US;
    for burst in [1000u64, 1, 3000, 50, 700] {
        for _ in 0..burst {
            let (decision, commands) = redis.one(now_us, 10_000, 1);
            assert!(decision.allowed);
            (charges, total) = (charges + 1, total + sum(&commands));
        }
        // Half a window on: the burst before the last one leaves with the next.
        now_us += WINDOW_US / 2;
    }
    assert!(total <= charges * 6, "{total} commands for {charges} charges");
}

#[test]
fn searches_of_a_log_take_logarithmic_time() {
    let mut redis = Counted::start();
    let events = 10_000;
    let at = |event: u64| START_US + event * 1000;
    let now_us = at(events);
    redis.put(Some(&log_of((0..events).map(at))));
    let mut most = 0;
    // The wait of a larger cost: until the event of that number has left.
    for cost in [2, 3, 10, 77, 1000, 5001, 9_999, 10_000] {
        let (decision, commands) = redis.one(now_us, events, cost);
        assert_eq!(decision.retry_after_us, Some(at(cost - 1) + WINDOW_US - now_us), "cost {cost}");
        most = most.max(sum(&commands));
    }
    // A lowered limit: until so many have left that the rest is below it.
    for limit in [1, 2, 5000, 9_998] {
        let (decision, commands) = redis.one(now_us, limit, 1);
        assert_eq!(decision.retry_after_us, Some(at(events - limit) + WINDOW_US - now_us), "limit {limit}");
        // Reset and retry are both searched for.
        most = most.max(sum(&commands) / 2);
    }
    // A backlog: what has left and was not trimmed.
    for left in [1, 2, 499, 500, 501, 5000, 9_998] {
        let (decision, commands) = redis.one(at(left) + WINDOW_US - 1, events, 0);
        assert_eq!(decision.remaining, left, "{left} have left");
        most = most.max(sum(&commands));
    }
    assert!(most <= logarithmic(events), "{most} commands");
    println!("{most} commands at most for a search of {events} events");
}

/// The longer a log lives, the longer its cumulated costs: 2^40 are a million admissions a second for 12 days. Large
/// costs get beyond 2^48, where a number takes its last byte.
#[test]
fn an_event_takes_16_bytes_at_most_and_17_after_large_costs() {
    let mut redis = Counted::start();
    for (before, most) in [(0, 160_000), (1 << 40, 160_000), (1 << 49, 170_000)] {
        let mut state = log_of((0..10_000).map(|event| START_US + event));
        if let State::SlidingWindowLog(log) = &mut state {
            log.base += before;
            log.events.iter_mut().for_each(|event| event.cumulated += before);
        }
        redis.put(Some(&state));
        let mut command = redis::cmd("MEMORY");
        let bytes: u64 = command.arg("USAGE").arg(KEY).arg("SAMPLES").arg(0).query(&mut redis.connection).unwrap();
        println!("{} bytes for 10 000 events after {before} units", bytes);
        assert!(bytes <= most, "{bytes}");
    }
}

#[test]
fn a_cost_of_many_units_is_one_event() {
    let mut redis = Counted::start();
    let (decision, large) = redis.one(START_US, MAX_QUANTITY, MAX_QUANTITY - 1);
    assert!(decision.allowed);
    assert_eq!(redis.elements(), 2);
    redis.put(None);
    let (_, small) = redis.one(START_US, MAX_QUANTITY, 1);
    assert_eq!((redis.elements(), large), (2, small));
}

/// A million events that leave their window at once: neither a look nor a charge does more than a bounded part.
#[test]
fn a_large_log_that_expires_at_once_is_trimmed_in_bounded_parts() {
    const EVENTS: u64 = 1_000_000;
    let mut redis = Counted::start();
    let live_us = START_US + WINDOW_US / 2;
    let state = log_of((0..EVENTS).map(|event| if event < EVENTS - 10 { START_US } else { live_us }));
    redis.put(Some(&state));
    let mut state = Some(state);
    let now_us = START_US + WINDOW_US;
    redis::cmd("SLOWLOG").arg("RESET").exec(&mut redis.connection).unwrap();
    redis::cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "0"]).exec(&mut redis.connection).unwrap();
    let mut times_us = vec![];
    let mut elements = redis.elements();
    for step in 0..200u64 {
        let expected = algorithm::decide(now_us, &[log(EVENTS, step % 3)], &mut [&mut state]);
        let (decision, commands) = redis.one(now_us, EVENTS, step % 3);
        assert_eq!(decision, expected[0].0, "step {step}");
        assert!(sum(&commands) <= logarithmic(EVENTS) + 6, "step {step}: {commands:?}");
        let left = redis.elements();
        assert!(left <= elements && elements - left <= 500, "step {step}: {left} after {elements}");
        assert!(step % 3 == 0 || elements - left >= 2, "a backlog shrinks: {left} after {elements}");
        elements = left;
        times_us.push(slowest(&mut redis.connection));
    }
    times_us.sort_unstable();
    let (median, most) = (times_us[times_us.len() / 2], times_us[times_us.len() - 1]);
    println!("a decision on a log of which a million events have left: {median} µs, {most} at most");
    let stored: Vec<Vec<u8>> = redis::cmd("LRANGE").arg(KEY).arg(0).arg(-1).query(&mut redis.connection).unwrap();
    assert!(stored == fake_clock::encode(state.as_ref()), "Redis and Rust hold the same");

    // When nothing of it is live, it goes as a whole, and Redis frees it in the background.
    let (decision, ran) = redis.one(now_us + WINDOW_US, EVENTS, 1);
    assert_eq!((decision.allowed, decision.remaining), (true, EVENTS - 1));
    assert_eq!(
        ran,
        commands([("lrange", 1), ("lindex", 1), ("unlink", 1), ("rpush", 1)]) // and the expiry, which is noted only
    );
    assert_eq!(redis.elements(), 2);
    println!("and on one that is dead: {} µs", slowest(&mut redis.connection));
}

/// The slowest call of a script since the last time this was asked.
fn slowest(connection: &mut Connection) -> u64 {
    let log: Vec<Vec<Value>> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query(connection).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(connection).unwrap();
    let of_script = |entry: &Vec<Value>| matches!(&entry[3], Value::Array(words) if words[0] == Value::BulkString(b"EVALSHA".to_vec()));
    let micros =
        |entry: &Vec<Value>| if let Value::Int(micros) = entry[2] { u64::try_from(micros).unwrap() } else { 0 };
    log.iter().filter(|entry| of_script(entry)).map(micros).max().unwrap()
}

#[test]
fn a_limit_and_client_have_one_key_however_many_windows_pass() {
    let mut redis = Counted::start();
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket]
    {
        let state_key = format!("weir:1:{{org_9921}}:per-key:{}:60000", algorithm.code());
        let quota = Quota { algorithm, limit: 100, window_ms: WINDOW_MS, burst: 100 };
        let charge = Charge { state_key: state_key.clone(), quota, cost: 7, mode: Mode::Enforce };
        for step in 0..50 {
            redis.decide(START_US + step * 7_777_777, std::slice::from_ref(&charge));
            let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connection).unwrap();
            keys.retain(|key| key != "expiries");
            assert_eq!(keys, [&*state_key]);
        }
        redis::cmd("DEL").arg(&state_key).exec(&mut redis.connection).unwrap();
    }
}
