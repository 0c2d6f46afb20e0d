//! A request as the rules see it.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use percent_encoding::percent_decode;

use crate::{client_ip, path};

/// A view of a request: what the host knows of it when its headers are complete.
pub struct Request<'a> {
    headers: &'a [(Vec<u8>, Vec<u8>)],
    property: &'a dyn Fn(&[&str]) -> Option<Vec<u8>>,
    path: OnceCell<String>,
}

/// The values of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// Absent, or present without a value.
    Missing,
    /// One value.
    One(Cow<'a, [u8]>),
    /// Several: which of them counts is not for a limiter to guess.
    Several,
}

impl<'a> Field<'a> {
    fn of(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> Self {
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Self::One(value),
            (_, None) => Self::Missing,
            (_, Some(_)) => Self::Several,
        }
    }
}

impl<'a> Request<'a> {
    /// `headers` holds names in lower case with the pseudo-headers of HTTP/2, one entry a field line.
    /// `property` asks the host for what it knows besides, and is called only if a rule needs it.
    pub fn new(headers: &'a [(Vec<u8>, Vec<u8>)], property: &'a dyn Fn(&[&str]) -> Option<Vec<u8>>) -> Self {
        Self { headers, property, path: OnceCell::new() }
    }

    /// The values of a header field; `name` in lower case.
    pub fn field(&self, name: &str) -> Field<'a> {
        Field::of(self.lines(name).map(Cow::Borrowed))
    }

    /// Each line of a header field; `name` in lower case.
    pub fn lines(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_bytes().to_vec();
        self.headers.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.trim_ascii())
    }

    /// The values of a cookie (RFC 6265 section 5.4), without the quotes that may stand around one: `"a"` and `a` are
    /// the same to most applications.
    pub fn cookie(&self, name: &str) -> Field<'a> {
        let pairs = self.lines("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
        Field::of(pairs.filter_map(|pair| {
            let (known, value) = split_once(pair, b'=')?;
            let value = value.trim_ascii();
            let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
            (known.trim_ascii() == name.as_bytes()).then_some(Cow::Borrowed(unquoted))
        }))
    }

    /// The values of a query parameter (URL standard, "application/x-www-form-urlencoded"), as bytes.
    pub fn query(&self, name: &str) -> Field<'a> {
        Field::of(self.query_values(name))
    }

    /// Each value of a query parameter.
    pub fn query_values(&self, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let name = name.as_bytes().to_vec();
        path::query(self.pseudo(":path")).split(|byte| *byte == b'&').filter_map(move |pair| {
            let (known, value) = split_once(pair, b'=').unwrap_or((pair, b""));
            (!pair.is_empty() && *form_decoded(known) == *name).then(|| form_decoded(value))
        })
    }

    /// The method; empty if the host names none.
    pub fn method(&self) -> &'a [u8] {
        self.pseudo(":method")
    }

    /// The path in its normal form, see [`path::normal`]. Empty if there is none, as for CONNECT.
    pub fn path(&self) -> &str {
        self.path.get_or_init(|| path::normal(self.pseudo(":path")))
    }

    /// The host in lower case, without port and trailing dot; all spellings of one host are one. Empty if there is none.
    pub fn host(&self) -> Vec<u8> {
        let authority = self.pseudo(":authority");
        let host = match authority.iter().rposition(|byte| *byte == b':') {
            Some(colon) => match authority.split_at_checked(colon) {
                Some((host, port)) if port.iter().skip(1).all(u8::is_ascii_digit) && !opens_bracket(host) => host,
                _ => authority,
            },
            None => authority,
        };
        host.strip_suffix(b".").unwrap_or(host).to_ascii_lowercase()
    }

    /// Whether a browser asks for permission (Fetch standard, "CORS-preflight request").
    pub fn is_preflight(&self) -> bool {
        self.method() == b"OPTIONS"
            && self.field("origin") != Field::Missing
            && self.field("access-control-request-method") != Field::Missing
    }

    /// The address of the client that the host trusts; `None` where there is none, as on a Unix socket.
    pub fn client_address(&self) -> Option<IpAddr> {
        client_ip::parse(&self.property(&["source", "address"])?)
    }

    /// Something else that the host knows of the request.
    pub fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        (self.property)(path)
    }

    fn pseudo(&self, name: &str) -> &'a [u8] {
        let mut lines = self.lines(name);
        lines.next().filter(|_| lines.next().is_none()).unwrap_or_default()
    }
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// As forms write text into a URL: `+` for a space, `%XX` for other bytes. A `%` without two hex digits is itself.
fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return percent_decode(text).into();
    }
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// Whether what stands before the last colon leaves a bracket open, so that the colon belongs to an IPv6 address.
fn opens_bracket(host: &[u8]) -> bool {
    host.first() == Some(&b'[') && host.last() != Some(&b']')
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn with<T>(headers: &[(&str, &str)], read: impl Fn(&Request<'_>) -> T) -> T {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        read(&Request::new(&headers, &|_| None))
    }

    fn one(value: &'static [u8]) -> Field<'static> {
        Field::One(Cow::Borrowed(value))
    }

    #[test]
    fn spellings_of_a_host_are_one_host() {
        // C24
        for authority in
            ["api.example.com", "API.example.com", "api.example.com:443", "Api.Example.Com.:80", "api.example.com."]
        {
            assert_eq!(with(&[(":authority", authority)], |r| r.host()), b"api.example.com", "{authority}");
        }
        assert_eq!(with(&[(":authority", "[2001:DB8::1]:443")], |r| r.host()), b"[2001:db8::1]");
        assert_eq!(with(&[(":authority", "[2001:db8::1]")], |r| r.host()), b"[2001:db8::1]");
        assert_eq!(with(&[], |r| r.host()), b"");
    }

    #[test]
    fn the_path_is_normal() {
        assert_eq!(with(&[(":path", "/a//%62/../c?d=/e#f")], |r| r.path().to_owned()), "/a/c");
        assert_eq!(with(&[], |r| r.path().to_owned()), "");
        assert_eq!(with(&[(":path", "/a"), (":path", "/b")], |r| r.path().to_owned()), "");
    }

    #[test]
    fn an_empty_value_is_a_missing_one_and_two_are_several() {
        assert!(with(&[("k", " ")], |r| r.field("k") == Field::Missing));
        assert!(with(&[("k", " a ")], |r| r.field("k") == one(b"a")));
        assert!(with(&[("k", "a"), ("k", "a")], |r| r.field("k") == Field::Several));
        assert!(with(&[("k", ""), ("k", "a")], |r| r.field("k") == Field::Several));
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        for (lines, expected) in [
            (vec!["session=a"], one(b"a")),
            (vec!["x=1; session=a; y=2"], one(b"a")),
            (vec!["x=1;session = a ;"], one(b"a")),
            (vec!["session=\"a\""], one(b"a")),
            (vec!["session=a=b"], one(b"a=b")),
            (vec!["x=1", "session=a"], one(b"a")),
            (vec![], Field::Missing),
            (vec![""], Field::Missing),
            (vec!["session"], Field::Missing),
            (vec!["session="], Field::Missing),
            (vec!["session=\"\""], Field::Missing),
            (vec!["Session=a; xsession=a; session2=a"], Field::Missing),
            (vec!["session=a; session=b"], Field::Several),
            (vec!["session=a", "session=a"], Field::Several),
        ] {
            let headers: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
            assert!(with(&headers, |r| r.cookie("session") == expected), "{lines:?}");
        }
    }

    #[test]
    fn a_query_parameter_is_decoded() {
        for (target, expected) in [
            ("/?key=a", one(b"a")),
            ("/?x=1&key=a&y", one(b"a")),
            ("/?key=a+b", one(b"a b")),
            ("/?key=a%20b", one(b"a b")),
            ("/?key=a%2Bb", one(b"a+b")),
            ("/?%6Bey=%61", one(b"a")),
            ("/?key=a=b", one(b"a=b")),
            ("/?key=%A1%b1", one(b"\xa1\xb1")),
            ("/?key=100%&x", one(b"100%")),
            ("/?key=a?b/c", one(b"a?b/c")),
            ("/?&&key=a&", one(b"a")),
            ("/", Field::Missing),
            ("/?", Field::Missing),
            ("/?key", Field::Missing),
            ("/?key=", Field::Missing),
            ("/?Key=a", Field::Missing),
            ("/#?key=a", Field::Missing),
            ("/?x=key=a;key=b", Field::Missing),
            ("/?key=a&key=b", Field::Several),
            ("/?key=&k%65y=b", Field::Several),
        ] {
            assert!(with(&[(":path", target)], |r| r.query("key") == expected), "{target}");
        }
    }

    #[test]
    fn a_preflight_needs_method_and_both_headers() {
        // D05
        let all = [(":method", "OPTIONS"), ("origin", "https://a"), ("access-control-request-method", "PUT")];
        assert!(with(&all, |r| r.is_preflight()));
        assert!(!with(&all[..2], |r| r.is_preflight()));
        assert!(!with(&all[1..], |r| r.is_preflight()));
        assert!(!with(&[all[0], all[2]], |r| r.is_preflight()));
        assert!(!with(&[(":method", "GET"), all[1], all[2]], |r| r.is_preflight()));
    }
}
