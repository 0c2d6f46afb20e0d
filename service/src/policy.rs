//! A policy: a named limit. `Quota` is what an algorithm needs to know of it.
//!
//! Policies are made by `crate::config` alone, which refuses numbers out of range: what is here cannot be wrong.

use std::collections::HashMap;
use std::sync::Arc;

pub use weir_protocol::Mode;

/// How units are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One count per epoch-aligned window.
    FixedWindow,
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
    /// Length of the window in milliseconds.
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
    /// Length of the window in milliseconds.
    pub window_ms: u64,
    /// What is counted.
    pub unit: String,
    /// Whether a refusal refuses the request.
    pub mode: Mode,
    /// What each key may take.
    pub allowance: Allowance,
    /// What these keys may take instead.
    pub overrides: HashMap<String, Allowance>,
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
    /// The two letters that name the algorithm in state keys and to the script.
    pub fn code(self) -> &'static str {
        match self {
            Self::FixedWindow => "fw",
            Self::SlidingWindowLog => "sl",
            Self::SlidingWindowCounter => "sc",
            Self::TokenBucket => "tb",
        }
    }
}

// === impl Policy ===

impl Policy {
    /// The limit of a key; `None` if it is unlimited.
    pub fn quota(&self, key: &str) -> Option<Quota> {
        match *self.overrides.get(key).unwrap_or(&self.allowance) {
            Allowance::Unlimited => None,
            Allowance::Limited { limit, burst } => {
                Some(Quota { algorithm: self.algorithm, limit, window_ms: self.window_ms, burst })
            }
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
