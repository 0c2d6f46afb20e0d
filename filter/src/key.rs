//! Who is limited: the key of a limit, composed from parts of the request.
//!
//! A part is `tag=value`; parts are joined by `,`. In values, bytes outside `A-Za-z0-9-._~:/@` are written `%XX`, so
//! that two different lists of parts never make the same key. A key of exactly one header or literal is its escaped
//! value alone, to read naturally in overrides and tools; it holds no `=`, and so never equals a key with a tag (an
//! API key that reads `192.0.2.1` is not the client at that address). Above [`MAX_BYTES`] a key becomes
//! `sha256=<64 hex digits>`.
//!
//! Values are bytes: what is not UTF-8 is escaped like anything else.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::client_ip::{self, Prefix};
use crate::request::{Field, Request};

/// Longest key that is sent as it is.
pub const MAX_BYTES: usize = 256;

/// Where a part of a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A header field; the name in lower case.
    Header(String),
    /// The address of the client.
    ClientIp(Prefix),
    /// The path without its query.
    Path,
    /// The method.
    Method,
    /// The host, in lower case and without port.
    Host,
    /// The same text for every request.
    Literal(String),
}

/// One part: the first of its sources that is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part(pub Vec<Source>);

/// A key to be composed; at least one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(pub Vec<Part>);

/// What a request gives for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The key.
    Key(Key),
    /// A part has no value.
    Missing,
    /// This header has several values, and picking one would hand out a second key.
    Ambiguous(String),
}

/// A composed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its text, at most [`MAX_BYTES`] long.
    pub text: String,
    /// The host knew no address: the part reads `ip=unknown`, shared by all such clients.
    pub address_unknown: bool,
}

// === impl Template ===

impl Template {
    /// A key of the client's address alone.
    pub fn client_ip() -> Self {
        Self(vec![Part(vec![Source::ClientIp(Prefix::default())])])
    }

    /// Composes the key of a request.
    pub fn resolve(&self, request: &Request<'_>) -> Resolved {
        let alone = self.0.len() == 1;
        let mut key = Key { text: String::new(), address_unknown: false };
        for part in &self.0 {
            if !key.text.is_empty() {
                key.text.push(',');
            }
            match part.append(&mut key, request, alone) {
                Appended::Value => {}
                Appended::Missing => return Resolved::Missing,
                Appended::Ambiguous(name) => return Resolved::Ambiguous(name),
            }
        }
        if key.text.len() > MAX_BYTES {
            key.text = digest(&key.text);
        }
        Resolved::Key(key)
    }
}

enum Appended {
    Value,
    Missing,
    Ambiguous(String),
}

// === impl Part ===

impl Part {
    fn append(&self, key: &mut Key, request: &Request<'_>, alone: bool) -> Appended {
        for source in &self.0 {
            let text = &mut key.text;
            let present = match source {
                Source::Header(name) => match request.field(name) {
                    Field::One(value) if alone => append_value(text, value),
                    Field::One(value) => append(text, &format!("header.{name}"), value),
                    Field::Missing => false,
                    Field::Several => return Appended::Ambiguous(name.clone()),
                },
                Source::Literal(value) if alone => append_value(text, value.as_bytes()),
                Source::Literal(value) => append(text, "literal", value.as_bytes()),
                Source::Path => append(text, "path", request.path()),
                Source::Method => append(text, "method", request.method()),
                Source::Host => append(text, "host", &request.host()),
                Source::ClientIp(prefix) => match request.source_address().as_deref().and_then(client_ip::parse) {
                    Some(address) => append(text, "ip", client_ip::key(address, *prefix).as_bytes()),
                    None => {
                        key.address_unknown = true;
                        append(text, "ip", b"unknown")
                    }
                },
            };
            if present {
                return Appended::Value;
            }
        }
        Appended::Missing
    }
}

fn append(text: &mut String, tag: &str, value: &[u8]) -> bool {
    if value.is_empty() {
        return false;
    }
    text.push_str(tag);
    text.push('=');
    append_value(text, value)
}

fn append_value(text: &mut String, value: &[u8]) -> bool {
    for &byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~:/@".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    !value.is_empty()
}

