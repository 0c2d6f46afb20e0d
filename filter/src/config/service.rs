//! Reads where checks go.

use weir_protocol::document::{Mistakes, Value};
use weir_protocol::duration;

use super::{FIELD_VALUE, Service, field_value, is_field_value};

/// How long a callout may take unless the configuration says otherwise: ten times what a check takes on a busy
/// network, and still less than a person notices.
const DEFAULT_TIMEOUT_MS: u64 = 50;
/// The longest callout timeout: a request held back for longer is better refused.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// The `service` object.
pub fn service(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Service> {
    let mut fields = mistakes.object(path, value)?;
    let cluster = fields
        .required("cluster", "the name of a cluster of the proxy", mistakes)
        .and_then(|(path, value)| field_value(&path, value, mistakes));
    let authority = fields.optional("authority").map(|(path, value)| field_value(&path, value, mistakes));
    let token = fields.optional("token").and_then(|(path, value)| token(&path, value, mistakes));
    let timeout_ms = match fields.optional("timeout") {
        Some((path, value)) => timeout(&path, value, mistakes),
        None => Some(DEFAULT_TIMEOUT_MS),
    };
    fields.finish(mistakes);
    Some(Service {
        cluster: cluster?,
        authority: authority.unwrap_or_else(|| Some("weir".to_owned()))?,
        timeout_ms: timeout_ms?,
        token,
    })
}

fn timeout(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<u64> {
    if let Value::Text(text) = value
        && let Ok(milliseconds) = duration::parse_ms(text)
        && (1..=MAX_TIMEOUT_MS).contains(&milliseconds)
    {
        return Some(milliseconds);
    }
    mistakes.expected(path, format_args!("{} from 1ms to 60s", duration::ACCEPTED), value);
    None
}

/// As any field value, but what was found is a secret.
fn token(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Value::Text(text) if is_field_value(text) => Some(text.clone()),
        _ => {
            mistakes.add(path, format_args!("expected {FIELD_VALUE}; what was found is not shown"));
            None
        }
    }
}
