//! One request's way through the filter, as a state machine of values.
//!
//! An event comes in (the request's headers, the service's answer, the response's headers), a [`Step`] comes out
//! (continue, ask the service, reply). Nothing here talks to the host. An exchange asks at most once and is answered
//! at most once; an event that does not fit its state changes nothing.

use weir_protocol::fields::rate_limit_fields;
use weir_protocol::{CheckRequest, Mode, Verdict};

use crate::answer::{Answer, Failure, judge};
use crate::check::limit_request;
use crate::config::{Config, FailureMode, Preflights, Rule, UpstreamHeaders};
use crate::reply::{Form, LocalReply};
use crate::request::Request;
use crate::stats::Outcome;

/// One request.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    form: Form,
    seed: u64,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing seen yet, or nothing to do.
    #[default]
    Idle,
    /// The service was asked.
    Asking { rule: usize, request: CheckRequest },
    /// The request was checked and may pass.
    Admitted(Verdict),
    /// The request passes, since its rule is in shadow mode; what the response tells of it.
    Shadowed(String),
    /// The filter answered.
    Replied,
}

/// What the host is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Let the request pass.
    Continue,
    /// Hold the request and send this check (JSON) to the service.
    Ask(Vec<u8>),
    /// Answer the request.
    Reply(LocalReply),
}

/// A step, and what there is to tell of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Transition {
    /// What to do.
    pub step: Step,
    /// The rule that decided, as an index into [`Config::rules`]; what to count belongs to it.
    pub rule: Option<usize>,
    /// What to count, the last being what became of the request.
    pub outcomes: Vec<Outcome>,
    /// Why the check failed.
    pub failure: Option<Failure>,
}

