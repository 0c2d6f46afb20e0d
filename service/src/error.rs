//! Why a check has no verdict, and what the caller is told: the one map from causes to statuses and problems.

use thiserror::Error;
use weir_protocol::Problem;

use crate::store::StoreError;

/// A check that has no verdict.
#[derive(Debug, Error)]
pub enum Error {
    /// The request is wrong: the path of the field, and what is the matter with it.
    #[error("{path}: {message}")]
    Field {
        /// As in `limits[0].cost`.
        path: String,
        /// What is accepted, and what was found.
        message: String,
    },
    /// The body is no JSON, or no object with limits.
    #[error("the body is no check: {0}")]
    Json(String),
    /// No policy of this name.
    #[error("limits[{index}].policy: no policy is named {name:?}")]
    UnknownPolicy {
        /// Which limit of the request.
        index: usize,
        /// What was asked for.
        name: String,
    },
    /// No token, or a wrong one.
    #[error("expected a valid bearer token")]
    Unauthorized,
    /// No such path.
    #[error("nothing is here; checks are POST /v1/check")]
    NoRoute,
    /// The path does not take this method.
    #[error("accepted: {allow}")]
    Method {
        /// The methods that it takes.
        allow: &'static str,
    },
    /// The body broke off.
    #[error("the body could not be read")]
    Body,
    /// The body is too long.
    #[error("the body is longer than {most} bytes")]
    BodyTooLong {
        /// The longest that is read.
        most: usize,
    },
    /// The body is of another type.
    #[error("expected Content-Type: application/json")]
    MediaType,
    /// The store gave no decision.
    #[error("store: {0}")]
    Store(#[from] StoreError),
}

impl Error {
    /// The status that answers it.
    pub fn status(&self) -> u16 {
        match self {
            Self::Field { .. } | Self::Json(_) | Self::Body => 400,
            Self::Unauthorized => 401,
            Self::UnknownPolicy { .. } | Self::NoRoute => 404,
            Self::Method { .. } => 405,
            Self::BodyTooLong { .. } => 413,
            Self::MediaType => 415,
            Self::Store(_) => 503,
        }
    }

    /// A word of a closed set, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Field { .. } => "bad_field",
            Self::Json(_) => "bad_json",
            Self::Body => "bad_body",
            Self::Unauthorized => "unauthorized",
            Self::UnknownPolicy { .. } => "unknown_policy",
            Self::NoRoute => "no_route",
            Self::Method { .. } => "method",
            Self::BodyTooLong { .. } => "body_too_long",
            Self::MediaType => "media_type",
            Self::Store(_) => "store",
        }
    }

    /// The problem document that answers it. Of a failing store it names the kind only: what the server said is for
    /// the log.
    pub fn problem(&self) -> Problem {
        let (kind, title) = match self {
            Self::UnknownPolicy { .. } => (Some("urn:weir:problem:unknown-policy"), "Unknown policy"),
            Self::Store(_) => (Some("urn:weir:problem:store-unavailable"), "Store unavailable"),
            Self::Field { .. } | Self::Json(_) | Self::Body => (None, "Bad Request"),
            Self::Unauthorized => (None, "Unauthorized"),
            Self::NoRoute => (None, "Not Found"),
            Self::Method { .. } => (None, "Method Not Allowed"),
            Self::BodyTooLong { .. } => (None, "Content Too Large"),
            Self::MediaType => (None, "Unsupported Media Type"),
        };
        let detail = match self {
            Self::Store(error) => format!("the store gave no decision: {}", error.kind()),
            other => other.to_string(),
        };
        let problem = Problem::of_status(self.status(), title, detail);
        match kind {
            Some(kind) => Problem { kind: kind.to_owned(), ..problem },
            None => problem,
        }
    }
}
