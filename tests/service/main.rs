//! The service over HTTP: the binary as it ships, a real Redis.

mod support;

// What callers see: statuses, problems, numbers out of range, tokens, versions of HTTP.
mod api;
// What limits mean, on both stores: all or nothing, overrides, shadow, exactness.
mod limits;
// Many processes, connections and keys at once: exactly what the limits say.
mod concurrency;
// Quotas by day, week and month.
mod calendar;
// Redis away, killed, paused, flushed.
mod store;
// A failover to a Redis whose clock is behind.
#[cfg(target_os = "linux")]
mod failover;
// What a client meets that asks all the time, by the clock on the wall.
mod pace;
// Starting and ending: configuration, sockets, readiness, draining, logs.
mod process;
// The policy file changes under way.
mod reload;
