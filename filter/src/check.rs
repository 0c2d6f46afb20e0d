//! Composes what the service is asked about a request.

use weir_protocol::{LimitRequest, MAX_QUANTITY};

use crate::config::{Cost, Limit, OnMissingKey, Rule};
use crate::key::{Resolved, Template};
use crate::request::{Field, Request};
use crate::stats::Outcome;

/// `Ok(None)` if this limit is not to be checked, `Err` with the reason if the request cannot be attributed.
pub fn limit_request(
    rule: &Rule,
    limit: &Limit,
    request: &Request<'_>,
    outcomes: &mut Vec<Outcome>,
) -> Result<Option<LimitRequest>, String> {
    let mut resolved = limit.key.resolve(request);
    if resolved == Resolved::Missing {
        outcomes.push(Outcome::KeyMissing);
        match limit.on_missing_key {
            OnMissingKey::ClientIp => resolved = Template::client_ip(limit.key.hash).resolve(request),
            OnMissingKey::Skip => return Ok(None),
            OnMissingKey::Reject => return Err(format!("the request lacks the key of {}", limit.policy)),
        }
    }
    let key = match resolved {
        Resolved::Key(key) => key,
        Resolved::Missing => return Ok(None),
        Resolved::Ambiguous(name) => return Err(several(&name)),
    };
    if key.address_unknown {
        outcomes.push(Outcome::AddressUnknown);
    }
    let cost = cost(&limit.cost, request)?;
    if !rule.percent.holds(&rule.name, &key.text) {
        outcomes.push(Outcome::Exempt);
        return Ok(None);
    }
    Ok(Some(LimitRequest { policy: limit.policy.clone(), key: key.text, cost }))
}

fn cost(cost: &Cost, request: &Request<'_>) -> Result<u64, String> {
    match cost {
        Cost::Fixed(cost) => Ok(*cost),
        Cost::Header { name, default, min, max } => match request.field(name) {
            Field::Missing => Ok(*default),
            Field::One(value) => Ok(decimal(&value).map_or(*max, |value| value.clamp(*min, *max))),
            Field::Several => Err(several(&format!("header {name}"))),
        },
    }
}

fn several(name: &str) -> String {
    format!("{name} has several values; expected one")
}

/// A number of decimal digits alone; what is too large for any cost counts as the largest.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(value.iter().fold(0, digit).min(MAX_QUANTITY))
}
