//! Starts and stops the real parts (Redis, the service, an upstream, Envoy) for tests and the demo.
