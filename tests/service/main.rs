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
// Starting and ending: configuration, sockets, readiness, draining, logs.
mod process;
// The policy file changes under way.
mod reload;
