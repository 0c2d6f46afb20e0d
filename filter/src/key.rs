//! Who is limited: the key of a limit, composed from parts of the request.
//!
//! A part is `tag=value`; parts are joined by `,`. In values, bytes outside `A-Za-z0-9-._~:/@` are written `%XX`, so
//! that two different lists of parts never make the same key. A key of exactly one header, cookie, query parameter,
//! claim or literal is its escaped value alone, to read naturally in overrides and tools; it holds no `=`, and so never
//! equals a key with a tag (an API key that reads `192.0.2.1` is not the client at that address). Above [`MAX_BYTES`],
//! or where the value is not to leave the proxy, a key becomes `sha256=<64 hex digits>`, the digest of what it was.
//!
//! Values are bytes: what is not UTF-8 is escaped like anything else.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

use crate::client_ip::Prefix;
use crate::request::{Field, Request};
use crate::source::Source;

/// Longest key that is sent as it is.
pub const MAX_BYTES: usize = 256;

/// What is escaped in a value.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'/').remove(b'@');

/// One part: the first of its sources that is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part(pub Vec<Source>);

/// A key to be composed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// At least one.
    pub parts: Vec<Part>,
    /// Only the digest of the key leaves the proxy.
    pub hash: bool,
}

/// What a request gives for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The key.
    Key(Key),
    /// A part has no value.
    Missing,
    /// What is named here has several values, and picking one would hand out a second key.
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
    pub fn client_ip(hash: bool) -> Self {
        Self { parts: vec![Part(vec![Source::ClientIp(Prefix::default())])], hash }
    }

    /// Composes the key of a request.
    pub fn resolve(&self, request: &Request<'_>) -> Resolved {
        let alone = self.parts.len() == 1;
        let mut key = Key { text: String::new(), address_unknown: false };
        for part in &self.parts {
            if !key.text.is_empty() {
                key.text.push(',');
            }
            match part.append(&mut key, request, alone) {
                Appended::Value => {}
                Appended::Missing => return Resolved::Missing,
                Appended::Ambiguous(name) => return Resolved::Ambiguous(name),
            }
        }
        if self.hash || key.text.len() > MAX_BYTES {
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
            let value = match source.read(request) {
                Field::One(value) => value,
                // Requests without an address share a limit: a missing one must not be a way around it.
                Field::Missing if matches!(source, Source::ClientIp(_)) => {
                    key.address_unknown = true;
                    b"unknown".into()
                }
                Field::Missing => continue,
                Field::Several => return Appended::Ambiguous(source.describe()),
            };
            if !(alone && source.reads_naturally()) {
                key.text.push_str(&source.tag());
                key.text.push('=');
            }
            key.text.push_str(&escape(&value));
            return Appended::Value;
        }
        Appended::Missing
    }
}

/// A value as keys write it.
pub fn escape(value: &[u8]) -> String {
    percent_encode(value, ESCAPED).collect()
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
        let property = |path: &[&str]| {
            address.filter(|_| path == ["source", "address"]).map(|address| address.as_bytes().to_vec())
        };
        let parts = sources.iter().map(|source| Part(vec![source.clone()])).collect();
        Template { parts, hash: false }.resolve(&Request::new(&headers, &property))
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
        assert_eq!(resolve(&[header("k")], &twice, None), Resolved::Ambiguous("header k".to_owned()));
        let Resolved::Key(key) = resolve(&[Source::ClientIp(Prefix::default())], &[], Some("/run/a.sock")) else {
            panic!()
        };
        assert_eq!(key, Key { text: "ip=unknown".to_owned(), address_unknown: true });
    }

    #[test]
    fn a_hashed_key_is_the_digest_of_the_key() {
        let parts = vec![Part(vec![header("k")])];
        let headers = [(b"k".to_vec(), b"org_9921".to_vec())];
        let request = Request::new(&headers, &|_| None);
        // printf org_9921 | sha256sum
        assert_eq!(
            text(Template { parts, hash: true }.resolve(&request)),
            "sha256=403d708eb0798c4e17156ad612f33829c688ea2081ac53ea690fd0cb9c899d2a"
        );
        assert!(text(Template::client_ip(true).resolve(&request)).starts_with("sha256="));
    }

    #[test]
    fn the_first_present_source_counts() {
        let parts = vec![Part(vec![header("x-api-key"), Source::ClientIp(Prefix::default())])];
        let template = Template { parts, hash: false };
        let of = |headers: &[(Vec<u8>, Vec<u8>)]| {
            text(template.resolve(&Request::new(headers, &|_| Some(b"192.0.2.1:1".to_vec()))))
        };
        assert_eq!(of(&[(b"x-api-key".to_vec(), b"k".to_vec())]), "k");
        assert_eq!(of(&[(b"x-api-key".to_vec(), b"".to_vec())]), "ip=192.0.2.1");
        assert_eq!(of(&[]), "ip=192.0.2.1");
    }
}