fn digest(text: &str) -> String {
    let mut key = String::with_capacity(7 + 64);
    key.push_str("sha256=");
    for byte in Sha256::digest(text.as_bytes()) {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn resolve(sources: &[Source], headers: &[(&str, &[u8])], address: Option<&str>) -> Resolved {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect();
        let address = || address.map(|address| address.as_bytes().to_vec());
        let parts = sources.iter().map(|source| Part(vec![source.clone()])).collect();
        Template(parts).resolve(&Request::new(&headers, &address))
    }

    fn text(resolved: Resolved) -> String {
        match resolved {
            Resolved::Key(key) => key.text,
            other => panic!("{other:?}"),
        }
    }

    fn header(name: &str) -> Source {
        Source::Header(name.to_owned())
    }

    #[test]
    fn one_header_or_literal_reads_naturally() {
        assert_eq!(text(resolve(&[header("x-api-key")], &[("x-api-key", b"org_9921")], None)), "org_9921");
        assert_eq!(text(resolve(&[Source::Literal("global".to_owned())], &[], None)), "global");
        // No value imitates a tag.
        assert_eq!(text(resolve(&[header("k")], &[("k", b"ip=192.0.2.1")], None)), "ip%3D192.0.2.1");
        assert_eq!(text(resolve(&[Source::ClientIp(Prefix::default())], &[], Some("192.0.2.1:80"))), "ip=192.0.2.1");
    }

    #[test]
    fn parts_are_tagged_and_joined() {
        let sources = [
            Source::ClientIp(Prefix::default()),
            Source::Method,
            Source::Host,
            Source::Path,
            header("x-plan"),
            Source::Literal("v 1".to_owned()),
        ];
        let headers: [(&str, &[u8]); 4] =
            [(":method", b"GET"), (":authority", b"A.example:80"), (":path", b"/a,b?c"), ("x-plan", b"free")];
        assert_eq!(
            text(resolve(&sources, &headers, Some("[2001:db8::1]:80"))),
            "ip=2001:db8::/64,method=GET,host=a.example,path=/a%2Cb,header.x-plan=free,literal=v%201"
        );
    }

    #[test]
    fn bytes_stay_distinct() {
        // B12, C06
        let values: [&[u8]; 9] =
            [b"a b", b"a%20b", b"a\tb", b"\xa1\xb1", b"\xc0\xa7", b"%A1%B1", b"A", b"a", "é".as_bytes()];
        let mut keys: Vec<String> =
            values.iter().map(|value| text(resolve(&[header("k")], &[("k", value)], None))).collect();
        assert!(keys.iter().all(|key| key.is_ascii()));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), values.len());
    }

    #[test]
    fn joined_parts_do_not_collide() {
        // B13
        let both = [header("h1"), header("h2")];
        let key = |one: &str, two: &str| text(resolve(&both, &[("h1", one.as_bytes()), ("h2", two.as_bytes())], None));
        let keys = [
            key("a:b", "c"),
            key("a", "b:c"),
            key("a|b", "c"),
            key("a", "b|c"),
            key("a,header.h2=b", "c"),
            key("a", "b,header.h2=c"),
            key("%3A", "x"),
            key(":", "x"),
        ];
        for (i, one) in keys.iter().enumerate() {
            assert!(keys.iter().skip(i + 1).all(|other| other != one), "{one}");
        }
        assert_eq!(resolve(&both, &[("h1", b""), ("h2", b"x")], None), Resolved::Missing);
        assert_eq!(resolve(&both, &[("h2", b"x")], None), Resolved::Missing);
    }

    #[test]
    fn long_keys_become_a_digest_that_tells_them_apart() {
        let long = |last: u8| {
            let mut value = vec![b'a'; 8191];
            value.push(last);
            text(resolve(&[header("k")], &[("k", &value)], None))
        };
        assert_ne!(long(b'x'), long(b'y'));
        assert_eq!(long(b'x').len(), 71);
        assert!(long(b'x').starts_with("sha256="));
        assert_eq!(text(resolve(&[header("k")], &[("k", &[b'a'; 256])], None)).len(), 256);
        assert_eq!(text(resolve(&[header("k")], &[("k", &[b'a'; 257])], None)).len(), 71);
    }

    #[test]
    fn several_values_are_ambiguous_and_no_address_is_said() {
        // D13
        let twice: [(&str, &[u8]); 2] = [("k", b"a"), ("k", b"b")];
        assert_eq!(resolve(&[header("k")], &twice, None), Resolved::Ambiguous("k".to_owned()));
        let Resolved::Key(key) = resolve(&[Source::ClientIp(Prefix::default())], &[], Some("/run/a.sock")) else {
            panic!()
        };
        assert_eq!(key, Key { text: "ip=unknown".to_owned(), address_unknown: true });
    }

    #[test]
    fn the_first_present_source_counts() {
        let template = Template(vec![Part(vec![header("x-api-key"), Source::ClientIp(Prefix::default())])]);
        let of = |headers: &[(Vec<u8>, Vec<u8>)]| {
            text(template.resolve(&Request::new(headers, &|| Some(b"192.0.2.1:1".to_vec()))))
        };
        assert_eq!(of(&[(b"x-api-key".to_vec(), b"k".to_vec())]), "k");
        assert_eq!(of(&[(b"x-api-key".to_vec(), b"".to_vec())]), "ip=192.0.2.1");
        assert_eq!(of(&[]), "ip=192.0.2.1");
    }
}
