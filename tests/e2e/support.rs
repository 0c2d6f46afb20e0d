//! What several files need.

use harness::{Response, workspace};
use serde_json::{Value, json};

/// The four algorithms.
pub const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket"];

/// A plug-in configuration with one rule for every request: this policy by `x-api-key`.
pub fn per_key(policy: &str) -> Value {
    json!({ "rules": [{ "name": "all", "limits": [{ "policy": policy, "key": [{ "header": "x-api-key" }] }] }] })
}

/// One policy, as a policy file writes it.
pub fn policy(name: &str, algorithm: &str, limit: u64, window: &str) -> String {
    format!("[{{name: {name}, algorithm: {algorithm}, limit: {limit}, window: {window}}}]")
}

/// The connection manager in `envoy.yaml`.
pub fn connection_manager(config: &mut Value) -> &mut Value {
    &mut config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
}

/// Removes an HTTP filter of `envoy.yaml`.
pub fn remove_filter(config: &mut Value, name: &str) {
    let filters = connection_manager(config)["http_filters"].as_array_mut().expect("a list of filters");
    let before = filters.len();
    filters.retain(|filter| filter["name"] != name);
    assert_eq!(filters.len() + 1, before, "{name}");
}

/// The cluster of this name in `envoy.yaml`.
pub fn cluster<'a>(config: &'a mut Value, name: &str) -> &'a mut Value {
    let clusters = config["static_resources"]["clusters"].as_array_mut().expect("a list of clusters");
    clusters.iter_mut().find(|cluster| cluster["name"] == name).expect("a cluster of this name")
}

/// Whether an answer has any field of a rate limit.
pub fn has_limit_fields(response: &Response) -> bool {
    response.headers.keys().any(|name| name.as_str().contains("ratelimit"))
}

/// A file of the repository.
pub fn file(path: &str) -> String {
    let path = workspace().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
