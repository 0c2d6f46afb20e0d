//! What a caller does with a reply: admit or refuse, how long to wait, which limit to show.
//!
//! A [`Verdict`] can only be made from a reply that fits its request and does not contradict itself; everything else
//! is [`Malformed`], which a caller treats as a failure of the service, never as a decision.

use std::fmt;

use crate::check::{CheckReply, CheckRequest, LimitReply, Mode};
use crate::{MAX_QUANTITY, MAX_WINDOW_MS};

/// A decision that holds together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    allowed: bool,
    limits: Vec<LimitState>,
    degraded: bool,
}

/// One metered limit of a verdict, after the decision. Limits of unlimited policies have no state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// Name of the policy.
    pub policy: String,
    /// Whether this limit admits the cost.
    pub allowed: bool,
    /// Units per window.
    pub limit: u64,
    /// Length of the window in milliseconds.
    pub window_ms: u64,
    /// Whether the window is that of a calendar, so that the next one may have another length.
    pub calendar: bool,
    /// What is counted.
    pub unit: String,
    /// The largest cost that fits now.
    pub remaining: u64,
    /// Milliseconds until more becomes available; 0 if nothing is used.
    pub reset_ms: u64,
    /// When the cost fits.
    pub retry: Retry,
    /// Whether the limit takes part in the verdict.
    pub mode: Mode,
}

/// When a cost fits. Ordered: later is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// It was admitted.
    Now,
    /// After this many milliseconds, at least 1.
    After(u64),
    /// Never: the cost is above the capacity.
    Never,
}

/// A reply that is no decision: it does not fit its request, or contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

// === impl Verdict ===

impl Verdict {
    /// Checks a reply against the request that it answers.
    pub fn of_reply(request: &CheckRequest, reply: CheckReply) -> Result<Self, Malformed> {
        if reply.limits.len() != request.limits.len() {
            return Err(Malformed("limits: not as many as asked for"));
        }
        let mut limits = Vec::with_capacity(reply.limits.len());
        let mut allowed = true;
        for (asked, answer) in request.limits.iter().zip(reply.limits) {
            if asked.policy != answer.policy {
                return Err(Malformed("limits[].policy: not the one asked for"));
            }
            allowed &= answer.allowed || answer.mode == Mode::Shadow;
            limits.extend(LimitState::of_reply(answer)?);
        }
        if allowed != reply.allowed {
            return Err(Malformed("allowed: contradicts limits[].allowed"));
        }
        Ok(Self { allowed, limits, degraded: reply.degraded.is_some() })
    }

    /// True if the request may pass.
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// True if the answer came from a fallback and not from the store.
    pub fn degraded(&self) -> bool {
        self.degraded
    }

    /// All metered limits, in the order of the request, shadowed ones included.
    pub fn limits(&self) -> &[LimitState] {
        &self.limits
    }

    /// The metered limits that take part in the verdict.
    pub fn enforced(&self) -> impl Iterator<Item = &LimitState> {
        self.limits.iter().filter(|limit| limit.mode == Mode::Enforce)
    }

    /// The limits that refuse the request; empty if it is allowed.
    pub fn refusing(&self) -> impl Iterator<Item = &LimitState> {
        self.enforced().filter(|limit| !limit.allowed)
    }

    /// When the whole request fits: the longest wait of its refusing limits.
    pub fn retry(&self) -> Retry {
        self.refusing().map(|limit| limit.retry).max().unwrap_or(Retry::Now)
    }

    /// The limit to show where only one can be: refused, the one with the longest wait; allowed, the one with the
    /// least left (the first of equals). `None` if no limit is metered.
    pub fn tightest(&self) -> Option<&LimitState> {
        if self.allowed {
            return self.enforced().min_by_key(|limit| limit.remaining);
        }
        // `max_by_key` takes the last of equals; the first is wanted, as above.
        self.refusing().reduce(|longest, limit| if limit.retry > longest.retry { limit } else { longest })
    }
}

// === impl LimitState ===

