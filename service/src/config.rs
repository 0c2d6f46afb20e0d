//! The policy file: what an operator writes, checked and made into values that cannot be wrong.
//!
//! All mistakes are reported together, each with its path, what is accepted and what was found. A file with a mistake
//! is refused whole: limiting silently less than was asked is worse than not starting.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use redis::IntoConnectionInfo as _;
use serde_saphyr::options::DuplicateKeyPolicy;
use weir_protocol::document::{Fields, Mistakes, Value};
use weir_protocol::duration;

use crate::policy::Policies;

mod policies;
mod warnings;
mod window;

/// Where checks are served unless the file says otherwise: only this machine reaches it.
const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
/// Where metrics and health are served unless the file says otherwise.
const DEFAULT_ADMIN_LISTEN: &str = "127.0.0.1:8081";
/// How long a check waits for the store: many times what Redis needs, and half of the filter's default timeout, so that
/// the filter hears why.
const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_millis(25);
/// The longest deadline of a store call: a request held back for longer is better refused.
const MAX_STORE_TIMEOUT_MS: u64 = 60_000;

/// A checked policy file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where checks are served.
    pub listen: SocketAddr,
    /// Who may ask.
    pub auth: Auth,
    /// Where metrics and health are served.
    pub admin_listen: SocketAddr,
    /// Where counts are kept.
    pub store: StoreConfig,
    /// The policies; at least one.
    pub policies: Policies,
}

/// Who may ask for checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Whoever reaches the port.
    None,
    /// Who sends a bearer token from the environment.
    Token,
}

/// Where counts are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// Which kind of store.
    pub backend: Backend,
    /// Deadline of everything a check does with the store.
    pub timeout: Duration,
}

/// A kind of store.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// A Redis server.
    Redis(RedisUrl),
    /// The memory of this process.
    Memory,
}

/// A URL that leads to a Redis server. Shown without user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

/// All mistakes of a policy file; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConfig(Vec<String>);

// === impl Config ===

impl Config {
    /// Parses a policy file.
    pub fn parse(text: &str) -> Result<Self, InvalidConfig> {
        let document = yaml(text).map_err(|error| InvalidConfig(vec![format!("not YAML: {error}")]))?;
        let mut mistakes = Mistakes::default();
        let config = Self::read(&document, &mut mistakes);
        let messages = mistakes.into_messages();
        match config {
            Some(config) if messages.is_empty() => Ok(config),
            _ => Err(InvalidConfig(messages)),
        }
    }

    /// What may be said and is perhaps not meant; one line each.
    pub fn warnings(&self) -> Vec<String> {
        warnings::of(&self.policies)
    }

    /// `None` only if a mistake was added.
    fn read(document: &Value, mistakes: &mut Mistakes) -> Option<Self> {
        let mut fields = mistakes.object("", document)?;
        let listen = listen(&mut fields, DEFAULT_LISTEN, mistakes);
        let auth = auth(&mut fields, listen, mistakes);
        let admin_listen = match fields.optional("admin") {
            Some((path, value)) => mistakes.object(&path, value).and_then(|mut admin| {
                let listen = self::listen(&mut admin, DEFAULT_ADMIN_LISTEN, mistakes);
                admin.finish(mistakes);
                listen
            }),
            None => DEFAULT_ADMIN_LISTEN.parse().ok(),
        };
        if let (Some(listen), Some(admin)) = (listen, admin_listen)
            && listen == admin
            && listen.port() != 0
        {
            mistakes.add("admin.listen", format_args!("expected another address than `listen`, found \"{admin}\""));
        }
        let store = fields
            .required("store", "an object with `redis: {url: ...}` or `memory: {}`", mistakes)
            .and_then(|(path, value)| store(&path, value, mistakes));
        let policies = fields
            .required("policies", "a list of policies", mistakes)
            .and_then(|(path, value)| policies::read(&path, value, mistakes));
        fields.finish(mistakes);
        Some(Self { listen: listen?, auth: auth?, admin_listen: admin_listen?, store: store?, policies: policies? })
    }
}

/// The error says where the text is no YAML, in one line or a few.
fn yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        // Both reach the tree, so that they are reported with their path.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // `yes` and `on` are texts, as in YAML 1.2.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

fn listen(fields: &mut Fields<'_>, default: &str, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let Some((path, value)) = fields.optional("listen") else { return default.parse().ok() };
    let address = if let Value::Text(text) = value { text.parse().ok() } else { None };
    if address.is_none() {
        mistakes.expected(&path, format_args!("an IP address and a port, such as {default} or \"[::1]:8080\""), value);
    }
    address
}

