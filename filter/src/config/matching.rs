//! Reads which requests a rule is for.

use weir_protocol::document::{Mistakes, Value};

use super::{field_value, header_name, is_token, members, pattern};
use crate::path;
use crate::pattern::Pattern;
use crate::rules::{Condition, HostMatch, Matcher};

pub fn matcher(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Matcher> {
    let mut fields = mistakes.object(path, value)?;
    let path_match = fields.optional("path").map(|(path, value)| path_match(&path, value, mistakes));
    let methods = fields.optional("methods").map(|(path, value)| {
        members(&path, value, "methods", mistakes, |path, value, mistakes| match value {
            Value::Text(text) if is_token(text) => Some(text.clone()),
            other => {
                mistakes.expected(path, "a method (RFC 9110), such as GET", other);
                None
            }
        })
    });
    let hosts = fields.optional("hosts").map(|(path, value)| members(&path, value, "hosts", mistakes, host_match));
    let headers = fields.optional("headers").map(|(path, value)| members(&path, value, "conditions", mistakes, header));
    let query = fields.optional("query").map(|(path, value)| members(&path, value, "conditions", mistakes, parameter));
    fields.finish(mistakes);
    Some(Matcher {
        path: path_match.map_or(Some(None), |path| path.map(Some))?,
        methods: methods.unwrap_or_default(),
        hosts: hosts.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        query: query.unwrap_or_default(),
    })
}

fn path_match(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Pattern> {
    let mut fields = mistakes.object(path, value)?;
    let found = pattern::pattern(&mut fields, mistakes, |path, value, mistakes| {
        let text = mistakes.text(path, value, "a path")?;
        if text.starts_with('/') && !text.contains(['?', '#']) {
            let normal = path::normal(text.as_bytes());
            if normal == text {
                return Some(normal);
            }
            mistakes.expected(path, format_args!("a path in its normal form (RFC 3986), here {normal}"), value);
        } else {
            mistakes.expected(path, "a path from its first slash, without query", value);
        }
        None
    });
    fields.one_of(mistakes);
    found
}

fn header(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<(String, Condition)> {
    condition(path, value, mistakes, header_name, field_value)
}

fn parameter(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<(String, Condition)> {
    let text = |path: &str, value: &Value, mistakes: &mut Mistakes| {
        mistakes.text(path, value, "a text that is not empty, decoded").map(str::to_owned)
    };
    condition(path, value, mistakes, text, text)
}

fn condition(
    path: &str,
    value: &Value,
    mistakes: &mut Mistakes,
    name: impl Fn(&str, &Value, &mut Mistakes) -> Option<String>,
    text: impl Fn(&str, &Value, &mut Mistakes) -> Option<String>,
) -> Option<(String, Condition)> {
    let mut fields = mistakes.object(path, value)?;
    let name = fields.required("name", "a name", mistakes).and_then(|(path, value)| name(&path, value, mistakes));
    let pattern = pattern::pattern(&mut fields, mistakes, text).map(Condition::Matches);
    let present = fields.optional("present").and_then(|(path, value)| mistakes.bool(&path, value));
    fields.one_of_beside(&["name"], mistakes);
    Some((name?, pattern.or(present.map(Condition::Present))?))
}

fn host_match(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<HostMatch> {
    if let Value::Text(text) = value {
        let host = text.strip_prefix('*').unwrap_or(text).to_ascii_lowercase();
        let below = host.len() < text.len();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        let has_port = !host.starts_with('[') && host.contains(':');
        if host.len() > usize::from(below) && host.bytes().all(plain) && !has_port && host.starts_with('.') == below {
            return Some(if below { HostMatch::Below(host) } else { HostMatch::Exact(host) });
        }
    }
    mistakes.expected(path, "a host without port, such as api.example.com or *.example.org", value);
    None
}
