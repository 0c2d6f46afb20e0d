//! Where a value comes from that tells requests apart.

use std::borrow::Cow;

use crate::client_ip::{self, Prefix};
use crate::key::escape;
use crate::property::Kind;
use crate::request::{Field, Request};

/// Where Envoy's jwt_authn filter leaves the claims of tokens that it has verified.
const JWT_METADATA: [&str; 3] = ["metadata", "filter_metadata", "envoy.filters.http.jwt_authn"];

/// A source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A header field; the name in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A parameter of the query.
    Query(String),
    /// The address of the client.
    ClientIp(Prefix),
    /// The path in its normal form.
    Path,
    /// A segment of that path; the first is 1.
    PathSegment(usize),
    /// The method.
    Method,
    /// The host, in lower case and without port.
    Host,
    /// A claim of a token that Envoy's jwt_authn filter has verified. The first name is its `payload_in_metadata`.
    JwtClaim(Vec<String>, Kind),
    /// Something else that the host knows, by its path.
    Property(Vec<String>, Kind),
    /// The same text for every request.
    Literal(String),
}

impl Source {
    /// The value that a request has.
    pub fn read<'a>(&'a self, request: &'a Request<'_>) -> Field<'a> {
        let borrowed = |value: &'a [u8]| Some(Cow::Borrowed(value));
        let value = match self {
            Self::Header(name) => return request.field(name),
            Self::Cookie(name) => return request.cookie(name),
            Self::Query(name) => return request.query(name),
            Self::ClientIp(prefix) => {
                request.client_address().map(|address| client_ip::key(address, *prefix).into_bytes().into())
            }
            Self::Path => borrowed(request.path().as_bytes()),
            Self::PathSegment(number) => {
                request.path().split('/').nth(*number).map(|segment| segment.as_bytes().into())
            }
            Self::Method => borrowed(request.method()),
            Self::Host => Some(request.host().into()),
            Self::JwtClaim(claim, kind) => {
                let path: Vec<&str> = JWT_METADATA.into_iter().chain(claim.iter().map(String::as_str)).collect();
                request.property(&path).and_then(|bytes| kind.read(bytes)).map(Cow::Owned)
            }
            Self::Property(path, kind) => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                request.property(&path).and_then(|bytes| kind.read(bytes)).map(Cow::Owned)
            }
            Self::Literal(value) => borrowed(value.as_bytes()),
        };
        value.filter(|value| !value.is_empty()).map_or(Field::Missing, Field::One)
    }

    /// Its tag in a key. Names that may hold any character are escaped, and those of a path joined by dots.
    pub fn tag(&self) -> Cow<'static, str> {
        match self {
            Self::Header(name) => format!("header.{name}").into(),
            Self::Cookie(name) => format!("cookie.{name}").into(),
            Self::Query(name) => format!("query.{}", escape(name.as_bytes())).into(),
            Self::ClientIp(_) => "ip".into(),
            Self::Path => "path".into(),
            Self::PathSegment(number) => format!("seg.{number}").into(),
            Self::Method => "method".into(),
            Self::Host => "host".into(),
            Self::JwtClaim(claim, _) => format!("jwt.{}", dotted(claim)).into(),
            Self::Property(path, _) => format!("prop.{}", dotted(path)).into(),
            Self::Literal(_) => "literal".into(),
        }
    }

    /// Whether a key of this alone is the bare value.
    pub fn reads_naturally(&self) -> bool {
        match self {
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::JwtClaim(..) | Self::Literal(_) => true,
            Self::ClientIp(_) | Self::Path | Self::PathSegment(_) | Self::Method | Self::Host | Self::Property(..) => {
                false
            }
        }
    }

    /// What a client calls it.
    pub fn describe(&self) -> String {
        match self {
            Self::Header(name) => format!("header {name}"),
            Self::Cookie(name) => format!("cookie {name}"),
            Self::Query(name) => format!("query parameter {name}"),
            other => other.tag().into_owned(),
        }
    }
}

fn dotted(path: &[String]) -> String {
    let names: Vec<String> = path.iter().map(|name| escape(name.as_bytes()).replace('.', "%2E")).collect();
    names.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn read(source: &Source, target: &str) -> Option<String> {
        let headers: Vec<_> = [(":method", "GET"), (":authority", "A.example:80"), (":path", target)]
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .into();
        let property = |path: &[&str]| match path {
            ["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "payload", "tenant", "id"] => {
                Some(b"org_1".to_vec())
            }
            ["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "payload", "level"] => {
                Some(3f64.to_le_bytes().to_vec())
            }
            ["connection", "mtls"] => Some(vec![1]),
            _ => None,
        };
        match source.read(&Request::new(&headers, &property)) {
            Field::One(value) => Some(String::from_utf8(value.into_owned()).unwrap()),
            Field::Missing => None,
            Field::Several => panic!("several"),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn segments_are_counted_from_one_in_the_normal_path() {
        let segment = |number, target: &str| read(&Source::PathSegment(number), target);
        assert_eq!(segment(1, "/v1/orgs/7").as_deref(), Some("v1"));
        assert_eq!(segment(3, "/v1//x/../%6Frgs/7?y").as_deref(), Some("7"));
        assert_eq!(segment(3, "/v1/orgs/"), None);
        assert_eq!(segment(4, "/v1/orgs/7"), None);
        assert_eq!(segment(1, "/"), None);
        assert_eq!(segment(1, ""), None);
    }

    #[test]
    fn claims_and_properties_are_read_as_their_kind() {
        let claim = |path: &[&str], kind| read(&Source::JwtClaim(names(path), kind), "/");
        assert_eq!(claim(&["payload", "tenant", "id"], Kind::Text).as_deref(), Some("org_1"));
        assert_eq!(claim(&["payload", "tenant", "id"], Kind::Double), None);
        assert_eq!(claim(&["payload", "level"], Kind::Double).as_deref(), Some("3"));
        assert_eq!(claim(&["payload", "other"], Kind::Text), None);
        assert_eq!(read(&Source::Property(names(&["connection", "mtls"]), Kind::Bool), "/").as_deref(), Some("true"));
    }

    #[test]
    fn tags_do_not_collide() {
        let tags = [
            Source::Header("a.b".to_owned()),
            Source::Cookie("a.b".to_owned()),
            Source::Query("a.b".to_owned()),
            Source::Query("a=b,c".to_owned()),
            Source::JwtClaim(names(&["a.b"]), Kind::Text),
            Source::JwtClaim(names(&["a", "b"]), Kind::Text),
            Source::JwtClaim(names(&["a%2Eb"]), Kind::Text),
            Source::Property(names(&["a", "b"]), Kind::Text),
            Source::PathSegment(1),
            Source::Path,
        ]
        .map(|source| source.tag().into_owned());
        for (index, tag) in tags.iter().enumerate() {
            assert!(!tag.contains(['=', ',']), "{tag}");
            assert!(!tags.iter().skip(index + 1).any(|other| other == tag), "{tag}");
        }
    }
}
