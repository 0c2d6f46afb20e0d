//! The list of policies of a policy file.

use std::collections::{HashMap, HashSet};

use weir_protocol::document::{Fields, Mistakes, Value};
use weir_protocol::{MAX_QUANTITY, MAX_WINDOW_MS, is_name, is_unit};

use super::window;
use crate::limiter::MAX_KEY_BYTES;
use crate::policy::{Algorithm, Allowance, Mode, Policies, Policy, Window};

const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window_log", Algorithm::SlidingWindowLog),
    ("sliding_window_counter", Algorithm::SlidingWindowCounter),
    ("token_bucket", Algorithm::TokenBucket),
];
const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];
const NAME: &str = "a name of 1 to 64 of a-z, 0-9, _ and -, that starts with a letter or digit";
const UNIT: &str = "a unit of 1 to 32 of a-z, 0-9 and -, that starts with a letter";
const DEFAULT_UNIT: &str = "requests";

/// `limit` as it is written.
#[derive(Clone, Copy)]
enum Limit {
    Unlimited,
    Units(u64),
}

/// What an allowance is read against.
#[derive(Clone, Copy)]
struct Frame {
    algorithm: Option<Algorithm>,
    window_ms: Option<u64>,
}

/// The list under `policies`.
pub(super) fn read(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Policies> {
    let list = mistakes.list(path, value, "policies")?;
    if list.is_empty() {
        mistakes.add(path, "expected at least one policy, found none");
    }
    let mut names = HashSet::new();
    let mut policies = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(mut fields) = mistakes.object(&path, value) else { continue };
        let name = name(&mut fields, &mut names, mistakes);
        policies.push(policy(fields, name, mistakes));
    }
    policies.into_iter().collect()
}

fn name<'a>(fields: &mut Fields<'a>, names: &mut HashSet<&'a str>, mistakes: &mut Mistakes) -> Option<&'a str> {
    let (path, value) = fields.required("name", "a name", mistakes)?;
    match value {
        Value::Text(name) if is_name(name) => {
            if !names.insert(name) {
                mistakes.add(&path, format_args!("expected a name of its own, found {name:?} again"));
            }
            Some(name)
        }
        other => {
            mistakes.expected(&path, NAME, other);
            None
        }
    }
}

fn policy(mut fields: Fields<'_>, name: Option<&str>, mistakes: &mut Mistakes) -> Option<Policy> {
    let words = ALGORITHMS.map(|(word, _)| word).join(", ");
    let algorithm = fields
        .required("algorithm", format_args!("one of {words}"), mistakes)
        .and_then(|(path, value)| mistakes.choice(&path, value, &ALGORITHMS));
    let limit = fields
        .required("limit", "a whole number, or `unlimited`", mistakes)
        .and_then(|(path, value)| limit(&path, value, mistakes));
    let window = window::read(&mut fields, algorithm, mistakes);
    let window_ms = if let Some(Window::Length(window_ms)) = window { Some(window_ms) } else { None };
    let frame = Frame { algorithm, window_ms };
    let burst = burst(&mut fields, limit, algorithm, mistakes);
    let unit = match fields.optional("unit") {
        Some((_, Value::Text(unit))) if is_unit(unit) => Some(unit.clone()),
        Some((path, other)) => {
            mistakes.expected(&path, UNIT, other);
            None
        }
        None => Some(DEFAULT_UNIT.to_owned()),
    };
    let mode = match fields.optional("mode") {
        Some((path, value)) => mistakes.choice(&path, value, &MODES),
        None => Some(Mode::Enforce),
    };
    let allowance = limit.and_then(|limit| {
        let burst = match (limit, burst) {
            (Limit::Units(limit), Burst::Absent) => Some(limit),
            (_, burst) => burst.units(),
        };
        allowance(&fields, limit, burst, frame, mistakes)
    });
    let overrides = match fields.optional("overrides") {
        Some((path, value)) => overrides(&path, value, allowance, frame, mistakes),
        None => Some(HashMap::new()),
    };
    fields.finish(mistakes);
    Some(Policy {
        name: name?.into(),
        algorithm: algorithm?,
        window: window?,
        unit: unit?,
        mode: mode?,
        allowance: allowance?,
        overrides: overrides?,
    })
}

