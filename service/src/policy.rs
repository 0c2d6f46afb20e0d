//! A policy: a named limit. `Quota` is what an algorithm needs to know of it.

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
