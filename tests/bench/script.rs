//! What a decision costs Redis: the calls that the service sends, repeated, against a script that does no more than one
//! GET and one SET with an expiry. Times are Redis' own (`INFO commandstats`), so client and network do not count. Rounds
//! are interleaved, and the fastest of each counts: whatever else the machine does only adds.

use std::collections::BTreeMap;

use harness::{Redis, Service, Store};
use redis::aio::MultiplexedConnection;
use serde_json::json;

const ROUNDS: usize = 7;
const CALLS: usize = 5000;
/// So many calls go out together.
const PIPELINED: usize = 500;
const GET_AND_SET: &str = "local value = redis.call('GET', KEYS[1]) \
                           redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return value";

struct Row {
    name: String,
    /// The call, as words.
    call: Vec<Vec<u8>>,
    micros: Vec<f64>,
    commands: f64,
}

/// Measures and prints a table.
pub async fn print() {
    let redis = Redis::start().await;
    let client = redis::Client::open(redis.url()).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("Redis");
    let mut rows = vec![baseline(&mut connection).await];
    // What is asked, and what it measures: the limit, the window and the cost decide which.
    for algorithm in ["fixed_window", "sliding_window_counter", "token_bucket", "sliding_window_log"] {
        for (verdict, limit, window, cost) in
            [("allowed", 999_999_999_999_999u64, "30d", 1u64), ("refused", 1, "30d", 1), ("looked at", 1, "30d", 0)]
        {
            rows.push(row(&redis, algorithm, verdict, limit, window, cost).await);
        }
    }
    let leaving = "allowed, while others leave the window";
    rows.push(row(&redis, "sliding_window_log", leaving, 999_999_999_999_999, "20ms", 1).await);
    for round in 1..=ROUNDS {
        eprintln!("bench: round {round} of {ROUNDS} of the script");
        for row in &mut rows {
            measure(&mut connection, row).await;
        }
    }
    let fastest = |row: &Row| row.micros.iter().copied().fold(f64::INFINITY, f64::min);
    let base = fastest(&rows[0]);
    println!("| a call of the script | µs in Redis | ratio | commands |");
    println!("| --- | ---: | ---: | ---: |");
    for row in &rows {
        let (name, micros, commands) = (&row.name, fastest(row), row.commands);
        println!("| {name} | {micros:.2} | {:.2} | {commands:.1} |", micros / base);
    }
}

async fn baseline(connection: &mut MultiplexedConnection) -> Row {
    let sha1: String = redis::cmd("SCRIPT").arg("LOAD").arg(GET_AND_SET).query_async(connection).await.expect("a hash");
    let words = ["EVALSHA", &sha1, "1", "baseline", "twenty-eight bytes of state.", "60000"];
    let call = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Row { name: "one GET and one SET with an expiry".into(), call, micros: Vec::new(), commands: 0.0 }
}

/// Lets a service check once or twice and takes over the last call that it made, from Redis' slow log.
async fn row(redis: &Redis, algorithm: &str, verdict: &str, limit: u64, window: &str, cost: u64) -> Row {
    let name = format!("{algorithm}, {verdict}");
    let policy = verdict.split([' ', ',']).next().expect("a word");
    let policies = json!([{ "name": policy, "algorithm": algorithm, "limit": limit, "window": window }]);
    let file = json!({ "store": { "timeout": "2s" }, "policies": policies }).to_string();
    let service = Service::start(&file, Store::Redis(redis)).await;
    // A limit of 1 is used up first.
    service.check(policy, "org_9921", 1).await;
    let () = redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).await;
    let () = redis.command(&["SLOWLOG", "RESET"]).await;
    let reply = service.check(policy, "org_9921", cost).await.json();
    assert_eq!(reply["allowed"], verdict != "refused", "{reply}");
    let () = redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]).await;
    /// Number, time, microseconds, words, client's address and name.
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let log: Vec<Entry> = redis.command(&["SLOWLOG", "GET", "-1"]).await;
    let mut calls = log.into_iter().map(|entry| entry.3).filter(|words| words[0].eq_ignore_ascii_case(b"evalsha"));
    Row { name, call: calls.next().expect("the call of a check"), micros: Vec::new(), commands: 0.0 }
}

async fn measure(connection: &mut MultiplexedConnection, row: &mut Row) {
    let mut pipeline = redis::pipe();
    for _ in 0..PIPELINED {
        let mut command = redis::Cmd::new();
        for word in &row.call {
            command.arg(word.as_slice());
        }
        pipeline.add_command(command).ignore();
    }
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(connection).await.expect("OK");
    for _ in 0..CALLS / PIPELINED {
        let () = pipeline.query_async(connection).await.expect("replies");
    }
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.expect("statistics");
    let mut stats = stats(&info);
    let (calls, micros) = stats.remove("evalsha").expect("calls of the script");
    let inside = stats.iter().filter(|(name, _)| !["config|resetstat", "info", "ping"].contains(&name.as_str()));
    row.commands = inside.map(|(_, (calls, _))| calls).sum::<f64>() / calls;
    row.micros.push(micros / calls);
}

/// Calls and microseconds of each command.
fn stats(info: &str) -> BTreeMap<String, (f64, f64)> {
    let stat = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, rest) = rest.split_once(",usec=")?;
        Some((name.to_owned(), (calls.parse().ok()?, rest.split_once(',')?.0.parse().ok()?)))
    };
    info.lines().filter_map(stat).collect()
}
