//! The plug-in configuration: what an operator writes, checked and made into values that cannot be wrong.
//!
//! All mistakes are reported together, each with its path, what is accepted and what was found. A configuration with
//! a mistake is refused whole: limiting silently less than was asked is worse than not starting.

use weir_protocol::document::{Fields, Mistakes, Value};
use weir_protocol::fields::Style;
use weir_protocol::{MAX_LIMITS_PER_CHECK, MAX_QUANTITY, duration, is_name};

use crate::client_ip::Prefix;
use crate::key::{Part, Source, Template};
use crate::protobuf;
use crate::rules::{HostMatch, Matcher, PathMatch};

/// How long a callout may take unless the configuration says otherwise: ten times what a check takes on a busy
/// network, and still less than a person notices.
const DEFAULT_TIMEOUT_MS: u64 = 50;
/// The longest callout timeout: a request held back for longer is better refused.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// A checked plug-in configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where checks go.
    pub service: Service,
    /// What happens to a request that no rule could be found for, since the host does not show it; rules have their own.
    pub failure_mode: FailureMode,
    /// Which fields clients see.
    pub styles: Vec<Style>,
    /// What happens to fields of those names that the upstream sends.
    pub upstream_headers: UpstreamHeaders,
    /// Whether CORS preflights pass without a check.
    pub preflights: Preflights,
    /// Tried in order; the first match decides. At least one.
    pub rules: Vec<Rule>,
}

/// Where checks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The cluster of the proxy that leads to the service.
    pub cluster: String,
    /// The authority of the callout.
    pub authority: String,
    /// Deadline of a callout in milliseconds, 1 to 60 000: with 0 Envoy would wait for ever.
    pub timeout_ms: u64,
    /// Bearer token.
    pub token: Option<String>,
}

/// What happens to limit fields that the upstream sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamHeaders {
    /// Ours take their place.
    Replace,
    /// Theirs stay, and ours of the same style are left out.
    Keep,
}

/// What happens to CORS preflights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preflights {
    /// They pass without a check: a refused one looks like a network error to a script.
    Free,
    /// They are requests like any other.
    Checked,
}

/// What happens to a request whose check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// It passes, without limit fields.
    Open,
    /// It is answered 503.
    Closed,
}

/// Which requests, which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, in counters and logs.
    pub name: String,
    /// Which requests.
    pub matcher: Matcher,
    /// The limits, all checked together; empty for a rule that skips the check.
    pub limits: Vec<Limit>,
    /// What happens when the check fails.
    pub failure_mode: FailureMode,
}

/// One limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name of a policy of the service.
    pub policy: String,
    /// Who is limited.
    pub key: Template,
    /// How much a request takes.
    pub cost: Cost,
    /// What happens when the request has no such key.
    pub on_missing_key: OnMissingKey,
}

/// How much a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Fixed(u64),
    /// What a header says.
    Header {
        /// Its name in lower case.
        name: String,
        /// When it is absent.
        default: u64,
        /// The least.
        min: u64,
        /// The most; also for what is not a number.
        max: u64,
    },
}

/// What happens when a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissingKey {
    /// The client's address is the key.
    ClientIp,
    /// This limit is not checked.
    Skip,
    /// The request is answered 400.
    Reject,
}

// === impl Config ===

impl Config {
    /// Parses the configuration that the host hands over: JSON, or a serialised `google.protobuf.Struct`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::default();
        if bytes.trim_ascii().is_empty() {
            mistakes
                .add("", "the configuration is empty; expected at least `service: {cluster: ...}` and `rules: [...]`");
            return Err(mistakes);
        }
        let value = match serde_json::from_slice(bytes).or_else(|error| protobuf::decode(bytes).ok_or(error)) {
            Ok(value) => value,
            Err(error) => {
                mistakes.add("", format_args!("not a JSON document: {error}"));
                return Err(mistakes);
            }
        };
        match config(&value, &mut mistakes) {
            Some(config) if mistakes.is_empty() => Ok(config),
            _ => Err(mistakes),
        }
    }
}

