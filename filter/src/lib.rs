//! The Weir filter for Envoy, Istio and other proxy-wasm hosts.
//!
//! `host` is the only module that talks to the host; everything else is values in, values out, and is tested
//! natively and on wasm32.

pub mod allow;
pub mod answer;
pub mod check;
pub mod client_ip;
pub mod config;
pub mod exchange;
#[cfg(all(target_arch = "wasm32", not(test)))]
mod host;
pub mod key;
pub mod path;
pub mod pattern;
pub mod property;
pub mod protobuf;
pub mod reply;
pub mod request;
pub mod rollout;
pub mod rules;
pub mod source;
pub mod stats;
pub mod throttle;
