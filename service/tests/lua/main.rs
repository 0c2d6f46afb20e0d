//! The Lua scripts on a private, real Redis.
//!
//! - `exact`      products above 2^53 divided in Lua
//! - `vectors`    the language-neutral cases of `lua/vectors/`, on Redis and on the Rust algorithms
//! - `histories`  random histories: Redis and the Rust algorithms give equal replies and leave equal states
//! - `laws`       the definitions of the algorithms, tried out by brute force against the script (`model`)
//! - `cases`      what went wrong in other limiters, in the numbers of their bug reports
//! - `cost`       what a decision costs Redis: commands, keys, elements
//! - `calendar`   windows of a calendar: histories, edges, clocks that differ
//! - `shipped`    the script as it ships, on Redis' own clock: counts, expiry, foreign values, memory
//!
//! `server` starts the Redis, `fake_clock` puts a clock under the script that tests set.

// Helpers outside of #[test] functions may stop at the first surprise as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod calendar;
mod cases;
mod cost;
mod exact;
mod fake_clock;
mod histories;
mod laws;
mod model;
mod server;
mod shipped;
mod vectors;
