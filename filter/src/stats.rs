//! What can become of a request, and the names under which it is counted.

/// One thing that is counted. A closed set, so that counters are bounded by the number of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted by every limit.
    Allowed,
    /// Refused by a limit: answered 429.
    Refused,
    /// Admitted, but a limit in shadow mode would have refused.
    Shadow,
    /// Passed without a check: by the rule's allow-list, or because its key is not in the rule's share.
    Exempt,
    /// The check failed and the request passed.
    FailedOpen,
    /// The check failed and the request was answered 503.
    FailedClosed,
    /// The service refused the check itself (400, 401 or 404): an operator must look.
    Misconfigured,
    /// The service answered from its fallback.
    Degraded,
    /// The request has no key; the rule's `on_missing_key` decided.
    KeyMissing,
    /// The host knew no address for the client; it is limited as `ip=unknown`.
    AddressUnknown,
    /// The request was answered 400: its key is ambiguous, or missing where one is demanded.
    Rejected,
}

impl Outcome {
    /// All outcomes, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::Allowed,
        Self::Refused,
        Self::Shadow,
        Self::Exempt,
        Self::FailedOpen,
        Self::FailedClosed,
        Self::Misconfigured,
        Self::Degraded,
        Self::KeyMissing,
        Self::AddressUnknown,
        Self::Rejected,
    ];

    /// The word for it, in counters and in the access log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Shadow => "shadow",
            Self::Exempt => "exempt",
            Self::FailedOpen => "failed_open",
            Self::FailedClosed => "failed_closed",
            Self::Misconfigured => "misconfigured",
            Self::Degraded => "degraded",
            Self::KeyMissing => "key_missing",
            Self::AddressUnknown => "address_unknown",
            Self::Rejected => "rejected",
        }
    }

    /// The name of its counter for a rule. Envoy puts `wasmcustom.` in front.
    pub fn counter(self, rule: &str) -> String {
        format!("weir.rule.{rule}.outcome.{}", self.as_str())
    }
}
