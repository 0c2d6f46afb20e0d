//! Reads the rules.

use weir_protocol::Mode;
use weir_protocol::document::{Mistakes, Value};

use super::{FailureMode, Rule, failure_mode, key, limit, matching, members, name, refusal};
use crate::reply::Refusal;
use crate::rollout::Percent;
use crate::rules::Matcher;

/// What a rule has of the whole configuration unless it says otherwise.
pub struct Inherited<'a> {
    /// What happens when the check fails.
    pub failure_mode: FailureMode,
    /// What a refusal looks like.
    pub refusal: &'a Refusal,
}

/// The list of rules.
pub fn rules(path: &str, value: &Value, inherited: &Inherited<'_>, mistakes: &mut Mistakes) -> Option<Vec<Rule>> {
    let values = mistakes.list(path, value, "rules")?;
    if values.is_empty() {
        mistakes.add(path, "expected at least one rule, found none");
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(rule) = rule(&path, value, inherited, mistakes) {
            if rules.iter().any(|known| known.name == rule.name) {
                mistakes.add(&format!("{path}.name"), format_args!("{:?} names an earlier rule too", rule.name));
            }
            rules.push(rule);
        }
    }
    Some(rules)
}

fn rule(path: &str, value: &Value, inherited: &Inherited<'_>, mistakes: &mut Mistakes) -> Option<Rule> {
    let mut fields = mistakes.object(path, value)?;
    let name = fields.required("name", "a name", mistakes).and_then(|(path, value)| name(&path, value, mistakes));
    let matcher = match fields.optional("match") {
        Some((path, value)) => matching::matcher(&path, value, mistakes),
        None => Some(Matcher::default()),
    };
    let skip = fields.optional("skip").and_then(|(path, value)| mistakes.bool(&path, value)).unwrap_or(false);
    let failure_mode = failure_mode(&mut fields, mistakes).unwrap_or(inherited.failure_mode);
    let mut unless_skipped = |field, mistakes: &mut Mistakes| {
        let found = fields.optional(field)?;
        if skip {
            mistakes.add(&found.0, "expected nothing, since `skip` is true");
        }
        (!skip).then_some(found)
    };
    let mode = unless_skipped("mode", mistakes)
        .and_then(|(path, value)| {
            mistakes.choice(&path, value, &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)])
        })
        .unwrap_or(Mode::Enforce);
    let refusal = match unless_skipped("refusal", mistakes) {
        Some((path, value)) => refusal::refusal(&path, value, mistakes),
        None => Some(inherited.refusal.clone()),
    };
    let allow = unless_skipped("allow", mistakes)
        .map(|(path, value)| members(&path, value, "sources with their values", mistakes, key::allow))
        .unwrap_or_default();
    let percent = unless_skipped("percent", mistakes).map_or(Some(Percent::ALL), |(path, value)| {
        mistakes.whole(&path, value, 0..=100).and_then(|percent| u8::try_from(percent).ok()).map(Percent)
    });
    let limits = match (skip, fields.optional("limits")) {
        (false, Some((path, value))) => limit::limits(&path, value, mistakes),
        (true, None) => Some(Vec::new()),
        (false, None) => {
            mistakes.add(&fields.path("limits"), "is missing; expected a list of limits, or `skip: true`");
            None
        }
        (true, Some((path, _))) => {
            mistakes.add(&path, "expected nothing, since `skip` is true");
            None
        }
    };
    fields.finish(mistakes);
    Some(Rule {
        name: name?,
        matcher: matcher?,
        mode,
        refusal: refusal?,
        allow,
        percent: percent?,
        limits: limits?,
        failure_mode,
    })
}
