//! `POST /v1/check`: the request and the reply, as JSON.
//!
//! The two sides are upgraded separately, so unknown fields are ignored here (configuration refuses them).

use serde::{Deserialize, Serialize};

/// A check: all limits are decided together, all or nothing. Holds 1 to [`crate::MAX_LIMITS_PER_CHECK`] limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRequest {
    /// The limits to check; the same policy and key at most once.
    pub limits: Vec<LimitRequest>,
}

/// One limit of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRequest {
    /// Name of a policy of the service.
    pub policy: String,
    /// Who is limited; at least one byte, opaque to the service.
    pub key: String,
    /// Units to take, 0 to [`crate::MAX_QUANTITY`]; 0 looks without taking; 1 when absent.
    #[serde(default = "one")]
    pub cost: u64,
}

fn one() -> u64 {
    1
}

/// The answer to a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReply {
    /// True if every enforced limit admits; then all were charged, else none.
    pub allowed: bool,
    /// One entry a limit, in the order of the request.
    pub limits: Vec<LimitReply>,
    /// Present when the answer did not come from the store: `"local"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
}

/// The state of one limit after the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReply {
    /// Name of the policy.
    pub policy: String,
    /// True if this limit admits the cost.
    pub allowed: bool,
    /// Units per window; null if unlimited.
    pub limit: Option<u64>,
    /// Capacity of the bucket; present for `token_bucket` only, null if unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "present")]
    pub burst: Option<Option<u64>>,
    /// Length of the window in milliseconds; of a calendar's window, that of the current one.
    pub window_ms: u64,
    /// `day`, `week` or `month` where the window is that of a calendar, so that its length changes; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// What is counted: `requests` or the policy's own word.
    pub unit: String,
    /// The largest cost that fits now; null if unlimited.
    pub remaining: Option<u64>,
    /// Milliseconds, rounded up, until more becomes available; 0 if nothing is used.
    pub reset_ms: u64,
    /// Milliseconds, rounded up, until the cost fits; 0 if admitted; null if it never can.
    pub retry_after_ms: Option<u64>,
    /// `shadow` for a limit that is evaluated but takes no part in the verdict; absent if enforced.
    #[serde(default, skip_serializing_if = "Mode::is_enforce")]
    pub mode: Mode,
}

/// Whether a limit takes part in the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A refusal by this limit refuses the request.
    #[default]
    Enforce,
    /// Evaluated and reported only.
    Shadow,
}

impl Mode {
    fn is_enforce(&self) -> bool {
        *self == Self::Enforce
    }
}

/// A field that may be absent, null or a number.
mod present {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<Option<u64>>, serializer: S) -> Result<S::Ok, S::Error> {
        value.flatten().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
        Option::<u64>::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_missing_cost_is_one() {
        let request: CheckRequest = serde_json::from_str(r#"{"limits":[{"policy":"p","key":"k"}]}"#).unwrap();
        assert_eq!(request.limits[0].cost, 1);
    }

    #[test]
    fn calendar_is_absent_or_a_word() {
        let text = |calendar: &str| {
            format!(
                r#"{{"policy":"p","allowed":true,"limit":1,"window_ms":1,{calendar}"unit":"u","remaining":1,"reset_ms":0,"retry_after_ms":0}}"#
            )
        };
        for (calendar, value) in [("", None), (r#""calendar":"month","#, Some("month"))] {
            let reply: LimitReply = serde_json::from_str(&text(calendar)).unwrap();
            assert_eq!(reply.calendar.as_deref(), value);
            assert_eq!(serde_json::to_string(&reply).unwrap(), text(calendar));
        }
    }

    #[test]
    fn burst_is_absent_null_or_a_number() {
        let text = |burst: &str| {
            format!(
                r#"{{"policy":"p","allowed":true,"limit":null,{burst}"window_ms":1,"unit":"u","remaining":null,"reset_ms":0,"retry_after_ms":0}}"#
            )
        };
        for (burst, value) in [("", None), (r#""burst":null,"#, Some(None)), (r#""burst":7,"#, Some(Some(7)))] {
            let reply: LimitReply = serde_json::from_str(&text(burst)).unwrap();
            assert_eq!(reply.burst, value);
            assert_eq!(serde_json::to_string(&reply).unwrap(), text(burst));
        }
    }
}
