//! `make bench`: requests per second and latency through Envoy, without the filter and with it, side by side; then what a
//! decision costs Redis. `make bench-script` measures the latter alone.
//!
//! Real Envoy with one worker, the shipped filter and service, real Redis, all on this machine; `wrk` with one thread.
//! Envoy answers itself (a direct response), so that no upstream is measured. Rounds are interleaved and medians are
//! shown: compare the ratios, the absolute figures move with the machine.

mod script;

use std::process::Command;

use harness::{Options, Stack};
use serde_json::{Value, json};

const ROUNDS: usize = 5;
const SECONDS: u32 = 3;
/// Requests per second are measured saturated, latency in a closed loop of one connection.
const SATURATED: u32 = 32;

struct Row {
    name: &'static str,
    stack: Stack,
    rates: Vec<f64>,
    p50s: Vec<f64>,
    p99s: Vec<f64>,
}

struct Run {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

#[tokio::main]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        None => {
            through_envoy().await;
            println!();
            script::print().await;
        }
        Some("script") => script::print().await,
        Some(other) => panic!("{other}: expected nothing or `script`"),
    }
}

async fn through_envoy() {
    let mut rows = vec![
        row("Envoy without the filter", "per-key", 1, true).await,
        row("Weir, allowed", "per-key", 999_999_999, false).await,
        row("Weir, refused", "per-key", 1, false).await,
    ];
    for round in 1..=ROUNDS {
        eprintln!("bench: round {round} of {ROUNDS}");
        for row in &mut rows {
            let url = row.stack.envoy.url("/");
            row.rates.push(wrk(&url, SATURATED).per_second);
            let closed_loop = wrk(&url, 1);
            row.p50s.push(closed_loop.p50_us);
            row.p99s.push(closed_loop.p99_us);
        }
    }
    let base = median(&rows[0].rates);
    let base_p50 = median(&rows[0].p50s);
    println!("| | requests/s (32 connections) | ratio | p50 / p99 µs (1 connection) | added p50 µs |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for row in &rows {
        let (rate, p50, p99) = (median(&row.rates), median(&row.p50s), median(&row.p99s));
        let (name, ratio, added) = (row.name, rate / base, p50 - base_p50);
        println!("| {name} | {rate:.0} | {ratio:.2} | {p50:.0} / {p99:.0} | {added:.0} |");
        row.stack.envoy.assert_no_trap();
    }
}

async fn row(name: &'static str, policy: &str, limit: u64, without_filter: bool) -> Row {
    let edit = move |config: &mut Value| {
        let manager = &mut config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
        manager["access_log"] = json!([]);
        let host = &mut manager["route_config"]["virtual_hosts"][0];
        host["routes"] = json!([{ "match": { "prefix": "/" }, "direct_response": { "status": 200 } }]);
        if without_filter {
            let filters = manager["http_filters"].as_array_mut().expect("a list of filters");
            filters.retain(|filter| filter["name"] != "weir");
        }
    };
    let stack = Stack::start(Options {
        policies: format!("[{{name: {policy}, algorithm: sliding_window_counter, limit: {limit}, window: 1d}}]"),
        plugin: Some(json!({
            "rules": [{ "name": "all", "limits": [{ "policy": policy, "key": [{ "client_ip": {} }] }] }],
        })),
        edit: Some(Box::new(edit)),
        ..Options::default()
    })
    .await;
    // The refused row measures refusals alone.
    while limit == 1 && !without_filter && stack.get("/", &[]).await.status != 429 {}
    Row { name, stack, rates: Vec::new(), p50s: Vec::new(), p99s: Vec::new() }
}

fn wrk(url: &str, connections: u32) -> Run {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{SECONDS}s"), "--latency", url])
        .output()
        .expect("wrk: run `tests/setup/setup wrk`");
    let text = String::from_utf8_lossy(&output.stdout);
    let after = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label} in:\n{text}")).trim().to_owned()
    };
    Run {
        per_second: after("Requests/sec:").parse().expect("a number"),
        p50_us: microseconds(&after("50%")),
        p99_us: microseconds(&after("99%")),
    }
}

/// `830.00us`, `1.20ms` or `2.00s`.
fn microseconds(text: &str) -> f64 {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).expect("a unit");
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        other => panic!("unit {other}"),
    };
    number.parse::<f64>().expect("a number") * factor
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
