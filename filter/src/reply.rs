//! Answers that the filter gives itself: a refusal, 503 and 400, in the form that the request's protocol has for them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use weir_protocol::fields::{Style, rate_limit_fields, retry_after};
use weir_protocol::problem::{MEDIA_TYPE, QUOTA_EXCEEDED};
use weir_protocol::{Problem, Verdict};

use crate::request::{Field, Request};

/// What gRPC escapes in a message ("PROTOCOL-HTTP2", Percent-Encoded), besides what is not ASCII.
const ESCAPED_IN_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// A local reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalReply {
    /// The HTTP status.
    pub status: u16,
    /// Header fields, names in lower case.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The host is to answer in gRPC, with this status and the body as message; the HTTP status is then its business.
    pub grpc_status: Option<GrpcStatus>,
}

/// What a refusal looks like to a client of plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// The media type of the body; that of a problem document unless the body is given.
    pub content_type: Option<String>,
    /// A fixed body in place of the problem document.
    pub body: Option<String>,
    /// Further fields, names in lower case; these are in gRPC too.
    pub headers: Vec<(String, String)>,
}

/// The protocol of a request, as far as an answer depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Plain HTTP.
    #[default]
    Http,
    /// gRPC.
    Grpc,
    /// gRPC-Web that no filter has translated, with its content type.
    GrpcWeb(String),
}

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcStatus {
    /// The request cannot be attributed.
    InvalidArgument = 3,
    /// Refused.
    ResourceExhausted = 8,
    /// The check failed.
    Unavailable = 14,
}

// === impl Form ===

impl Form {
    /// By the request's content type, as Envoy tells it.
    pub fn of(request: &Request<'_>) -> Self {
        const GRPC: &[u8] = b"application/grpc";
        let Field::One(content_type) = request.field("content-type") else { return Self::Http };
        let media_type = content_type.split(|byte| matches!(byte, b';' | b' ')).next().unwrap_or_default();
        match media_type.strip_prefix(GRPC) {
            Some(b"" | [b'+', ..]) => Self::Grpc,
            Some(rest) if rest.strip_prefix(b"-web").is_some_and(is_web_variant) => {
                Self::GrpcWeb(String::from_utf8_lossy(media_type).into_owned())
            }
            _ => Self::Http,
        }
    }
}

/// What may follow `application/grpc-web`: `-text`, a message format, or both.
fn is_web_variant(rest: &[u8]) -> bool {
    match rest.strip_prefix(b"-text").unwrap_or(rest) {
        [] => true,
        [b'+', format @ ..] => format.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(byte)),
        _ => false,
    }
}

// === impl LocalReply ===

impl LocalReply {
    /// A refusal, with the limit fields of the given styles, and `Retry-After` unless waiting never helps: the truth
    /// and so many seconds of `jitter` more.
    pub fn refused(verdict: &Verdict, styles: &[Style], refusal: &Refusal, form: &Form, jitter: u64) -> Self {
        let names: Vec<String> = verdict.refusing().map(|limit| limit.policy.clone()).collect();
        let wait = retry_after(verdict).map(|seconds| seconds.saturating_add(jitter));
        let (have, has) = (names.join(", "), if names.len() == 1 { "has" } else { "have" });
        let detail = match wait {
            Some(seconds) => format!("{have} {has} no quota left for this request: retry in {seconds} s"),
            None => format!("the cost of this request is above the capacity of {have}: retrying does not help"),
        };
        let problem = Problem {
            kind: QUOTA_EXCEEDED.to_owned(),
            title: "Quota exceeded".to_owned(),
            status: refusal.status,
            detail,
            violated_policies: names,
        };
        let mut reply = Self::of(&problem, GrpcStatus::ResourceExhausted, form, wait);
        reply.headers.extend(rate_limit_fields(verdict, styles).into_iter().map(|(name, value)| (name.into(), value)));
        reply.headers.extend(refusal.headers.iter().map(|(name, value)| (name.clone().into(), value.clone())));
        if *form == Form::Http {
            let fixed_type = refusal.body.as_ref().map(|_| "text/plain; charset=utf-8".to_owned());
            if let Some(content_type) = refusal.content_type.clone().or(fixed_type) {
                reply.headers.retain(|(name, _)| name != "content-type");
                reply.headers.push(("content-type".into(), content_type));
            }
            if let Some(body) = &refusal.body {
                reply.body = body.clone().into_bytes();
            }
        }
        reply
    }

    /// 503 for a check that failed where the rule is to fail closed. Never a refusal: nothing was decided.
    pub fn unavailable(form: &Form, jitter: u64) -> Self {
        let problem = Problem::of_status(503, "Service Unavailable", "the rate limit could not be checked");
        Self::of(&problem, GrpcStatus::Unavailable, form, Some(jitter.saturating_add(1)))
    }

