//! The plug-in configuration: what an operator writes, checked and made into values that cannot be wrong.
//!
//! All mistakes are reported together, each with its path, what is accepted and what was found. A configuration with
//! a mistake is refused whole: limiting silently less than was asked is worse than not starting.

use weir_protocol::Mode;
use weir_protocol::document::{Fields, Mistakes, Value};
use weir_protocol::fields::Style;
use weir_protocol::is_name;

use crate::allow::Allow;
use crate::key::Template;
use crate::protobuf;
use crate::reply::Refusal;
use crate::request::Request;
use crate::rollout::Percent;
use crate::rules::{Index, Matcher};

mod key;
mod limit;
mod matching;
mod pattern;
mod refusal;
mod rule;
mod service;

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
    /// What a refusal looks like; rules have their own.
    pub refusal: Refusal,
    /// The most seconds that are added to a `Retry-After`.
    pub retry_after_jitter_s: u64,
    /// Tried in order; the first match decides. At least one.
    pub rules: Vec<Rule>,
    index: Index,
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
    /// Whether its refusals are answers, or only told and counted.
    pub mode: Mode,
    /// What a refusal looks like.
    pub refusal: Refusal,
    /// Requests that pass without a check.
    pub allow: Vec<Allow>,
    /// The share of keys that the rule limits.
    pub percent: Percent,
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

    /// The first rule that is for a request, and its index.
    pub fn rule_for(&self, request: &Request<'_>) -> Option<(usize, &Rule)> {
        self.index
            .candidates(request.path())
            .filter_map(|index| Some((index, self.rules.get(index)?)))
            .find(|(_, rule)| rule.matcher.matches(request))
    }
}

fn config(value: &Value, mistakes: &mut Mistakes) -> Option<Config> {
    let mut fields = mistakes.object("", value)?;
    let service = fields
        .required("service", "an object with `cluster`", mistakes)
        .and_then(|(path, value)| service::service(&path, value, mistakes));
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
    let refusal = match fields.optional("refusal") {
        Some((path, value)) => refusal::refusal(&path, value, mistakes).unwrap_or_default(),
        None => Refusal::default(),
    };
    let retry_after_jitter_s = match fields.optional("retry_after_jitter") {
        Some((path, value)) => refusal::jitter_s(&path, value, mistakes),
        None => Some(0),
    };
    let inherited = rule::Inherited { failure_mode, refusal: &refusal };
    let rules = fields
        .required("rules", "a list of rules", mistakes)
        .and_then(|(path, value)| rule::rules(&path, value, &inherited, mistakes));
    fields.finish(mistakes);
    let rules = rules?;
    let index = Index::new(rules.iter().map(|rule| &rule.matcher));
    Some(Config {
        service: service?,
        failure_mode,
        styles,
        upstream_headers,
        preflights,
        refusal,
        retry_after_jitter_s: retry_after_jitter_s?,
        rules,
        index,
    })
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
