//! Token bucket: holds up to `burst` units, refilled continuously with `limit` units a window.
//!
//! What is kept is the deficit, the units missing from a full bucket, exactly: whole + fraction / window. In units of
//! 1 / window an elapsed microsecond refills exactly `limit` of them, so nothing is ever rounded, however often the
//! bucket is polled.

use super::exact::div_ceil;
use super::{LifeUs, Moment};
use crate::policy::Quota;

/// What is missing from a full bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// Whole units of the deficit.
    pub whole: u64,
    /// The rest of it, in 1 / window units (the window in µs); below the window.
    pub fraction: u64,
    /// The time to which the deficit belongs.
    pub moment: Moment,
}

impl TokenBucket {
    /// The state as of now.
    pub fn at(stored: Option<&Self>, now_us: u64, quota: &Quota) -> Self {
        let window_us = quota.window_us().max(1);
        if let Some(stored) = stored {
            let moment = stored.moment.forward(now_us);
            // A smaller burst bounds the deficit from its own time on, not from now: a promised wait then stays true.
            let (whole, fraction) =
                if stored.whole >= quota.burst { (quota.burst, 0) } else { (stored.whole, stored.fraction) };
            let refilled = u128::from(quota.limit) * u128::from(moment.at_us - stored.moment.at_us);
            let deficit = in_fractions(whole, fraction, window_us).saturating_sub(refilled);
            if deficit > 0 {
                let whole = deficit / u128::from(window_us);
                let fraction = deficit % u128::from(window_us);
                // Neither is above what it was made of.
                return Self {
                    whole: u64::try_from(whole).unwrap_or(u64::MAX),
                    fraction: u64::try_from(fraction).unwrap_or(u64::MAX),
                    moment,
                };
            }
        }
        Self { whole: 0, fraction: 0, moment: Moment::fresh(now_us) }
    }

    /// The largest cost that fits.
    pub fn remaining(&self, quota: &Quota) -> u64 {
        quota.burst.saturating_sub(self.whole).saturating_sub(u64::from(self.fraction > 0))
    }

    /// Time until a cost fits that does not now and is at most the burst.
    pub fn wait_us(&self, quota: &Quota, cost: u64) -> u64 {
        self.refill_us(quota, self.whole.saturating_add(cost).saturating_sub(quota.burst))
    }

    /// Takes a cost that fits. The state lives until the bucket is full.
    pub fn charge(&mut self, quota: &Quota, cost: u64) -> LifeUs {
        self.whole = self.whole.saturating_add(cost);
        self.refill_us(quota, self.whole)
    }

    /// Time to refill `whole` units and the fraction.
    fn refill_us(&self, quota: &Quota, whole: u64) -> u64 {
        div_ceil(in_fractions(whole, self.fraction, quota.window_us()), quota.limit)
    }
}

/// `whole + fraction / window` in 1 / window units.
fn in_fractions(whole: u64, fraction: u64, window_us: u64) -> u128 {
    u128::from(whole) * u128::from(window_us) + u128::from(fraction)
}
