//! The limits that are compared: the four algorithms, the token bucket twice.

use serde_json::{Value, json};

/// One way to limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    FixedWindow,
    Log,
    Counter,
    /// A token bucket that holds the limit, as one without `burst` does.
    Bucket,
    /// A token bucket that holds a tenth of the limit.
    SmallBucket,
}

/// A tenth: what [`Limiter::SmallBucket`] holds of the limit.
pub const SMALL: u64 = 10;

impl Limiter {
    pub const ALL: [Self; 5] = [Self::FixedWindow, Self::Log, Self::Counter, Self::Bucket, Self::SmallBucket];

    /// The name of the algorithm in a policy file.
    pub fn algorithm(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::Log => "sliding_window_log",
            Self::Counter => "sliding_window_counter",
            Self::Bucket | Self::SmallBucket => "token_bucket",
        }
    }

    /// Its name in tables and pictures.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bucket => "token_bucket, burst = limit",
            Self::SmallBucket => "token_bucket, burst = limit / 10",
            other => other.algorithm(),
        }
    }

    /// The algorithm's two letters in the script's arguments.
    pub fn code(self) -> &'static str {
        match self {
            Self::FixedWindow => "fw",
            Self::Log => "sl",
            Self::Counter => "sc",
            Self::Bucket | Self::SmallBucket => "tb",
        }
    }

    /// What it holds at a limit.
    pub fn burst(self, limit: u64) -> u64 {
        if self == Self::SmallBucket { limit / SMALL } else { limit }
    }

    /// The name of its policy: no two limiters share one.
    pub fn policy(self) -> &'static str {
        match self {
            Self::SmallBucket => "small-bucket",
            Self::FixedWindow => "fixed-window",
            Self::Log => "log",
            Self::Counter => "counter",
            Self::Bucket => "bucket",
        }
    }

    /// Its entry in a policy file.
    pub fn written(self, limit: u64, window: &str) -> Value {
        let mut policy = json!({
            "name": self.policy(), "algorithm": self.algorithm(), "limit": limit, "window": window,
        });
        if self.algorithm() == "token_bucket" {
            policy["burst"] = json!(self.burst(limit));
        }
        policy
    }

    /// The most that any tenth of a window can hold, by its rule.
    pub fn short_bound(self, limit: u64) -> u64 {
        match self {
            Self::FixedWindow => 2 * limit,
            Self::Log => limit,
            // In any span the counter admits limit * (1 + span / window) at most: of the previous window's units only
            // that part has been forgotten. The span is half open, as below.
            Self::Counter => limit + limit / 10 - 1,
            Self::Bucket | Self::SmallBucket => self.burst(limit) + limit / 10 - 1,
        }
    }

    /// The most that any trailing window can hold, by its rule.
    pub fn bound(self, limit: u64) -> u64 {
        match self {
            Self::FixedWindow => 2 * limit,
            Self::Log => limit,
            // The last unit needs room beside a share of the previous window that is rounded up to one.
            Self::Counter => 2 * limit - 1,
            // The window is half open: at its very end one unit more has trickled in, and the burst has left.
            Self::Bucket | Self::SmallBucket => self.burst(limit) + limit - 1,
        }
    }
}
