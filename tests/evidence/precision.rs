//! (b) and (c): each traffic through each limiter in the simulation, and what came of it.

use harness::Redis;

use crate::adversary::{self, Attack, Plan};
use crate::limiter::Limiter;
use crate::measures::{Wrong, admitted, against_log, against_rule, largest_in_window};
use crate::simulation::Simulation;
use crate::traffic::{self, LIMIT, Request, WINDOW_US};

/// One limiter under one traffic.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub admitted: usize,
    pub largest: usize,
    pub against_log: Wrong,
    pub against_rule: Wrong,
}

/// One traffic through all of [`Limiter::ALL`], in that order.
pub struct Row {
    pub name: &'static str,
    pub how: &'static str,
    pub requests: usize,
    pub outcomes: [Outcome; 5],
}

impl Row {
    pub fn of(&self, limiter: Limiter) -> Outcome {
        self.outcomes[Limiter::ALL.iter().position(|one| *one == limiter).expect("one of them")]
    }

    /// This many of the requests, in percent.
    pub fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.requests as f64
    }
}

pub struct Measured {
    pub rows: Vec<Row>,
    /// The worst that the adversary found for each of [`Limiter::ALL`] in a window.
    pub attacks: Vec<Attack>,
    /// Likewise in a [`TENTH_US`].
    pub short_attacks: Vec<Attack>,
}

/// What the adversary does to the counter, over and over.
pub const ADVERSARY: &str = "adversary of the counter";
const ATTACKS: u64 = 50;
/// A tenth of the window.
const TENTH_US: u64 = WINDOW_US / 10;

pub fn measure(redis: &Redis, seed: u64) -> Measured {
    let mut simulation = Simulation::start(redis);
    let attacks: Vec<Attack> =
        Limiter::ALL.into_iter().map(|limiter| adversary::search(&mut simulation, seed, limiter, WINDOW_US)).collect();
    let short_attacks: Vec<Attack> =
        Limiter::ALL.into_iter().map(|limiter| adversary::search(&mut simulation, seed, limiter, TENTH_US)).collect();
    let worst = attacks.iter().zip(Limiter::ALL).find(|(_, limiter)| *limiter == Limiter::Counter);
    let repeated = repeated(worst.expect("the counter is one of them").0.plan);
    let mut rows: Vec<Row> = traffic::all(seed)
        .into_iter()
        .map(|traffic| row(&mut simulation, traffic.name, traffic.how, &traffic.requests))
        .collect();
    rows.push(row(
        &mut simulation,
        ADVERSARY,
        "the plan that the search found worst for the counter, 50 times, an idle window between two",
        &repeated,
    ));
    Measured { rows, attacks, short_attacks }
}

/// A plan reaches from the window before its edge to the one after; with a window of silence it takes four.
fn repeated(plan: Plan) -> Vec<Request> {
    (0..ATTACKS).flat_map(|n| plan.requests(0, 4 * n + 1)).collect()
}

fn row(simulation: &mut Simulation, name: &'static str, how: &'static str, requests: &[Request]) -> Row {
    eprintln!("evidence: {name}: {} requests", requests.len());
    let verdicts = Limiter::ALL.map(|limiter| simulation.decide(limiter, requests));
    let log = &verdicts[1];
    let outcomes = verdicts.each_ref().map(|verdicts| {
        let admitted = admitted(requests, verdicts);
        Outcome {
            admitted: admitted.len(),
            largest: largest_in_window(admitted, WINDOW_US),
            against_log: against_log(verdicts, log),
            against_rule: against_rule(requests, verdicts, LIMIT, WINDOW_US),
        }
    });
    Row { name, how, requests: requests.len(), outcomes }
}
