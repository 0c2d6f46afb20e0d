//! The traffics of the simulation. Each is a list of requests that the seed determines.
//!
//! All are set against a limit of [`LIMIT`] in [`WINDOW_US`]; "load" is what is asked for over what the limit grants.

use std::f64::consts::TAU;

use crate::random::Random;

/// Units in a window.
pub const LIMIT: u64 = 100;
/// One minute.
pub const WINDOW_US: u64 = 60_000_000;
/// 2100-01-01, an edge of a window. In the future, so that Redis expires no state of a simulation by its own clock.
pub const START_US: u64 = 4_102_444_800_000_000;

const HOUR_US: f64 = 3.6e9;
/// Mean gap between requests at a load of 1, µs.
const GAP_US: f64 = WINDOW_US as f64 / LIMIT as f64;

/// One request of cost 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub at_us: u64,
    /// Who asks: each client has a key of its own.
    pub client: u32,
}

/// Requests, in the order of time for each client.
pub struct Traffic {
    pub name: &'static str,
    /// How it is made, for the page.
    pub how: &'static str,
    pub requests: Vec<Request>,
}

/// All of them. The adversary's is not here: it depends on whom it attacks.
pub fn all(seed: u64) -> Vec<Traffic> {
    vec![
        Traffic {
            name: "Poisson, load 0.8",
            how: "6 hours of independent requests at 80 a minute",
            requests: poisson(&mut Random::new(seed, "poisson 0.8"), 0, 6.0, |_| 0.8),
        },
        Traffic {
            name: "Poisson, load 1",
            how: "6 hours of independent requests at 100 a minute, exactly the limit's rate",
            requests: poisson(&mut Random::new(seed, "poisson 1"), 0, 6.0, |_| 1.0),
        },
        Traffic {
            name: "Poisson, load 2",
            how: "6 hours of independent requests at 200 a minute",
            requests: poisson(&mut Random::new(seed, "poisson 2"), 0, 6.0, |_| 2.0),
        },
        Traffic {
            name: "bursty",
            how: "6 hours of bursts: on for 5 s at 20 requests a second, off for 55 s; both lengths exponentially \
                  distributed about these means",
            requests: bursty(&mut Random::new(seed, "bursty")),
        },
        Traffic {
            name: "diurnal",
            how: "24 hours of independent requests whose rate swings between 0.1 and 1.9 times the limit's in a sine \
                  of one day",
            requests: poisson(&mut Random::new(seed, "diurnal"), 0, 24.0, |at| 1.0 - 0.9 * (TAU * at / 24.0).cos()),
        },
        Traffic {
            name: "many clients",
            how: "1 hour of 400 clients with independent requests; client k asks at a load of 4 / k, so 3 are above the \
                  limit, one is at it, and 396 below",
            requests: (1..=400)
                .flat_map(|k| poisson(&mut Random::new(seed, &format!("client {k}")), k, 1.0, |_| 4.0 / f64::from(k)))
                .collect(),
        },
        Traffic {
            name: "light clients",
            how: "1 hour of 60 clients with independent requests, their loads spread evenly in the logarithm from 0.01 to 1",
            requests: (0..60)
                .flat_map(|k| {
                    let load = 0.01 * 100_f64.powf(f64::from(k) / 59.0);
                    poisson(&mut Random::new(seed, &format!("light client {k}")), k, 1.0, |_| load)
                })
                .collect(),
        },
        Traffic {
            name: "saturating",
            how: "1 hour of a client that asks every 100 ms, six times the limit's rate, whatever it is answered",
            requests: (0..36_000).map(|n| Request { at_us: START_US + n * 100_000, client: 0 }).collect(),
        },
    ]
}

/// A Poisson process whose load may change with the time in hours: made at the load 2 or more, then thinned.
fn poisson(random: &mut Random, client: u32, hours: f64, load: impl Fn(f64) -> f64) -> Vec<Request> {
    let peak = load(0.0).max(2.0);
    let mut requests = Vec::new();
    let mut at = 0.0;
    loop {
        at += random.exponential(GAP_US / peak);
        if at >= hours * HOUR_US {
            return requests;
        }
        if random.unit() * peak <= load(at / HOUR_US) {
            requests.push(Request { at_us: START_US + at as u64, client });
        }
    }
}

fn bursty(random: &mut Random) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut at = 0.0;
    while at < 6.0 * HOUR_US {
        let off = at + random.exponential(5e6);
        loop {
            at += random.exponential(5e4);
            if at >= off {
                break;
            }
            requests.push(Request { at_us: START_US + at as u64, client: 0 });
        }
        at = off + random.exponential(55e6);
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, Request, all};

    #[test]
    fn the_same_seed_makes_the_same_traffic_and_another_seed_another() {
        let requests = |seed| all(seed).into_iter().map(|traffic| traffic.requests).collect::<Vec<Vec<Request>>>();
        let (one, again, other) = (requests(1), requests(1), requests(2));
        assert_eq!(one, again);
        // All but the one without chance.
        assert_eq!(one.iter().zip(&other).filter(|(one, other)| one != other).count(), one.len() - 1);
    }

    #[test]
    fn each_traffic_has_its_load_and_its_order() {
        for traffic in all(1) {
            let count = traffic.requests.len() as f64;
            let expected = LIMIT as f64
                * match traffic.name {
                    "Poisson, load 0.8" => 0.8 * 360.0,
                    "Poisson, load 1" | "bursty" => 360.0,
                    "Poisson, load 2" => 720.0,
                    "diurnal" => 1440.0,
                    "many clients" => 60.0 * (1..=400).map(|k| 4.0 / f64::from(k)).sum::<f64>(),
                    "light clients" => (0..60).map(|k| 0.6 * 100_f64.powf(f64::from(k) / 59.0)).sum(),
                    "saturating" => 360.0,
                    other => panic!("{other}"),
                };
            let tolerance = if traffic.name == "bursty" { 0.15 } else { 0.02 };
            assert!((count / expected - 1.0).abs() < tolerance, "{}: {count} of {expected}", traffic.name);
            for pair in traffic.requests.windows(2) {
                assert!(pair[0].client != pair[1].client || pair[0].at_us <= pair[1].at_us, "{}", traffic.name);
            }
        }
    }
}
