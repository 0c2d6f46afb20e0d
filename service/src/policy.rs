//! A policy: a named limit. `Quota` is what an algorithm needs to know of it.
//!
//! Policies are made by `crate::config` alone, which refuses numbers out of range: what is here cannot be wrong.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use weir_protocol::Mode;

use crate::calendar::{Calendar, Edges};

/// How units are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One count per epoch-aligned window.
    FixedWindow,
    /// One count per window of a calendar. How the store counts [`Self::FixedWindow`] where the window is a day, week
    /// or month: it picks one of these windows by its own clock.
    CalendarWindow(Edges),
    /// Every admission is remembered for one window: exact.
    SlidingWindowLog,
    /// The current window's count and a weighted share of the previous one's.
    SlidingWindowCounter,
    /// A bucket of `burst` units, refilled continuously with `limit` units per window.
    TokenBucket,
}

/// The numbers of a limit. All are at least 1 and within the bounds of `weir_protocol` (limit and burst up to
/// `MAX_QUANTITY`, window whole milliseconds up to `MAX_WINDOW_MS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The algorithm that counts.
    pub algorithm: Algorithm,
    /// Units per window.
    pub limit: u64,
    /// Length of the window in milliseconds; no part of a decision in windows of a calendar.
    pub window_ms: u64,
    /// Capacity of the bucket; equals `limit` for the other algorithms.
    pub burst: u64,
}

/// A named limit with the exceptions to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name; shared with the metrics that count by it.
    pub name: Arc<str>,
    /// The algorithm that counts.
    pub algorithm: Algorithm,
    /// How long it counts.
    pub window: Window,
    /// What is counted.
    pub unit: String,
    /// Whether a refusal refuses the request.
    pub mode: Mode,
    /// What each key may take.
    pub allowance: Allowance,
    /// What these keys may take instead.
    pub overrides: HashMap<String, Allowance>,
}

/// How long a policy counts before it starts anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// So many milliseconds, always.
    Length(u64),
    /// A day, week or month; with [`Algorithm::FixedWindow`] only.
    Calendar(Calendar),
}

/// How much a key may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// As much as it likes; nothing is counted.
    Unlimited,
    /// So much.
    Limited {
        /// Units per window.
        limit: u64,
        /// Capacity of the bucket; equals `limit` for the other algorithms.
        burst: u64,
    },
}

/// All policies of a file, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies(HashMap<Arc<str>, Policy>);

// === impl Algorithm ===

impl Algorithm {
    /// The two letters that name the algorithm to the script, and a policy's in state keys.
    pub fn code(self) -> &'static str {
        match self {
            Self::FixedWindow => "fw",
            Self::CalendarWindow(_) => "cw",
            Self::SlidingWindowLog => "sl",
            Self::SlidingWindowCounter => "sc",
            Self::TokenBucket => "tb",
        }
    }
}

// === impl Policy ===

impl Policy {
    /// What a key may take.
    pub fn allowance(&self, key: &str) -> Allowance {
        *self.overrides.get(key).unwrap_or(&self.allowance)
    }

    /// The limit of a key; `None` if it is unlimited. The time, in microseconds since the Unix epoch, chooses the
    /// windows of a calendar among which the store will pick.
    pub fn quota(&self, key: &str, now_us: u64) -> Option<Quota> {
        let Allowance::Limited { limit, burst } = self.allowance(key) else { return None };
        let (algorithm, window_ms) = match &self.window {
            Window::Length(window_ms) => (self.algorithm, *window_ms),
            Window::Calendar(calendar) => {
                let edges = calendar.edges(now_us);
                (Algorithm::CalendarWindow(edges), edges.length_us() / 1000)
            }
        };
        Some(Quota { algorithm, limit, window_ms, burst })
    }
}

// === impl Window ===

/// As state keys hold it: `60000`, `month@Europe/Berlin`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(window_ms) => window_ms.fmt(f),
            Self::Calendar(calendar) => calendar.fmt(f),
        }
    }
}

// === impl Policies ===

impl Policies {
    /// The policy of this name.
    pub fn named(&self, name: &str) -> Option<&Policy> {
        self.0.get(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.0.values()
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        Self(policies.into_iter().map(|policy| (Arc::clone(&policy.name), policy)).collect())
    }
}
