//! Reads what a refusal looks like.

use weir_protocol::document::{Mistakes, Value};
use weir_protocol::duration;
use weir_protocol::fields::Style;

use super::{field_value, header_name, members};
use crate::reply::Refusal;

/// Longest fixed body: each worker keeps it, and each refusal copies it.
const MAX_BODY_BYTES: usize = 16 << 10;
/// Most seconds of jitter: whoever is told to wait for longer than the limit demands by hours is refused for nothing.
const MAX_JITTER_S: u64 = 3600;

/// Fields that have a meaning of their own in an answer of the filter, or are the host's.
const RESERVED: [&str; 14] = [
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "keep-alive",
    "proxy-connection",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "weir-shadow",
];

/// The `refusal` object.
pub fn refusal(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Refusal> {
    let mut fields = mistakes.object(path, value)?;
    let default = Refusal::default();
    let status = match fields.optional("status") {
        Some((path, value)) => mistakes.whole(&path, value, 400..=599).and_then(|status| u16::try_from(status).ok()),
        None => Some(default.status),
    };
    let content_type = fields.optional("content_type").map(|(path, value)| field_value(&path, value, mistakes));
    let body = fields.optional("body").map(|(path, value)| body(&path, value, mistakes));
    let headers = fields
        .optional("headers")
        .map(|(path, value)| members(&path, value, "header fields", mistakes, header))
        .unwrap_or_default();
    fields.finish(mistakes);
    Some(Refusal {
        status: status?,
        content_type: content_type.map_or(Some(None), |content_type| content_type.map(Some))?,
        body: body.map_or(Some(None), |body| body.map(Some))?,
        headers,
    })
}

/// A duration as whole seconds.
pub fn jitter_s(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<u64> {
    if let Value::Text(text) = value
        && let Ok(milliseconds) = duration::parse_ms(text)
        && milliseconds.is_multiple_of(1000)
        && (1..=MAX_JITTER_S).contains(&(milliseconds / 1000))
    {
        return Some(milliseconds / 1000);
    }
    mistakes.expected(path, format_args!("{} in whole seconds from 1s to 1h", duration::ACCEPTED), value);
    None
}

fn body(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Value::Text(text) if text.len() <= MAX_BODY_BYTES => Some(text.clone()),
        Value::Text(text) => {
            mistakes.add(path, format_args!("expected at most {MAX_BODY_BYTES} bytes, found {}", text.len()));
            None
        }
        other => {
            mistakes.expected(path, "a text", other);
            None
        }
    }
}

fn header(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<(String, String)> {
    let mut fields = mistakes.object(path, value)?;
    let name = fields.required("name", "the name of a header", mistakes).and_then(|(path, value)| {
        let name = header_name(&path, value, mistakes)?;
        let is_limit_field = Style::ALL.iter().any(|style| style.names().contains(&name.as_str()));
        if is_limit_field || RESERVED.contains(&name.as_str()) || name.starts_with("grpc-") {
            mistakes.expected(&path, "the name of a header that neither the filter nor the proxy sets itself", value);
            return None;
        }
        Some(name)
    });
    let value = fields
        .required("value", "a header field value", mistakes)
        .and_then(|(path, value)| field_value(&path, value, mistakes));
    fields.finish(mistakes);
    Some((name?, value?))
}
