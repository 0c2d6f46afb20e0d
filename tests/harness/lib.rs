//! Starts and stops the real parts (Redis, the service, an upstream, Envoy) for tests and the demo.
//!
//! Every part listens on a free port of 127.0.0.1, lives in a private directory, and dies with the process that started
//! it. A part that does not start, or a binary that is missing, is a panic that says what to do: nothing is skipped.
//!
//! ```no_run
//! # #[tokio::main] async fn main() {
//! use harness::{Options, Stack};
//! let stack = Stack::start(Options {
//!     policies: "[{name: one, algorithm: fixed_window, limit: 1, window: 1h}]".into(),
//!     plugin: Some(serde_json::json!({ "rules": [{ "name": "all", "limits": [{ "policy": "one", "key": [{ "path": {} }] }] }] })),
//!     ..Options::default()
//! })
//! .await;
//! assert_eq!(stack.get("/", &[]).await.status, 200);
//! assert_eq!(stack.get("/", &[]).await.status, 429);
//! stack.envoy.assert_no_trap();
//! # }
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `child.rs` | one owned child process: its directory, its log, its end |
//! | `ports.rs` | free ports that no client socket takes |
//! | `redis.rs`, `service.rs`, `upstream.rs`, `envoy.rs` | the four parts |
//! | `stack.rs` | the four together |
//! | `client.rs`, `h2_client.rs` | how tests send requests |
//! | `time.rs` | polling, and window edges |

mod child;
pub mod client;
mod envoy;
mod h2_client;
mod ports;
mod redis;
mod service;
mod stack;
#[cfg(test)]
mod tests;
pub mod time;
mod upstream;

pub use self::redis::Redis;
pub use child::workspace;
pub use client::{Connection, Response, Statuses, burst, get, post_json, raw, send, statuses, try_get};
pub use envoy::{Edit, Envoy, EnvoyOptions, reference_config};
pub use h2_client::{H2, H2Stream};
pub use ports::free_port;
pub use service::{Service, Store};
pub use stack::{Options, Stack};
pub use time::{eventually, long_window, until_edge};
pub use upstream::{Answer, Seen, Upstream};
