//! Counters for operators. Labels come from closed sets and from the policy file, never from a client.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::store::StoreError;

/// The media type of [`Metrics::encode`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds: fine where a healthy Redis answers, coarse up to the longest deadlines.
const STORE_BUCKETS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_15, 0.000_2, 0.000_3, 0.000_5, 0.000_75, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5,
    2.0,
];

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    checks: Family<CheckLabels, Counter>,
    decisions: Family<DecisionLabels, Counter>,
    store_errors: Family<KindLabels, Counter>,
    store_seconds: Histogram,
    http: Family<HttpLabels, Counter>,
    reloads: Family<ReloadLabels, Counter>,
    rejected: Gauge,
}

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, missing_docs, reason = "the names are the label values")]
pub enum CheckOutcome {
    allowed,
    refused,
    error,
}

/// What one limit said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, missing_docs, reason = "the names are the label values")]
pub enum LimitOutcome {
    allowed,
    refused,
    shadow_refused,
    unlimited,
}

/// What became of a changed policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, missing_docs, reason = "the names are the label values")]
pub enum ReloadOutcome {
    applied,
    rejected,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    outcome: ReloadOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    outcome: CheckOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    policy: Arc<str>,
    outcome: LimitOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    status: u16,
    problem: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("weir");
        let checks = Family::default();
        registry.register("checks", "Checks by what became of them", checks.clone());
        let decisions = Family::default();
        registry.register("limit_decisions", "Decisions of single limits by policy", decisions.clone());
        let store_errors = Family::default();
        registry.register("store_errors", "Calls of the store that gave no decision", store_errors.clone());
        let store_seconds = Histogram::new(STORE_BUCKETS);
        registry.register_with_unit("store", "Time of store calls", Unit::Seconds, store_seconds.clone());
        let http = Family::default();
        registry.register("http_requests", "Requests of the check API by status and kind of problem", http.clone());
        let reloads = Family::default();
        registry.register("policy_reloads", "Changes of the policy file", reloads.clone());
        let rejected = Gauge::default();
        registry.register("policy_file_rejected", "1 while the policy file is not the one in force", rejected.clone());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What runs", build);
        for outcome in [CheckOutcome::allowed, CheckOutcome::refused, CheckOutcome::error] {
            drop(checks.get_or_create(&CheckLabels { outcome }));
        }
        // Series that are there from the start can be alerted on.
        for kind in StoreError::KINDS {
            drop(store_errors.get_or_create(&KindLabels { kind }));
        }
        for outcome in [ReloadOutcome::applied, ReloadOutcome::rejected] {
            drop(reloads.get_or_create(&ReloadLabels { outcome }));
        }
        Self { registry, checks, decisions, store_errors, store_seconds, http, reloads, rejected }
    }

    /// Counts a check.
    pub fn check(&self, outcome: CheckOutcome) {
        self.checks.get_or_create(&CheckLabels { outcome }).inc();
    }

    /// Counts what one limit said.
    pub fn decision(&self, policy: &Arc<str>, outcome: LimitOutcome) {
        self.decisions.get_or_create(&DecisionLabels { policy: Arc::clone(policy), outcome }).inc();
    }

    /// Counts a call of the store: its time, and the kind of its error if there is one.
    pub fn store_call(&self, took: Duration, error: Option<&'static str>) {
        self.store_seconds.observe(took.as_secs_f64());
        if let Some(kind) = error {
            self.store_errors.get_or_create(&KindLabels { kind }).inc();
        }
    }

    /// Counts an answer; `problem` is empty for a 200.
    pub fn http(&self, status: u16, problem: &'static str) {
        self.http.get_or_create(&HttpLabels { status, problem }).inc();
    }

    /// Counts a change of the policy file.
    pub fn reload(&self, outcome: ReloadOutcome) {
        self.reloads.get_or_create(&ReloadLabels { outcome }).inc();
        self.rejected.set(i64::from(outcome == ReloadOutcome::rejected));
    }

    /// Says that the policy file is the one in force, as when a bad change was taken back.
    pub fn policy_file_in_force(&self) {
        self.rejected.set(0);
    }

    /// The metrics as text.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
