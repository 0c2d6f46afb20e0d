//! (f) When a saturating client is admitted: through the real service, on Redis' own clock.

use std::time::{Duration, Instant};

use harness::{Redis, Service, until_edge};

use crate::limiter::Limiter;
use crate::measures::quantile;
use crate::service::{Caller, body, policy_file};

pub const LIMIT: u64 = 50;
pub const WINDOW: Duration = Duration::from_secs(2);
pub const WINDOWS: u32 = 4;
/// The client asks so often: ten times the limit's rate.
pub const EVERY: Duration = Duration::from_millis(4);
/// The gap between two admissions of an even pace.
pub const EVEN_MS: f64 = 40.0;

/// One limiter's admissions.
pub struct Pace {
    pub limiter: Limiter,
    /// Seconds since an edge of a window at which the client began.
    pub admitted_s: Vec<f64>,
}

impl Pace {
    fn gaps_ms(&self) -> Vec<f64> {
        self.admitted_s.windows(2).map(|pair| (pair[1] - pair[0]) * 1000.0).collect()
    }

    pub fn gap_ms(&self, share: f64) -> f64 {
        quantile(&mut self.gaps_ms(), share)
    }

    /// The most admissions in any tenth of a second; an even pace has 2.5.
    pub fn most_in_100_ms(&self) -> usize {
        let times = &self.admitted_s;
        (0..times.len()).map(|from| times[from..].partition_point(|at| *at < times[from] + 0.1)).max().unwrap_or(0)
    }
}

pub async fn measure(redis: &Redis) -> Vec<Pace> {
    let policies = Limiter::ALL.map(|limiter| limiter.written(LIMIT, "2s"));
    let service = Service::start(&policy_file(&policies), harness::Store::Redis(redis)).await;
    let mut wait = until_edge(WINDOW);
    if wait < Duration::from_millis(300) {
        wait += WINDOW;
    }
    let start = Instant::now() + wait;
    futures_util::future::join_all(Limiter::ALL.map(|limiter| saturate(&service, limiter, start))).await
}

async fn saturate(service: &Service, limiter: Limiter, start: Instant) -> Pace {
    let mut caller = Caller::open(service).await;
    let body = body(&[limiter.policy()], "saturating");
    let mut admitted_s = Vec::new();
    let mut due = start;
    while due < start + WINDOW * WINDOWS {
        tokio::time::sleep_until(due.into()).await;
        if caller.ask(&body).await {
            admitted_s.push(start.elapsed().as_secs_f64());
        }
        due += EVERY;
    }
    Pace { limiter, admitted_s }
}
