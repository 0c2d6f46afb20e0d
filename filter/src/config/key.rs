//! Reads who is limited.

use weir_protocol::document::{Fields, Mistakes, Value};

use super::{header_name, is_token, members};
use crate::allow::{Allow, network};
use crate::client_ip::Prefix;
use crate::key::Part;
use crate::property::Kind;
use crate::source::Source;

/// The last segment of a path that can be named; longer paths are rare, and are told apart before.
const MAX_SEGMENT: u64 = 64;
/// Names in the path of a property or claim.
const MAX_NAMES: usize = 16;

/// One part of a key.
pub fn part(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Part> {
    let mut fields = mistakes.object(path, value)?;
    if let Some((path, value)) = fields.optional("first_of") {
        fields.one_of(mistakes);
        return Some(Part(members(&path, value, "key sources", mistakes, |path, value, mistakes| {
            let mut fields = mistakes.object(path, value)?;
            let source = source(&mut fields, mistakes);
            fields.one_of(mistakes);
            source
        })));
    }
    let source = source(&mut fields, mistakes);
    fields.one_of(mistakes);
    Some(Part(vec![source?]))
}

/// One entry of an allow-list: a source, and its values.
pub fn allow(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Allow> {
    let mut fields = mistakes.object(path, value)?;
    let client_ip = fields.path("client_ip");
    let values = fields.required("values", "a list of values", mistakes);
    let source = source(&mut fields, mistakes);
    fields.one_of_beside(&["values"], mistakes);
    let (path, value) = values?;
    match source? {
        Source::ClientIp(prefix) => {
            if prefix != Prefix::default() {
                mistakes.add(&client_ip, "expected no prefixes, since the networks have their own");
            }
            Some(Allow::Networks(members(&path, value, "networks", mistakes, |path, value, mistakes| {
                let text = mistakes.text(path, value, "a network or an address")?;
                network(text).map_err(|accepted| mistakes.expected(path, accepted, value)).ok()
            })))
        }
        source => {
            let text = |path: &str, value: &Value, mistakes: &mut Mistakes| {
                mistakes.text(path, value, "a text that is not empty").map(|text| text.as_bytes().to_vec())
            };
            Some(Allow::Values(source, members(&path, value, "values", mistakes, text).into_iter().collect()))
        }
    }
}

/// The source that is given; the caller reports if it is none or several.
fn source(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Source> {
    let mut found = None;
    if let Some((path, value)) = fields.optional("header") {
        found = header_name(&path, value, mistakes).map(Source::Header);
    }
    if let Some((path, value)) = fields.optional("cookie") {
        found = cookie_name(&path, value, mistakes).map(Source::Cookie);
    }
    if let Some((path, value)) = fields.optional("query") {
        found = mistakes.text(&path, value, "the name of a parameter").map(|name| Source::Query(name.to_owned()));
    }
    if let Some((path, value)) = fields.optional("client_ip") {
        found = prefix(&path, value, mistakes).map(Source::ClientIp);
    }
    for (name, source) in [("path", Source::Path), ("method", Source::Method), ("host", Source::Host)] {
        if let Some((path, value)) = fields.optional(name)
            && let Some(options) = mistakes.object(&path, value)
        {
            options.finish(mistakes);
            found = Some(source);
        }
    }
    if let Some((path, value)) = fields.optional("path_segment") {
        let number = mistakes.whole(&path, value, 1..=MAX_SEGMENT);
        found = number.and_then(|number| usize::try_from(number).ok()).map(Source::PathSegment);
    }
    if let Some((path, value)) = fields.optional("jwt_claim") {
        let kinds = [("string", Kind::Text), ("double", Kind::Double), ("bool", Kind::Bool)];
        found = named(&path, value, 2, &kinds, mistakes).map(|(path, kind)| Source::JwtClaim(path, kind));
    }
    if let Some((path, value)) = fields.optional("property") {
        let kinds = [
            ("string", Kind::Text),
            ("int", Kind::Int),
            ("uint", Kind::Uint),
            ("double", Kind::Double),
            ("bool", Kind::Bool),
        ];
        found = named(&path, value, 1, &kinds, mistakes).map(|(path, kind)| Source::Property(path, kind));
    }
    if let Some((path, value)) = fields.optional("literal") {
        found = mistakes.text(&path, value, "a text that is not empty").map(|text| Source::Literal(text.to_owned()));
    }
    found
}

fn cookie_name(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Value::Text(text) if is_token(text) => Some(text.clone()),
        other => {
            mistakes.expected(path, "the name of a cookie (RFC 6265), such as session", other);
            None
        }
    }
}

/// `{ path: [...], type: ... }`, with at least so many names.
fn named(
    path: &str,
    value: &Value,
    least: usize,
    kinds: &[(&str, Kind)],
    mistakes: &mut Mistakes,
) -> Option<(Vec<String>, Kind)> {
    let mut fields = mistakes.object(path, value)?;
    let names = fields.required("path", "a list of names", mistakes).map(|(path, value)| {
        let names = members(&path, value, "names", mistakes, |path, value, mistakes| match value {
            Value::Text(text) if !text.is_empty() && !text.contains('\0') => Some(text.clone()),
            other => {
                mistakes.expected(path, "a name that is not empty", other);
                None
            }
        });
        if matches!(value, Value::List(values) if !values.is_empty() && !(least..=MAX_NAMES).contains(&values.len())) {
            mistakes.add(&path, format_args!("expected {least} to {MAX_NAMES} names, found {}", names.len()));
        }
        names
    });
    let kind = match fields.optional("type") {
        Some((path, value)) => mistakes.choice(&path, value, kinds),
        None => Some(Kind::Text),
    };
    fields.finish(mistakes);
    Some((names?, kind?))
}

fn prefix(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Prefix> {
    let mut fields = mistakes.object(path, value)?;
    let mut bits = |name, otherwise: u8, most: u8, mistakes: &mut Mistakes| match fields.optional(name) {
        Some((path, value)) => {
            mistakes.whole(&path, value, 1..=u64::from(most)).and_then(|bits| u8::try_from(bits).ok())
        }
        None => Some(otherwise),
    };
    let default = Prefix::default();
    let ipv4 = bits("ipv4_prefix", default.ipv4, 32, mistakes);
    let ipv6 = bits("ipv6_prefix", default.ipv6, 128, mistakes);
    fields.finish(mistakes);
    Some(Prefix { ipv4: ipv4?, ipv6: ipv6? })
}
