//! Where the state of limits lives: Redis or this process.

use std::time::Instant;

use ::redis::{ErrorKind, RedisError, ServerErrorKind};
use thiserror::Error;

use crate::config::{Backend, StoreConfig};
use crate::policy::{Mode, Quota};
use crate::script::BadReply;

pub mod memory;
pub mod redis;

use self::redis::RedisStore;
use memory::MemoryStore;

/// One limit of a check, ready for the store.
#[derive(Clone, Debug)]
pub struct Charge {
    /// Name of the state in the store, built by `crate::key` alone.
    pub state_key: String,
    /// The limit.
    pub quota: Quota,
    /// Units to take; 0 looks.
    pub cost: u64,
    /// Whether a refusal refuses the whole check.
    pub mode: Mode,
}

/// What the store decided for one limit. Times are microseconds from the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether this limit admits the cost.
    pub allowed: bool,
    /// The largest cost that fits after the decision.
    pub remaining: u64,
    /// Time until more becomes available; 0 if nothing is used.
    pub reset_us: u64,
    /// Time until the cost fits: `Some(0)` if admitted, `None` if it never can.
    pub retry_after_us: Option<u64>,
    /// The end of the window that was counted in, where it is one of a calendar. In the state's own time, which is
    /// ahead of the store's clock where that was set back.
    pub window_end_us: Option<u64>,
}

/// A store.
#[derive(Debug)]
pub enum Store {
    /// A Redis server.
    Redis(RedisStore),
    /// The memory of this process.
    Memory(MemoryStore),
}

/// Why the store gave no decision. The check may have been charged all the same, so it must not be repeated, unless
/// nothing was sent.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// No answer within the deadline.
    #[error("no answer within the deadline")]
    Timeout,
    /// The store's clock is outside the calendar windows that were passed: nothing was written. Ask again, with the
    /// windows of its time.
    #[error("the store's clock is elsewhere: {now_us} µs since the Unix epoch")]
    OutsideWindows {
        /// The store's time in microseconds since the Unix epoch.
        now_us: u64,
    },
    /// There is no connection: nothing was sent.
    #[error("not connected")]
    Disconnected,
    /// The connection broke.
    #[error("connection failed: {0}")]
    Connection(#[source] RedisError),
    /// The server reads its data set after a start.
    #[error("the server is loading its data: {0}")]
    Loading(#[source] RedisError),
    /// The server is a replica, or has lost its master.
    #[error("the server takes no writes: {0}")]
    ReadOnly(#[source] RedisError),
    /// The server runs somebody's long script.
    #[error("the server is busy: {0}")]
    Busy(#[source] RedisError),
    /// The server is at its memory limit and evicts nothing.
    #[error("the server is out of memory: {0}")]
    OutOfMemory(#[source] RedisError),
    /// Wrong user or password, or not allowed to run scripts.
    #[error("the server refuses access: {0}")]
    Access(#[source] RedisError),
    /// The script failed.
    #[error("the script failed: {0}")]
    Script(#[source] RedisError),
    /// The script's reply is none.
    #[error(transparent)]
    Reply(#[from] BadReply),
}

// === impl Store ===

impl Store {
    /// The configured store. Never waits for a server: checks fail until it can be reached. Must be called inside a
    /// Tokio runtime.
    pub fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        match &config.backend {
            Backend::Redis(url) => Ok(Self::Redis(RedisStore::open(url, config.timeout)?)),
            Backend::Memory => Ok(Self::Memory(MemoryStore::new())),
        }
    }

    /// Decides a check: all limits or none, in one atomic step. The state keys must differ from each other. The
    /// store's timeout counts from `started`, so that a check that is asked a second time has no second one.
    pub async fn check(&self, charges: &[Charge], started: Instant) -> Result<Vec<Decision>, StoreError> {
        match self {
            Self::Redis(redis) => redis.check(charges, started).await,
            Self::Memory(memory) => memory.check(charges),
        }
    }

    /// Its state in one word, for people: `up`, `connecting` or `down`.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Redis(redis) => redis.state(),
            Self::Memory(_) => "up",
        }
    }

    /// Its kind, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Memory(_) => "memory",
        }
    }
}

// === impl StoreError ===

impl StoreError {
    /// What [`Self::kind`] can be.
    pub const KINDS: [&str; 10] = [
        "timeout",
        "disconnected",
        "connection",
        "loading",
        "read_only",
        "busy",
        "out_of_memory",
        "access",
        "script",
        "reply",
    ];

    /// A word of a closed set, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::OutsideWindows { .. } => "clock",
            Self::Disconnected => "disconnected",
            Self::Connection(_) => "connection",
            Self::Loading(_) => "loading",
            Self::ReadOnly(_) => "read_only",
            Self::Busy(_) => "busy",
            Self::OutOfMemory(_) => "out_of_memory",
            Self::Access(_) => "access",
            Self::Script(_) => "script",
            Self::Reply(_) => "reply",
        }
    }

    /// Whether the cause can go away without anybody's doing.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Access(_) | Self::Script(_) | Self::Reply(_))
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        match (error.kind(), error.code()) {
            (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => Self::Loading(error),
            (ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown), _)
            | (_, Some("NOREPLICAS" | "MISCONF")) => Self::ReadOnly(error),
            (ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm), _)
            | (_, Some("NOAUTH" | "WRONGPASS")) => Self::Access(error),
            (_, Some("BUSY")) => Self::Busy(error),
            (_, Some("OOM")) => Self::OutOfMemory(error),
            (ErrorKind::Server(_) | ErrorKind::Extension, _) => Self::Script(error),
            _ => Self::Connection(error),
        }
    }
}
