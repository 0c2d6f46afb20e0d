//! A check from request to reply: policies looked up, limits decided by the store, the verdict drawn.
//!
//! Never invents a verdict: without a decision of the store there is an error, and the caller's failure mode decides.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use weir_protocol::{CheckReply, CheckRequest, LimitReply, MAX_LIMITS_PER_CHECK, MAX_QUANTITY, Mode};

use crate::error::Error;
use crate::key::state_key;
use crate::metrics::{CheckOutcome, LimitOutcome, Metrics};
use crate::policy::{Algorithm, Policies, Policy, Quota};
use crate::store::{Charge, Decision, Store, StoreError};
use crate::telemetry::Throttle;

/// Longest key, in bytes. The filter's are at most 256; other callers may send whole paths or tokens.
pub const MAX_KEY_BYTES: usize = 4096;

/// Decides checks.
#[derive(Debug)]
pub struct Limiter {
    policies: ArcSwap<Policies>,
    store: Store,
    metrics: Arc<Metrics>,
    failures: Mutex<Throttle>,
}

// === impl Limiter ===

impl Limiter {
    /// One that decides by these policies.
    pub fn new(policies: Policies, store: Store, metrics: Arc<Metrics>) -> Self {
        Self { policies: ArcSwap::from_pointee(policies), store, metrics, failures: Mutex::default() }
    }

    /// Decides by other policies from now on. Checks that are under way end with those they began with.
    pub fn replace_policies(&self, policies: Policies) {
        self.policies.store(Arc::new(policies));
    }

    /// The policies in force.
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.load_full()
    }

    /// Where counts are kept.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Decides a check.
    pub async fn check(&self, request: &CheckRequest) -> Result<CheckReply, Error> {
        let result = self.decide(request).await;
        self.metrics.check(match &result {
            Ok(reply) if reply.allowed => CheckOutcome::allowed,
            Ok(_) => CheckOutcome::refused,
            Err(_) => CheckOutcome::error,
        });
        result
    }

    async fn decide(&self, request: &CheckRequest) -> Result<CheckReply, Error> {
        validate(request)?;
        let policies = self.policies.load_full();
        let mut matched = Vec::with_capacity(request.limits.len());
        let mut charges = Vec::with_capacity(request.limits.len());
        for (index, limit) in request.limits.iter().enumerate() {
            let policy = policies
                .named(&limit.policy)
                .ok_or_else(|| Error::UnknownPolicy { index, name: limit.policy.clone() })?;
            let quota = policy.quota(&limit.key);
            if let Some(quota) = quota {
                charges.push(Charge {
                    state_key: state_key(&limit.key, &policy.name, policy.algorithm, policy.window_ms),
                    quota,
                    cost: limit.cost,
                    mode: policy.mode,
                });
            }
            matched.push((policy, quota));
        }
        let mut decisions = self.charge(&charges).await?.into_iter();
        let mut limits = Vec::with_capacity(matched.len());
        for (policy, quota) in matched {
            // As many decisions as charges, which are the limits with a quota.
            let decision = if quota.is_some() { decisions.next() } else { None };
            let reply = limit_reply(policy, quota.zip(decision));
            self.metrics.decision(&policy.name, outcome(&reply));
            limits.push(reply);
        }
        let allowed = limits.iter().all(|limit| limit.allowed || limit.mode == Mode::Shadow);
        Ok(CheckReply { allowed, limits, degraded: None })
    }

    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        if charges.is_empty() {
            return Ok(Vec::new());
        }
        let start = Instant::now();
        let result = self.store.check(charges).await;
        self.metrics.store_call(start.elapsed(), result.as_ref().err().map(StoreError::kind));
        if let Err(error) = &result {
            let mut throttle = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(suppressed) = throttle.admit() {
                let (kind, transient) = (error.kind(), error.is_transient());
                tracing::warn!(kind, transient, suppressed, "check failed: {error}");
            }
        }
        result
    }
}

/// Checks what the wire types cannot.
fn validate(request: &CheckRequest) -> Result<(), Error> {
    let field = |path: String, message: String| Err(Error::Field { path, message });
    let count = request.limits.len();
    if count == 0 || count > MAX_LIMITS_PER_CHECK {
        return field("limits".to_owned(), format!("expected 1 to {MAX_LIMITS_PER_CHECK} limits, found {count}"));
    }
    for (index, limit) in request.limits.iter().enumerate() {
        let length = limit.key.len();
        if length == 0 || length > MAX_KEY_BYTES {
            let message = format!("expected 1 to {MAX_KEY_BYTES} bytes, found {length}");
            return field(format!("limits[{index}].key"), message);
        }
        if limit.cost > MAX_QUANTITY {
            let message = format!("expected a whole number from 0 to {MAX_QUANTITY}, found {}", limit.cost);
            return field(format!("limits[{index}].cost"), message);
        }
        let same = |other: &&weir_protocol::LimitRequest| other.policy == limit.policy && other.key == limit.key;
        if request.limits.iter().take(index).any(|other| same(&other)) {
            let message = format!("policy {:?} and its key are in this check already", limit.policy);
            return field(format!("limits[{index}]"), message);
        }
    }
    Ok(())
}

fn limit_reply(policy: &Policy, decided: Option<(Quota, Decision)>) -> LimitReply {
    let is_bucket = policy.algorithm == Algorithm::TokenBucket;
    let quota = decided.map(|(quota, _)| quota);
    let decision = decided.map(|(_, decision)| decision);
    LimitReply {
        policy: policy.name.to_string(),
        allowed: decision.is_none_or(|decision| decision.allowed),
        limit: quota.map(|quota| quota.limit),
        burst: is_bucket.then(|| quota.map(|quota| quota.burst)),
        window_ms: policy.window_ms,
        unit: policy.unit.clone(),
        remaining: decision.map(|decision| decision.remaining),
        reset_ms: decision.map_or(0, |decision| whole_ms(decision.reset_us)),
        retry_after_ms: decision.map_or(Some(0), |decision| decision.retry_after_us.map(whole_ms)),
        mode: policy.mode,
    }
}

/// Rounded up: whoever waits that long must not come too early.
fn whole_ms(us: u64) -> u64 {
    us.div_ceil(1000)
}

fn outcome(reply: &LimitReply) -> LimitOutcome {
    match (reply.limit, reply.allowed, reply.mode) {
        (None, _, _) => LimitOutcome::unlimited,
        (Some(_), true, _) => LimitOutcome::allowed,
        (Some(_), false, Mode::Enforce) => LimitOutcome::refused,
        (Some(_), false, Mode::Shadow) => LimitOutcome::shadow_refused,
    }
}