fn limit(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Limit> {
    match value {
        Value::Text(text) if text == "unlimited" => Some(Limit::Unlimited),
        Value::Whole(units @ 1..=MAX_QUANTITY) => Some(Limit::Units(*units)),
        other => {
            mistakes.expected(path, format_args!("a whole number from 1 to {MAX_QUANTITY}, or `unlimited`"), other);
            None
        }
    }
}

/// `burst` as it is written.
#[derive(Clone, Copy)]
enum Burst {
    Absent,
    Wrong,
    Units(u64),
}

impl Burst {
    fn units(self) -> Option<u64> {
        if let Self::Units(units) = self { Some(units) } else { None }
    }
}

fn burst(
    fields: &mut Fields<'_>,
    limit: Option<Limit>,
    algorithm: Option<Algorithm>,
    mistakes: &mut Mistakes,
) -> Burst {
    let Some((path, value)) = fields.optional("burst") else { return Burst::Absent };
    match (algorithm, limit) {
        (Some(algorithm), _) if algorithm != Algorithm::TokenBucket => {
            mistakes.add(&path, "only a token_bucket has one; remove it, or change `algorithm`");
            Burst::Wrong
        }
        (_, Some(Limit::Unlimited)) => {
            mistakes.add(&path, "an unlimited bucket has none; remove it, or write a number as `limit`");
            Burst::Wrong
        }
        _ => mistakes.whole(&path, value, 1..=MAX_QUANTITY).map_or(Burst::Wrong, Burst::Units),
    }
}

/// `burst` is missing only where it does not matter or was reported.
fn allowance(
    fields: &Fields<'_>,
    limit: Limit,
    burst: Option<u64>,
    frame: Frame,
    mistakes: &mut Mistakes,
) -> Option<Allowance> {
    let Limit::Units(limit) = limit else { return Some(Allowance::Unlimited) };
    let burst = burst?;
    if frame.algorithm == Some(Algorithm::TokenBucket)
        && let Some(window_ms) = frame.window_ms
        && u128::from(burst) * u128::from(window_ms) > u128::from(limit) * u128::from(MAX_WINDOW_MS)
    {
        let message = "time to fill the bucket (burst * window / limit) is above 3660d";
        mistakes.add(fields.here(), format_args!("{message}, with burst {burst} and limit {limit}"));
        return None;
    }
    Some(Allowance::Limited { limit, burst })
}

fn overrides(
    path: &str,
    value: &Value,
    of: Option<Allowance>,
    frame: Frame,
    mistakes: &mut Mistakes,
) -> Option<HashMap<String, Allowance>> {
    let list = mistakes.list(path, value, "overrides, such as { key: org_9921, limit: 1000 }")?;
    let mut overrides = HashMap::with_capacity(list.len());
    let mut keys = HashSet::new();
    for (index, value) in list.iter().enumerate() {
        let Some(mut fields) = mistakes.object(&format!("{path}[{index}]"), value) else { continue };
        let key = fields.required("key", "the key that is excepted", mistakes).and_then(|(path, value)| {
            let key = mistakes.text(&path, value, "a text that is not empty")?;
            if key.len() > MAX_KEY_BYTES {
                mistakes.add(&path, format_args!("expected at most {MAX_KEY_BYTES} bytes, found {}", key.len()));
            }
            if !keys.insert(key) {
                mistakes.add(&path, format_args!("expected a key of its own, found {key:?} again"));
            }
            Some(key)
        });
        let limit = fields
            .required("limit", "a whole number, or `unlimited`", mistakes)
            .and_then(|(path, value)| limit(&path, value, mistakes));
        let burst = burst(&mut fields, limit, frame.algorithm, mistakes);
        let allowance = limit.and_then(|limit| {
            let burst = match (limit, burst) {
                (Limit::Units(limit), Burst::Absent) => scaled_burst(&fields, of, limit, mistakes),
                (_, burst) => burst.units(),
            };
            allowance(&fields, limit, burst, frame, mistakes)
        });
        fields.finish(mistakes);
        if let (Some(key), Some(allowance)) = (key, allowance) {
            overrides.insert(key.to_owned(), allowance);
        }
    }
    Some(overrides)
}

/// The burst of an override that gives only a limit: in proportion to the policy's, rounded up. Who is given ten times
/// the rate is given ten times the bucket, and the time to fill it stays the same.
fn scaled_burst(fields: &Fields<'_>, of: Option<Allowance>, limit: u64, mistakes: &mut Mistakes) -> Option<u64> {
    let (policy_limit, policy_burst) = match of? {
        Allowance::Unlimited => return Some(limit),
        Allowance::Limited { limit, burst } => (u128::from(limit), u128::from(burst)),
    };
    let burst = (policy_burst * u128::from(limit)).div_ceil(policy_limit);
    let in_range = u64::try_from(burst).ok().filter(|burst| *burst <= MAX_QUANTITY);
    if in_range.is_none() {
        let message = "is missing; in proportion to the policy's it would be";
        let accepted = format_args!("expected a whole number from 1 to {MAX_QUANTITY}");
        mistakes.add(&fields.path("burst"), format_args!("{message} {burst}; {accepted}"));
    }
    in_range
}
