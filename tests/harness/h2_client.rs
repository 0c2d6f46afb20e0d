//! HTTP/2 with prior knowledge: many streams on one connection, and streams that are reset.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{Method, Request};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Response, in_time, split};

/// One HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub struct H2 {
    sender: SendRequest<Bytes>,
    authority: String,
}

/// A request that was sent and has not been answered yet. Dropping it resets the stream too.
pub struct H2Stream {
    response: ResponseFuture,
    sender: SendStream<Bytes>,
}

impl H2 {
    /// Connects to `127.0.0.1:<port>` or `http://127.0.0.1:<port>`.
    pub async fn connect(address: &str) -> Self {
        let (authority, _) = split(address);
        let stream = TcpStream::connect(&authority).await.unwrap_or_else(|error| panic!("{authority}: {error}"));
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let (sender, connection) = h2::client::Builder::new()
            // The client's own cap would queue streams that the test wants in flight.
            .initial_max_send_streams(10_000)
            // As large as a proxy's: with the default of 64 KiB a burst of answers comes in crumbs, which this client
            // takes for an attack.
            .initial_connection_window_size(16 * 1024 * 1024)
            .handshake(stream)
            .await
            .expect("an HTTP/2 handshake");
        tokio::spawn(connection);
        Self { sender, authority }
    }

    /// The same connection, asking for this host.
    pub fn for_host(&self, authority: &str) -> Self {
        Self { sender: self.sender.clone(), authority: authority.to_owned() }
    }

    /// Sends a request and waits for the answer.
    pub async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Response, h2::Error> {
        self.start(method, path, headers).await?.response().await
    }

    /// GET. Panics if the stream is reset or no answer comes.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        in_time(async { Ok(self.request(Method::GET, path, headers).await?) })
            .await
            .unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// Sends a request without waiting for the answer, for tests that reset it: [`H2Stream::reset`].
    pub async fn start(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<H2Stream, h2::Error> {
        self.begin(method, path, headers, true).await
    }

    /// As [`Self::start`], with a body to come: [`H2Stream::send`].
    pub async fn open(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<H2Stream, h2::Error> {
        self.begin(method, path, headers, false).await
    }

    async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        is_whole: bool,
    ) -> Result<H2Stream, h2::Error> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.authority));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.sender.clone().ready().await?;
        let (response, sender) = sender.send_request(request.body(()).expect("a request"), is_whole)?;
        Ok(H2Stream { response, sender })
    }

    /// POST of a JSON body.
    pub async fn post_json(&self, path: &str, body: &Value) -> Result<Response, h2::Error> {
        let request =
            Request::post(format!("http://{}{path}", self.authority)).header("content-type", "application/json");
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request.body(()).expect("a request"), false)?;
        stream.send_data(body.to_string().into(), true)?;
        H2Stream { response, sender: stream }.response().await
    }

    /// `count` concurrent GETs on this connection; `headers` gives the fields of the request of this number. Panics if
    /// one of them gets no answer.
    pub async fn burst<K, V>(&self, path: &str, count: usize, headers: impl Fn(usize) -> Vec<(K, V)>) -> Vec<Response>
    where
        K: Into<String>,
        V: Into<String>,
    {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let headers: Vec<(String, String)> =
                headers(number).into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let (connection, path) = (self.clone(), path.to_owned());
            tasks.spawn(async move {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                connection.get(&path, &headers).await
            });
        }
        tasks.join_all().await
    }
}

impl H2Stream {
    /// Sends a part of the body.
    pub fn send(&mut self, part: &'static [u8], is_last: bool) -> Result<(), h2::Error> {
        self.sender.send_data(Bytes::from_static(part), is_last)
    }

    /// RST_STREAM with CANCEL: what a client does that has lost interest.
    pub fn reset(mut self) {
        self.sender.send_reset(Reason::CANCEL);
    }

    /// Waits for the answer and reads it to its end.
    pub async fn response(self) -> Result<Response, h2::Error> {
        let (parts, mut stream) = self.response.await?.into_parts();
        let mut body = Vec::new();
        while let Some(chunk) = stream.data().await {
            let chunk = chunk?;
            body.extend_from_slice(&chunk);
            stream.flow_control().release_capacity(chunk.len())?;
        }
        Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body: body.into() })
    }
}
