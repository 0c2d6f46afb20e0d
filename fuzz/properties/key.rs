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
        let value = bytes(u, &[b"org_1", b"192.0.2.1", b",ip=", b"header.a=", b"%2C", b"sha256=", b"/", b"&a=b", b"="])?;
        round_trip(&value);
        match source {
            Source::Header(name) => headers.push((name.clone().into_bytes(), value)),
            Source::Cookie(name) => headers.push((b"cookie".to_vec(), [name.as_bytes(), b"=", &value].concat())),
            Source::Query(name) => {
                headers.push((b":path".to_vec(), [b"/?", escape(name.as_bytes()).as_bytes(), b"=", &value].concat()));
            }
            Source::Path | Source::PathSegment(_) => headers.push((b":path".to_vec(), [b"/", value.as_slice()].concat())),
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

#[derive(Debug)]
enum Expected<'a> {
    Values(Vec<(&'a Source, Cow<'a, [u8]>)>),
    Missing,
    Several,
}

/// Of each part the first source that is present, with its value.
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
            Some((_, Field::One(value))) => values.push((source_of(found_source(part, request)), value)),
            Some(_) => return Expected::Several,
        }
    }
    Expected::Values(values)
}
