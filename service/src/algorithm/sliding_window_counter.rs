//! Sliding window counter: the current window's count and the share of the previous one's that a trailing window still
//! covers. Windows are aligned to the Unix epoch and half open.
//!
//! An estimate: it assumes that the previous window's units were spread evenly, and can let nearly twice the limit into
//! one trailing window. It admits if `previous * (W - elapsed) / W + current + cost <= limit`. All but the first term
//! are whole, so the first is rounded up and nothing is lost.

use super::exact::{mul_div_ceil, mul_div_floor};
use super::{LifeUs, Moment};
use crate::policy::Quota;

/// The counts of two windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    /// The last charge; its time names the current window.
    pub moment: Moment,
    /// Units used in the window before.
    pub previous: u64,
    /// Units used in the current window.
    pub current: u64,
}

impl SlidingWindowCounter {
    /// The state as of now.
    pub fn at(stored: Option<&Self>, now_us: u64, quota: &Quota) -> Self {
        let window_us = quota.window_us().max(1);
        if let Some(stored) = stored {
            let moment = stored.moment.forward(now_us);
            match moment.at_us / window_us - stored.moment.at_us / window_us {
                0 => return Self { moment, ..*stored },
                1 => return Self { moment, previous: stored.current, current: 0 },
                _ => {}
            }
        }
        Self { moment: Moment::fresh(now_us), previous: 0, current: 0 }
    }

    /// The largest cost that fits.
    pub fn remaining(&self, quota: &Quota) -> u64 {
        let share = mul_div_ceil(self.previous, self.until_next_us(quota), quota.window_us());
        quota.limit.saturating_sub(self.current).saturating_sub(share)
    }

    /// Time until a cost fits that does not now and is at most the limit.
    pub fn wait_us(&self, quota: &Quota, cost: u64) -> u64 {
        let window_us = quota.window_us();
        let until_next = self.until_next_us(quota);
        let spare = quota.limit.saturating_sub(cost);
        match spare.checked_sub(self.current) {
            // In this window, once the previous one's share has shrunk to the room.
            Some(room) => until_next.saturating_sub(mul_div_floor(room, window_us, self.previous)),
            // In the next window, where today's current count is the previous one and shrinks in its turn.
            None => until_next + window_us.saturating_sub(mul_div_floor(spare, window_us, self.current)),
        }
    }

    /// Takes a cost that fits. The state lives to the end of the next window.
    pub fn charge(&mut self, quota: &Quota, cost: u64) -> LifeUs {
        self.current = self.current.saturating_add(cost);
        self.until_next_us(quota) + quota.window_us()
    }

    fn until_next_us(&self, quota: &Quota) -> u64 {
        let window_us = quota.window_us().max(1);
        window_us - self.moment.at_us % window_us
    }
}
