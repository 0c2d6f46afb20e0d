//! The four algorithms as pure functions of (state, now, cost).
