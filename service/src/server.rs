//! HTTP/1.1 and HTTP/2 (with prior knowledge) on one port, until told to stop.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::telemetry::Throttle;

/// Streams of one connection. A worker of Envoy sends all its checks over one, and holds back what is above.
const MAX_STREAMS: u32 = 4096;
/// Streams that a client may have reset before they were looked at. The default, 20, takes a proxy whose callouts time
/// out in a burst for an attacker and closes the connection with all its other checks.
const MAX_RESET_STREAMS: usize = 4096;
/// Bytes of bodies on their way to this process, over all streams of a connection. The default, 1 MiB, is one longest
/// body.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How long an HTTP/1.1 connection may be idle. Above Envoy's idle timeout in the reference deployment (30 s), so that
/// a check never meets a connection that is being closed.
const IDLE: Duration = Duration::from_secs(90);
/// How often a silent HTTP/2 connection is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Wait after an accept that failed for want of file descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Serves until `stop` ends, then accepts no more, finishes what is under way within `grace`, and returns whether all
/// of it was finished.
pub async fn serve(listener: TcpListener, routes: Router, stop: impl Future<Output = ()>, grace: Duration) -> bool {
    let server = builder();
    let graceful = GracefulShutdown::new();
    let mut throttle = Throttle::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_of_the_connection(&error) => continue,
            Err(error) => {
                if let Some(suppressed) = throttle.admit() {
                    tracing::error!(suppressed, "cannot accept connections: {error}");
                }
                sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        // Fails only for a connection that is gone.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("connection ended: {error}");
            }
        });
    }
    drop(listener);
    timeout(grace, graceful.shutdown()).await.is_ok()
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Errors of the connection that would have been accepted; the listener is well.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
