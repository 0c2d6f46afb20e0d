//! Where the state of limits lives: Redis or this process.

pub mod memory;

use crate::policy::{Mode, Quota};

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
}
