//! Calendar window: a fixed window that is a day, a week or a month.
//!
//! The caller passes three windows in a row, and the time picks one. A count belongs to the window whose end it stores:
//! it stands until its own time has come there, whichever windows are passed, and then the next one is picked.

use super::{LifeUs, Moment};
use crate::calendar::Edges;
use crate::policy::Quota;

/// The count of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalendarWindow {
    /// The last charge.
    pub moment: Moment,
    /// Units used in the window.
    pub count: u64,
    /// Where the window ends.
    pub end_us: u64,
}

impl CalendarWindow {
    /// The state as of now.
    pub fn at(stored: Option<&Self>, now_us: u64, edges: &Edges) -> Self {
        if let Some(stored) = stored {
            let moment = stored.moment.forward(now_us);
            if moment.at_us < stored.end_us {
                return Self { moment, ..*stored };
            }
        }
        // Outside all windows, which the caller has excluded, there is none to stay in: it ends at once.
        let end_us = edges.end_us(now_us).unwrap_or(now_us);
        Self { moment: Moment::fresh(now_us), count: 0, end_us }
    }

    /// The largest cost that fits.
    pub fn remaining(&self, quota: &Quota) -> u64 {
        quota.limit.saturating_sub(self.count)
    }

    /// Time to the end of the window, when every cost up to the limit fits.
    pub fn wait_us(&self) -> u64 {
        self.end_us.saturating_sub(self.moment.at_us)
    }

    /// Takes a cost that fits. The state lives to the end of the window.
    pub fn charge(&mut self, cost: u64) -> LifeUs {
        self.count = self.count.saturating_add(cost);
        self.wait_us()
    }
}
