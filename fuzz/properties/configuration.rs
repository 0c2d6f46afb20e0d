//! Any bytes as a plug-in configuration.

use std::collections::BTreeSet;

use weir_filter::config::{Config, Cost, Rule};
use weir_filter::exchange::Exchange;
use weir_filter::path;
use weir_filter::pattern::Pattern;
use weir_filter::reply::Refusal;
use weir_filter::rules::Condition;
use weir_protocol::document::Value;
use weir_protocol::{MAX_LIMITS_PER_CHECK, MAX_QUANTITY, is_name};

use super::exchange::on_request;
use super::shape::{is_field_name, is_field_value};

/// A configuration as the host hands it over.
pub fn holds(data: &[u8]) {
    match Config::parse(data) {
        Ok(config) => {
            check(&config);
            both_forms(data, &config);
            serves(&config);
        }
        Err(mistakes) => {
            let messages = mistakes.into_messages();
            assert!(!messages.is_empty());
            assert!(messages.iter().all(|message| !message.trim().is_empty()));
            // What is said of a mistake is bounded by what is written: a message has names of fields, and a value once.
            let bytes: usize = messages.iter().map(String::len).sum();
            assert!(bytes <= 1024 + 128 * data.len(), "{bytes} bytes of messages for {} bytes", data.len());
        }
    }
}

/// The bounds that the documentation of [`Config`] promises.
fn check(config: &Config) {
    assert!(is_field_value(&config.service.cluster));
    assert!(is_field_value(&config.service.authority));
    assert!(config.service.token.as_deref().is_none_or(is_field_value));
    assert!((1..=60_000).contains(&config.service.timeout_ms));
    assert!(config.retry_after_jitter_s <= 3600);
    let styles: BTreeSet<_> = config.styles.iter().map(|style| style.as_str()).collect();
    assert_eq!(styles.len(), config.styles.len());
    check_refusal(&config.refusal);
    assert!(!config.rules.is_empty());
    let names: BTreeSet<_> = config.rules.iter().map(|rule| &rule.name).collect();
    assert_eq!(names.len(), config.rules.len());
    config.rules.iter().for_each(check_rule);
}

fn check_rule(rule: &Rule) {
    assert!(is_name(&rule.name), "{:?}", rule.name);
    assert!(rule.percent.0 <= 100);
    check_refusal(&rule.refusal);
    if let Some(Pattern::Exact(path) | Pattern::Prefix(path)) = &rule.matcher.path {
        assert_eq!(&path::normal(path.as_bytes()), path);
    }
    for (name, condition) in &rule.matcher.headers {
        assert!(is_field_name(name));
        if let Condition::Matches(Pattern::Exact(value) | Pattern::Prefix(value)) = condition {
            assert!(is_field_value(value));
        }
    }
    assert!(rule.limits.len() <= MAX_LIMITS_PER_CHECK);
    let policies: BTreeSet<_> = rule.limits.iter().map(|limit| &limit.policy).collect();
    assert_eq!(policies.len(), rule.limits.len());
    for limit in &rule.limits {
        assert!(is_name(&limit.policy));
        assert!(!limit.key.parts.is_empty());
        assert!(limit.key.parts.iter().all(|part| !part.0.is_empty()));
        match &limit.cost {
            Cost::Fixed(cost) => assert!(*cost <= MAX_QUANTITY),
            Cost::Header { name, default, min, max } => {
                assert!(is_field_name(name));
                assert!(min <= default && default <= max && *max <= MAX_QUANTITY);
            }
        }
    }
}

fn check_refusal(refusal: &Refusal) {
    assert!((400..=599).contains(&refusal.status));
    assert!(refusal.content_type.as_deref().is_none_or(is_field_value));
    assert!(refusal.body.as_ref().is_none_or(|body| body.len() <= 16 << 10));
    for (name, value) in &refusal.headers {
        assert!(is_field_name(name) && is_field_value(value), "{name}: {value}");
        let own = ["content-type", "content-length", "transfer-encoding", "connection", "retry-after", "ratelimit"];
        assert!(!own.contains(&name.as_str()), "{name}");
    }
}

/// One configuration is one, whether the host hands it over as JSON or as `google.protobuf.Struct`.
fn both_forms(data: &[u8], config: &Config) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let Value::Object(fields) = &value else { panic!("accepted: {value:?}") };
    let as_struct = Config::parse(&structure(fields));
    assert_eq!(as_struct.as_ref(), Ok(config));
}

/// `message Struct { map<string, Value> fields = 1; }`
fn structure(fields: &[(String, Value)]) -> Vec<u8> {
    let entry = |(name, value): &(String, Value)| {
        delimited(1, &[delimited(1, name.as_bytes()), delimited(2, &of_value(value))].concat())
    };
    fields.iter().flat_map(entry).collect()
}

/// `message Value { oneof kind { null = 1; number = 2; string = 3; bool = 4; struct = 5; list = 6; } }`
fn of_value(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![1 << 3, 0],
        Value::Bool(value) => vec![4 << 3, u8::from(*value)],
        // What is accepted is at most 999 999 999 999 999, which a double holds exactly.
        Value::Whole(number) => [&[2 << 3 | 1], (*number as f64).to_le_bytes().as_slice()].concat(),
        Value::Number(number) => panic!("accepted: {number}"),
        Value::Text(text) => delimited(3, text.as_bytes()),
        Value::Object(fields) => delimited(5, &structure(fields)),
        Value::List(values) => {
            delimited(6, &values.iter().flat_map(|value| delimited(1, &of_value(value))).collect::<Vec<_>>())
        }
    }
}

fn delimited(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![field << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(bytes);
    message
}

/// What is accepted can be used: by a bare request, and by one for the path of each rule.
fn serves(config: &Config) {
    let exact = |rule: &Rule| match &rule.matcher.path {
        Some(Pattern::Exact(path) | Pattern::Prefix(path)) => path.clone(),
        _ => "/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/b".to_owned(),
    };
    for path in config.rules.iter().take(8).map(exact) {
        let headers = [(":method", "GET"), (":authority", "api.example.com"), (":path", path.as_str())]
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        on_request(&mut Exchange::new(0), config, &headers, &|_| Some(b"192.0.2.1:1".to_vec()));
    }
}
