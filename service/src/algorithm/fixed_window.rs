//! Fixed window: one count per window, windows aligned to the Unix epoch and half open.

use super::{LifeUs, Moment};
use crate::policy::Quota;

/// The count of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindow {
    /// The last charge; its time names the window.
    pub moment: Moment,
    /// Units used in that window.
    pub count: u64,
}

impl FixedWindow {
    /// The state as of now.
    pub fn at(stored: Option<&Self>, now_us: u64, quota: &Quota) -> Self {
        let window_us = quota.window_us().max(1);
        if let Some(stored) = stored {
            let moment = stored.moment.forward(now_us);
            if moment.at_us / window_us == stored.moment.at_us / window_us {
                return Self { moment, ..*stored };
            }
        }
        Self { moment: Moment::fresh(now_us), count: 0 }
    }

    /// The largest cost that fits.
    pub fn remaining(&self, quota: &Quota) -> u64 {
        quota.limit.saturating_sub(self.count)
    }

    /// Time to the end of the window, when every cost up to the limit fits.
    pub fn wait_us(&self, quota: &Quota) -> u64 {
        let window_us = quota.window_us().max(1);
        window_us - self.moment.at_us % window_us
    }

    /// Takes a cost that fits. The state lives to the end of the window.
    pub fn charge(&mut self, quota: &Quota, cost: u64) -> LifeUs {
        self.count = self.count.saturating_add(cost);
        self.wait_us(quota)
    }
}