/// A change to the response's header fields.
#[derive(Debug, PartialEq, Eq)]
pub enum Edit {
    /// Set a field to one value, whatever was there.
    Set(&'static str, String),
    /// Remove a field.
    Remove(&'static str),
}

/// The field that tells what a rule in shadow mode would have done.
const SHADOW_FIELD: &str = "weir-shadow";

// === impl Exchange ===

impl Exchange {
    /// `seed` is any number that differs from request to request: what is random in an answer comes from it.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The request's headers are complete.
    pub fn on_request(&mut self, config: &Config, request: &Request<'_>) -> Transition {
        if config.preflights == Preflights::Free && request.is_preflight() {
            return Transition::to(Step::Continue, None);
        }
        let Some((index, rule)) = config.rule_for(request) else {
            return Transition::to(Step::Continue, None);
        };
        self.form = Form::of(request);
        let mut transition = Transition::to(Step::Continue, Some(index));
        if rule.allow.iter().any(|allow| allow.admits(request)) {
            transition.outcomes.push(Outcome::Exempt);
            return transition;
        }
        let mut asked = Vec::with_capacity(rule.limits.len());
        for limit in &rule.limits {
            match limit_request(rule, limit, request, &mut transition.outcomes) {
                Ok(limit) => asked.extend(limit),
                Err(detail) => {
                    if rule.mode == Mode::Shadow {
                        self.shadow(&mut transition, rule, "rejected", Outcome::Shadow);
                    } else {
                        self.state = State::Replied;
                        transition.outcomes.push(Outcome::Rejected);
                        transition.step = Step::Reply(LocalReply::bad_request(detail, &self.form));
                    }
                    return transition;
                }
            }
        }
        if asked.is_empty() {
            return transition;
        }
        let request = CheckRequest { limits: asked };
        // Strings and numbers only, so this cannot fail; if it ever does, the service refuses the empty body.
        transition.step = Step::Ask(serde_json::to_vec(&request).unwrap_or_default());
        self.state = State::Asking { rule: index, request };
        transition
    }

    /// The host does not show the request's headers, so no rule can be found: a failure like any other.
    pub fn on_unreadable(&mut self, config: &Config) -> Transition {
        let mut transition = Transition::to(Step::Continue, None);
        let reason = "the host does not show the headers of the request".to_owned();
        self.fail(&mut transition, config, None, Failure { misconfigured: false, reason });
        transition
    }

    /// The service was asked, and this came of it.
    pub fn on_answer(&mut self, config: &Config, answer: Answer) -> Transition {
        let (index, request) = match std::mem::take(&mut self.state) {
            State::Asking { rule, request } => (rule, request),
            other => {
                self.state = other;
                return Transition::to(Step::Continue, None);
            }
        };
        let mut transition = Transition::to(Step::Continue, Some(index));
        let rule = config.rules.get(index);
        match judge(&request, answer) {
            Ok(verdict) => {
                if verdict.degraded() {
                    transition.outcomes.push(Outcome::Degraded);
                }
                self.decide(&mut transition, config, rule, verdict);
            }
            Err(failure) => self.fail(&mut transition, config, rule, failure),
        }
        transition
    }

    /// Does what a verdict says, or what the rule's mode makes of it.
    fn decide(&mut self, transition: &mut Transition, config: &Config, rule: Option<&Rule>, verdict: Verdict) {
        let would_refuse = verdict.limits().iter().any(|limit| limit.mode == Mode::Shadow && !limit.allowed);
        let admitted = if would_refuse { Outcome::Shadow } else { Outcome::Allowed };
        match (rule, verdict.allowed()) {
            (Some(rule), true) if rule.mode == Mode::Shadow => self.shadow(transition, rule, "allowed", admitted),
            (Some(rule), false) if rule.mode == Mode::Shadow => {
                self.shadow(transition, rule, "refused", Outcome::Shadow);
            }
            (_, true) => {
                transition.outcomes.push(admitted);
                self.state = State::Admitted(verdict);
            }
            (rule, false) => {
                transition.outcomes.push(Outcome::Refused);
                let refusal = rule.map_or(&config.refusal, |rule| &rule.refusal);
                let jitter = self.jitter(config);
                transition.step =
                    Step::Reply(LocalReply::refused(&verdict, &config.styles, refusal, &self.form, jitter));
                self.state = State::Replied;
            }
        }
    }

    fn fail(&mut self, transition: &mut Transition, config: &Config, rule: Option<&Rule>, failure: Failure) {
        if failure.misconfigured {
            transition.outcomes.push(Outcome::Misconfigured);
        }
        transition.failure = Some(failure);
        let mode = rule.map_or(config.failure_mode, |rule| rule.failure_mode);
        match (rule.filter(|rule| rule.mode == Mode::Shadow), mode) {
            (Some(rule), FailureMode::Open) => self.shadow(transition, rule, "failed_open", Outcome::FailedOpen),
            (Some(rule), FailureMode::Closed) => self.shadow(transition, rule, "failed_closed", Outcome::FailedOpen),
            (None, FailureMode::Open) => transition.outcomes.push(Outcome::FailedOpen),
            (None, FailureMode::Closed) => {
                transition.outcomes.push(Outcome::FailedClosed);
                transition.step = Step::Reply(LocalReply::unavailable(&self.form, self.jitter(config)));
                self.state = State::Replied;
            }
        }
    }

    /// Lets the request pass, and the response tell what would have become of it.
    fn shadow(&mut self, transition: &mut Transition, rule: &Rule, would_be: &str, outcome: Outcome) {
        transition.outcomes.push(outcome);
        // An Item with a parameter (RFC 9651); names of rules need no escape.
        self.state = State::Shadowed(format!("{would_be};rule=\"{}\"", rule.name));
    }

    /// Seconds to add to a wait, from 0 to the configured most.
    fn jitter(&self, config: &Config) -> u64 {
        config.retry_after_jitter_s.checked_add(1).map_or(0, |choices| self.seed % choices)
    }

    /// Whether the service was asked and has not answered.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking { .. })
    }

    /// Whether the response needs limit fields.
    pub fn wants_response(&self) -> bool {
        matches!(self.state, State::Admitted(_) | State::Shadowed(_))
    }

    /// The response's headers are complete. `has` tells whether the upstream sent a field.
    pub fn on_response(&self, config: &Config, has: impl Fn(&str) -> bool) -> Vec<Edit> {
        let verdict = match &self.state {
            State::Admitted(verdict) => verdict,
            State::Shadowed(told) if !config.styles.is_empty() => return vec![Edit::Set(SHADOW_FIELD, told.clone())],
            _ => return Vec::new(),
        };
        let mut edits = Vec::new();
        for style in &config.styles {
            let names = style.names();
            let taken = names.iter().any(|name| has(name));
            if taken && config.upstream_headers == UpstreamHeaders::Keep {
                continue;
            }
            let ours = rate_limit_fields(verdict, &[*style]);
            if ours.is_empty() && taken {
                edits.extend(names.iter().map(|name| Edit::Remove(name)));
            }
            edits.extend(ours.into_iter().map(|(name, value)| Edit::Set(name, value)));
        }
        edits
    }
}

// === impl Transition ===

impl Transition {
    fn to(step: Step, rule: Option<usize>) -> Self {
        Self { step, rule, outcomes: Vec::new(), failure: None }
    }
}

#[cfg(test)]
mod tests;
