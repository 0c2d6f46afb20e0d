//! What the filter and the service agree on.
//!
//! Wire types of the check API ([`check`]), the verdict that a caller works with ([`verdict`]), the header fields
//! that a client sees ([`fields`]) and problem documents ([`problem`]). No I/O, no clock; builds for wasm32 and native.

pub mod check;
pub mod fields;
pub mod problem;
pub mod verdict;

pub use check::{CheckReply, CheckRequest, LimitReply, LimitRequest, Mode};
pub use problem::Problem;
pub use verdict::{LimitState, Malformed, Retry, Verdict};

/// Largest limit, burst and cost: the largest Integer of RFC 9651, 999 999 999 999 999.
pub const MAX_QUANTITY: u64 = 999_999_999_999_999;
/// Longest window: 3660 days, in milliseconds.
pub const MAX_WINDOW_MS: u64 = 3660 * 24 * 60 * 60 * 1000;
/// A check holds 1 to this many limits.
pub const MAX_LIMITS_PER_CHECK: usize = 32;