fn config(value: &Value, mistakes: &mut Mistakes) -> Option<Config> {
    let mut fields = mistakes.object("", value)?;
    let service = fields
        .required("service", "an object with `cluster`", mistakes)
        .and_then(|(path, value)| service(&path, value, mistakes));
    let failure_mode = failure_mode(&mut fields, mistakes).unwrap_or(FailureMode::Open);
    let styles = match fields.optional("headers") {
        Some((path, value)) => styles(&path, value, mistakes),
        None => vec![Style::Ietf, Style::RateLimit],
    };
    let upstream_headers = fields
        .optional("upstream_headers")
        .and_then(|(path, value)| {
            let choices = [("replace", UpstreamHeaders::Replace), ("keep", UpstreamHeaders::Keep)];
            mistakes.choice(&path, value, &choices)
        })
        .unwrap_or(UpstreamHeaders::Replace);
    let preflights = fields
        .optional("preflights")
        .and_then(|(path, value)| {
            mistakes.choice(&path, value, &[("free", Preflights::Free), ("checked", Preflights::Checked)])
        })
        .unwrap_or(Preflights::Free);
    let rules = fields
        .required("rules", "a list of rules", mistakes)
        .and_then(|(path, value)| rules(&path, value, failure_mode, mistakes));
    fields.finish(mistakes);
    Some(Config { service: service?, failure_mode, styles, upstream_headers, preflights, rules: rules? })
}

