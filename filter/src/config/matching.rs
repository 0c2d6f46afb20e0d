//! Reads which requests a rule is for.

use weir_protocol::document::{Mistakes, Value};

use super::{is_token, members};
use crate::rules::{HostMatch, Matcher, PathMatch};

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
    fields.finish(mistakes);
    Some(Matcher {
        path: path_match.map_or(Some(None), |path| path.map(Some))?,
        methods: methods.unwrap_or_default(),
        hosts: hosts.unwrap_or_default(),
    })
}

fn path_match(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<PathMatch> {
    let mut fields = mistakes.object(path, value)?;
    let mut read = |name, mistakes: &mut Mistakes| {
        let (path, value) = fields.optional(name)?;
        let text = mistakes.text(&path, value, "a path")?;
        if text.starts_with('/') && !text.contains(['?', '#']) && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
        {
            return Some(text.to_owned());
        }
        mistakes.expected(&path, "a path as it is sent, from its first slash, without query", value);
        None
    };
    let exact = read("exact", mistakes);
    let prefix = read("prefix", mistakes);
    fields.one_of(mistakes);
    exact.map(PathMatch::Exact).or(prefix.map(PathMatch::Prefix))
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
