//! (a) The same attack at the edge of a window on each limiter, through the real service on Redis' own clock.
//!
//! The whole limit is asked for shortly before an edge and again shortly after it, then two units every quarter of a
//! second. The times lie between the moments at which any of the algorithms frees its next unit, so the verdicts are
//! the same each time unless the machine stalls; then the attack is repeated.

use std::time::{Duration, Instant};

use harness::{Redis, Service, until_edge};

use crate::limiter::Limiter;
use crate::measures::largest_in_window;
use crate::service::{Caller, body, policy_file};
use crate::traffic::Request;

pub const LIMIT: u64 = 40;
pub const WINDOW: Duration = Duration::from_secs(10);
/// The first volley, ms relative to the edge.
pub const FIRST_MS: i64 = -300;
/// The second volley. A unit is freed every 250 ms: from the edge on by the counter, from the first volley on by the
/// bucket. This is in the middle for the one and at 0.7 for the other.
pub const SECOND_MS: i64 = 375;
pub const EVERY_MS: i64 = 250;
pub const LAST_MS: i64 = 10_875;
/// A volley that is answered later than this after its time may meet the next freed unit.
const LATE: Duration = Duration::from_millis(70);
const ATTEMPTS: usize = 4;

/// What one limiter admitted.
pub struct Admitted {
    pub limiter: Limiter,
    /// For each volley: its time in ms relative to the edge, and how many of it were admitted.
    pub volleys: Vec<(i64, u64)>,
}

impl Admitted {
    pub fn at(&self, ms: i64) -> u64 {
        self.volleys.iter().filter(|(at, _)| *at == ms).map(|(_, count)| count).sum()
    }

    /// The most in any trailing window, by the times at which the volleys were due.
    pub fn largest(&self) -> usize {
        let since_first = |ms: i64| u64::try_from(ms - FIRST_MS).expect("not before the first");
        let requests = self
            .volleys
            .iter()
            .flat_map(|(ms, count)| (0..*count).map(|_| Request { at_us: since_first(*ms) * 1000, client: 0 }));
        largest_in_window(requests, WINDOW.as_micros() as u64)
    }
}

pub async fn measure(redis: &Redis) -> Vec<Admitted> {
    let policies = Limiter::ALL.map(|limiter| limiter.written(LIMIT, "10s"));
    let service = Service::start(&policy_file(&policies), harness::Store::Redis(redis)).await;
    for attempt in 0..ATTEMPTS {
        let mut wait = until_edge(WINDOW);
        if wait < Duration::from_millis(800) {
            wait += WINDOW;
        }
        let edge = Instant::now() + wait;
        let key = format!("edge-{attempt}");
        let attacks = Limiter::ALL.map(|limiter| attack(&service, limiter, &key, edge));
        let admitted = futures_util::future::join_all(attacks).await;
        if let Some(admitted) = admitted.into_iter().collect() {
            return admitted;
        }
        eprintln!("evidence: the machine stalled during the attack at the edge; once more");
    }
    panic!("the machine is too busy to keep the times of the attack: try again when it is idle");
}

/// `None` if a volley was late.
async fn attack(service: &Service, limiter: Limiter, key: &str, edge: Instant) -> Option<Admitted> {
    let mut caller = Caller::open(service).await;
    let body = body(&[limiter.policy()], key);
    let mut volleys = Vec::new();
    let rest = (SECOND_MS + EVERY_MS..=LAST_MS).step_by(EVERY_MS as usize).map(|ms| (ms, 2));
    for (ms, size) in [(FIRST_MS, LIMIT), (SECOND_MS, LIMIT)].into_iter().chain(rest) {
        let offset = Duration::from_millis(ms.unsigned_abs());
        let due = if ms < 0 { edge - offset } else { edge + offset };
        tokio::time::sleep_until(due.into()).await;
        let mut admitted = 0;
        for _ in 0..size {
            admitted += u64::from(caller.ask(&body).await);
        }
        if due.elapsed() > LATE {
            return None;
        }
        volleys.push((ms, admitted));
    }
    Some(Admitted { limiter, volleys })
}
