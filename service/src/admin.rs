//! The admin listener: health, readiness and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;

use crate::error::Error;
use crate::http;
use crate::limiter::Limiter;
use crate::metrics::{self, Metrics};

/// What the routes need.
#[derive(Debug)]
pub struct Admin {
    /// Whose state is shown.
    pub limiter: Arc<Limiter>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Whether checks are welcome. Not while starting and draining.
    pub ready: AtomicBool,
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    version: &'static str,
    policies: usize,
    store: StoreState,
}

#[derive(Serialize)]
struct StoreState {
    kind: &'static str,
    state: &'static str,
}

/// The routes of the admin listener.
pub fn routes(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n").fallback(wrong_method))
        .route("/readyz", get(readyz).fallback(wrong_method))
        .route(
            "/metrics",
            get(async |State(admin): State<Arc<Admin>>| {
                ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], admin.metrics.encode())
            })
            .fallback(wrong_method),
        )
        .fallback(async || http::problem(&Error::NoRoute))
        .with_state(admin)
}

async fn wrong_method() -> Response {
    http::problem(&Error::Method { allow: "GET, HEAD" })
}

/// The store's state stands in the body and never in the status: if a lost store turned it red, all replicas would
/// leave at once, and no failure mode could run.
async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    let ready = admin.ready.load(Ordering::Relaxed);
    let store = admin.limiter.store();
    let body = Readiness {
        ready,
        version: env!("CARGO_PKG_VERSION"),
        policies: admin.limiter.policies().len(),
        store: StoreState { kind: store.kind(), state: store.state() },
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = serde_json::to_string(&body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
