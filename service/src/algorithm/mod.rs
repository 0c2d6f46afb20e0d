//! The algorithms as pure functions of (state, now, quota, cost).
//!
//! They decide what the memory store does and are the oracle of the Lua scripts in `lua/`: the same states, the same
//! numbers. No clock and no I/O: time is an argument, in microseconds since the Unix epoch. Nothing here can fail;
//! what goes in is within the bounds of [`Quota`].
//!
//! Each algorithm is a stored state with four functions: `at` brings it forward to now (what has expired is gone),
//! `remaining` is the largest cost that fits, `wait_us` when a larger one will, `charge` takes a cost. [`decide`] is
//! the driver over all limits of a check.

pub mod calendar_window;
pub mod exact;
pub mod fixed_window;
pub mod sliding_window_counter;
pub mod sliding_window_log;
pub mod token_bucket;

use calendar_window::CalendarWindow;
use fixed_window::FixedWindow;
use sliding_window_counter::SlidingWindowCounter;
use sliding_window_log::SlidingWindowLog;
use token_bucket::TokenBucket;

use crate::policy::{Algorithm, Mode, Quota};
use crate::store::{Charge, Decision};

/// The stored state of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of [`Algorithm::FixedWindow`].
    FixedWindow(FixedWindow),
    /// Of [`Algorithm::CalendarWindow`].
    CalendarWindow(CalendarWindow),
    /// Of [`Algorithm::SlidingWindowLog`].
    SlidingWindowLog(SlidingWindowLog),
    /// Of [`Algorithm::SlidingWindowCounter`].
    SlidingWindowCounter(SlidingWindowCounter),
    /// Of [`Algorithm::TokenBucket`].
    TokenBucket(TokenBucket),
}

/// When a state was last charged, and by how much its time is ahead of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Effective time.
    pub at_us: u64,
    /// Effective time less the clock's. Grows by the step when the clock goes back, so that a state keeps its age:
    /// time stands still at the step, then runs on.
    pub offset_us: u64,
}

/// What a charge did to the state's lifetime: its content expires this many microseconds from now.
pub type LifeUs = u64;

/// A state brought forward to now.
enum Reading {
    FixedWindow(FixedWindow),
    CalendarWindow(CalendarWindow),
    SlidingWindowLog(sliding_window_log::Reading),
    SlidingWindowCounter(SlidingWindowCounter),
    TokenBucket(TokenBucket),
}

/// Whether a time lies in one of the windows of each limit. If not, no decision can be had with these charges.
pub fn covers(now_us: u64, charges: &[Charge]) -> bool {
    charges.iter().all(|charge| match &charge.quota.algorithm {
        Algorithm::CalendarWindow(edges) => edges.end_us(now_us).is_some(),
        _ => true,
    })
}

/// Decides all limits of a check at one instant: every limit that admits is charged if every enforced limit admits,
/// else none. `states` are those of `charges`, in their order; `None` is a state that does not exist. The caller has
/// made sure that the charges cover the time, see [`covers`].
///
/// Returns for each limit the decision, and the new lifetime of its state if it was charged. A state that was not
/// charged is as it was, but for an offset that grew because the clock went back.
pub fn decide(now_us: u64, charges: &[Charge], states: &mut [&mut Option<State>]) -> Vec<(Decision, Option<LifeUs>)> {
    let readings: Vec<(Reading, bool)> = charges
        .iter()
        .zip(states.iter())
        .map(|(charge, state)| {
            let reading = Reading::of(state.as_ref(), now_us, &charge.quota);
            let admits = charge.cost <= reading.remaining(&charge.quota);
            (reading, admits)
        })
        .collect();
    let allowed = charges.iter().zip(&readings).all(|(charge, (_, admits))| *admits || charge.mode == Mode::Shadow);

    let mut outcomes = Vec::with_capacity(charges.len());
    for ((charge, (mut reading, admits)), state) in charges.iter().zip(readings).zip(states.iter_mut()) {
        let quota = &charge.quota;
        let life = if allowed && admits && charge.cost > 0 {
            Some(reading.charge(state, quota, charge.cost))
        } else {
            reading.hold(state);
            None
        };
        let remaining = reading.remaining(quota);
        let wait_us = |cost| reading.wait_us(state.as_ref(), quota, cost);
        let capacity = quota.capacity();
        let decision = Decision {
            allowed: admits,
            remaining,
            reset_us: if remaining < capacity { wait_us(remaining + 1) } else { 0 },
            retry_after_us: match admits {
                true => Some(0),
                false if charge.cost > capacity => None,
                false => Some(wait_us(charge.cost)),
            },
            window_end_us: match &reading {
                Reading::CalendarWindow(window) => Some(window.end_us),
                _ => None,
            },
        };
        outcomes.push((decision, life));
    }
    outcomes
}

// === impl Moment ===

impl Moment {
    /// The state's effective now.
    pub fn forward(self, now_us: u64) -> Self {
        let at_us = now_us.saturating_add(self.offset_us);
        if at_us < self.at_us {
            return Self { at_us: self.at_us, offset_us: self.offset_us.saturating_add(self.at_us - at_us) };
        }
        Self { at_us, ..self }
    }

