//! The Lua script that decides a check in Redis: its text, its arguments, its reply.
//!
//! The script is one text made of the files in `lua/`, the clock first and the driver last, so that one EVALSHA
//! decides every limit of a request. A reply of another shape than the driver's is an error, never a decision.

use std::sync::LazyLock;

use redis::Value;
use thiserror::Error;

use crate::calendar::Edges;
use crate::policy::{Algorithm, Mode};
use crate::store::{Charge, Decision};

/// The script without its clock, which [`text`] puts in front of it.
const WITHOUT_CLOCK: &str = concat!(
    include_str!("../../lua/exact.lua"),
    include_str!("../../lua/state.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/calendar_window.lua"),
    include_str!("../../lua/sliding_window_log.lua"),
    include_str!("../../lua/sliding_window_counter.lua"),
    include_str!("../../lua/token_bucket.lua"),
    include_str!("../../lua/check.lua"),
);

static SCRIPT: LazyLock<(String, redis::Script)> = LazyLock::new(|| {
    let text = with_clock(include_str!("../../lua/clock.lua"));
    let script = redis::Script::new(&text);
    (text, script)
});

/// Integers in the reply for each limit.
const REPLY_FIELDS: usize = 4;

/// The reply to a check has not the shape that the script gives it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("script reply: {0}")]
pub struct BadReply(String);

/// The text of the script, for EVAL.
pub fn text() -> &'static str {
    &SCRIPT.0
}

/// The SHA-1 of [`text`] in hexadecimal, for EVALSHA.
pub fn sha1() -> &'static str {
    SCRIPT.1.get_hash()
}

/// The script with another clock: Lua that defines `local function now_us()`. For tests, which set the time.
pub fn with_clock(clock: &str) -> String {
    [clock, WITHOUT_CLOCK].concat()
}

/// KEYS and ARGV of a check, as `lua/check.lua` reads them. The state keys must differ from each other.
pub fn keys_and_args(charges: &[Charge]) -> (Vec<&str>, Vec<String>) {
    let keys = charges.iter().map(|charge| charge.state_key.as_str()).collect();
    let mut args: Vec<String> = charges
        .iter()
        .flat_map(|charge| {
            let quota = &charge.quota;
            let mode = match charge.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
            };
            [
                quota.algorithm.code().to_owned(),
                quota.limit.to_string(),
                quota.window_ms.to_string(),
                quota.burst.to_string(),
                charge.cost.to_string(),
                mode.to_owned(),
            ]
        })
        .collect();
    args.extend(charges.iter().filter_map(edges).flat_map(|edges| edges.0).map(|edge| edge.to_string()));
    (keys, args)
}

/// The windows of a limit that counts by a calendar.
fn edges(charge: &Charge) -> Option<&Edges> {
    if let Algorithm::CalendarWindow(edges) = &charge.quota.algorithm { Some(edges) } else { None }
}

