//! HTTP/1.1, one connection a request unless a [`Connection`] is kept; and raw bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// An answer must come within this time; far above every deadline of the parts, so passing it means a hang.
const HANG: Duration = Duration::from_secs(20);

/// Why no answer came.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How many answers had which status.
pub type Statuses = BTreeMap<u16, usize>;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All fields, in the order of arrival; several values of one name are kept.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// The value of a field that occurs at most once; panics if it occurs twice.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut all = self.all(name);
        assert!(all.len() < 2, "{name} occurs {} times: {all:?}", all.len());
        all.pop()
    }

    /// All values of a field.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// GET on a connection of its own. Panics if no answer comes.
pub async fn get(url: &str, headers: &[(&str, &str)]) -> Response {
    send(Method::GET, url, headers, Bytes::new()).await
}

/// POST of a JSON body on a connection of its own. Panics if no answer comes.
pub async fn post_json(url: &str, body: &Value) -> Response {
    send(Method::POST, url, &[("content-type", "application/json")], body.to_string().into()).await
}

/// Any request on a connection of its own. Panics if no answer comes.
pub async fn send(method: Method, url: &str, headers: &[(&str, &str)], body: Bytes) -> Response {
    let (address, path) = split(url);
    let answer = async {
        let mut connection = Connection::try_open(&address).await?;
        connection.try_send(method.clone(), &path, headers, body).await
    };
    answer.await.unwrap_or_else(|error| panic!("{method} {url}: {error}"))
}

/// GET that may fail, as while a part starts.
pub async fn try_get(url: &str, headers: &[(&str, &str)]) -> Result<Response, Error> {
    let (address, path) = split(url);
    Connection::try_open(&address).await?.try_send(Method::GET, &path, headers, Bytes::new()).await
}

/// `count` GETs of one URL, all released at once: every connection stands before the first request is sent.
/// `headers` gives the fields of the request of this number.
pub async fn burst<K, V>(url: &str, count: usize, headers: impl Fn(usize) -> Vec<(K, V)>) -> Vec<Response>
where
    K: Into<String>,
    V: Into<String>,
{
    let (address, path) = split(url);
    let barrier = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let headers: Vec<(String, String)> =
            headers(number).into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (address, path, barrier) = (address.clone(), path.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            let mut connection = Connection::open(&address).await;
            barrier.wait().await;
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            connection.get(&path, &headers).await
        });
    }
    tasks.join_all().await
}

/// Counts answers by status.
pub fn statuses<'a>(responses: impl IntoIterator<Item = &'a Response>) -> Statuses {
    let mut statuses = Statuses::new();
    for response in responses {
        *statuses.entry(response.status).or_default() += 1;
    }
    statuses
}

/// A kept HTTP/1.1 connection: all its requests meet the same worker of Envoy.
pub struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    /// Connects to `127.0.0.1:<port>` or `http://127.0.0.1:<port>`.
    pub async fn open(address: &str) -> Self {
        Self::try_open(address).await.unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    /// As [`Self::open`]; an error if nobody listens.
    pub async fn try_open(address: &str) -> Result<Self, Error> {
        let authority = split(address).0;
        let stream = TcpStream::connect(&authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, authority })
    }

    /// GET on this connection. Panics if no answer comes.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.try_send(Method::GET, path, headers, Bytes::new())
            .await
            .unwrap_or_else(|error| panic!("GET {path} of {}: {error}", self.authority))
    }

    /// Any request on this connection.
    pub async fn try_send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response, Error> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", &self.authority);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body))?;
        in_time(async {
            self.sender.ready().await?;
            let (parts, body) = self.sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body })
        })
        .await
    }
}

/// Sends these bytes and returns all bytes that come back until the other side closes: write `Connection: close` into
/// the request. For what no client library sends.
pub async fn raw(address: &str, bytes: &[u8]) -> Vec<u8> {
    let answer = in_time(async {
        let mut stream = TcpStream::connect(split(address).0).await?;
        stream.write_all(bytes).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    });
    answer.await.unwrap_or_else(|error| panic!("{} to {address}: {error}", bytes.escape_ascii()))
}

/// Authority and path of a URL, the scheme of which may be missing.
pub(crate) fn split(url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    match rest.find('/') {
        Some(slash) => (rest[..slash].to_owned(), rest[slash..].to_owned()),
        None => (rest.to_owned(), "/".to_owned()),
    }
}

pub(crate) async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(HANG, answer).await.unwrap_or_else(|_| Err(format!("no answer within {HANG:?}").into()))
}
