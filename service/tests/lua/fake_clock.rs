//! The shipped script with a clock that the test sets, and with expiry noted instead of met.

use std::sync::LazyLock;

use redis::{Connection, FromRedisValue, Pipeline, Script, Value};
use weir_service::algorithm::State;
use weir_service::script;
use weir_service::store::{Charge, Decision};

/// Whether state goes when its noted expiry has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Meets,
    Ignores,
}

/// One check at a time, with the keys already those of the history.
#[derive(Clone, Debug)]
pub struct Step {
    pub now_us: u64,
    pub charges: Vec<Charge>,
}

/// What Redis did at one step.
pub struct Outcome {
    /// The time, if that was all the script said.
    pub outside_us: Option<u64>,
    pub decisions: Vec<Decision>,
    /// For each limit the elements of its state: none, one string, or a list's.
    pub states: Vec<Vec<Vec<u8>>>,
    /// For each limit the millisecond through which it lives; 0 if it was never charged.
    pub expiries_ms: Vec<u64>,
}

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&(script::with_clock(include_str!("fake_clock.lua")) + include_str!("fake_clock_end.lua")))
});

/// Runs all steps in one pipeline.
pub fn run(connection: &mut Connection, expiry: Expiry, steps: &[Step]) -> Vec<Outcome> {
    load(connection);
    let mut pipeline = redis::pipe();
    for step in steps {
        add(&mut pipeline, expiry, step);
    }
    let replies: Vec<Value> = pipeline.query(connection).unwrap();
    replies.into_iter().zip(steps).map(|(reply, step)| outcome(reply, step)).collect()
}

/// Makes the script known to the server; once before [`add`].
pub fn load(connection: &mut Connection) {
    SCRIPT.prepare_invoke().load(connection).unwrap();
}

/// Adds a step to a pipeline. [`outcome`] reads its reply.
pub fn add(pipeline: &mut Pipeline, expiry: Expiry, step: &Step) {
    let (keys, args) = script::keys_and_args(&step.charges);
    let command = pipeline.cmd("EVALSHA").arg(SCRIPT.get_hash()).arg(keys.len()).arg(keys).arg(args);
    let expiry = match expiry {
        Expiry::Meets => "expire",
        Expiry::Ignores => "keep",
    };
    command.arg(expiry).arg(step.now_us);
}

pub fn outcome(reply: Value, step: &Step) -> Outcome {
    let (decided, states, expiries_ms) = <(Value, _, _)>::from_redis_value(reply).unwrap();
    let outside_us = script::outside(&decided);
    let decisions = match outside_us {
        Some(_) => vec![],
        None => script::decode(&decided, &step.charges).unwrap(),
    };
    Outcome { outside_us, decisions, states, expiries_ms }
}

/// The elements that Redis holds for a state.
pub fn encode(state: Option<&State>) -> Vec<Vec<u8>> {
    let packed = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_be_bytes()[1..].to_vec()).collect();
    match state {
        None => vec![],
        Some(State::FixedWindow(window)) => {
            vec![packed(&[window.moment.at_us, window.count, window.moment.offset_us])]
        }
        Some(State::CalendarWindow(window)) => {
            vec![packed(&[window.moment.at_us, window.count, window.moment.offset_us, window.end_us])]
        }
        Some(State::SlidingWindowCounter(counter)) => {
            vec![packed(&[counter.moment.at_us, counter.previous, counter.current, counter.moment.offset_us])]
        }
        Some(State::TokenBucket(bucket)) => {
            vec![packed(&[bucket.whole, bucket.fraction, bucket.moment.at_us, bucket.moment.offset_us])]
        }
        Some(State::SlidingWindowLog(log)) => {
            let mut elements = vec![packed(&[log.offset_us, log.base])];
            for event in &log.events {
                let mut element: Vec<u8> = packed(&[event.at_us]);
                let cumulated = event.cumulated.to_be_bytes();
                let first = cumulated.iter().position(|byte| *byte > 0).unwrap_or(cumulated.len() - 1);
                element.extend(&cumulated[first..]);
                elements.push(element);
            }
            elements
        }
    }
}