/// The server's time in µs, if the reply says nothing but that: it lies outside the calendar windows of a limit, and
/// nothing was read as a decision or written.
pub fn outside(reply: &Value) -> Option<u64> {
    match reply {
        Value::Array(fields) => match fields.as_slice() {
            [Value::Int(now_us)] => u64::try_from(*now_us).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Reads the reply to a check of `charges`: one decision for each, in their order.
pub fn decode(reply: &Value, charges: &[Charge]) -> Result<Vec<Decision>, BadReply> {
    let Value::Array(fields) = reply else {
        return Err(BadReply(format!("expected an array, got {}", kind(reply))));
    };
    let expected = charges.len() * REPLY_FIELDS + charges.iter().filter_map(edges).count();
    if fields.len() != expected {
        return Err(BadReply(format!("expected {expected} integers, got {}", fields.len())));
    }
    let (fields, ends) = fields.split_at_checked(charges.len() * REPLY_FIELDS).unwrap_or_default();
    let mut ends = ends.iter();
    let decided = |(fields, charge): (&[Value], &Charge)| {
        let decision = decision(fields)?;
        let window_end_us = edges(charge).and_then(|_| ends.next()).map(window_end_us).transpose()?;
        Ok(Decision { window_end_us, ..decision })
    };
    fields.chunks_exact(REPLY_FIELDS).zip(charges).map(decided).collect()
}

fn window_end_us(field: &Value) -> Result<u64, BadReply> {
    match field {
        Value::Int(end) => u64::try_from(*end).map_err(|_| BadReply(format!("no end of a window: {end}"))),
        other => Err(BadReply(format!("expected an integer, got {}", kind(other)))),
    }
}

fn decision(fields: &[Value]) -> Result<Decision, BadReply> {
    let [Value::Int(allowed), Value::Int(remaining), Value::Int(reset), Value::Int(retry)] = fields else {
        return Err(BadReply(format!(
            "expected integers, got {}",
            fields.iter().map(kind).collect::<Vec<_>>().join(", ")
        )));
    };
    let bad = || BadReply(format!("no decision: [{allowed}, {remaining}, {reset}, {retry}]"));
    let quantity = |number: &i64| u64::try_from(*number).map_err(|_| bad());
    let (allowed, retry_after_us) = match (allowed, retry) {
        (1, 0) => (true, Some(0)),
        (0, -1) => (false, None),
        (0, 1..) => (false, Some(quantity(retry)?)),
        _ => return Err(bad()),
    };
    let (remaining, reset_us) = (quantity(remaining)?, quantity(reset)?);
    Ok(Decision { allowed, remaining, reset_us, retry_after_us, window_end_us: None })
}

/// What a value is, for a message: never what it holds, which may be a client's key.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::BulkString(_) | Value::SimpleString(_) => "a string",
        Value::Array(_) => "an array",
        Value::ServerError(_) => "an error",
        _ => "another type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Quota;

    fn charge() -> Charge {
        Charge {
            state_key: "state".to_owned(),
            quota: Quota { algorithm: Algorithm::TokenBucket, limit: 10, window_ms: 1000, burst: 20 },
            cost: 3,
            mode: Mode::Shadow,
        }
    }

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn arguments_are_in_the_order_the_driver_reads() {
        let charges = [charge()];
        let (keys, args) = keys_and_args(&charges);
        assert_eq!(keys, ["state"]);
        assert_eq!(args, ["tb", "10", "1000", "20", "3", "shadow"]);
    }

    #[test]
    fn replies_are_decoded() {
        let refused =
            Decision { allowed: false, remaining: 2, reset_us: 5, retry_after_us: Some(7), window_end_us: None };
        assert_eq!(decode(&ints(&[0, 2, 5, 7]), &[charge()]), Ok(vec![refused]));
        let never = Decision { retry_after_us: None, ..refused };
        let admitted = Decision { allowed: true, retry_after_us: Some(0), ..refused };
        assert_eq!(decode(&ints(&[0, 2, 5, -1, 1, 2, 5, 0]), &[charge(), charge()]), Ok(vec![never, admitted]));
    }

    #[test]
    fn edges_follow_all_limits_and_ends_all_decisions() {
        let month = |edges| Charge {
            quota: Quota { algorithm: Algorithm::CalendarWindow(Edges(edges)), limit: 9, window_ms: 2, burst: 9 },
            ..charge()
        };
        let charges = [month([0, 1, 2, 3]), charge(), month([4, 5, 6, 7])];
        let (_, args) = keys_and_args(&charges);
        assert_eq!(args[..7], ["cw", "9", "2", "9", "3", "shadow", "tb"]);
        assert_eq!(args[18..], ["0", "1", "2", "3", "4", "5", "6", "7"]);

        let admitted = [1, 2, 5, 0];
        let reply = ints(&[&admitted[..], &admitted, &admitted, &[2, 6]].concat());
        let ends =
            decode(&reply, &charges).map(|decisions| decisions.into_iter().map(|one| one.window_end_us).collect());
        assert_eq!(ends, Ok(vec![Some(2), None, Some(6)]));
        for ends in [&[2][..], &[2, -6], &[2, 6, 7]] {
            let reply = ints(&[&admitted[..], &admitted, &admitted, ends].concat());
            assert!(decode(&reply, &charges).is_err(), "{ends:?}");
        }
        assert_eq!(outside(&ints(&[17])), Some(17));
        for reply in [ints(&admitted), ints(&[]), ints(&[-1]), Value::Int(17)] {
            assert_eq!(outside(&reply), None);
        }
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error() {
        let malformed = [
            Value::Nil,
            Value::Int(1),
            ints(&[]),
            ints(&[1, 2, 3]),
            ints(&[1, 2, 3, 0, 1]),
            ints(&[2, 2, 3, 0]),
            ints(&[1, 2, 3, 4]),
            ints(&[0, 2, 3, 0]),
            ints(&[0, 2, 3, -2]),
            ints(&[1, -1, 3, 0]),
            ints(&[1, 1, -3, 0]),
            Value::Array(vec![Value::Int(1), Value::Int(1), Value::Nil, Value::Int(0)]),
        ];
        for reply in malformed {
            assert!(decode(&reply, &[charge()]).is_err(), "{reply:?}");
        }
    }
}
