//! End to end: the shipped filter in real Envoy, the shipped service, real Redis, an upstream that counts.
//!
//! | file | shows |
//! | --- | --- |
//! | `reference.rs` | `envoy.yaml` and `examples/weir.yaml` as they are: headers, the 429, CORS, access log, counters |
//! | `exactness.rs` | exactly as many pass as the limit says, at once and over time, on one worker and on four |
//! | `matching.rs` | which requests a rule is for: paths by every spelling, hosts, headers, parameters |
//! | `keys.rs` | who is limited: every source of a key; missing, empty, repeated, not UTF-8; addresses of both families |
//! | `answers.rs` | fields on every answer of a checked request, whoever gave it; none where nothing was checked |
//! | `protocols.rs` | answers in gRPC and gRPC-Web, upgrades, CORS, shadow mode, what the fields describe |
//! | `failure.rs` | the service down, slow, wrong or rude: open passes, closed is 503, the worker serves on |
//! | `floods.rs` | a thousand streams refused or failed at once, and clients that leave at any moment: no trap |
//! | `plugin.rs` | configurations that Envoy refuses, as text and as YAML |
//! | `updates.rs` | configurations that change while requests wait |

mod answers;
mod exactness;
mod failure;
mod floods;
mod keys;
mod matching;
mod plugin;
mod protocols;
mod reference;
mod support;
mod updates;
