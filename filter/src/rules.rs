//! Which requests a rule is for.

use std::collections::HashMap;

use crate::pattern::Pattern;
use crate::request::Request;

/// The conditions of a rule; all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// The path in its normal form.
    pub path: Option<Pattern>,
    /// Methods, case-sensitive (RFC 9110 section 9.1); empty for any.
    pub methods: Vec<String>,
    /// Hosts; empty for any.
    pub hosts: Vec<HostMatch>,
    /// Header fields, by their names in lower case.
    pub headers: Vec<(String, Condition)>,
    /// Parameters of the query.
    pub query: Vec<(String, Condition)>,
}

/// A condition on the host, in lower case and without port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// The whole host.
    Exact(String),
    /// `*.example.org`, kept as `.example.org`: any host below it, at any depth, not itself.
    Below(String),
}

/// A condition on the values of a name. An empty value is a missing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is a value, or there is none.
    Present(bool),
    /// One of the values matches.
    Matches(Pattern),
}

/// Finds the rules that a path leaves in question, whatever the number of rules for other exact paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Only the operator's own paths are put in, so its unseeded hash is nothing that a client can attack.
    exact: HashMap<String, Vec<usize>>,
    others: Vec<usize>,
}

// === impl Index ===

impl Index {
    /// Of all rules, in their order.
    pub fn new<'a>(matchers: impl Iterator<Item = &'a Matcher>) -> Self {
        let mut index = Self::default();
        for (rule, matcher) in matchers.enumerate() {
            match &matcher.path {
                Some(Pattern::Exact(path)) => index.exact.entry(path.clone()).or_default().push(rule),
                _ => index.others.push(rule),
            }
        }
        index
    }

    /// The rules that may be for this path, in their order.
    pub fn candidates(&self, path: &str) -> impl Iterator<Item = usize> {
        let mut exact = self.exact.get(path).map_or(&[][..], Vec::as_slice).iter().copied().peekable();
        let mut others = self.others.iter().copied().peekable();
        std::iter::from_fn(move || match (exact.peek(), others.peek()) {
            (Some(one), Some(other)) if one > other => others.next(),
            (None, _) => others.next(),
            _ => exact.next(),
        })
    }
}

// === impl Matcher ===

impl Matcher {
    /// Whether the rule is for this request.
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.path.as_ref().is_none_or(|path| path.matches(request.path().as_bytes()))
            && (self.methods.is_empty() || self.methods.iter().any(|method| method.as_bytes() == request.method()))
            && (self.hosts.is_empty() || {
                let host = request.host();
                self.hosts.iter().any(|pattern| pattern.matches(&host))
            })
            && self.headers.iter().all(|(name, condition)| condition.holds(request.lines(name)))
            && self.query.iter().all(|(name, condition)| condition.holds(request.query_values(name)))
    }
}

impl Condition {
    fn holds<V: AsRef<[u8]>>(&self, values: impl Iterator<Item = V>) -> bool {
        let mut values = values.filter(|value| !value.as_ref().is_empty());
        match self {
            Self::Present(present) => values.next().is_some() == *present,
            Self::Matches(pattern) => values.any(|value| pattern.matches(value.as_ref())),
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
    use crate::pattern::WholeRegex;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn matches(matcher: &Matcher, method: &str, host: &str, path: &str) -> bool {
        let headers: Vec<_> = [(":method", method), (":authority", host), (":path", path)]
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .into();
        matcher.matches(&Request::new(&headers, &|_| None))
    }

    #[test]
    fn no_condition_matches_everything() {
        assert!(matches(&Matcher::default(), "FOO", "", "*"));
    }

    #[test]
    fn all_conditions_must_hold() {
        let matcher = Matcher {
            path: Some(Pattern::Prefix("/api/".to_owned())),
            methods: vec!["GET".to_owned(), "POST".to_owned()],
            hosts: vec![HostMatch::Exact("api.example.com".to_owned()), HostMatch::Below(".example.org".to_owned())],
            ..Matcher::default()
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
        let matcher = Matcher { path: Some(Pattern::Exact("/healthz".to_owned())), ..Matcher::default() };
        assert!(matches(&matcher, "GET", "", "/healthz?full"));
        assert!(!matches(&matcher, "GET", "", "/healthz/"));
        assert!(!matches(&matcher, "GET", "", ""));
    }

    #[test]
    fn headers_and_parameters_must_hold_too() {
        let regex = Condition::Matches(Pattern::Regex(WholeRegex::new("[0-9]+").unwrap()));
        let exact = Condition::Matches(Pattern::Exact("free".to_owned()));
        let prefix = Condition::Matches(Pattern::Prefix("b-".to_owned()));
        let holds = |condition: &Condition, values: &[&str]| {
            let name = || "x".to_owned();
            let headers: Vec<_> = values.iter().map(|value| (b"x".to_vec(), value.as_bytes().to_vec())).collect();
            let by_header = Matcher { headers: vec![(name(), condition.clone())], ..Matcher::default() }
                .matches(&Request::new(&headers, &|_| None));
            let target = format!("/?{}", values.iter().map(|value| format!("x={value}")).collect::<Vec<_>>().join("&"));
            let headers = [(b":path".to_vec(), target.into_bytes())];
            let by_query = Matcher { query: vec![(name(), condition.clone())], ..Matcher::default() }
                .matches(&Request::new(&headers, &|_| None));
            assert_eq!(by_header, by_query, "{condition:?} {values:?}");
            by_header
        };
        assert!(holds(&exact, &["free"]) && holds(&exact, &["paid", "free"]));
        assert!(!holds(&exact, &["Free"]) && !holds(&exact, &[]) && !holds(&exact, &["freer"]));
        assert!(holds(&prefix, &["b-"]) && holds(&prefix, &["b-1"]) && !holds(&prefix, &["ab-"]));
        assert!(holds(&regex, &["12"]) && !holds(&regex, &["12a"]) && !holds(&regex, &[]));
        assert!(holds(&Condition::Present(true), &["a"]) && holds(&Condition::Present(true), &["a", "b"]));
        assert!(!holds(&Condition::Present(true), &[]) && !holds(&Condition::Present(true), &[""]));
        assert!(holds(&Condition::Present(false), &[""]) && !holds(&Condition::Present(false), &["a"]));
    }

    #[test]
    fn rules_for_other_exact_paths_are_never_looked_at() {
        let exact = |path: &str| Matcher { path: Some(Pattern::Exact(path.to_owned())), ..Matcher::default() };
        let prefix = Matcher { path: Some(Pattern::Prefix("/api/".to_owned())), ..Matcher::default() };
        let mut matchers: Vec<Matcher> = (0..1000).map(|number| exact(&format!("/api/{number}"))).collect();
        matchers.insert(500, prefix.clone());
        matchers.push(Matcher::default());
        matchers.push(exact("/api/7"));
        let index = Index::new(matchers.iter());
        let of = |path: &str| index.candidates(path).collect::<Vec<_>>();
        assert_eq!(of("/api/7"), [7, 500, 1001, 1002]);
        assert_eq!(of("/api/999"), [500, 1000, 1001]);
        assert_eq!(of("/"), [500, 1001]);
        // The same rule as by trying them all.
        for path in ["/api/7", "/api/499", "/api/500", "/api/x", "/other", ""] {
            let headers = [(b":path".to_vec(), path.as_bytes().to_vec())];
            let request = Request::new(&headers, &|_| None);
            let found = index.candidates(request.path()).find(|rule| matchers[*rule].matches(&request));
            assert_eq!(found, matchers.iter().position(|matcher| matcher.matches(&request)), "{path}");
        }
    }
}
