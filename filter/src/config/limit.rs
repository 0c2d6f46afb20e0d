//! Reads the limits of a rule.

use weir_protocol::document::{Mistakes, Value};
use weir_protocol::{MAX_LIMITS_PER_CHECK, MAX_QUANTITY};

use super::{Cost, Limit, OnMissingKey, header_name, key, members, name};
use crate::key::Template;

/// All limits of a rule.
pub fn limits(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Vec<Limit>> {
    let values = mistakes.list(path, value, "limits")?;
    if values.is_empty() || values.len() > MAX_LIMITS_PER_CHECK {
        mistakes.add(path, format_args!("expected 1 to {MAX_LIMITS_PER_CHECK} limits, found {}", values.len()));
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(limit) = limit(&path, value, mistakes) {
            if limits.iter().any(|known| known.policy == limit.policy) {
                mistakes.add(&format!("{path}.policy"), format_args!("{:?} is in this rule already", limit.policy));
            }
            limits.push(limit);
        }
    }
    Some(limits)
}

fn limit(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Limit> {
    let mut fields = mistakes.object(path, value)?;
    let policy = fields
        .required("policy", "the name of a policy of the service", mistakes)
        .and_then(|(path, value)| name(&path, value, mistakes));
    let key = fields
        .required("key", "a list of key sources", mistakes)
        .map(|(path, value)| members(&path, value, "key sources", mistakes, key::part));
    let cost = match fields.optional("cost") {
        Some((path, value @ (Value::Object(_) | Value::Null))) => cost_header(&path, value, mistakes),
        Some((path, value)) => mistakes.whole(&path, value, 0..=MAX_QUANTITY).map(Cost::Fixed),
        None => Some(Cost::Fixed(1)),
    };
    let on_missing_key = fields
        .optional("on_missing_key")
        .and_then(|(path, value)| {
            let choices =
                [("client_ip", OnMissingKey::ClientIp), ("skip", OnMissingKey::Skip), ("reject", OnMissingKey::Reject)];
            mistakes.choice(&path, value, &choices)
        })
        .unwrap_or(OnMissingKey::ClientIp);
    let hash = fields.optional("hash").and_then(|(path, value)| mistakes.bool(&path, value)).unwrap_or(false);
    fields.finish(mistakes);
    Some(Limit { policy: policy?, key: Template { parts: key?, hash }, cost: cost?, on_missing_key })
}

fn cost_header(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Cost> {
    let mut fields = mistakes.object(path, value)?;
    let name = fields
        .required("header", "the name of a header", mistakes)
        .and_then(|(path, value)| header_name(&path, value, mistakes));
    let mut number = |field, otherwise: Option<u64>, mistakes: &mut Mistakes| match otherwise {
        Some(otherwise) => match fields.optional(field) {
            Some((path, value)) => mistakes.whole(&path, value, 0..=MAX_QUANTITY),
            None => Some(otherwise),
        },
        None => fields
            .required(field, "the most that a request may take", mistakes)
            .and_then(|(path, value)| mistakes.whole(&path, value, 0..=MAX_QUANTITY)),
    };
    let min = number("min", Some(1), mistakes);
    let max = number("max", None, mistakes);
    let default = number("default", Some(1), mistakes);
    fields.finish(mistakes);
    let (min, max, default) = (min?, max?, default?);
    if min > max {
        mistakes.add(path, format_args!("expected min <= max, found min {min} and max {max}"));
        return None;
    }
    if !(min..=max).contains(&default) {
        mistakes.add(path, format_args!("expected min <= default <= max, found {min}, {default} and {max}"));
        return None;
    }
    Some(Cost::Header { name: name?, default, min, max })
}
