//! Keys, against a decoder and an encoder that are written here again.

use std::borrow::Cow;

use arbitrary::{Result, Unstructured};
use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};
use weir_filter::client_ip::Prefix;
use weir_filter::key::{MAX_BYTES, Part, Resolved, Template, escape};
use weir_filter::path;
use weir_filter::property::Kind;
use weir_filter::request::{Field, Request};
use weir_filter::rollout::Percent;
use weir_filter::source::Source;

use super::bytes;

/// A template of any parts, and a request that has values for some of them.
pub fn holds(data: &[u8]) {
    let _ = run(&mut Unstructured::new(data));
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let parts = (0..u.int_in_range(1..=4)?)
        .map(|_| Ok(Part((0..u.int_in_range(1..=3)?).map(|_| source(u)).collect::<Result<_>>()?)))
        .collect::<Result<Vec<_>>>()?;
    let template = Template { parts, hash: u.ratio(1, 6)? };
    let (share, larger_share): (u8, u8) = (u.int_in_range(0..=100)?, u.int_in_range(0..=100)?);
    tags(&template);

    let mut headers = Vec::new();
    let mut property = None;
    while !u.is_empty() && headers.len() < 16 {
        let sources = &u.choose(&template.parts)?.0;
        let source = u.choose(sources)?;
        let value =
            bytes(u, &[b"org_1", b"192.0.2.1", b",ip=", b"header.a=", b"%2C", b"sha256=", b"/", b"&a=b", b"="])?;
        round_trip(&value);
        match source {
            Source::Header(name) => headers.push((name.clone().into_bytes(), value)),
            Source::Cookie(name) => headers.push((b"cookie".to_vec(), [name.as_bytes(), b"=", &value].concat())),
            Source::Query(name) => {
                headers.push((b":path".to_vec(), [b"/?", escape(name.as_bytes()).as_bytes(), b"=", &value].concat()));
            }
            Source::Path | Source::PathSegment(_) => {
                headers.push((b":path".to_vec(), [b"/", value.as_slice()].concat()))
            }
            Source::Method => headers.push((b":method".to_vec(), value)),
            Source::Host => headers.push((b":authority".to_vec(), value)),
            Source::ClientIp(_) => property = Some(u.choose(&ADDRESSES)?.to_vec()),
            Source::JwtClaim(_, Kind::Text) | Source::Property(_, Kind::Text) => property = Some(value),
            Source::JwtClaim(..) | Source::Property(..) => property = Some(u.arbitrary::<[u8; 8]>()?.to_vec()),
            Source::Literal(_) => {}
        }
    }
    let property = |_: &[&str]| property.clone();
    let request = Request::new(&headers, &property);
    let resolved = template.resolve(&request);
    match (expected(&template, &request), resolved) {
        (Expected::Missing, Resolved::Missing) => {}
        (Expected::Several, Resolved::Ambiguous(name)) => assert!(!name.is_empty()),
        (Expected::Values(values), Resolved::Key(key)) => {
            grammar(&template, &values, &key.text);
            shares(share, larger_share, &key.text);
        }
        (expected, resolved) => panic!("expected {expected:?}, found {resolved:?}"),
    }
    Ok(())
}

/// What a template makes of a request.
#[derive(Debug)]
enum Expected<'a> {
    /// Of each part the source that counts, with its value.
    Values(Vec<(&'a Source, Cow<'a, [u8]>)>),
    /// A part has none.
    Missing,
    /// The source that counts has several values.
    Several,
}

fn expected<'a>(template: &'a Template, request: &'a Request<'_>) -> Expected<'a> {
    let mut values = Vec::new();
    for part in &template.parts {
        let found = part.0.iter().find_map(|source| match (source.read(request), source) {
            (Field::Missing, Source::ClientIp(_)) => Some((source, Field::One(b"unknown".into()))),
            (Field::Missing, _) => None,
            (field, _) => Some((source, field)),
        });
        match found {
            None => return Expected::Missing,
            Some((source, Field::One(value))) => values.push((source, value)),
            Some(_) => return Expected::Several,
        }
    }
    Expected::Values(values)
}

/// Whether a source alone is a bare value. Of the grammar, not of the code.
fn is_bare(template: &Template, source: &Source) -> bool {
    template.parts.len() == 1
        && matches!(
            source,
            Source::Header(_) | Source::Cookie(_) | Source::Query(_) | Source::JwtClaim(..) | Source::Literal(_)
        )
}

