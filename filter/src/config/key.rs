//! Reads who is limited.

use weir_protocol::document::{Fields, Mistakes, Value};

use super::{header_name, members};
use crate::client_ip::Prefix;
use crate::key::{Part, Source};

/// One part of a key.
pub fn part(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Part> {
    let mut fields = mistakes.object(path, value)?;
    if let Some((path, value)) = fields.optional("first_of") {
        fields.one_of(mistakes);
        return Some(Part(members(&path, value, "key sources", mistakes, |path, value, mistakes| {
            source(mistakes.object(path, value)?, mistakes)
        })));
    }
    Some(Part(vec![source(fields, mistakes)?]))
}

fn source(mut fields: Fields<'_>, mistakes: &mut Mistakes) -> Option<Source> {
    let mut found = None;
    if let Some((path, value)) = fields.optional("header") {
        found = header_name(&path, value, mistakes).map(Source::Header);
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
    if let Some((path, value)) = fields.optional("literal") {
        found = mistakes.text(&path, value, "a text that is not empty").map(|text| Source::Literal(text.to_owned()));
    }
    fields.one_of(mistakes);
    found
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