impl LimitState {
    /// `None` for an unlimited policy.
    fn of_reply(reply: LimitReply) -> Result<Option<Self>, Malformed> {
        let (limit, remaining) = match (reply.limit, reply.remaining) {
            (Some(limit), Some(remaining)) => (limit, remaining),
            (None, None) if reply.allowed => return Ok(None),
            (None, None) => return Err(Malformed("limits[].allowed: false for an unlimited policy")),
            _ => return Err(Malformed("limits[].remaining: null for a limit, or a number for none")),
        };
        let retry = match (reply.allowed, reply.retry_after_ms) {
            (true, Some(0)) => Retry::Now,
            (false, Some(0)) | (true, _) => {
                return Err(Malformed("limits[].retry_after_ms: contradicts limits[].allowed"));
            }
            (false, Some(wait)) => Retry::After(wait),
            (false, None) => Retry::Never,
        };
        if !crate::is_unit(&reply.unit) {
            return Err(Malformed("limits[].unit: not a unit"));
        }
        let largest = [limit, remaining, reply.reset_ms, reply.retry_after_ms.unwrap_or(0)].into_iter().max();
        if limit == 0 || largest > Some(MAX_QUANTITY) || !(1..=MAX_WINDOW_MS).contains(&reply.window_ms) {
            return Err(Malformed("limits[]: number out of range"));
        }
        Ok(Some(Self {
            policy: reply.policy,
            allowed: reply.allowed,
            limit,
            window_ms: reply.window_ms,
            calendar: reply.calendar.is_some(),
            unit: reply.unit,
            remaining,
            reset_ms: reply.reset_ms,
            retry,
            mode: reply.mode,
        }))
    }
}

// === impl Malformed ===

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const REQUEST: &str = r#"{"limits":[{"policy":"per-key","key":"org_9921"}]}"#;
    const ALLOWED: &str = r#"{"allowed":true,"limits":[{"policy":"per-key","allowed":true,"limit":100,"window_ms":60000,
        "unit":"requests","remaining":99,"reset_ms":830,"retry_after_ms":0}]}"#;
    const REFUSED: &str = r#"{"allowed":false,"limits":[{"policy":"per-key","allowed":false,"limit":100,"window_ms":60000,
        "unit":"requests","remaining":0,"reset_ms":830,"retry_after_ms":830}]}"#;

    fn judge(reply: &str) -> Result<Verdict, Malformed> {
        let request = serde_json::from_str(REQUEST).unwrap();
        Verdict::of_reply(&request, serde_json::from_str(reply).unwrap())
    }

    #[test]
    fn a_reply_that_fits_is_a_verdict() {
        assert!(judge(ALLOWED).unwrap().allowed());
        let refused = judge(REFUSED).unwrap();
        assert_eq!(refused.retry(), Retry::After(830));
        assert_eq!(refused.tightest().unwrap().policy, "per-key");
        assert!(judge(&ALLOWED.replace("\"unit\"", "\"added_later\":[1],\"unit\"")).is_ok());
    }

    #[test]
    fn a_reply_that_contradicts_itself_or_its_request_is_none() {
        for (from, to) in [
            ("\"allowed\":false,\"limits\"", "\"allowed\":true,\"limits\""),
            ("\"policy\":\"per-key\"", "\"policy\":\"other\""),
            ("\"retry_after_ms\":830", "\"retry_after_ms\":0"),
            ("\"limit\":100", "\"limit\":null"),
            ("\"limit\":100", "\"limit\":0"),
            ("\"limit\":100", "\"limit\":1000000000000000"),
            ("\"window_ms\":60000", "\"window_ms\":0"),
            ("\"window_ms\":60000", "\"window_ms\":18446744073709551615"),
            ("\"remaining\":0", "\"remaining\":null"),
            ("\"reset_ms\":830", "\"reset_ms\":18446744073709551615"),
            ("\"unit\":\"requests\"", "\"unit\":\"a\\r\\nset-cookie: b\""),
        ] {
            let reply = REFUSED.replacen(from, to, 1);
            assert_ne!(reply, REFUSED, "{from}");
            assert!(judge(&reply).is_err(), "{from} -> {to}");
        }
        assert!(judge(r#"{"allowed":true,"limits":[]}"#).is_err());
    }

    #[test]
    fn a_shadow_limit_takes_no_part() {
        let reply = REFUSED
            .replacen("\"allowed\":false", "\"allowed\":true", 1)
            .replace("\"unit\"", "\"mode\":\"shadow\",\"unit\"");
        let verdict = judge(&reply).unwrap();
        assert!(verdict.allowed());
        assert_eq!(verdict.tightest(), None);
        assert_eq!(verdict.limits().len(), 1);
    }
}
