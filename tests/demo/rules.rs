//! The limits that the demo shows: the service's policies and the filter's rules.

use std::time::Duration;

use serde_json::{Value, json};

/// Requests a minute of one client, on every path that has no limit of its own. Few, so that a reader can use them up.
pub const PER_CLIENT: usize = 3;

/// The four algorithms: names of policies and, behind a slash, paths.
pub const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket"];
/// Their limit.
pub const LIMIT: usize = 20;
/// Their window: short, so that nobody waits long for its edge; long enough that a burst does not fill it.
pub const WINDOW: Duration = Duration::from_secs(4);

/// The list under `policies` of the policy file.
pub fn policies() -> Value {
    let mut policies = vec![json!({
        "name": "per-key", "algorithm": "sliding_window_log", "limit": PER_CLIENT, "window": "1m",
    })];
    // No rule uses this one: it is there for those who ask the service themselves, as the documents show.
    policies.push(json!({ "name": "per-ip", "algorithm": "sliding_window_counter", "limit": 600, "window": "1m" }));
    for algorithm in ALGORITHMS {
        let window = format!("{}s", WINDOW.as_secs());
        policies.push(json!({ "name": algorithm, "algorithm": algorithm, "limit": LIMIT, "window": window }));
    }
    policies.into()
}

/// The plug-in configuration of the filter.
pub fn plugin() -> Value {
    let key = json!([{ "first_of": [{ "header": "x-api-key" }, { "client_ip": {} }] }]);
    let mut rules = Vec::new();
    for algorithm in ALGORITHMS {
        rules.push(json!({
            "name": algorithm,
            "match": { "path": { "exact": format!("/{algorithm}") } },
            "limits": [{ "policy": algorithm, "key": key }],
        }));
    }
    rules.push(json!({ "name": "all", "limits": [{ "policy": "per-key", "key": key }] }));
    json!({
        "service": { "cluster": "weir", "timeout": "1s" },
        "failure_mode": "open",
        "rules": rules,
    })
}
