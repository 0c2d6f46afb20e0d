//! The application behind Envoy, in this process; HTTP/1.1 and HTTP/2. It can also play a service that is slow, broken
//! or rude.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What an [`Upstream`] answers to every request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Fields, added one by one: a name may occur twice.
    pub headers: Vec<(String, String)>,
    /// The body; absent: the request as JSON (`method`, `path`, `headers` as a list of pairs).
    pub body: Option<Bytes>,
    /// How long to wait before the answer.
    pub delay: Duration,
}

impl Default for Answer {
    fn default() -> Self {
        Self { status: 200, headers: Vec::new(), body: None, delay: Duration::ZERO }
    }
}

/// A request as the upstream saw it. Bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// All fields, in order.
    pub headers: Vec<(String, String)>,
}

impl Seen {
    /// All values of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// A running upstream. Stopped on drop.
pub struct Upstream {
    port: u16,
    shared: Arc<Mutex<Shared>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    answer: Answer,
    seen: Vec<Seen>,
}

impl Upstream {
    /// Starts one that answers 200 and echoes.
    pub async fn start() -> Self {
        Self::start_on(0).await
    }

    /// As [`Self::start`], on this port.
    pub async fn start_on(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap_or_else(|error| panic!("the upstream cannot listen on port {port}: {error}"));
        let port = listener.local_addr().expect("a bound address").port();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let app = Router::new().fallback(respond).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("the upstream serves until it is dropped");
        });
        Self { port, shared, server }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on it answers this.
    pub fn answer(&self, answer: Answer) {
        lock(&self.shared).answer = answer;
    }

    /// How many requests it has seen.
    pub fn count(&self) -> usize {
        lock(&self.shared).seen.len()
    }

    /// The requests it has seen, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared).seen.clone()
    }

    /// Forgets the requests it has seen.
    pub fn forget(&self) {
        lock(&self.shared).seen.clear();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(State(shared): State<Arc<Mutex<Shared>>>, request: Request) -> Response {
    let seen = Seen {
        method: request.method().to_string(),
        path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
    };
    // To its end, or the connection would be closed while the client still writes.
    let _ = axum::body::to_bytes(request.into_body(), usize::MAX).await;
    let echo = json!({ "method": seen.method, "path": seen.path, "headers": seen.headers });
    let answer = {
        let mut shared = lock(&shared);
        shared.seen.push(seen);
        shared.answer.clone()
    };
    if !answer.delay.is_zero() {
        tokio::time::sleep(answer.delay).await;
    }
    build(answer, &echo)
}

fn build(answer: Answer, echo: &Value) -> Response {
    let status = StatusCode::from_u16(answer.status).expect("a status code");
    let body = answer.body.unwrap_or_else(|| echo.to_string().into());
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in answer.headers {
        let name = HeaderName::try_from(name).expect("a field name");
        let value = HeaderValue::try_from(value).expect("a field value");
        if name == header::CONTENT_TYPE {
            headers.insert(name, value);
        } else {
            headers.append(name, value);
        }
    }
    response
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