    /// 400 for a request that cannot be attributed to one client.
    pub fn bad_request(detail: String, form: &Form) -> Self {
        Self::of(&Problem::of_status(400, "Bad Request", detail), GrpcStatus::InvalidArgument, form, None)
    }

    fn of(problem: &Problem, status: GrpcStatus, form: &Form, wait: Option<u64>) -> Self {
        let mut headers = match form {
            Form::Http => vec![("content-type".into(), MEDIA_TYPE.to_owned())],
            Form::Grpc => vec![],
            // The host's own gRPC reply would be a bare 200 here, which looks like success.
            Form::GrpcWeb(content_type) => vec![("content-type".into(), content_type.clone())],
        };
        headers.push(("cache-control".into(), "no-store".to_owned()));
        if let Some(seconds) = wait {
            headers.push(("retry-after".into(), seconds.to_string()));
        }
        // gRFC A6: clients that retry by themselves wait so long; -1 keeps them from it.
        let pushback = (status != GrpcStatus::InvalidArgument)
            .then(|| wait.map_or("-1".to_owned(), |seconds| seconds.saturating_mul(1000).to_string()));
        let (status, body, grpc_status) = match form {
            // A problem holds nothing that cannot be written as JSON; an empty body is what is left if that changes.
            Form::Http => (problem.status, serde_json::to_vec(problem).unwrap_or_default(), None),
            Form::Grpc => {
                headers.extend(pushback.map(|wait| ("grpc-retry-pushback-ms".into(), wait)));
                (problem.status, problem.detail.clone().into_bytes(), Some(status))
            }
            Form::GrpcWeb(content_type) => {
                let trailers = web_trailers(status, &problem.detail, pushback);
                let is_text = content_type.starts_with("application/grpc-web-text");
                (200, if is_text { STANDARD.encode(trailers).into_bytes() } else { trailers }, None)
            }
        };
        Self { status, headers, body, grpc_status }
    }
}

/// The body of a gRPC-Web answer that has no message ("PROTOCOL-WEB"): one frame, marked as trailers. They could be
/// header fields too, but Envoy takes the content type away from a local reply without a body.
fn web_trailers(status: GrpcStatus, message: &str, pushback: Option<String>) -> Vec<u8> {
    let message = utf8_percent_encode(message, ESCAPED_IN_MESSAGE);
    let mut block = format!("grpc-status:{}\r\ngrpc-message:{message}\r\n", status as u8);
    if let Some(wait) = pushback {
        block.push_str(&format!("grpc-retry-pushback-ms:{wait}\r\n"));
    }
    // A few hundred bytes: names of at most 32 policies.
    let length = u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0x80], length.as_slice(), block.as_bytes()].concat()
}

impl Default for Refusal {
    /// 429 (RFC 6585) with a problem document (RFC 9457).
    fn default() -> Self {
        Self { status: 429, content_type: None, body: None, headers: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_content_type_tells_the_form() {
        let web = |content_type: &str| Form::GrpcWeb(content_type.to_owned());
        for (content_type, expected) in [
            ("", Form::Http),
            ("application/json", Form::Http),
            ("application/grpc", Form::Grpc),
            ("application/grpc+proto", Form::Grpc),
            ("application/grpc; charset=x", Form::Grpc),
            ("application/grpcx", Form::Http),
            ("application/grpc-web", web("application/grpc-web")),
            ("application/grpc-web+proto; x=y", web("application/grpc-web+proto")),
            ("application/grpc-web-text", web("application/grpc-web-text")),
            ("application/grpc-web-text+proto", web("application/grpc-web-text+proto")),
            ("application/grpc-webby", Form::Http),
            ("application/grpc-web+\u{1f}", Form::Http),
        ] {
            let headers = [(b"content-type".to_vec(), content_type.as_bytes().to_vec())];
            assert_eq!(Form::of(&Request::new(&headers, &|_| None)), expected, "{content_type}");
        }
    }

    #[test]
    fn grpc_has_its_own_statuses_and_grpc_web_has_them_in_its_body() {
        let reply = LocalReply::unavailable(&Form::Grpc, 0);
        assert_eq!(reply.grpc_status, Some(GrpcStatus::Unavailable));
        assert_eq!(reply.body, b"the rate limit could not be checked");
        let reply =
            LocalReply::bad_request("50 % \u{e9}".to_owned(), &Form::GrpcWeb("application/grpc-web".to_owned()));
        assert_eq!((reply.status, reply.grpc_status), (200, None));
        assert_eq!(reply.body, b"\x80\0\0\0\x2bgrpc-status:3\r\ngrpc-message:50 %25 %C3%A9\r\n");
        assert_eq!(reply.headers[0], ("content-type".into(), "application/grpc-web".to_owned()));
        let text = LocalReply::unavailable(&Form::GrpcWeb("application/grpc-web-text".to_owned()), 0);
        assert_eq!(STANDARD.decode(text.body).unwrap()[..20], *b"\x80\0\0\0\x5fgrpc-status:14\r");
    }
}
