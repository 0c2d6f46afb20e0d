//! Answers that the filter gives itself: 429, 503 and 400.

use weir_protocol::fields::{Style, rate_limit_fields, retry_after};
use weir_protocol::problem::{MEDIA_TYPE, QUOTA_EXCEEDED};
use weir_protocol::{Problem, Verdict};

/// A local reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    /// The HTTP status.
    pub status: u16,
    /// Header fields, names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl LocalReply {
    /// 429 for a refusal, with the limit fields of the given styles, and `Retry-After` unless waiting never helps.
    pub fn refused(verdict: &Verdict, styles: &[Style]) -> Self {
        let names: Vec<String> = verdict.refusing().map(|limit| limit.policy.clone()).collect();
        let wait = retry_after(verdict);
        let (have, has) = (names.join(", "), if names.len() == 1 { "has" } else { "have" });
        let detail = match wait {
            Some(seconds) => format!("{have} {has} no quota left for this request: retry in {seconds} s"),
            None => format!("the cost of this request is above the capacity of {have}: retrying does not help"),
        };
        let problem = Problem {
            kind: QUOTA_EXCEEDED.to_owned(),
            title: "Quota exceeded".to_owned(),
            status: 429,
            detail,
            violated_policies: names,
        };
        let mut reply = Self::problem(&problem);
        if let Some(seconds) = wait {
            reply.headers.push(("retry-after", seconds.to_string()));
        }
        reply.headers.extend(rate_limit_fields(verdict, styles));
        reply
    }

    /// 503 for a check that failed where the rule is to fail closed. Never a 429: nothing was decided.
    pub fn unavailable() -> Self {
        let mut reply =
            Self::problem(&Problem::of_status(503, "Service Unavailable", "the rate limit could not be checked"));
        reply.headers.push(("retry-after", "1".to_owned()));
        reply
    }

    /// 400 for a request that cannot be attributed to one client.
    pub fn bad_request(detail: String) -> Self {
        Self::problem(&Problem::of_status(400, "Bad Request", detail))
    }

    fn problem(problem: &Problem) -> Self {
        Self {
            status: problem.status,
            headers: vec![("content-type", MEDIA_TYPE.to_owned()), ("cache-control", "no-store".to_owned())],
            // A problem holds nothing that cannot be written as JSON; an empty body is what is left if that changes.
            body: serde_json::to_vec(problem).unwrap_or_default(),
        }
    }
}
