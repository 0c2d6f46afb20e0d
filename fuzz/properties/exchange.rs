//! One event of an exchange, and what must hold of the step that comes out.

use std::ops::RangeInclusive;

use weir_filter::answer::{Answer, Failure};
use weir_filter::config::{Config, Cost, Limit, Rule};
use weir_filter::exchange::{Edit, Exchange, Step, Transition};
use weir_filter::request::Request;
use weir_filter::stats::Outcome;
use weir_protocol::{CheckRequest, Mode};

use super::shape::{check_limit_field, check_reply};

/// Header fields as the host hands them over.
pub type Headers = [(Vec<u8>, Vec<u8>)];

/// The request's headers are complete. The check that is asked for, if one is.
pub fn on_request(
    exchange: &mut Exchange,
    config: &Config,
    headers: &Headers,
    property: &dyn Fn(&[&str]) -> Option<Vec<u8>>,
) -> (Transition, Option<CheckRequest>) {
    let transition = exchange.on_request(config, &Request::new(headers, property));
    check_transition(config, &transition);
    assert_eq!(transition.failure, None, "nothing was asked yet");
    let rule = transition.rule.map(|index| &config.rules[index]);
    let asked = match &transition.step {
        Step::Continue => None,
        Step::Ask(body) => {
            let check: CheckRequest = serde_json::from_slice(body).expect("a check");
            check_asked(rule.expect("a rule that asks"), &check);
            Some(check)
        }
        Step::Reply(reply) => {
            assert_eq!(transition.outcomes.last(), Some(&Outcome::Rejected));
            assert!(matches!(reply.status, 400 | 200), "{}", reply.status);
            assert_eq!(rule.map(|rule| rule.mode), Some(Mode::Enforce));
            None
        }
    };
    assert_eq!(exchange.is_asking(), asked.is_some());
    (transition, asked)
}

/// The service was asked, and this came of it.
pub fn on_answer(exchange: &mut Exchange, config: &Config, answer: Answer) -> Transition {
    let was_asking = exchange.is_asking();
    let transition = exchange.on_answer(config, answer);
    check_transition(config, &transition);
    assert!(!matches!(transition.step, Step::Ask(_)), "an exchange asks once");
    assert!(!exchange.is_asking());
    if !was_asking {
        let nothing = Transition { step: Step::Continue, rule: None, outcomes: Vec::new(), failure: None };
        assert_eq!(transition, nothing);
    }
    transition
}

/// The response's headers are complete, and have the fields that `has` says.
pub fn on_response(exchange: &Exchange, config: &Config, has: impl Fn(&str) -> bool) -> Vec<Edit> {
    let edits = exchange.on_response(config, has);
    assert!(edits.is_empty() || exchange.wants_response());
    let mut names = Vec::new();
    for edit in &edits {
        let name = match edit {
            Edit::Set(name, value) => {
                check_limit_field(name, value);
                *name
            }
            Edit::Remove(name) => {
                assert_ne!(*name, "weir-shadow");
                *name
            }
        };
        assert!(!names.contains(&name), "{name} twice");
        names.push(name);
    }
    edits
}

fn check_transition(config: &Config, transition: &Transition) {
    assert!(transition.rule.is_none_or(|index| index < config.rules.len()));
    if let Step::Reply(reply) = &transition.step {
        check_reply(reply);
    }
    if let Some(Failure { reason, .. }) = &transition.failure {
        assert!(
            !reason.is_empty() && reason.chars().count() <= 300 && !reason.contains(char::is_control),
            "{reason:?}"
        );
    }
}

/// A check asks for limits of the rule, in their order, with keys and costs that the service accepts.
fn check_asked(rule: &Rule, check: &CheckRequest) {
    assert!((1..=32).contains(&check.limits.len()));
    let mut limits = rule.limits.iter();
    for asked in &check.limits {
        let limit = limits.find(|limit| limit.policy == asked.policy).expect("a limit of the rule, in its order");
        assert!((1..=256).contains(&asked.key.len()), "{}", asked.key.len());
        assert!(asked.key.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", asked.key);
        assert!(!limit.key.hash || asked.key.starts_with("sha256="), "{:?}", asked.key);
        assert!(costs(limit).contains(&asked.cost), "{}", asked.cost);
    }
}

fn costs(limit: &Limit) -> RangeInclusive<u64> {
    match &limit.cost {
        Cost::Fixed(cost) => *cost..=*cost,
        Cost::Header { min, max, .. } => *min..=*max,
    }
}
