//! The four algorithms by their definitions: the whole history is kept and every number is found by trying, in 128-bit
//! integers. No state, nothing packed, nothing trimmed; it shares no line with what it judges.

use weir_protocol::MAX_WINDOW_MS;
use weir_service::policy::{Algorithm, Quota};

/// Everything that was admitted to one limit, oldest first.
pub struct Model {
    pub quota: Quota,
    admitted: Vec<(u64, u64)>,
}

/// What a decision must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub allowed: bool,
    pub remaining: u64,
    pub reset_us: u64,
    pub retry_after_us: Option<u64>,
}

impl Model {
    pub fn new(quota: Quota) -> Self {
        Self { quota, admitted: vec![] }
    }

    /// Decides, and remembers what it admits.
    pub fn decide(&mut self, now_us: u64, cost: u64) -> Numbers {
        let capacity = self.quota.capacity();
        let fits = self.fits(now_us, cost);
        let retry_after_us = if cost <= capacity { Some(self.wait_us(now_us, cost)) } else { None };
        if fits && cost > 0 {
            self.admitted.push((now_us, cost));
        }
        let remaining = first_that(0, capacity + 1, |cost| !self.fits(now_us, cost)) - 1;
        let reset_us = if remaining < capacity { self.wait_us(now_us, remaining + 1) } else { 0 };
        Numbers { allowed: fits, remaining, reset_us, retry_after_us }
    }

    /// The smallest time after which the cost fits if nobody else takes: by trying, and by the formula.
    fn wait_us(&self, now_us: u64, cost: u64) -> u64 {
        if self.fits(now_us, cost) {
            return 0;
        }
        // Everything has left after two windows, and a bucket is full after the longest time to fill.
        let bound = 2 * MAX_WINDOW_MS * 1000 + 1;
        let tried = first_that(0, bound, |wait| self.fits(now_us + wait, cost));
        assert_eq!(u128::from(tried), self.formula(now_us, cost), "{:?}, cost {cost} at {now_us}", self.quota);
        tried
    }

    /// Whether the cost fits at this time. Looking always does.
    fn fits(&self, at_us: u64, cost: u64) -> bool {
        let window = self.quota.window_us();
        let limit = u128::from(self.quota.limit);
        let after = |used: u128| used + u128::from(cost);
        cost == 0
            || match self.quota.algorithm {
                Algorithm::FixedWindow => after(self.used(|time| time / window == at_us / window)) <= limit,
                Algorithm::SlidingWindowLog => after(self.used(|time| time + window > at_us)) <= limit,
                Algorithm::SlidingWindowCounter => {
                    let previous = self.used(|time| time / window + 1 == at_us / window);
                    let current = self.used(|time| time / window == at_us / window);
                    let share = previous * u128::from(window - at_us % window);
                    share + after(current) * u128::from(window) <= limit * u128::from(window)
                }
                Algorithm::TokenBucket => {
                    let window = u128::from(window);
                    self.deficit(at_us) + u128::from(cost) * window <= u128::from(self.quota.burst) * window
                }
                Algorithm::CalendarWindow(_) => panic!("the windows of a calendar are those of `calendar.rs`"),
            }
    }

    /// What a wait is by its formula, for a cost that does not fit now and is at most the capacity.
    fn formula(&self, now_us: u64, cost: u64) -> u128 {
        let window = u128::from(self.quota.window_us());
        let (limit, cost, now) = (u128::from(self.quota.limit), u128::from(cost), u128::from(now_us));
        let elapsed = now % window;
        match self.quota.algorithm {
            Algorithm::FixedWindow => window - elapsed,
            Algorithm::SlidingWindowLog => {
                let live: Vec<_> = self.admitted.iter().filter(|(time, _)| u128::from(*time) + window > now).collect();
                let used: u128 = live.iter().map(|(_, cost)| u128::from(*cost)).sum();
                let mut cumulated = 0;
                let leaving = used + cost - limit;
                let (time, _) = live
                    .into_iter()
                    .find(|(_, cost)| {
                        cumulated += u128::from(*cost);
                        cumulated >= leaving
                    })
                    .unwrap();
                u128::from(*time) + window - now
            }
            Algorithm::SlidingWindowCounter => {
                let previous = self.used(|time| u128::from(time) / window + 1 == now / window);
                let current = self.used(|time| u128::from(time) / window == now / window);
                if limit >= current + cost {
                    window - (limit - current - cost) * window / previous - elapsed
                } else {
                    (window - elapsed) + window.saturating_sub((limit - cost) * window / current)
                }
            }
            Algorithm::TokenBucket => {
                let above = self.deficit(now_us) + cost * window - u128::from(self.quota.burst) * window;
                above.div_ceil(limit)
            }
            Algorithm::CalendarWindow(_) => panic!("the windows of a calendar are those of `calendar.rs`"),
        }
    }

    fn used(&self, within: impl Fn(u64) -> bool) -> u128 {
        self.admitted.iter().filter(|(time, _)| within(*time)).map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// What is missing from a full bucket, in 1 / window units.
    fn deficit(&self, at_us: u64) -> u128 {
        let refilled = |from: u64, to: u64| u128::from(self.quota.limit) * u128::from(to - from);
        let (mut deficit, mut last) = (0u128, 0);
        for (time, cost) in &self.admitted {
            deficit =
                deficit.saturating_sub(refilled(last, *time)) + u128::from(*cost) * u128::from(self.quota.window_us());
            last = *time;
        }
        deficit.saturating_sub(refilled(last, at_us))
    }
}

/// The first of `low..high` for which it holds, or `high`. It holds for all from some number on.
fn first_that(low: u64, high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
