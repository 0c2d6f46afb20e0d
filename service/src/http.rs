//! The check API: decode, ask the limiter, encode. Every answer but a 200 is a problem document.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use axum::routing::post;
use serde::Serialize;
use serde_path_to_error::Segment;
use tokio::time::timeout;
use weir_protocol::{CheckReply, CheckRequest, MAX_QUANTITY, problem};

use crate::auth::Tokens;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::metrics::Metrics;

/// Longest body that is read: 32 limits with the longest keys, eight times over.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// How long a body may take to arrive. Callers give up long before.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What the routes need.
#[derive(Debug)]
pub struct Api {
    /// Decides.
    pub limiter: Arc<Limiter>,
    /// Who may ask; `None` for everybody.
    pub tokens: Option<Tokens>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Whether the service was asked to leave.
    pub leaving: AtomicBool,
}

/// The routes of the check API.
pub fn routes(api: Arc<Api>) -> Router {
    let check =
        post(check).fallback(async |State(api): State<Arc<Api>>| api.answer(Err(Error::Method { allow: "POST" })));
    Router::new()
        .route("/v1/check", check)
        .fallback(async |State(api): State<Arc<Api>>| api.answer(Err(Error::NoRoute)))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(api)
}

async fn check(State(api): State<Arc<Api>>, request: Request) -> Response {
    let version = request.version();
    let reply = decide(&api, request).await;
    let mut response = api.answer(reply);
    // So that a client that keeps its connection opens the next one elsewhere, before this one is closed under a
    // request. HTTP/2 has GOAWAY for that.
    if version < Version::HTTP_2 && api.leaving.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn decide(api: &Api, request: Request) -> Result<CheckReply, Error> {
    if let Some(tokens) = &api.tokens {
        let authorization = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        if !tokens.admit(authorization) {
            return Err(Error::Unauthorized);
        }
    }
    if !is_json(request.headers()) {
        return Err(Error::MediaType);
    }
    let body = timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await.map_err(|_| Error::Body)?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Error::BodyTooLong { most: MAX_BODY_BYTES },
        _ => Error::Body,
    })?;
    api.limiter.check(&decode(&body)?).await
}

/// `application/json`, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    })
}

fn decode(body: &[u8]) -> Result<CheckRequest, Error> {
    // Finding the path of a mistake costs something, so it is only looked for when there is one.
    serde_json::from_slice(body).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        match serde_path_to_error::deserialize::<_, CheckRequest>(&mut deserializer) {
            Err(located) if !matches!(located.path().iter().next(), None | Some(Segment::Unknown)) => {
                // The only numbers of a request are costs.
                let accepted = format!("expected a whole number from 0 to {MAX_QUANTITY}");
                let message = located.inner().to_string().replace("expected u64", &accepted);
                Error::Field { path: located.path().to_string(), message }
            }
            _ => Error::Json(error.to_string()),
        }
    })
}

impl Api {
    fn answer(&self, reply: Result<CheckReply, Error>) -> Response {
        let error = match reply {
            Ok(reply) => {
                self.metrics.http(200, "");
                return json(StatusCode::OK, HeaderValue::from_static("application/json"), &reply);
            }
            Err(error) => error,
        };
        self.metrics.http(error.status(), error.kind());
        problem(&error)
    }
}

/// The answer to a request that cannot be served.
pub fn problem(error: &Error) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, HeaderValue::from_static(problem::MEDIA_TYPE), &error.problem());
    let extra = match error {
        Error::Method { allow } => Some((header::ALLOW, *allow)),
        Error::Unauthorized => Some((header::WWW_AUTHENTICATE, "Bearer")),
        Error::Store(_) => Some((header::RETRY_AFTER, "1")),
        _ => None,
    };
    if let Some((name, value)) = extra {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn json(status: StatusCode, media_type: HeaderValue, body: &impl Serialize) -> Response {
    // Text, numbers and lists: encoding them cannot fail.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}