fn auth(fields: &mut Fields<'_>, listen: Option<SocketAddr>, mistakes: &mut Mistakes) -> Option<Auth> {
    const CHOICES: [(&str, Auth); 2] = [("none", Auth::None), ("token", Auth::Token)];
    match fields.optional("auth") {
        Some((path, Value::Text(text))) if text == "mtls" => {
            mistakes.add(&path, "mtls is not supported yet; accepted: none, token");
            None
        }
        Some((path, value)) => mistakes.choice(&path, value, &CHOICES),
        None => {
            if let Some(listen) = listen
                && !listen.ip().is_loopback()
            {
                let reason = "since whoever reaches the port can spend anyone's quota";
                mistakes.add(
                    "auth",
                    format_args!(
                        "is missing; expected none or token where `listen` is not loopback ({listen}), {reason}"
                    ),
                );
            }
            Some(Auth::None)
        }
    }
}

fn store(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<StoreConfig> {
    let mut fields = mistakes.object(path, value)?;
    let redis = fields.optional("redis");
    let memory = fields.optional("memory");
    let backend = match (redis, memory) {
        (Some((path, value)), None) => redis_url(&path, value, mistakes).map(Backend::Redis),
        (None, Some((path, value))) => mistakes.object(&path, value).map(|memory| {
            memory.finish(mistakes);
            Backend::Memory
        }),
        (redis, _) => {
            let found = if redis.is_some() { "both" } else { "neither" };
            mistakes.add(fields.here(), format_args!("expected exactly one of redis and memory, found {found}"));
            None
        }
    };
    let timeout = match fields.optional("timeout") {
        Some((path, value)) => {
            read_duration(&path, value, 1..=MAX_STORE_TIMEOUT_MS, "1ms to 60s", mistakes).map(Duration::from_millis)
        }
        None => Some(DEFAULT_STORE_TIMEOUT),
    };
    match fields.optional("fallback") {
        Some((path, Value::Text(text))) if text == "local" => {
            mistakes.add(&path, "local is not supported yet; accepted: none");
        }
        Some((path, value)) => drop(mistakes.choice(&path, value, &[("none", ())])),
        None => {}
    }
    fields.finish(mistakes);
    Some(StoreConfig { backend: backend?, timeout: timeout? })
}

fn redis_url(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<RedisUrl> {
    const ACCEPTED: &str = "a URL such as redis://127.0.0.1:6379 or redis://user:password@redis.internal:6379/0";
    let mut fields = mistakes.object(path, value)?;
    let url = fields.required("url", ACCEPTED, mistakes);
    fields.finish(mistakes);
    let (path, value) = url?;
    let text = mistakes.text(&path, value, ACCEPTED)?;
    // A wrong URL may hold a password all the same, so it is not shown.
    if text.starts_with("rediss:") || text.starts_with("valkeys:") {
        mistakes.add(&path, "TLS to Redis is not supported yet; accepted: redis://, redis+unix://");
        return None;
    }
    if text.into_connection_info().is_err() {
        mistakes
            .add(&path, format_args!("expected {ACCEPTED}, found something else (not shown, as it may hold a secret)"));
        return None;
    }
    Some(RedisUrl(text.to_owned()))
}

/// Whole milliseconds; `bounds` says what `range` is.
fn read_duration(
    path: &str,
    value: &Value,
    range: std::ops::RangeInclusive<u64>,
    bounds: &str,
    mistakes: &mut Mistakes,
) -> Option<u64> {
    let parsed = if let Value::Text(text) = value { duration::parse_ms(text).ok() } else { None };
    match (parsed, value) {
        (Some(ms), _) if range.contains(&ms) => return Some(ms),
        (Some(_), _) => mistakes.expected(path, format_args!("a duration from {bounds}"), value),
        (None, Value::Whole(_) | Value::Number(_)) => {
            mistakes.expected(
                path,
                format_args!("{} from {bounds}; a bare number has no unit", duration::ACCEPTED),
                value,
            );
        }
        (None, _) => mistakes.expected(path, format_args!("{} from {bounds}", duration::ACCEPTED), value),
    }
    None
}

// === impl RedisUrl ===

impl RedisUrl {
    /// The URL with its secrets.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("redis", &self.0));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        // A query can hold a password too, as those of unix sockets do.
        let path = path.split(['?', '#']).next().unwrap_or_default();
        write!(f, "{scheme}://{host}{path}")
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

// === impl InvalidConfig ===

impl InvalidConfig {
    /// One message for each mistake.
    pub fn messages(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for InvalidConfig {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_url_is_shown_without_secrets() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://user:p%40ss@host:1/2?protocol=resp3", "redis://host:1/2"),
            ("redis://:p@ss@host", "redis://host"),
            ("redis+unix:///run/redis.sock?db=1&pass=secret", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(RedisUrl(url.to_owned()).to_string(), shown);
            assert!(!format!("{:?}", RedisUrl(url.to_owned())).contains("ss@"));
        }
    }
}
