//! The cases of `lua/vectors/` on Redis, on the Rust algorithms and on the memory store.
//!
//! A file named for an algorithm has steps of one limit; `check.json` has steps of several.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use weir_service::algorithm::{self, State};
use weir_service::calendar::Edges;
use weir_service::policy::{Algorithm, Mode, Quota};
use weir_service::store::memory::MemoryStore;
use weir_service::store::{Charge, Decision};

use crate::fake_clock::{self, Expiry, Step};
use crate::server::Server;

const FILES: [&str; 6] =
    ["calendar_window", "check", "fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    steps: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    One { at_us: u64, quota: Numbers, cost: u64, expect: Expect },
    Several { at_us: u64, limits: Vec<Limit> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    key: String,
    algorithm: String,
    quota: Numbers,
    cost: u64,
    mode: Mode,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    limit: u64,
    #[serde(default)]
    window_ms: u64,
    #[serde(default)]
    burst: u64,
    /// Of a calendar window, instead of `window_ms` and `burst`.
    edges_us: Option<[u64; 4]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    allowed: bool,
    remaining: u64,
    reset_us: u64,
    retry_after_us: Option<u64>,
    window_end_us: Option<u64>,
}

fn algorithm(name: &str, numbers: &Numbers) -> Algorithm {
    assert_eq!(name == "calendar_window", numbers.edges_us.is_some());
    assert_ne!(numbers.edges_us.is_some(), numbers.window_ms > 0 && numbers.burst > 0);
    match name {
        "calendar_window" => Algorithm::CalendarWindow(Edges(numbers.edges_us.unwrap())),
        "fixed_window" => Algorithm::FixedWindow,
        "sliding_window_log" => Algorithm::SlidingWindowLog,
        "sliding_window_counter" => Algorithm::SlidingWindowCounter,
        "token_bucket" => Algorithm::TokenBucket,
        _ => panic!("no algorithm: {name}"),
    }
}

/// A case's name, its steps and the decisions it expects.
struct Vector {
    name: String,
    steps: Vec<Step>,
    expected: Vec<Vec<Decision>>,
}

fn load() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua/vectors");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(files, FILES);
    let mut vectors = vec![];
    for file in files {
        let text = std::fs::read_to_string(folder.join(format!("{file}.json"))).unwrap();
        let cases: Vec<Case> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}.json: {error}"));
        assert!(cases.len() >= 8, "{file}.json has lost its cases");
        for case in cases {
            assert!(!case.steps.is_empty(), "{file}.json, {}: no steps", case.name);
            let prefix = format!("{file}: {}", case.name);
            let (mut steps, mut expected) = (vec![], vec![]);
            for row in case.steps {
                let (now_us, limits) = match row {
                    Row::Several { at_us, limits } => (at_us, limits),
                    Row::One { at_us, quota, cost, expect } => {
                        let limit = Limit {
                            key: String::new(),
                            algorithm: file.clone(),
                            quota,
                            cost,
                            mode: Mode::Enforce,
                            expect,
                        };
                        (at_us, vec![limit])
                    }
                };
                let charges = limits
                    .iter()
                    .map(|limit| Charge {
                        state_key: format!("{prefix}: {}", limit.key),
                        quota: Quota {
                            algorithm: algorithm(&limit.algorithm, &limit.quota),
                            limit: limit.quota.limit,
                            window_ms: limit.quota.window_ms,
                            burst: limit.quota.burst,
                        },
                        cost: limit.cost,
                        mode: limit.mode,
                    })
                    .collect();
                steps.push(Step { now_us, charges });
                let decisions = limits.into_iter().map(|Limit { expect, .. }| Decision {
                    allowed: expect.allowed,
                    remaining: expect.remaining,
                    reset_us: expect.reset_us,
                    retry_after_us: expect.retry_after_us,
                    window_end_us: expect.window_end_us,
                });
                expected.push(decisions.collect());
            }
            vectors.push(Vector { name: prefix, steps, expected });
        }
    }
    vectors
}

fn assert_decisions(vector: &Vector, decide: impl FnMut(&Step) -> Vec<Decision>) {
    let decided: Vec<_> = vector.steps.iter().map(decide).collect();
    for (index, (decided, expected)) in decided.iter().zip(&vector.expected).enumerate() {
        assert_eq!(decided, expected, "{}, step {index}", vector.name);
    }
}

#[test]
fn vectors_hold_on_redis() {
    let server = Server::start();
    let mut connection = server.connect();
    for vector in load() {
        let mut outcomes = fake_clock::run(&mut connection, Expiry::Meets, &vector.steps).into_iter();
        assert_decisions(&vector, |_| outcomes.next().unwrap().decisions);
    }
}

#[test]
fn vectors_hold_for_the_rust_algorithms() {
    for vector in load() {
        let mut states: HashMap<String, Option<State>> = HashMap::new();
        assert_decisions(&vector, |step| {
            let mut of_step: Vec<Option<State>> =
                step.charges.iter().map(|charge| states.remove(&charge.state_key).flatten()).collect();
            let outcomes = algorithm::decide(step.now_us, &step.charges, &mut of_step.iter_mut().collect::<Vec<_>>());
            states.extend(step.charges.iter().map(|charge| charge.state_key.clone()).zip(of_step));
            outcomes.into_iter().map(|(decision, _)| decision).collect()
        });
    }
}

#[test]
fn vectors_hold_for_the_memory_store() {
    for vector in load() {
        let store = MemoryStore::new();
        assert_decisions(&vector, |step| store.check_at(step.now_us, &step.charges));
    }
}
