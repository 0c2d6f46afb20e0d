//! What came of asking the service, and whether it is a verdict.

use weir_protocol::{CheckReply, CheckRequest, Problem, Verdict};

/// Answers of the service above this size are refused unread: the memory of a wasm module never shrinks.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How much of the reason of a failure goes into a log line.
const MAX_REASON_CHARS: usize = 300;

/// What came of asking the service.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The host could not send the check: unknown cluster, no healthy endpoint, open circuit breaker.
    NotSent,
    /// The host gave the check up without an answer.
    NoAnswer,
    /// An answer whose body is larger than [`MAX_ANSWER_BYTES`], unread.
    TooLarge(usize),
    /// An answer.
    Answered {
        /// The HTTP status; Envoy answers 504 for a timeout and 503 for a connection that failed.
        status: u16,
        /// The body.
        body: Vec<u8>,
    },
}

/// Why a check failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The service refused the check itself: an operator must look.
    pub misconfigured: bool,
    /// For the log.
    pub reason: String,
}

/// A well-formed verdict on this request; everything else is a failure.
pub fn judge(request: &CheckRequest, answer: Answer) -> Result<Verdict, Failure> {
    let transient = |reason: String| Failure { misconfigured: false, reason: printable(&reason) };
    match answer {
        Answer::NotSent => Err(transient(
            "the check could not be sent (unknown cluster, no healthy endpoint, or an open circuit breaker)".to_owned(),
        )),
        Answer::NoAnswer => Err(transient("no answer".to_owned())),
        Answer::TooLarge(bytes) => {
            Err(transient(format!("the answer has {bytes} bytes; accepted: {MAX_ANSWER_BYTES}")))
        }
        Answer::Answered { status: 200, body } => {
            let reply: CheckReply = serde_json::from_slice(&body)
                .map_err(|error| transient(format!("the answer is not a check reply: {error}")))?;
            Verdict::of_reply(request, reply)
                .map_err(|error| transient(format!("the answer contradicts itself: {error}")))
        }
        Answer::Answered { status, body } => {
            let problem = serde_json::from_slice::<Problem>(&body).ok();
            let detail = match (&problem, status) {
                (Some(problem), _) => problem.detail.as_str(),
                // Envoy's own answers for a callout that came to nothing are no problem documents.
                (None, 503) => "no connection to the service, or it broke",
                (None, 504) => "no answer within the timeout",
                (None, _) => "",
            };
            let reason =
                if detail.is_empty() { format!("status {status}") } else { format!("status {status}: {detail}") };
            Err(Failure { misconfigured: matches!(status, 400 | 401 | 404), reason: printable(&reason) })
        }
    }
}

/// What a service sent must not forge lines of a log, nor fill it.
fn printable(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect()
}
