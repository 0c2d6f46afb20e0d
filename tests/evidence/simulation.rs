//! The shipped script in a real Redis, with time as an argument: hours of traffic in seconds, and the same each time.
//!
//! The script is the text of `lua/*.lua` in the order that `lua/README.md` gives; only `clock.lua` is replaced. That
//! README is also where the shape of arguments and reply is from.

use harness::{Redis, workspace};
use redis::Connection;

use crate::limiter::Limiter;
use crate::traffic::{LIMIT, Request, START_US, WINDOW_US};

/// In place of `lua/clock.lua`: the time is the last argument.
const CLOCK: &str = "local function now_us()\n  return tonumber(ARGV[#ARGV])\nend\n";
/// What follows the clock, in order.
const FILES: [&str; 8] = [
    "exact",
    "state",
    "fixed_window",
    "calendar_window",
    "sliding_window_log",
    "sliding_window_counter",
    "token_bucket",
    "check",
];
/// Decisions in one pipeline.
const BATCH: usize = 2_000;

pub struct Simulation {
    connection: Connection,
    script: String,
    runs: u32,
}

impl Simulation {
    pub fn start(redis: &Redis) -> Self {
        let texts = FILES.map(|file| {
            let path = workspace().join(format!("lua/{file}.lua"));
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        });
        let text = CLOCK.to_owned() + &texts.concat();
        let client = redis::Client::open(redis.url()).expect("a URL");
        let mut connection = client.get_connection().expect("a connection to Redis");
        let script = redis::cmd("SCRIPT").arg("LOAD").arg(&text).query(&mut connection).expect("the script loads");
        let mut simulation = Self { connection, script, runs: 0 };
        simulation.try_out();
        simulation
    }

    /// Were arguments or reply of another shape than here, the numbers would mean nothing.
    fn try_out(&mut self) {
        let requests = vec![Request { at_us: START_US, client: 0 }; LIMIT as usize + 1];
        for limiter in Limiter::ALL {
            let admitted = self.decide(limiter, &requests).into_iter().filter(|admitted| *admitted).count();
            assert_eq!(admitted as u64, limiter.burst(LIMIT), "{limiter:?}: does the script take other arguments now?");
        }
    }

    /// The verdict on each request, from a state that knows of none.
    pub fn decide(&mut self, limiter: Limiter, requests: &[Request]) -> Vec<bool> {
        self.runs += 1;
        let (limit, window_ms, burst) = (LIMIT, WINDOW_US / 1000, limiter.burst(LIMIT));
        let mut verdicts = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            let mut pipeline = redis::pipe();
            for request in batch {
                let command = pipeline.cmd("EVALSHA").arg(&self.script).arg(1);
                command.arg(format!("{}:{}", self.runs, request.client));
                command.arg(limiter.code()).arg(limit).arg(window_ms).arg(burst).arg(1).arg("enforce");
                command.arg(request.at_us);
            }
            let replies: Vec<[i64; 4]> = pipeline.query(&mut self.connection).expect("decisions");
            verdicts.extend(replies.into_iter().map(|[allowed, ..]| allowed == 1));
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::{against_log, against_rule, largest_in_window};
    use crate::{adversary, measures, traffic};

    #[tokio::test]
    async fn the_same_seed_measures_the_same() {
        let measure = async || {
            let redis = Redis::start().await;
            let mut simulation = Simulation::start(&redis);
            let mut numbers = Vec::new();
            for traffic in traffic::all(7) {
                let requests = &traffic.requests[..2_000];
                let log = simulation.decide(Limiter::Log, requests);
                for limiter in Limiter::ALL {
                    let verdicts = simulation.decide(limiter, requests);
                    let largest = largest_in_window(measures::admitted(requests, &verdicts), WINDOW_US);
                    assert!(largest as u64 <= limiter.bound(LIMIT), "{limiter:?} on {}: {largest}", traffic.name);
                    numbers.push((largest, against_log(&verdicts, &log).total()));
                }
                assert_eq!(against_rule(requests, &log, LIMIT, WINDOW_US).total(), 0, "{}", traffic.name);
            }
            numbers.push((adversary::search(&mut simulation, 7, Limiter::Counter, WINDOW_US).largest, 0));
            numbers
        };
        assert_eq!(measure().await, measure().await);
    }
}
