//! Which requests a rule is for.

use crate::request::Request;

/// The conditions of a rule; all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// The path without its query, compared byte by byte.
    pub path: Option<PathMatch>,
    /// Methods, case-sensitive (RFC 9110 section 9.1); empty for any.
    pub methods: Vec<String>,
    /// Hosts; empty for any.
    pub hosts: Vec<HostMatch>,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// The beginning of the path.
    Prefix(String),
}

/// A condition on the host, in lower case and without port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// The whole host.
    Exact(String),
    /// `*.example.org`, kept as `.example.org`: any host below it, at any depth, not itself.
    Below(String),
}

impl Matcher {
    /// Whether the rule is for this request.
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.path.as_ref().is_none_or(|path| path.matches(request.path()))
            && (self.methods.is_empty() || self.methods.iter().any(|method| method.as_bytes() == request.method()))
            && (self.hosts.is_empty() || {
                let host = request.host();
                self.hosts.iter().any(|pattern| pattern.matches(&host))
            })
    }
}

impl PathMatch {
    fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact.as_bytes() == path,
            Self::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        }
    }
}

impl HostMatch {
    fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact.as_bytes() == host,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn matches(matcher: &Matcher, method: &str, host: &str, path: &str) -> bool {
        let headers: Vec<_> = [(":method", method), (":authority", host), (":path", path)]
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .into();
        matcher.matches(&Request::new(&headers, &|| None))
    }

    #[test]
    fn no_condition_matches_everything() {
        assert!(matches(&Matcher::default(), "FOO", "", "*"));
    }

    #[test]
    fn all_conditions_must_hold() {
        let matcher = Matcher {
            path: Some(PathMatch::Prefix("/api/".to_owned())),
            methods: vec!["GET".to_owned(), "POST".to_owned()],
            hosts: vec![HostMatch::Exact("api.example.com".to_owned()), HostMatch::Below(".example.org".to_owned())],
        };
        assert!(matches(&matcher, "GET", "API.example.com:8080", "/api/x?y"));
        assert!(matches(&matcher, "POST", "a.b.example.org", "/api/"));
        assert!(!matches(&matcher, "get", "api.example.com", "/api/x"));
        assert!(!matches(&matcher, "PUT", "api.example.com", "/api/x"));
        assert!(!matches(&matcher, "GET", "example.org", "/api/x"));
        assert!(!matches(&matcher, "GET", ".example.org", "/api/x"));
        assert!(!matches(&matcher, "GET", "badexample.org", "/api/x"));
        assert!(!matches(&matcher, "GET", "api.example.com", "/api"));
    }

    #[test]
    fn an_exact_path_ignores_the_query_only() {
        let matcher = Matcher { path: Some(PathMatch::Exact("/healthz".to_owned())), ..Matcher::default() };
        assert!(matches(&matcher, "GET", "", "/healthz?full"));
        assert!(!matches(&matcher, "GET", "", "/healthz/"));
        assert!(!matches(&matcher, "GET", "", ""));
    }
}
