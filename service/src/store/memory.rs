//! Limits in the memory of this process: `store: memory` and the fallback while Redis is away.
//!
//! The same algorithms as the Lua script, atomic over all limits of a check. Its clock never goes back. Memory is
//! bounded by the clients that are limited at the moment: state that has expired is dropped as time goes on, a few
//! entries with every check and faster than checks can add them. Nothing here blocks on I/O or fails.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{Charge, Decision};
use crate::algorithm::{self, State};

/// Due entries that a check looks at, for each limit that it charges. Above 1, or a backlog would never shrink.
const PURGED_PER_CHARGE: usize = 4;

/// Limits in this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    states: Mutex<States>,
}

/// Wall time when the process started, and monotone from there on.
#[derive(Debug)]
struct Clock {
    started: Instant,
    started_us: u64,
}

#[derive(Debug, Default)]
struct States {
    entries: HashMap<Arc<str>, Entry>,
    /// One element for each entry: not later than its expiry, which each charge moves.
    due: BinaryHeap<Reverse<(u64, Arc<str>)>>,
}

#[derive(Debug)]
struct Entry {
    state: Option<State>,
    expires_us: u64,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// An empty store on the system's clock.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = Clock { started: Instant::now(), started_us: micros(since_epoch) };
        Self { clock, states: Mutex::default() }
    }

    /// Decides a check now: all limits or none. The state keys must differ from each other.
    pub fn check(&self, charges: &[Charge]) -> Vec<Decision> {
        self.check_at(self.clock.now_us(), charges)
    }

    /// Decides a check at a time, in microseconds since the Unix epoch.
    pub fn check_at(&self, now_us: u64, charges: &[Charge]) -> Vec<Decision> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.purge(now_us, charges.len().saturating_mul(PURGED_PER_CHARGE));
        states.check(now_us, charges)
    }

    /// How many limits hold state.
    pub fn len(&self) -> usize {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Whether no limit holds state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

// === impl States ===

impl States {
    fn check(&mut self, now_us: u64, charges: &[Charge]) -> Vec<Decision> {
        // Taken out while they are decided, so that no two borrows of the map are needed.
        let mut taken: Vec<Option<State>> = charges
            .iter()
            .map(|charge| {
                let entry = self.entries.get_mut(charge.state_key.as_str())?;
                let state = entry.state.take();
                // As in Redis, whether or not the purge has come by.
                if entry.expires_us > now_us { state } else { None }
            })
            .collect();
        let outcomes = algorithm::decide(now_us, charges, &mut taken.iter_mut().collect::<Vec<_>>());
        let mut decisions = Vec::with_capacity(outcomes.len());
        for ((charge, state), (decision, life)) in charges.iter().zip(taken).zip(outcomes) {
            decisions.push(decision);
            if state.is_some() {
                self.put(&charge.state_key, state, life.map(|life| now_us.saturating_add(life)));
            }
        }
        decisions
    }

    /// Puts a state back; `expires_us` is given if it was charged.
    fn put(&mut self, key: &str, state: Option<State>, expires_us: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = state;
            entry.expires_us = expires_us.unwrap_or(entry.expires_us);
        } else if let Some(expires_us) = expires_us {
            let key: Arc<str> = key.into();
            self.due.push(Reverse((expires_us, Arc::clone(&key))));
            self.entries.insert(key, Entry { state, expires_us });
        }
    }

    /// Looks at up to `most` entries that may have expired, and drops those that have.
    fn purge(&mut self, now_us: u64, most: usize) {
        for _ in 0..most {
            let Some(Reverse((due_us, _))) = self.due.peek() else { return };
            if *due_us > now_us {
                return;
            }
            let Some(Reverse((_, key))) = self.due.pop() else { return };
            match self.entries.get(&key) {
                Some(entry) if entry.expires_us > now_us => self.due.push(Reverse((entry.expires_us, key))),
                _ => drop(self.entries.remove(&key)),
            }
        }
    }
}

// === impl Clock ===

impl Clock {
    fn now_us(&self) -> u64 {
        self.started_us.saturating_add(micros(self.started.elapsed()))
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
