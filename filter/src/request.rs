//! A request as the rules see it.

/// A view of a request: what the host knows of it when its headers are complete.
pub struct Request<'a> {
    headers: &'a [(Vec<u8>, Vec<u8>)],
    source_address: &'a dyn Fn() -> Option<Vec<u8>>,
}

/// The values of one header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// Absent, or present without a value.
    Missing,
    /// One field line with a value.
    One(&'a [u8]),
    /// Several field lines: which of them counts is not for a limiter to guess.
    Several,
}

impl<'a> Request<'a> {
    /// `headers` holds names in lower case with the pseudo-headers of HTTP/2, one entry a field line.
    /// `source_address` asks the host, and is called only if a key needs the address.
    pub fn new(headers: &'a [(Vec<u8>, Vec<u8>)], source_address: &'a dyn Fn() -> Option<Vec<u8>>) -> Self {
        Self { headers, source_address }
    }

    /// The values of a header field; `name` in lower case.
    pub fn field(&self, name: &str) -> Field<'a> {
        let mut lines = self.headers.iter().filter(|(known, _)| known == name.as_bytes());
        match (lines.next(), lines.next()) {
            (Some((_, value)), None) if !value.trim_ascii().is_empty() => Field::One(value.trim_ascii()),
            (_, None) => Field::Missing,
            (_, Some(_)) => Field::Several,
        }
    }

    /// The method; empty if the host names none.
    pub fn method(&self) -> &'a [u8] {
        self.pseudo(":method")
    }

    /// The path without its query. Empty if there is none, as for CONNECT.
    pub fn path(&self) -> &'a [u8] {
        let target = self.pseudo(":path");
        target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default()
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

    /// The address of the client as the host tells it.
    pub fn source_address(&self) -> Option<Vec<u8>> {
        (self.source_address)()
    }

    fn pseudo(&self, name: &str) -> &'a [u8] {
        match self.field(name) {
            Field::One(value) => value,
            Field::Missing | Field::Several => b"",
        }
    }
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
        read(&Request::new(&headers, &|| None))
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
    fn the_path_ends_at_the_query() {
        assert_eq!(with(&[(":path", "/a/b?c=/d#e")], |r| r.path().to_vec()), b"/a/b");
        assert_eq!(with(&[(":path", "/a#b?c")], |r| r.path().to_vec()), b"/a");
        assert_eq!(with(&[], |r| r.path().to_vec()), b"");
    }

    #[test]
    fn an_empty_value_is_a_missing_one_and_two_are_several() {
        assert!(with(&[("k", " ")], |r| r.field("k") == Field::Missing));
        assert!(with(&[("k", " a ")], |r| r.field("k") == Field::One(b"a")));
        assert!(with(&[("k", "a"), ("k", "a")], |r| r.field("k") == Field::Several));
        assert!(with(&[("k", ""), ("k", "a")], |r| r.field("k") == Field::Several));
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
