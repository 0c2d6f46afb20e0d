//! Sliding window log: every admission is an event of its own and is remembered for one window. Exact: no trailing
//! window ever holds more than the limit.
//!
//! Events carry the cumulated cost, so that what is used and when it leaves are found by binary search. Cumulated
//! costs are modulo 2^52: only differences count, and those of live events are at most the largest limit.

use std::collections::VecDeque;

use super::{LifeUs, Moment};
use crate::policy::Quota;

/// Cumulated costs are below this. A power of two that leaves a cost's room below 2^53, as Lua needs it.
const CUMULATED_BELOW: u64 = 1 << 52;

/// Events that a charge trims at most, so that a large log that leaves the window at once holds up nobody. Far more than
/// the one that a charge adds: a backlog shrinks.
const TRIMMED_AT_MOST: usize = 500;

/// One admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Effective time of the admission.
    pub at_us: u64,
    /// Cost of all events up to and with this one, modulo 2^52.
    pub cumulated: u64,
}

/// The admissions of one window, and those before it that no charge has trimmed yet. Never empty once charged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowLog {
    /// Effective time less the clock's.
    pub offset_us: u64,
    /// Cumulated cost before the first event.
    pub base: u64,
    /// Oldest first.
    pub events: VecDeque<Event>,
}

/// The log as of now.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    moment: Moment,
    /// Index of the first live event; `None` if none is.
    first: Option<usize>,
    /// Cumulated cost before it.
    before: u64,
    /// Units of the live events.
    used: u64,
}

impl SlidingWindowLog {
    /// The log as of now.
    pub fn at(stored: Option<&Self>, now_us: u64, quota: &Quota) -> Reading {
        let fresh = Reading { moment: Moment::fresh(now_us), first: None, before: 0, used: 0 };
        let Some((log, last)) = stored.and_then(|log| Some((log, log.events.back()?))) else {
            return fresh;
        };
        let moment = Moment { at_us: last.at_us, offset_us: log.offset_us }.forward(now_us);
        let live = |event: &Event| event.at_us.saturating_add(quota.window_us()) > moment.at_us;
        if !live(last) {
            return fresh;
        }
        let first = log.events.partition_point(|event| !live(event));
        let before =
            first.checked_sub(1).and_then(|index| log.events.get(index)).map_or(log.base, |event| event.cumulated);
        Reading { moment, first: Some(first), before, used: distance(before, last.cumulated) }
    }

    /// Time until a cost fits that does not now and is at most the limit.
    pub fn wait_us(&self, reading: &Reading, quota: &Quota, cost: u64) -> u64 {
        // The units that must leave first, and the event that completes them.
        let leaving = reading.used.saturating_add(cost).saturating_sub(quota.limit);
        let first = reading.first.unwrap_or_default();
        // The events before `first` have left: their cumulated cost is not after `before`, and must not wrap around.
        let (mut low, mut high) = (first, self.events.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.events.get(middle) {
                Some(event) if distance(reading.before, event.cumulated) < leaving => low = middle + 1,
                _ => high = middle,
            }
        }
        let leaves_us = self.events.get(low).map_or(0, |event| event.at_us.saturating_add(quota.window_us()));
        leaves_us.saturating_sub(reading.moment.at_us)
    }

    /// Takes a cost that fits and trims what has left the window: up to a number of events, but all of a log of which
    /// nothing is live. The state lives for a window.
    pub fn charge(&mut self, reading: &mut Reading, quota: &Quota, cost: u64) -> LifeUs {
        let trimmed = match reading.first {
            Some(first) => first.min(TRIMMED_AT_MOST),
            None => {
                self.events.clear();
                self.base = 0;
                0
            }
        };
        if let Some(last) = self.events.drain(..trimmed).next_back() {
            self.base = last.cumulated;
        }
        let total = self.events.back().map_or(self.base, |event| event.cumulated);
        self.events
            .push_back(Event { at_us: reading.moment.at_us, cumulated: total.wrapping_add(cost) % CUMULATED_BELOW });
        self.offset_us = reading.moment.offset_us;
        // A burst long ago must not keep its memory for as long as its client stays.
        if self.events.capacity() > 64 && self.events.capacity() / 4 > self.events.len() {
            self.events.shrink_to(self.events.len() * 2);
        }
        reading.first = Some(reading.first.unwrap_or_default() - trimmed);
        reading.used = reading.used.saturating_add(cost);
        quota.window_us()
    }

    /// Keeps the offset if it grew.
    pub fn hold(&mut self, reading: &Reading) {
        if reading.first.is_some() {
            self.offset_us = self.offset_us.max(reading.moment.offset_us);
        }
    }
}

impl Reading {
    /// The largest cost that fits.
    pub fn remaining(&self, quota: &Quota) -> u64 {
        quota.limit.saturating_sub(self.used)
    }
}

/// From one cumulated cost to a later one.
fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) % CUMULATED_BELOW
}
