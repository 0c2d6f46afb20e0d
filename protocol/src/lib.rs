//! What the filter and the service agree on.
//!
//! Wire types of the check API ([`check`]), the verdict that a caller works with ([`verdict`]), the header fields
//! that a client sees ([`fields`]) and problem documents ([`problem`]); and how both read a configuration
//! ([`document`], [`duration`]). No I/O, no clock; builds for wasm32 and native.

pub mod check;
pub mod document;
pub mod duration;
pub mod fields;
pub mod problem;
pub mod verdict;

pub use check::{CheckReply, CheckRequest, LimitReply, LimitRequest, Mode};
pub use problem::Problem;
pub use verdict::{LimitState, Malformed, Retry, Verdict};

/// Whether `name` can name a policy or a rule: `[a-z0-9][a-z0-9_-]{0,63}`.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = name.bytes();
    bytes.next().is_some_and(plain) && name.len() <= 64 && bytes.all(|byte| plain(byte) || byte == b'-' || byte == b'_')
}

/// Whether `unit` can name what a policy counts: `[a-z][a-z0-9-]{0,31}`. It is sent in a header field.
pub fn is_unit(unit: &str) -> bool {
    unit.len() <= 32
        && unit.starts_with(|c: char| c.is_ascii_lowercase())
        && unit.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Largest limit, burst and cost: the largest Integer of RFC 9651, 999 999 999 999 999.
pub const MAX_QUANTITY: u64 = 999_999_999_999_999;
/// Longest window: 3660 days, in milliseconds.
pub const MAX_WINDOW_MS: u64 = 3660 * 24 * 60 * 60 * 1000;
/// A check holds 1 to this many limits.
pub const MAX_LIMITS_PER_CHECK: usize = 32;
