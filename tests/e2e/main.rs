//! End to end: the shipped filter in real Envoy.
