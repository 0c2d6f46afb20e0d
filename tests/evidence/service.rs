//! How the real service is asked: over kept connections, as a proxy would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many ask at once.
pub const CONNECTIONS: usize = 4;

use bytes::Bytes;
use harness::{Connection, Service};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// One kept connection to the check API.
pub struct Caller {
    connection: Connection,
}

impl Caller {
    pub async fn open(service: &Service) -> Self {
        Self { connection: Connection::open(&service.url("")).await }
    }

    /// Whether the check of this body is admitted; a panic if there is no verdict.
    pub async fn ask(&mut self, body: &Bytes) -> bool {
        let headers = [("content-type", "application/json")];
        let answer = self.connection.try_send(Method::POST, "/v1/check", &headers, body.clone()).await;
        let answer = answer.unwrap_or_else(|error| panic!("no answer: {error}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["allowed"].as_bool().expect("a verdict")
    }
}

/// A check of one unit of each policy, by one key.
pub fn body(policies: &[&str], key: &str) -> Bytes {
    let limits: Vec<Value> = policies.iter().map(|policy| json!({ "policy": policy, "key": key, "cost": 1 })).collect();
    json!({ "limits": limits }).to_string().into()
}

/// A policy file with these policies. The store may be slow to answer on a busy machine: what is measured is not that.
pub fn policy_file(policies: &[Value]) -> String {
    json!({ "store": { "redis": { "url": "" }, "timeout": "2s" }, "policies": policies }).to_string()
}

/// Sends one check so many times over a few connections; how many were admitted.
pub async fn repeat(service: &Service, body: &Bytes, times: usize) -> usize {
    let left = Arc::new(AtomicUsize::new(times));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut caller = Caller::open(service).await;
        let (left, body) = (Arc::clone(&left), body.clone());
        tasks.spawn(async move {
            let mut admitted = 0;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                admitted += usize::from(caller.ask(&body).await);
            }
            admitted
        });
    }
    tasks.join_all().await.into_iter().sum()
}
