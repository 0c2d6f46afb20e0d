//! What a policy file may say and its author may not have meant. A warning refuses nothing.

use std::fmt;

use crate::policy::{Algorithm, Allowance, Policies, Policy};

/// A log of more events than this is worth a second thought: above a megabyte a key, and Redis searches it for every
/// larger cost that is refused.
const LARGE_LOG_EVENTS: u64 = 100_000;
/// The most that an event of a log takes in Redis: 11 where costs are small, 17 where their sum has
/// outgrown six bytes.
const LOG_EVENT_BYTES: u64 = 17;

/// Bytes as people write them.
struct Bytes(u64);

/// One line for each policy, in the order of their names.
pub(super) fn of(policies: &Policies) -> Vec<String> {
    let mut large: Vec<_> = policies.iter().filter_map(|policy| Some((policy, largest_log(policy)?))).collect();
    large.sort_by(|(left, _), (right, _)| left.name.cmp(&right.name));
    large.into_iter().map(|(policy, limit)| large_log(policy, limit)).collect()
}

/// The largest limit of a policy whose algorithm keeps a log, if it is a large one.
fn largest_log(policy: &Policy) -> Option<u64> {
    if policy.algorithm != Algorithm::SlidingWindowLog {
        return None;
    }
    let limits = std::iter::once(&policy.allowance)
        .chain(policy.overrides.values())
        .filter_map(|allowance| if let Allowance::Limited { limit, .. } = allowance { Some(*limit) } else { None });
    limits.max().filter(|limit| *limit > LARGE_LOG_EVENTS)
}

fn large_log(policy: &Policy, limit: u64) -> String {
    format!(
        "policy {:?}: a sliding_window_log keeps each admission of a window; {limit} of them take up to {} for one key. \
         With a limit above {LARGE_LOG_EVENTS}, consider sliding_window_counter: 28 bytes, and an estimate",
        policy.name,
        Bytes(limit.saturating_mul(LOG_EVENT_BYTES)),
    )
}

// === impl Bytes ===

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number = self.0.div_ceil(100_000);
        for unit in ["MB", "GB", "TB"] {
            if number < 10_000 {
                return write!(f, "{}.{} {unit}", number / 10, number % 10);
            }
            number = number.div_ceil(1000);
        }
        write!(f, "{}.{} PB", number / 10, number % 10)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn warnings(policies: &str) -> Vec<String> {
        let text = format!("store: {{ memory: {{}} }}\npolicies: {policies}\n");
        Config::parse(&text).unwrap().warnings()
    }

    #[test]
    fn a_log_that_could_grow_large_is_warned_of() {
        let of = |algorithm: &str, limit: u64| {
            warnings(&format!("[{{name: p, algorithm: {algorithm}, limit: {limit}, window: 1m}}]"))
        };
        assert_eq!(of("sliding_window_log", 100_000), Vec::<String>::new());
        assert_eq!(
            of("sliding_window_log", 1_000_000),
            [
                "policy \"p\": a sliding_window_log keeps each admission of a window; 1000000 of them take up to 17.0 MB \
              for one key. With a limit above 100000, consider sliding_window_counter: 28 bytes, and an estimate"
            ]
        );
        for algorithm in ["fixed_window", "sliding_window_counter", "token_bucket"] {
            assert_eq!(of(algorithm, 999_999_999_999_999), Vec::<String>::new());
        }
    }

    #[test]
    fn an_override_counts_too_and_each_policy_is_one_line() {
        let warnings = warnings(
            "[{name: b, algorithm: sliding_window_log, limit: 100001, window: 1m}, \
              {name: a, algorithm: sliding_window_log, limit: 5, window: 1m, overrides: [{key: x, limit: 200000}, \
               {key: y, limit: unlimited}, {key: z, limit: 999999999999999}]}]",
        );
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("policy \"a\": ") && warnings[0].contains("up to 17.0 PB"), "{warnings:?}");
        assert!(warnings[1].starts_with("policy \"b\": ") && warnings[1].contains("up to 1.8 MB"), "{warnings:?}");
    }
}
