//! What may be written to the outside, said without the code that writes it.

use weir_filter::reply::LocalReply;
use weir_protocol::Problem;
use weir_protocol::fields::Style;

/// A token (RFC 9110 section 5.6.2) in lower case, as HTTP/2 and Envoy want the names of fields.
pub fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A field value (RFC 9110 section 5.5) that is sent as it is: no control character, nothing outside ASCII, no space
/// around it. A line break in it would be a second field.
pub fn is_field_value(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value && !value.is_empty()
}

/// A reply that the filter may send: 400 to 599, or 200 for gRPC-Web, with fields that are valid and not repeated.
pub fn check_reply(reply: &LocalReply) {
    let field = |name: &str| {
        let mut values = reply.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice");
        value
    };
    for (name, value) in &reply.headers {
        assert!(is_field_name(name), "{name:?}");
        assert!(is_field_value(value), "{name}: {value:?}");
    }
    assert_eq!(field("cache-control"), Some("no-store"));
    for name in Style::ALL.iter().flat_map(|style| style.names()) {
        field(name);
    }
    let retry_after = field("retry-after").map(|value| value.parse::<u64>().expect("whole seconds"));
    assert_ne!(retry_after, Some(0));
    let content_type = field("content-type");
    if reply.grpc_status.is_some() {
        assert!((400..=599).contains(&reply.status), "{}", reply.status);
        assert_eq!(content_type, None);
        std::str::from_utf8(&reply.body).expect("a message in UTF-8");
        return;
    }
    let content_type = content_type.expect("a content type");
    if content_type.starts_with("application/grpc-web") {
        assert_eq!(reply.status, 200);
        return;
    }
    assert!((400..=599).contains(&reply.status), "{}", reply.status);
    if content_type == "application/problem+json" {
        let problem: Problem = serde_json::from_slice(&reply.body).expect("a problem document");
        assert_eq!(problem.status, reply.status);
    }
}

/// The fields that tell of limits: Lists of RFC 9651 and whole numbers.
pub fn check_limit_field(name: &str, value: &str) {
    assert!(is_field_value(value), "{name}: {value:?}");
    match name {
        "ratelimit" | "ratelimit-policy" => {
            let list = sfv::Parser::new(value).parse::<sfv::List>().expect("a List");
            assert!(!list.is_empty());
        }
        "weir-shadow" => {
            sfv::Parser::new(value).parse::<sfv::Item>().expect("an Item");
        }
        _ => {
            assert!(Style::ALL.iter().any(|style| style.names().contains(&name)), "{name}");
            value.parse::<u64>().expect("a whole number");
        }
    }
}
