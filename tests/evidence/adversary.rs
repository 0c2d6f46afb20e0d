//! A client that knows the limit, the window and Redis' clock, and looks for the plan that gets the most units into one
//! span of a given length. It does not know the algorithm: it tries plans and keeps what worked.

use crate::limiter::Limiter;
use crate::measures::{admitted, largest_in_window};
use crate::random::Random;
use crate::simulation::Simulation;
use crate::traffic::{LIMIT, Request, START_US, WINDOW_US};

/// Plans tried at first, at random; then so many times this many variations of the best one.
const PLANS: usize = 40;
const ROUNDS: usize = 3;

/// All of the limit at one moment, all of it again at another, then one unit at a time until a window after the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The first volley comes so long before an edge of a window.
    pub before_edge_us: f64,
    /// The second volley comes so long after that edge.
    pub after_edge_us: f64,
    /// Then a request every so often.
    pub every_us: f64,
}

/// The best plan against a limiter, and what it got into one span.
pub struct Attack {
    pub plan: Plan,
    pub largest: usize,
}

impl Plan {
    const LONGEST: f64 = WINDOW_US as f64 - 1.0;

    fn random(random: &mut Random) -> Self {
        Self {
            before_edge_us: random.magnitude(1e3, Self::LONGEST),
            after_edge_us: random.magnitude(1e3, Self::LONGEST),
            every_us: random.magnitude(1e5, 5e6),
        }
    }

    /// Each time up to three times longer or shorter.
    fn varied(self, random: &mut Random) -> Self {
        let mut vary =
            |time: f64, shortest: f64, longest: f64| (time * random.magnitude(1.0 / 3.0, 3.0)).clamp(shortest, longest);
        Self {
            before_edge_us: vary(self.before_edge_us, 1e3, Self::LONGEST),
            after_edge_us: vary(self.after_edge_us, 1e3, Self::LONGEST),
            every_us: vary(self.every_us, 1e5, 5e6),
        }
    }

    /// Its requests around the edge that is `edge` windows after the start.
    pub fn requests(self, client: u32, edge: u64) -> Vec<Request> {
        let edge_us = START_US + edge * WINDOW_US;
        let first_us = edge_us - self.before_edge_us as u64;
        let second_us = edge_us + self.after_edge_us as u64;
        let every_us = self.every_us as usize;
        let volley = |at_us| (0..LIMIT).map(move |_| at_us);
        let singles = (second_us + every_us as u64..first_us + WINDOW_US).step_by(every_us);
        volley(first_us).chain(volley(second_us)).chain(singles).map(|at_us| Request { at_us, client }).collect()
    }
}

/// Searches for the fullest span of this length; the seed determines the way.
pub fn search(simulation: &mut Simulation, seed: u64, limiter: Limiter, span_us: u64) -> Attack {
    let mut random = Random::new(seed, limiter.label());
    let plans: Vec<Plan> = (0..PLANS).map(|_| Plan::random(&mut random)).collect();
    let mut best = try_all(simulation, limiter, span_us, plans);
    for _ in 0..ROUNDS {
        let mut plans = vec![best.plan];
        plans.extend((1..PLANS).map(|_| best.plan.varied(&mut random)));
        best = try_all(simulation, limiter, span_us, plans);
    }
    best
}

/// The first of those that got most.
fn try_all(simulation: &mut Simulation, limiter: Limiter, span_us: u64, plans: Vec<Plan>) -> Attack {
    // A client for each plan: they do not meet.
    let all: Vec<Vec<Request>> = plans.iter().zip(0..).map(|(plan, client)| plan.requests(client, 1)).collect();
    let verdicts = simulation.decide(limiter, &all.concat());
    let mut verdicts = verdicts.as_slice();
    let mut best: Option<Attack> = None;
    for (plan, requests) in plans.into_iter().zip(&all) {
        let (these, rest) = verdicts.split_at(requests.len());
        verdicts = rest;
        let largest = largest_in_window(admitted(requests, these), span_us);
        if best.as_ref().is_none_or(|best| largest > best.largest) {
            best = Some(Attack { plan, largest });
        }
    }
    best.expect("at least one plan")
}
