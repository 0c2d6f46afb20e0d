//! A verdict as header fields; the rounding rules live here.
//!
//! Times are rounded up to whole seconds, so that whoever waits as long as a field says gets in. Unlimited policies
//! and limits in shadow mode do not appear.

use std::fmt::Write as _;

use crate::verdict::{LimitState, Retry, Verdict};

/// A family of rate limit fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `RateLimit-Policy` and `RateLimit`: Lists of Strings (RFC 9651), one member a limit
    /// (draft-ietf-httpapi-ratelimit-headers-10 and later).
    Ietf,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` in delta seconds, for the tightest limit.
    RateLimit,
    /// The same three with `X-` in front.
    XRateLimit,
}

impl Style {
    /// All styles.
    pub const ALL: [Self; 3] = [Self::Ietf, Self::RateLimit, Self::XRateLimit];

    /// The word for this style in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ietf => "ietf",
            Self::RateLimit => "ratelimit",
            Self::XRateLimit => "x-ratelimit",
        }
    }

    /// The names of the fields of this style, in lower case as HTTP/2 sends them.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Ietf => &["ratelimit-policy", "ratelimit"],
            Self::RateLimit => &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            Self::XRateLimit => &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        }
    }

    fn values(self, verdict: &Verdict) -> Vec<String> {
        match self {
            Self::Ietf => vec![list(verdict, policy_member), list(verdict, state_member)],
            Self::RateLimit | Self::XRateLimit => verdict.tightest().map_or_else(Vec::new, |limit| {
                vec![limit.limit.to_string(), limit.remaining.to_string(), seconds(limit.reset_ms).to_string()]
            }),
        }
    }
}

/// The fields of the given styles, names in lower case. Empty if no limit is metered and enforced.
pub fn rate_limit_fields(verdict: &Verdict, styles: &[Style]) -> Vec<(&'static str, String)> {
    if verdict.enforced().next().is_none() {
        return Vec::new();
    }
    styles.iter().flat_map(|style| style.names().iter().copied().zip(style.values(verdict))).collect()
}

/// The value of `Retry-After` (RFC 9110 section 10.2.3) in seconds, at least 1; `None` if the request was admitted,
/// or if it can never be.
pub fn retry_after(verdict: &Verdict) -> Option<u64> {
    match verdict.retry() {
        Retry::After(wait_ms) => Some(seconds(wait_ms).max(1)),
        Retry::Now | Retry::Never => None,
    }
}

/// Milliseconds as whole seconds, rounded up.
pub fn seconds(milliseconds: u64) -> u64 {
    milliseconds.div_ceil(1000)
}

fn list(verdict: &Verdict, member: fn(&mut String, &LimitState)) -> String {
    let mut value = String::new();
    for limit in verdict.enforced() {
        if !value.is_empty() {
            value.push_str(", ");
        }
        member(&mut value, limit);
    }
    value
}

/// `"per-key";q=100;w=60`, with `qu` unless the unit is requests, without `w` unless it is whole seconds
/// that hold for every window.
fn policy_member(value: &mut String, limit: &LimitState) {
    let _ = write!(value, "\"{}\";q={}", limit.policy, limit.limit);
    if limit.unit != "requests" {
        let _ = write!(value, ";qu=\"{}\"", limit.unit);
    }
    if limit.window_ms.is_multiple_of(1000) && !limit.calendar {
        let _ = write!(value, ";w={}", limit.window_ms / 1000);
    }
}

/// `"per-key";r=57;t=12`.
fn state_member(value: &mut String, limit: &LimitState) {
    let _ = write!(value, "\"{}\";r={};t={}", limit.policy, limit.remaining, seconds(limit.reset_ms));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{CheckReply, CheckRequest, LimitReply, LimitRequest, Mode};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn limit(policy: &str, limit: u64, window_ms: u64, remaining: u64, reset_ms: u64) -> LimitReply {
        LimitReply {
            policy: policy.to_owned(),
            allowed: true,
            limit: Some(limit),
            burst: None,
            window_ms,
            calendar: None,
            unit: "requests".to_owned(),
            remaining: Some(remaining),
            reset_ms,
            retry_after_ms: Some(0),
            mode: Mode::Enforce,
        }
    }

    fn refused(mut reply: LimitReply, retry_after_ms: Option<u64>) -> LimitReply {
        reply.allowed = false;
        reply.retry_after_ms = retry_after_ms;
        reply
    }

    fn verdict(limits: Vec<LimitReply>) -> Verdict {
        let asked = limits
            .iter()
            .map(|limit| LimitRequest { policy: limit.policy.clone(), key: "k".to_owned(), cost: 1 })
            .collect();
        let allowed = limits.iter().all(|limit| limit.allowed || limit.mode == Mode::Shadow);
        Verdict::of_reply(&CheckRequest { limits: asked }, CheckReply { allowed, limits, degraded: None }).unwrap()
    }

    fn rendered(verdict: &Verdict, style: Style) -> String {
        let lines: Vec<String> =
            rate_limit_fields(verdict, &[style]).iter().map(|(name, value)| format!("{name}: {value}")).collect();
        lines.join("\n")
    }

    #[test]
    fn ietf_lists_every_enforced_limit() {
        let mut tokens = limit("llm-tokens", 100_000, 60_000, 900, 1);
        tokens.unit = "tokens".to_owned();
        let verdict = verdict(vec![limit("per-key", 100, 60_000, 57, 11_001), tokens, limit("fast", 5, 250, 5, 0)]);
        assert_eq!(
            rendered(&verdict, Style::Ietf),
            "ratelimit-policy: \"per-key\";q=100;w=60, \"llm-tokens\";q=100000;qu=\"tokens\";w=60, \"fast\";q=5\n\
             ratelimit: \"per-key\";r=57;t=12, \"llm-tokens\";r=900;t=1, \"fast\";r=5;t=0"
        );
    }

    #[test]
    fn a_window_of_a_calendar_has_no_length_to_show() {
        let mut month = limit("quota", 1000, 2_678_400_000, 999, 1_000_001);
        month.calendar = Some("month".to_owned());
        // A unit that this version does not know is no reason to show a wrong length.
        let mut other = limit("other", 10, 7_000, 9, 7_000);
        other.calendar = Some("quarter".to_owned());
        assert_eq!(
            rendered(&verdict(vec![month, other]), Style::Ietf),
            "ratelimit-policy: \"quota\";q=1000, \"other\";q=10\n\
             ratelimit: \"quota\";r=999;t=1001, \"other\";r=9;t=7"
        );
    }

    #[test]
    fn three_fields_describe_the_limit_with_the_least_left() {
        let verdict = verdict(vec![limit("minute", 60, 60_000, 40, 900), limit("hour", 100, 3_600_000, 7, 59_001)]);
        assert_eq!(
            rendered(&verdict, Style::XRateLimit),
            "x-ratelimit-limit: 100\nx-ratelimit-remaining: 7\nx-ratelimit-reset: 60"
        );
        assert_eq!(retry_after(&verdict), None);
    }

    #[test]
    fn a_refusal_is_described_by_the_longest_wait() {
        // D03: the minute has nothing left either, but the hour is what the client must wait for.
        let verdict = verdict(vec![
            refused(limit("minute", 60, 60_000, 0, 12_000), Some(12_000)),
            refused(limit("hour", 100, 3_600_000, 0, 3_000_001), Some(3_000_001)),
        ]);
        assert_eq!(
            rendered(&verdict, Style::RateLimit),
            "ratelimit-limit: 100\nratelimit-remaining: 0\nratelimit-reset: 3001"
        );
        assert_eq!(retry_after(&verdict), Some(3001));
    }

    #[test]
    fn retry_after_is_at_least_one_and_absent_where_never() {
        let soon = verdict(vec![refused(limit("a", 1, 1000, 0, 1), Some(1))]);
        assert_eq!(retry_after(&soon), Some(1));
        let never =
            verdict(vec![refused(limit("a", 1, 1000, 0, 1), Some(1)), refused(limit("b", 10, 1000, 3, 1), None)]);
        assert_eq!(retry_after(&never), None);
    }

    #[test]
    fn shadow_and_unlimited_do_not_show() {
        let mut shadow = refused(limit("trial", 1, 1000, 0, 1), Some(1));
        shadow.mode = Mode::Shadow;
        let mut unlimited = limit("vip", 1, 1000, 0, 0);
        (unlimited.limit, unlimited.remaining) = (None, None);
        let verdict = verdict(vec![shadow, unlimited]);
        assert!(verdict.allowed());
        assert_eq!(rate_limit_fields(&verdict, &Style::ALL), vec![]);
    }
}
