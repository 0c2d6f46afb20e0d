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

use super::{Charge, Decision, StoreError};
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

    /// Decides a check now: all limits or none. The state keys must differ from each other. Fails only if its clock is
    /// outside the calendar windows of a limit.
    pub fn check(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        let now_us = self.clock.now_us();
        if !algorithm::covers(now_us, charges) {
            return Err(StoreError::OutsideWindows { now_us });
        }
        Ok(self.check_at(now_us, charges))
    }

    /// Decides a check at a time, in microseconds since the Unix epoch, that the charges cover.
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::policy::{Algorithm, Mode, Quota};

    const START_US: u64 = 1_800_000_000_000_000;
    const ALL: [Algorithm; 4] =
        [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::TokenBucket];

    fn charge(key: &str, algorithm: Algorithm, limit: u64, window_ms: u64) -> Charge {
        let quota = Quota { algorithm, limit, window_ms, burst: limit };
        Charge { state_key: key.to_owned(), quota, cost: 1, mode: Mode::Enforce }
    }

    #[test]
    fn concurrent_checks_admit_exactly_the_limit() {
        for algorithm in ALL {
            let store = MemoryStore::new();
            let barrier = Barrier::new(8);
            let admitted: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            let charges = [charge("shared", algorithm, 100, 3_600_000)];
                            (0..50).filter(|_| store.check_at(START_US, &charges)[0].allowed).count()
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(admitted, 100, "{algorithm:?}");
        }
    }

    #[test]
    fn a_refusal_by_one_limit_takes_nothing_from_the_others() {
        let store = MemoryStore::new();
        let tight = charge("tight", Algorithm::FixedWindow, 1, 60_000);
        let wide = charge("wide", Algorithm::SlidingWindowLog, 10, 60_000);
        for _ in 0..20 {
            store.check_at(START_US, &[tight.clone(), wide.clone()]);
            store.check_at(START_US, &[wide.clone(), tight.clone()]);
        }
        assert_eq!(store.check_at(START_US, &[wide])[0].remaining, 8);
    }

    #[test]
    fn memory_is_bounded_by_the_clients_of_the_moment() {
        for algorithm in ALL {
            let store = MemoryStore::new();
            // A new client every ms, each limited for 1 s (the counter's next window: up to 2 s).
            let mut most = 0;
            for client in 0..20_000u64 {
                store.check_at(START_US + client * 1000, &[charge(&client.to_string(), algorithm, 1, 1000)]);
                most = most.max(store.len());
            }
            assert!((500..=2002).contains(&most), "{algorithm:?}: {most}");
            let due = store.states.lock().unwrap().due.len();
            assert_eq!(due, store.len(), "{algorithm:?}");
            // A backlog shrinks with every check, and looking adds nothing.
            let later_us = START_US + 3_600_000_000;
            let look = Charge { cost: 0, ..charge("look", algorithm, 1, 1000) };
            for _ in 0..2000 {
                store.check_at(later_us, std::slice::from_ref(&look));
            }
            assert!(store.is_empty(), "{algorithm:?}");
        }
    }

    #[test]
    fn a_client_that_stays_is_not_forgotten() {
        for algorithm in ALL {
            let store = MemoryStore::new();
            let charges = [charge("stays", algorithm, 1_000_000, 1000)];
            let mut last = 1_000_000;
            // Charged more often than its state expires; other clients come, go and drive the purge.
            for step in 0..999u64 {
                let now_us = START_US + step;
                store.check_at(now_us, &[charge(&format!("other {step}"), algorithm, 1_000_000, 1)]);
                let remaining = store.check_at(now_us, &charges)[0].remaining;
                if algorithm != Algorithm::TokenBucket {
                    assert_eq!(remaining, last - 1, "{algorithm:?}");
                }
                last = remaining;
            }
        }
    }

    #[test]
    fn the_clock_is_wall_time_and_never_goes_back() {
        let store = MemoryStore::new();
        let wall_us = micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let mut last_us = store.clock.now_us();
        assert!(last_us.abs_diff(wall_us) < 60_000_000);
        for _ in 0..1000 {
            let now_us = store.clock.now_us();
            assert!(now_us >= last_us);
            last_us = now_us;
        }
        // On that clock, a limit of an hour admits its limit and no more.
        let admitted = (0..5)
            .filter(|_| store.check(&[charge("now", Algorithm::SlidingWindowLog, 3, 3_600_000)]).unwrap()[0].allowed);
        assert_eq!(admitted.count(), 3);
    }
}