fn service(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Service> {
    let mut fields = mistakes.object(path, value)?;
    let cluster = fields
        .required("cluster", "the name of a cluster of the proxy", mistakes)
        .and_then(|(path, value)| field_value(&path, value, mistakes));
    let authority = fields.optional("authority").map(|(path, value)| field_value(&path, value, mistakes));
    let token = fields.optional("token").and_then(|(path, value)| token(&path, value, mistakes));
    let timeout_ms = match fields.optional("timeout") {
        Some((path, value)) => timeout(&path, value, mistakes),
        None => Some(DEFAULT_TIMEOUT_MS),
    };
    fields.finish(mistakes);
    Some(Service {
        cluster: cluster?,
        authority: authority.unwrap_or_else(|| Some("weir".to_owned()))?,
        timeout_ms: timeout_ms?,
        token,
    })
}

fn timeout(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<u64> {
    if let Value::Text(text) = value
        && let Ok(milliseconds) = duration::parse_ms(text)
        && (1..=MAX_TIMEOUT_MS).contains(&milliseconds)
    {
        return Some(milliseconds);
    }
    mistakes.expected(path, format_args!("{} from 1ms to 60s", duration::ACCEPTED), value);
    None
}

/// What may be sent as a header field value (RFC 9110 section 5.5) without surprises.
const FIELD_VALUE: &str = "a header field value (RFC 9110): printable ASCII without outer spaces";

fn is_field_value(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn field_value(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Value::Text(text) if is_field_value(text) => Some(text.clone()),
        other => {
            mistakes.expected(path, FIELD_VALUE, other);
            None
        }
    }
}

/// As any field value, but what was found is a secret.
fn token(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Value::Text(text) if is_field_value(text) => Some(text.clone()),
        _ => {
            mistakes.add(path, format_args!("expected {FIELD_VALUE}; what was found is not shown"));
            None
        }
    }
}

fn failure_mode(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<FailureMode> {
    let (path, value) = fields.optional("failure_mode")?;
    mistakes.choice(&path, value, &[("open", FailureMode::Open), ("closed", FailureMode::Closed)])
}

fn styles(path: &str, value: &Value, mistakes: &mut Mistakes) -> Vec<Style> {
    let mut styles = Vec::new();
    for (index, value) in mistakes.list(path, value, "header styles").unwrap_or_default().iter().enumerate() {
        let path = format!("{path}[{index}]");
        match mistakes.choice(&path, value, &Style::ALL.map(|style| (style.as_str(), style))) {
            Some(style) if styles.contains(&style) => {
                mistakes.add(&path, format_args!("{} is listed twice", style.as_str()))
            }
            Some(style) => styles.push(style),
            None => {}
        }
    }
    styles
}

fn rules(path: &str, value: &Value, failure_mode: FailureMode, mistakes: &mut Mistakes) -> Option<Vec<Rule>> {
    let values = mistakes.list(path, value, "rules")?;
    if values.is_empty() {
        mistakes.add(path, "expected at least one rule, found none");
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(rule) = rule(&path, value, failure_mode, mistakes) {
            if rules.iter().any(|known| known.name == rule.name) {
                mistakes.add(&format!("{path}.name"), format_args!("{:?} names an earlier rule too", rule.name));
            }
            rules.push(rule);
        }
    }
    Some(rules)
}

fn rule(path: &str, value: &Value, inherited: FailureMode, mistakes: &mut Mistakes) -> Option<Rule> {
    let mut fields = mistakes.object(path, value)?;
    let name = fields.required("name", "a name", mistakes).and_then(|(path, value)| name(&path, value, mistakes));
    let matcher = match fields.optional("match") {
        Some((path, value)) => matcher(&path, value, mistakes),
        None => Some(Matcher::default()),
    };
    let skip = fields.optional("skip").and_then(|(path, value)| mistakes.bool(&path, value)).unwrap_or(false);
    let failure_mode = failure_mode(&mut fields, mistakes).unwrap_or(inherited);
    let limits = match (skip, fields.optional("limits")) {
        (false, Some((path, value))) => limits(&path, value, mistakes),
        (true, None) => Some(Vec::new()),
        (false, None) => {
            mistakes.add(&fields.path("limits"), "is missing; expected a list of limits, or `skip: true`");
            None
        }
        (true, Some((path, _))) => {
            mistakes.add(&path, "expected nothing, since `skip` is true");
            None
        }
    };
    fields.finish(mistakes);
    Some(Rule { name: name?, matcher: matcher?, limits: limits?, failure_mode })
}

fn name(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    match value {
        Value::Text(text) if is_name(text) => Some(text.clone()),
        other => {
            mistakes.expected(
                path,
                "a name of 1 to 64 of a-z, 0-9, _ and -, that starts with a letter or digit",
                other,
            );
            None
        }
    }
}

fn matcher(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Matcher> {
    let mut fields = mistakes.object(path, value)?;
    let path_match = fields.optional("path").map(|(path, value)| path_match(&path, value, mistakes));
    let methods = fields.optional("methods").map(|(path, value)| {
        members(&path, value, "methods", mistakes, |path, value, mistakes| match value {
            Value::Text(text) if is_token(text) => Some(text.clone()),
            other => {
                mistakes.expected(path, "a method (RFC 9110), such as GET", other);
                None
            }
        })
    });
    let hosts = fields.optional("hosts").map(|(path, value)| members(&path, value, "hosts", mistakes, host_match));
    fields.finish(mistakes);
    Some(Matcher {
        path: path_match.map_or(Some(None), |path| path.map(Some))?,
        methods: methods.unwrap_or_default(),
        hosts: hosts.unwrap_or_default(),
    })
}

/// A list that is not empty; an empty one would match nothing.
fn members<T>(
    path: &str,
    value: &Value,
    what: &str,
    mistakes: &mut Mistakes,
    read: fn(&str, &Value, &mut Mistakes) -> Option<T>,
) -> Vec<T> {
    let Some(values) = mistakes.list(path, value, what) else { return Vec::new() };
    if values.is_empty() {
        mistakes.add(path, "expected at least one, found none");
    }
    values.iter().enumerate().filter_map(|(index, value)| read(&format!("{path}[{index}]"), value, mistakes)).collect()
}

fn path_match(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<PathMatch> {
    let mut fields = mistakes.object(path, value)?;
    let mut read = |name, mistakes: &mut Mistakes| {
        let (path, value) = fields.optional(name)?;
        let text = mistakes.text(&path, value, "a path")?;
        if text.starts_with('/') && !text.contains(['?', '#']) && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
        {
            return Some(text.to_owned());
        }
        mistakes.expected(&path, "a path as it is sent, from its first slash, without query", value);
        None
    };
    let exact = read("exact", mistakes);
    let prefix = read("prefix", mistakes);
    fields.one_of(mistakes);
    exact.map(PathMatch::Exact).or(prefix.map(PathMatch::Prefix))
}

fn host_match(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<HostMatch> {
    if let Value::Text(text) = value {
        let host = text.strip_prefix('*').unwrap_or(text).to_ascii_lowercase();
        let below = host.len() < text.len();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        let has_port = !host.starts_with('[') && host.contains(':');
        if host.len() > usize::from(below) && host.bytes().all(plain) && !has_port && host.starts_with('.') == below {
            return Some(if below { HostMatch::Below(host) } else { HostMatch::Exact(host) });
        }
    }
    mistakes.expected(path, "a host without port, such as api.example.com or *.example.org", value);
    None
}

fn limits(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Vec<Limit>> {
    let values = mistakes.list(path, value, "limits")?;
    if values.is_empty() || values.len() > MAX_LIMITS_PER_CHECK {
        mistakes.add(path, format_args!("expected 1 to {MAX_LIMITS_PER_CHECK} limits, found {}", values.len()));
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(limit) = limit(&path, value, mistakes) {
            if limits.iter().any(|known| known.policy == limit.policy) {
                mistakes.add(&format!("{path}.policy"), format_args!("{:?} is in this rule already", limit.policy));
            }
            limits.push(limit);
        }
    }
    Some(limits)
}

fn limit(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Limit> {
    let mut fields = mistakes.object(path, value)?;
    let policy = fields
        .required("policy", "the name of a policy of the service", mistakes)
        .and_then(|(path, value)| name(&path, value, mistakes));
    let key = fields
        .required("key", "a list of key sources", mistakes)
        .map(|(path, value)| members(&path, value, "key sources", mistakes, part));
    let cost = match fields.optional("cost") {
        Some((path, value @ (Value::Object(_) | Value::Null))) => cost_header(&path, value, mistakes),
        Some((path, value)) => mistakes.whole(&path, value, 0..=MAX_QUANTITY).map(Cost::Fixed),
        None => Some(Cost::Fixed(1)),
    };
    let on_missing_key = fields
        .optional("on_missing_key")
        .and_then(|(path, value)| {
            let choices =
                [("client_ip", OnMissingKey::ClientIp), ("skip", OnMissingKey::Skip), ("reject", OnMissingKey::Reject)];
            mistakes.choice(&path, value, &choices)
        })
        .unwrap_or(OnMissingKey::ClientIp);
    fields.finish(mistakes);
    Some(Limit { policy: policy?, key: Template(key?), cost: cost?, on_missing_key })
}

fn cost_header(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Cost> {
    let mut fields = mistakes.object(path, value)?;
    let name = fields
        .required("header", "the name of a header", mistakes)
        .and_then(|(path, value)| header_name(&path, value, mistakes));
    let mut number = |field, otherwise: Option<u64>, mistakes: &mut Mistakes| match otherwise {
        Some(otherwise) => match fields.optional(field) {
            Some((path, value)) => mistakes.whole(&path, value, 0..=MAX_QUANTITY),
            None => Some(otherwise),
        },
        None => fields
            .required(field, "the most that a request may take", mistakes)
            .and_then(|(path, value)| mistakes.whole(&path, value, 0..=MAX_QUANTITY)),
    };
    let min = number("min", Some(1), mistakes);
    let max = number("max", None, mistakes);
    let default = number("default", Some(1), mistakes);
    fields.finish(mistakes);
    let (min, max, default) = (min?, max?, default?);
    if min > max {
        mistakes.add(path, format_args!("expected min <= max, found min {min} and max {max}"));
        return None;
    }
    if !(min..=max).contains(&default) {
        mistakes.add(path, format_args!("expected min <= default <= max, found {min}, {default} and {max}"));
        return None;
    }
    Some(Cost::Header { name: name?, default, min, max })
}

fn part(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Part> {
    let mut fields = mistakes.object(path, value)?;
    if let Some((path, value)) = fields.optional("first_of") {
        fields.one_of(mistakes);
        return Some(Part(members(&path, value, "key sources", mistakes, |path, value, mistakes| {
            source(mistakes.object(path, value)?, mistakes)
        })));
    }
    Some(Part(vec![source(fields, mistakes)?]))
}

fn source(mut fields: Fields<'_>, mistakes: &mut Mistakes) -> Option<Source> {
    let mut found = None;
    if let Some((path, value)) = fields.optional("header") {
        found = header_name(&path, value, mistakes).map(Source::Header);
    }
    if let Some((path, value)) = fields.optional("client_ip") {
        found = prefix(&path, value, mistakes).map(Source::ClientIp);
    }
    for (name, source) in [("path", Source::Path), ("method", Source::Method), ("host", Source::Host)] {
        if let Some((path, value)) = fields.optional(name)
            && let Some(options) = mistakes.object(&path, value)
        {
            options.finish(mistakes);
            found = Some(source);
        }
    }
    if let Some((path, value)) = fields.optional("literal") {
        found = mistakes.text(&path, value, "a text that is not empty").map(|text| Source::Literal(text.to_owned()));
    }
    fields.one_of(mistakes);
    found
}

fn prefix(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<Prefix> {
    let mut fields = mistakes.object(path, value)?;
    let mut bits = |name, otherwise: u8, most: u8, mistakes: &mut Mistakes| match fields.optional(name) {
        Some((path, value)) => {
            mistakes.whole(&path, value, 1..=u64::from(most)).and_then(|bits| u8::try_from(bits).ok())
        }
        None => Some(otherwise),
    };
    let default = Prefix::default();
    let ipv4 = bits("ipv4_prefix", default.ipv4, 32, mistakes);
    let ipv6 = bits("ipv6_prefix", default.ipv6, 128, mistakes);
    fields.finish(mistakes);
    Some(Prefix { ipv4: ipv4?, ipv6: ipv6? })
}

/// The name of a header in lower case, as proxies keep them.
fn header_name(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<String> {
    if let Value::Text(text) = value {
        if text.eq_ignore_ascii_case("host") || text.eq_ignore_ascii_case(":authority") {
            mistakes.expected(path, "the name of a header other than the host, whose key source is `host: {}`", value);
            return None;
        }
        if is_token(text) {
            return Some(text.to_ascii_lowercase());
        }
    }
    mistakes.expected(path, "the name of a header (RFC 9110), such as x-api-key", value);
    None
}

/// A token of RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
