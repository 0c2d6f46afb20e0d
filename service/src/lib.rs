//! The Weir limiter: policies, four algorithms, one atomic decision in Redis (or in memory), a check API over HTTP.

pub mod algorithm;
pub mod policy;
pub mod script;
pub mod store;