/// The key is what the grammar makes of the values; and it can be read back, so that no other values make the same.
fn grammar(template: &Template, values: &[(&Source, Cow<'_, [u8]>)], key: &str) {
    let parts: Vec<String> = values
        .iter()
        .map(|(source, value)| match is_bare(template, source) {
            true => encoded(value),
            false => format!("{}={}", source.tag(), encoded(value)),
        })
        .collect();
    let plain = parts.join(",");
    assert!((1..=MAX_BYTES).contains(&key.len()), "{key:?}");
    if template.hash || plain.len() > MAX_BYTES {
        let digest: String = Sha256::digest(&plain).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(key, format!("sha256={digest}"));
        return;
    }
    assert_eq!(key, plain);
    assert!(!key.starts_with("sha256="), "{key:?} looks like a digest");
    let read_back: Vec<(Option<&str>, Vec<u8>)> = key
        .split(',')
        .map(|part| {
            let (tag, value) = part.split_once('=').map_or((None, part), |(tag, value)| (Some(tag), value));
            assert!(value.bytes().all(|byte| is_plain(byte) || byte == b'%'), "{value:?}");
            (tag, decoded(value))
        })
        .collect();
    assert_eq!(read_back.len(), values.len(), "{key:?}");
    for ((tag, value), (source, expected)) in read_back.iter().zip(values) {
        assert_eq!(value.as_slice(), expected.as_ref(), "{key:?}");
        assert_eq!(tag.is_none(), is_bare(template, source), "{key:?}");
        assert!(tag.is_none_or(|tag| tag == source.tag()), "{key:?}");
    }
}

/// What stands for itself in a value.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/@".contains(&byte)
}

fn encoded(value: &[u8]) -> String {
    value
        .iter()
        .map(|byte| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text.as_bytes()).collect()
}

/// Two sources have one tag only if they read the same thing: prefixes and kinds do not tell them apart.
fn tags(template: &Template) {
    let read = |source: &Source| match source {
        Source::ClientIp(_) => Source::ClientIp(Prefix::default()),
        Source::JwtClaim(claim, _) => Source::JwtClaim(claim.clone(), Kind::Text),
        Source::Property(path, _) => Source::Property(path.clone(), Kind::Text),
        Source::Literal(_) => Source::Literal(String::new()),
        other => other.clone(),
    };
    let sources: Vec<_> = template.parts.iter().flat_map(|part| &part.0).collect();
    for one in &sources {
        assert!(!one.tag().is_empty() && !one.tag().contains(['=', ',']), "{:?}", one.tag());
        for other in &sources {
            assert_eq!(one.tag() == other.tag(), read(one) == read(other), "{one:?} and {other:?}");
        }
    }
}

/// Escapes and paths: decoding gives back what was written, and a normal form is its own.
fn round_trip(value: &[u8]) {
    assert_eq!(escape(value), encoded(value));
    assert_eq!(decoded(&escape(value)), value);
    let normal = path::normal(value);
    assert_eq!(path::normal(normal.as_bytes()), normal);
    assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()), "{normal:?}");
    assert!(normal.starts_with('/') || matches!(normal.as_str(), "" | "*"), "{normal:?}");
}

/// Who is in at one share is in at every larger one; nobody at none, everybody at all.
fn shares(one: u8, other: u8, key: &str) {
    let (smaller, larger) = (one.min(other), one.max(other));
    let holds = |percent| Percent(percent).holds("rule", key);
    assert!(!holds(smaller) || holds(larger), "{smaller}, {larger}");
    assert!(!holds(0) && holds(100));
}

const ADDRESSES: [&[u8]; 6] =
    [b"192.0.2.7:1", b"[2001:db8::1]:443", b"::ffff:192.0.2.7", b"/run/a.sock", b"", b"\xa1\xb1"];

/// A source as a configuration can have it.
fn source(u: &mut Unstructured<'_>) -> Result<Source> {
    const TOKENS: [&str; 6] = ["a", "a.b", "x-api-key", "!#$%&'*+-.^_`|~", "a%3d", "0"];
    let token = |u: &mut Unstructured<'_>| u.choose(&TOKENS).map(|token| (*token).to_owned());
    Ok(match u.int_in_range(0..=10)? {
        0 => Source::Header(token(u)?),
        1 => Source::Cookie(token(u)?),
        2 => Source::Query(text(u)?),
        3 => Source::ClientIp(Prefix { ipv4: u.int_in_range(1..=32)?, ipv6: u.int_in_range(1..=128)? }),
        4 => Source::Path,
        5 => Source::PathSegment(u.int_in_range(1..=64)?),
        6 => Source::Method,
        7 => Source::Host,
        8 => Source::JwtClaim(names(u, 2)?, *u.choose(&[Kind::Text, Kind::Double, Kind::Bool])?),
        9 => Source::Property(names(u, 1)?, *u.choose(&[Kind::Text, Kind::Int, Kind::Uint, Kind::Double, Kind::Bool])?),
        _ => Source::Literal(text(u)?),
    })
}

fn names(u: &mut Unstructured<'_>, least: usize) -> Result<Vec<String>> {
    (0..u.int_in_range(least..=3)?).map(|_| text(u)).collect()
}

/// A text that is not empty and has no NUL.
fn text(u: &mut Unstructured<'_>) -> Result<String> {
    let text = bytes(u, &[b"a", b".", b"%2E", b"=", b",", "é".as_bytes()])?;
    let text = String::from_utf8_lossy(&text).replace('\0', "");
    Ok(if text.is_empty() { "a".to_owned() } else { text })
}
