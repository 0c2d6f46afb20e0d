//! One request's way through the filter, as a state machine of values.
//!
//! An event comes in (the request's headers, the service's answer, the response's headers), a [`Step`] comes out
//! (continue, ask the service, reply). Nothing here talks to the host. An exchange asks at most once and is answered
//! at most once; an event that does not fit its state changes nothing.

use weir_protocol::fields::rate_limit_fields;
use weir_protocol::{CheckRequest, Mode, Verdict};

use crate::answer::{Answer, Failure, judge};
use crate::check::limit_request;
use crate::config::{Config, FailureMode, Preflights, UpstreamHeaders};
use crate::reply::LocalReply;
use crate::request::Request;
use crate::stats::Outcome;

/// One request.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
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

// === impl Exchange ===

impl Exchange {
    /// The request's headers are complete.
    pub fn on_request(&mut self, config: &Config, request: &Request<'_>) -> Transition {
        if config.preflights == Preflights::Free && request.is_preflight() {
            return Transition::to(Step::Continue, None);
        }
        let Some((index, rule)) = config.rule_for(request) else {
            return Transition::to(Step::Continue, None);
        };
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
                    self.state = State::Replied;
                    transition.outcomes.push(Outcome::Rejected);
                    transition.step = Step::Reply(LocalReply::bad_request(detail));
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
        self.fail(&mut transition, config.failure_mode, Failure { misconfigured: false, reason });
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
        match judge(&request, answer) {
            Ok(verdict) => {
                if verdict.degraded() {
                    transition.outcomes.push(Outcome::Degraded);
                }
                if verdict.allowed() {
                    let shadowed = verdict.limits().iter().any(|limit| limit.mode == Mode::Shadow && !limit.allowed);
                    transition.outcomes.push(if shadowed { Outcome::Shadow } else { Outcome::Allowed });
                    self.state = State::Admitted(verdict);
                } else {
                    transition.outcomes.push(Outcome::Refused);
                    transition.step = Step::Reply(LocalReply::refused(&verdict, &config.styles));
                    self.state = State::Replied;
                }
            }
            Err(failure) => {
                let mode = config.rules.get(index).map_or(config.failure_mode, |rule| rule.failure_mode);
                self.fail(&mut transition, mode, failure);
            }
        }
        transition
    }

    fn fail(&mut self, transition: &mut Transition, mode: FailureMode, failure: Failure) {
        if failure.misconfigured {
            transition.outcomes.push(Outcome::Misconfigured);
        }
        match mode {
            FailureMode::Open => transition.outcomes.push(Outcome::FailedOpen),
            FailureMode::Closed => {
                transition.outcomes.push(Outcome::FailedClosed);
                transition.step = Step::Reply(LocalReply::unavailable());
                self.state = State::Replied;
            }
        }
        transition.failure = Some(failure);
    }

    /// Whether the service was asked and has not answered.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking { .. })
    }

    /// Whether the response needs limit fields.
    pub fn wants_response(&self) -> bool {
        matches!(self.state, State::Admitted(_))
    }

    /// The response's headers are complete. `has` tells whether the upstream sent a field.
    pub fn on_response(&self, config: &Config, has: impl Fn(&str) -> bool) -> Vec<Edit> {
        let State::Admitted(verdict) = &self.state else { return Vec::new() };
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
