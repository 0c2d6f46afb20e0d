//! (d) bytes in Redis and (e) time of Redis for a decision, through the real service.
//!
//! The time is that of `INFO commandstats`: what Redis spends in EVALSHA, the script's own commands included, without
//! reading the request from the socket and writing the answer to it.

use harness::{Redis, Service, Store};
use serde_json::json;

use crate::limiter::Limiter;
use crate::service::{CONNECTIONS, body, policy_file, repeat};

/// After so many requests the keys are measured.
pub const SIZES: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
/// The limiters whose state is measured: how much a bucket holds changes nothing of it.
pub const LIMITERS: [Limiter; 4] = [Limiter::FixedWindow, Limiter::Log, Limiter::Counter, Limiter::Bucket];

const KEY: &str = "org_9921";
/// A client that has used up a limit of 100.
const FULL_KEY: &str = "org_100";
/// Long enough that no request leaves the window while the keys are measured.
const WINDOW: &str = "30d";
const ROUNDS: usize = 5;
const CALLS: usize = 3_000;

/// What Redis holds for one client after so many requests in the window.
pub struct Size {
    pub requests: usize,
    /// `MEMORY USAGE` of the key, in the order of [`LIMITERS`].
    pub bytes: [u64; 4],
}

/// What a decision costs, in the round that was disturbed least.
pub struct Cost {
    pub what: &'static str,
    pub admitted_us: f64,
    pub refused_us: f64,
}

pub struct Measured {
    pub sizes: Vec<Size>,
    pub costs: Vec<Cost>,
    /// A script that does one GET and one SET with expiry, and nothing else.
    pub baseline_us: f64,
}

pub async fn measure(redis: &Redis) -> Measured {
    let vast = LIMITERS.map(|limiter| limiter.written(10_000_000, WINDOW));
    let roomy = Service::start(&policy_file(&vast), Store::Redis(redis)).await;
    let sizes = grow(redis, &roomy).await;

    // The same key under a limit that the log's content just fills: the limit is no part of a key.
    let full = Service::start(&policy_file(&[Limiter::Log.written(100_000, WINDOW)]), Store::Redis(redis)).await;
    // States that live: windows pass and the log trims, the bucket refills and is never full.
    let lively = LIMITERS.map(|limiter| match limiter {
        Limiter::Bucket => json!({
            "name": limiter.policy(), "algorithm": "token_bucket", "limit": 1_000, "window": "1s", "burst": 10_000_000,
        }),
        _ => limiter.written(10_000_000, "100ms"),
    });
    let lively = Service::start(&policy_file(&lively), Store::Redis(redis)).await;
    let hundred = LIMITERS.map(|limiter| limiter.written(100, WINDOW));
    let hundred = Service::start(&policy_file(&hundred), Store::Redis(redis)).await;
    for limiter in LIMITERS {
        repeat(&hundred, &body(&[limiter.policy()], FULL_KEY), 100).await;
    }

    let (mut baseline, mut admitted, mut refused) = (Vec::new(), [const { Vec::new() }; 5], [const { Vec::new() }; 5]);
    for _ in 0..ROUNDS {
        baseline.push(base_us(redis).await);
        for (row, limiter) in LIMITERS.into_iter().enumerate() {
            admitted[row].push(decision_us(redis, &lively, limiter, KEY, true).await);
            refused[row].push(decision_us(redis, &hundred, limiter, FULL_KEY, false).await);
        }
        // Before the log grows beyond what fills it.
        refused[4].push(decision_us(redis, &full, Limiter::Log, KEY, false).await);
    }
    for _ in 0..ROUNDS {
        admitted[4].push(decision_us(redis, &roomy, Limiter::Log, KEY, true).await);
    }
    let whats = LIMITERS.map(Limiter::algorithm).into_iter().chain(["sliding_window_log, 100 000 requests in it"]);
    let costs = whats.zip(admitted.iter().zip(&refused)).map(|(what, (admitted, refused))| Cost {
        what,
        admitted_us: least(admitted),
        refused_us: least(refused),
    });
    Measured { sizes, costs: costs.collect(), baseline_us: least(&baseline) }
}

/// What else runs on the machine can only add to a time.
fn least(rounds: &[f64]) -> f64 {
    rounds.iter().copied().fold(f64::INFINITY, f64::min)
}

/// One client asks all four at once, until each has admitted as many as the largest of [`SIZES`].
async fn grow(redis: &Redis, service: &Service) -> Vec<Size> {
    let body = body(&LIMITERS.map(Limiter::policy), KEY);
    let mut sizes = Vec::new();
    let mut sent = 0;
    for requests in SIZES {
        assert_eq!(repeat(service, &body, requests - sent).await, requests - sent, "some were refused");
        sent = requests;
        let keys = redis.keys().await;
        let mut bytes = [0; 4];
        for (limiter, bytes) in LIMITERS.into_iter().zip(&mut bytes) {
            // Called before any other policy file is served: each policy has one key.
            let part = format!(":{}:{}:", limiter.policy(), limiter.code());
            let mine: Vec<_> = keys.iter().filter(|key| key.contains(&part) && key.contains(KEY)).collect();
            let [key] = mine[..] else { panic!("{limiter:?} has the keys {mine:?}") };
            *bytes = redis.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).await;
        }
        sizes.push(Size { requests, bytes });
    }
    sizes
}

async fn decision_us(redis: &Redis, service: &Service, limiter: Limiter, key: &str, admits: bool) -> f64 {
    let body = body(&[limiter.policy()], key);
    // Connections and caches are warm then.
    repeat(service, &body, 50).await;
    let () = redis.command(&["CONFIG", "RESETSTAT"]).await;
    let admitted = repeat(service, &body, CALLS).await;
    assert_eq!(admitted, if admits { CALLS } else { 0 }, "{limiter:?}");
    evalsha_us(redis).await
}

async fn base_us(redis: &Redis) -> f64 {
    let text = "redis.call('GET', KEYS[1])\nredis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])\nreturn {1, 2, 3, 4}";
    let client = redis::Client::open(redis.url()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let script: String = redis.command(&["SCRIPT", "LOAD", text]).await;
    let mut call = redis::cmd("EVALSHA");
    // 28 bytes, as a bucket's or a counter's; lives to the year 2100.
    call.arg(script).arg(1).arg("base").arg("0123456789012345678901234567").arg(4_102_444_800_000_u64);
    let () = redis.command(&["CONFIG", "RESETSTAT"]).await;
    // As many at once as there are connections to the service: a Redis that falls asleep between two calls wakes with
    // cold caches and looks slow.
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (call, mut connection) = (call.clone(), connection.clone());
        tasks.spawn(async move {
            for _ in 0..CALLS / CONNECTIONS {
                let _: [u8; 4] = call.query_async(&mut connection).await.expect("the script runs");
            }
        });
    }
    tasks.join_all().await;
    evalsha_us(redis).await
}

/// Mean µs of an EVALSHA since the statistics were reset.
async fn evalsha_us(redis: &Redis) -> f64 {
    let stats: String = redis.command(&["INFO", "commandstats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).expect("calls of EVALSHA");
    let field = |name: &str| -> f64 {
        let field = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        field.unwrap_or_else(|| panic!("no {name} in {line}")).parse().expect("a number")
    };
    field("usec") / field("calls")
}