    /// The now of a state with nothing in it: the clock's.
    pub fn fresh(now_us: u64) -> Self {
        Self { at_us: now_us, offset_us: 0 }
    }
}

// === impl Reading ===

impl Reading {
    fn of(state: Option<&State>, now_us: u64, quota: &Quota) -> Self {
        // The algorithm is in the state's key; a state of another one would be none of this limit's.
        macro_rules! read {
            ($algorithm:ident) => {{
                let stored =
                    state.and_then(|state| if let State::$algorithm(stored) = state { Some(stored) } else { None });
                Self::$algorithm($algorithm::at(stored, now_us, quota))
            }};
        }
        match quota.algorithm {
            Algorithm::FixedWindow => read!(FixedWindow),
            Algorithm::CalendarWindow(edges) => {
                let stored = if let Some(State::CalendarWindow(stored)) = state { Some(stored) } else { None };
                Self::CalendarWindow(CalendarWindow::at(stored, now_us, &edges))
            }
            Algorithm::SlidingWindowLog => read!(SlidingWindowLog),
            Algorithm::SlidingWindowCounter => read!(SlidingWindowCounter),
            Algorithm::TokenBucket => read!(TokenBucket),
        }
    }

    fn remaining(&self, quota: &Quota) -> u64 {
        match self {
            Self::FixedWindow(window) => window.remaining(quota),
            Self::CalendarWindow(window) => window.remaining(quota),
            Self::SlidingWindowLog(log) => log.remaining(quota),
            Self::SlidingWindowCounter(counter) => counter.remaining(quota),
            Self::TokenBucket(bucket) => bucket.remaining(quota),
        }
    }

    /// `cost` is above what remains and at most the capacity.
    fn wait_us(&self, state: Option<&State>, quota: &Quota, cost: u64) -> u64 {
        match (self, state) {
            (Self::FixedWindow(window), _) => window.wait_us(quota),
            (Self::CalendarWindow(window), _) => window.wait_us(),
            (Self::SlidingWindowLog(reading), Some(State::SlidingWindowLog(log))) => log.wait_us(reading, quota, cost),
            // Nothing is stored, so nothing is used, and no cost within the capacity waits.
            (Self::SlidingWindowLog(_), _) => 0,
            (Self::SlidingWindowCounter(counter), _) => counter.wait_us(quota, cost),
            (Self::TokenBucket(bucket), _) => bucket.wait_us(quota, cost),
        }
    }

    /// `cost` is at most what remains.
    fn charge(&mut self, state: &mut Option<State>, quota: &Quota, cost: u64) -> LifeUs {
        match self {
            Self::FixedWindow(window) => {
                let life = window.charge(quota, cost);
                *state = Some(State::FixedWindow(*window));
                life
            }
            Self::CalendarWindow(window) => {
                let life = window.charge(cost);
                *state = Some(State::CalendarWindow(*window));
                life
            }
            Self::SlidingWindowLog(reading) => {
                let mut log = match state.take() {
                    Some(State::SlidingWindowLog(log)) => log,
                    _ => SlidingWindowLog::default(),
                };
                let life = log.charge(reading, quota, cost);
                *state = Some(State::SlidingWindowLog(log));
                life
            }
            Self::SlidingWindowCounter(counter) => {
                let life = counter.charge(quota, cost);
                *state = Some(State::SlidingWindowCounter(*counter));
                life
            }
            Self::TokenBucket(bucket) => {
                let life = bucket.charge(quota, cost);
                *state = Some(State::TokenBucket(*bucket));
                life
            }
        }
    }

    /// Keeps the offset if it grew. Then time stands still at the state's own, so that what was read is what is stored.
    fn hold(&self, state: &mut Option<State>) {
        let grew = |now: Moment, stored: Moment| now.offset_us > stored.offset_us;
        match (self, state) {
            (Self::FixedWindow(now), Some(State::FixedWindow(stored))) if grew(now.moment, stored.moment) => {
                *stored = *now
            }
            (Self::CalendarWindow(now), Some(State::CalendarWindow(stored))) if grew(now.moment, stored.moment) => {
                *stored = *now
            }
            (Self::SlidingWindowCounter(now), Some(State::SlidingWindowCounter(stored)))
                if grew(now.moment, stored.moment) =>
            {
                *stored = *now;
            }
            (Self::TokenBucket(now), Some(State::TokenBucket(stored))) if grew(now.moment, stored.moment) => {
                *stored = *now
            }
            (Self::SlidingWindowLog(reading), Some(State::SlidingWindowLog(log))) => log.hold(reading),
            _ => {}
        }
    }
}

// === impl Quota ===

impl Quota {
    /// The most that can ever be taken at once: a cost above it never fits.
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.burst,
            _ => self.limit,
        }
    }

    /// The window in microseconds.
    pub fn window_us(&self) -> u64 {
        self.window_ms.saturating_mul(1000)
    }
}

#[cfg(test)]
mod laws;
