//! `make evidence`: measures what is said about the four algorithms, on the real service and real Redis, and writes
//! `docs/algorithms.md` with its pictures.
//!
//! ```text
//! weir-evidence [--seed NUMBER] [--out FOLDER]
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `limiter.rs` | what is compared |
//! | `random.rs`, `traffic.rs`, `adversary.rs` | who asks, from a seed |
//! | `simulation.rs` | the shipped script in real Redis, with time as an argument |
//! | `service.rs` | how the real service is asked |
//! | `boundary.rs` (a), `precision.rs` (b, c), `cost.rs` (d, e), `smoothness.rs` (f) | the measurements |
//! | `measures.rs` | what is counted |
//! | `picture.rs`, `page.rs`, `claims.rs` | what is written, and what must hold for it to be true |

mod adversary;
mod boundary;
mod claims;
mod cost;
mod limiter;
mod measures;
mod page;
mod picture;
mod precision;
mod random;
mod service;
mod simulation;
mod smoothness;
mod traffic;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use harness::{Redis, workspace};

/// Of the numbers that the repository shows.
const SEED: u64 = 1;

/// Everything that was measured.
pub struct Evidence {
    pub seed: u64,
    /// Version of Redis.
    pub redis: String,
    /// Processors of the machine.
    pub cores: usize,
    /// How long it all took.
    pub took: Duration,
    pub boundary: Vec<boundary::Admitted>,
    pub precision: precision::Measured,
    pub cost: cost::Measured,
    pub smoothness: Vec<smoothness::Pace>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let (seed, folder) = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("evidence: {error}\nusage: weir-evidence [--seed NUMBER] [--out FOLDER]");
            return ExitCode::from(64);
        }
    };
    let started = Instant::now();
    let progress = |text: &str| eprintln!("evidence: {:3} s: {text}", started.elapsed().as_secs());
    progress("the attack at a window's edge, 12 to 22 s");
    let boundary = boundary::measure(&Redis::start().await).await;
    progress("the pace of a saturating client, 8 s");
    let smoothness = smoothness::measure(&Redis::start().await).await;
    progress("bytes and time in Redis");
    let cost = cost::measure(&Redis::start().await).await;
    progress("hours of traffic, simulated");
    let redis = Redis::start().await;
    let precision = precision::measure(&redis, seed);
    let server: String = redis.command(&["INFO", "server"]).await;
    let version = server.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("a version").to_owned();
    let cores = std::thread::available_parallelism().expect("processors").get();
    let took = started.elapsed();
    let evidence = Evidence { seed, redis: version, cores, took, boundary, precision, cost, smoothness };

    let pictures = folder.join("algorithms");
    fs::create_dir_all(&pictures).expect("the folder of the pictures");
    for (name, svg) in page::pictures(&evidence) {
        fs::write(pictures.join(format!("{name}.svg")), svg).expect("a picture");
    }
    let page = folder.join("algorithms.md");
    fs::write(&page, page::text(&evidence)).expect("the page");
    progress(&format!("wrote {} and its pictures", page.display()));

    let broken = claims::broken(&evidence);
    for claim in &broken {
        eprintln!("evidence: the page says, and the numbers do not: {claim}");
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn arguments() -> Result<(u64, PathBuf), String> {
    let (mut seed, mut folder) = (SEED, workspace().join("docs"));
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--seed" => seed = value.parse().map_err(|_| format!("--seed {value}: a whole number is expected"))?,
            "--out" => folder = value.into(),
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    Ok((seed, folder))
}
