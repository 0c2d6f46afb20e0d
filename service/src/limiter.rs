//! A check from request to reply: policies looked up, limits decided by the store, the verdict drawn.
//!
//! Never invents a verdict: without a decision of the store there is an error, and the caller's failure mode decides.
//! This process' clock decides nothing. It only chooses which windows of a calendar the store may pick from; where it
//! is so wrong that the store's time is in none of them, the store tells its time and is asked once more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use weir_protocol::{CheckReply, CheckRequest, LimitReply, LimitRequest, MAX_LIMITS_PER_CHECK, MAX_QUANTITY, Mode};

use crate::error::Error;
use crate::key::state_key;
use crate::metrics::{CheckOutcome, LimitOutcome, Metrics};
use crate::policy::{Algorithm, Allowance, Policies, Policy, Window};
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
    clocks: Mutex<Throttle>,
}

// === impl Limiter ===

impl Limiter {
    /// One that decides by these policies.
    pub fn new(policies: Policies, store: Store, metrics: Arc<Metrics>) -> Self {
        Self {
            policies: ArcSwap::from_pointee(policies),
            store,
            metrics,
            failures: Mutex::default(),
            clocks: Mutex::default(),
        }
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
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.check_at(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX), request).await
    }

    /// Decides a check for a process whose clock shows this time, in microseconds since the Unix epoch.
    pub async fn check_at(&self, now_us: u64, request: &CheckRequest) -> Result<CheckReply, Error> {
        let result = self.decide(now_us, request).await;
        self.metrics.check(match &result {
            Ok(reply) if reply.allowed => CheckOutcome::allowed,
            Ok(_) => CheckOutcome::refused,
            Err(_) => CheckOutcome::error,
        });
        result
    }

    async fn decide(&self, now_us: u64, request: &CheckRequest) -> Result<CheckReply, Error> {
        validate(request)?;
        let policies = self.policies.load_full();
        let mut matched = Vec::with_capacity(request.limits.len());
        for (index, limit) in request.limits.iter().enumerate() {
            let policy = policies
                .named(&limit.policy)
                .ok_or_else(|| Error::UnknownPolicy { index, name: limit.policy.clone() })?;
            matched.push((limit, policy));
        }
        let mut decisions = self.charge(now_us, &matched).await?.into_iter();
        let mut limits = Vec::with_capacity(matched.len());
        for (limit, policy) in matched {
            let reply = match policy.allowance(&limit.key) {
                // As many decisions as limits that are not unlimited.
                Allowance::Limited { .. } => limit_reply(policy, &limit.key, decisions.next(), now_us),
                Allowance::Unlimited => limit_reply(policy, &limit.key, None, now_us),
            };
            self.metrics.decision(&policy.name, outcome(&reply));
            limits.push(reply);
        }
        let allowed = limits.iter().all(|limit| limit.allowed || limit.mode == Mode::Shadow);
        Ok(CheckReply { allowed, limits, degraded: None })
    }

    /// The store's decisions on all limits that are not unlimited.
    async fn charge(&self, now_us: u64, limits: &[(&LimitRequest, &Policy)]) -> Result<Vec<Decision>, StoreError> {
        let charges = charges(now_us, limits);
        if charges.is_empty() {
            return Ok(Vec::new());
        }
        let start = Instant::now();
        let mut result = self.store.check(&charges, start).await;
        if let Err(StoreError::OutsideWindows { now_us: store_us }) = result {
            self.tell_clocks(now_us, store_us);
            // Nothing was written: this is no second charge.
            result = self.store.check(&self::charges(store_us, limits), start).await;
        }
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

    fn tell_clocks(&self, now_us: u64, store_us: u64) {
        let mut throttle = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = throttle.admit() {
            let message = "the clocks of this machine and of the store lie a calendar window apart";
            tracing::warn!(now_us, store_us, suppressed, "{message}: checks are asked twice");
        }
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

/// What is asked of the store, with the windows of calendars around a time.
fn charges(now_us: u64, limits: &[(&LimitRequest, &Policy)]) -> Vec<Charge> {
    let charge = |(limit, policy): &(&LimitRequest, &Policy)| {
        let quota = policy.quota(&limit.key, now_us)?;
        let state_key = state_key(&limit.key, &policy.name, policy.algorithm, &policy.window);
        Some(Charge { state_key, quota, cost: limit.cost, mode: policy.mode })
    };
    limits.iter().filter_map(charge).collect()
}

/// `None` for a decision if the key is unlimited. The time is only for a window of a calendar that nobody counts in.
fn limit_reply(policy: &Policy, key: &str, decision: Option<Decision>, now_us: u64) -> LimitReply {
    let (limit, burst) = match policy.allowance(key) {
        Allowance::Limited { limit, burst } => (Some(limit), Some(burst)),
        Allowance::Unlimited => (None, None),
    };
    let (window_ms, calendar) = match &policy.window {
        Window::Length(window_ms) => (*window_ms, None),
        Window::Calendar(calendar) => {
            let length_us = match decision.and_then(|decision| decision.window_end_us) {
                Some(end_us) => calendar.length_us(end_us),
                None => calendar.edges(now_us).length_us(),
            };
            (whole_ms(length_us), Some(calendar.unit().as_str().to_owned()))
        }
    };
    LimitReply {
        policy: policy.name.to_string(),
        allowed: decision.is_none_or(|decision| decision.allowed),
        limit,
        burst: (policy.algorithm == Algorithm::TokenBucket).then_some(burst),
        window_ms,
        calendar,
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
