//! Limits in a Redis server, over one multiplexed connection.
//!
//! Every check has a deadline, whatever the server or the network does. A check is sent once: what may have been
//! executed is never repeated, since that would charge twice. A task of its own keeps the connection: it notices a
//! broken or a silent one and connects again, so that checks fail at once while the server is away, and work again
//! soon after it is back.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo as _, ProtocolVersion, PushInfo, PushKind, RedisError,
    ServerErrorKind, Value,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{Charge, Decision, StoreError};
use crate::config::RedisUrl;
use crate::script;
use crate::telemetry::Throttle;

/// How long connecting may take, with all greetings. Also how long a connection may be silent before it is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two heartbeats, which find connections that are open and dead.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Wait after the first failed attempt to connect; doubled each time.
const MIN_BACKOFF: Duration = Duration::from_millis(25);
/// Longest wait between attempts: how late a server that is back may be noticed.
const MAX_BACKOFF: Duration = Duration::from_millis(400);
/// A connection is not replaced sooner than this, and not at once if it broke sooner: a replica that refuses every
/// write, or a server that drops connections, would be met with a storm of new ones.
const STABLE: Duration = Duration::from_secs(1);
/// Checks that may wait to be written. The library's default, 50, makes a burst wait in line for no reason.
const WRITE_QUEUE: usize = 4096;

/// Limits in a Redis server.
#[derive(Debug)]
pub struct RedisStore {
    link: watch::Receiver<Link>,
    /// Number of the last connection that a check found unusable.
    suspect: watch::Sender<u64>,
    timeout: Duration,
}

/// The connection.
#[derive(Clone)]
enum Link {
    /// The first attempt, or the first after a loss, goes on: worth waiting for, within the deadline.
    Connecting,
    /// The last attempt failed.
    Down,
    Up {
        connection: MultiplexedConnection,
        number: u64,
    },
}

/// Keeps the connection.
struct Keeper {
    client: Client,
    shown: String,
    link: watch::Sender<Link>,
    suspect: watch::Receiver<u64>,
    connections: u64,
}

// === impl RedisStore ===

impl RedisStore {
    /// Connects in the background. Must be called inside a Tokio runtime.
    pub fn open(url: &RedisUrl, timeout: Duration) -> Result<Self, StoreError> {
        let info = url.reveal().into_connection_info()?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(resp(&info, ProtocolVersion::RESP3))?;
        let (link, link_receiver) = watch::channel(Link::Connecting);
        let (suspect, suspect_receiver) = watch::channel(0);
        let keeper = Keeper { client, shown: url.to_string(), link, suspect: suspect_receiver, connections: 0 };
        tokio::spawn(keeper.keep());
        Ok(Self { link: link_receiver, suspect, timeout })
    }

    /// Decides a check within the deadline, which counts from `started`.
    pub async fn check(&self, charges: &[Charge], started: std::time::Instant) -> Result<Vec<Decision>, StoreError> {
        match timeout_at(Instant::from_std(started) + self.timeout, self.decide(charges)).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Timeout),
        }
    }

    async fn decide(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        let (mut connection, number) = self.connection().await?;
        let reply = evaluate(&mut connection, charges).await.inspect_err(|error| {
            // A demoted master keeps its connections, and the name may lead to the new one now.
            let demoted = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
            if demoted || error.is_unrecoverable_error() {
                self.suspect.send_if_modified(|suspect| {
                    let newer = number > *suspect;
                    *suspect = number.max(*suspect);
                    newer
                });
            }
        })?;
        match script::outside(&reply) {
            Some(now_us) => Err(StoreError::OutsideWindows { now_us }),
            None => Ok(script::decode(&reply, charges)?),
        }
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let mut link = self.link.clone();
        // Fails only when the keeper is gone, with the runtime.
        let link = link.wait_for(|link| !matches!(link, Link::Connecting)).await;
        match link.as_deref() {
            Ok(Link::Up { connection, number }) => Ok((connection.clone(), *number)),
            _ => Err(StoreError::Disconnected),
        }
    }

    /// Its state in one word.
    pub fn state(&self) -> &'static str {
        match *self.link.borrow() {
            Link::Connecting => "connecting",
            Link::Down => "down",
            Link::Up { .. } => "up",
        }
    }
}

/// Runs the script by its digest; if the server does not know it (it restarted, or its scripts were flushed), by its
/// text, which cannot be unknown. Not by loading it first: it could be flushed again in between.
async fn evaluate(connection: &mut MultiplexedConnection, charges: &[Charge]) -> Result<Value, RedisError> {
    let (keys, arguments) = script::keys_and_args(charges);
    let call = |command: &str, script: &str| {
        let mut call = redis::cmd(command);
        call.arg(script).arg(keys.len()).arg(&keys).arg(&arguments);
        call
    };
    match call("EVALSHA", script::sha1()).query_async(connection).await {
        // Nothing was executed.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            call("EVAL", script::text()).query_async(connection).await
        }
        result => result,
    }
}

// === impl Keeper ===

impl Keeper {
    async fn keep(mut self) {
        let mut throttle = Throttle::new();
        loop {
            let (connection, lost) = self.connect(&mut throttle).await;
            tracing::info!(redis = self.shown, "store is up");
            let number = self.connections;
            self.link.send_replace(Link::Up { connection: connection.clone(), number });
            let connected = Instant::now();
            let cause = self.watch(connection, lost).await;
            if self.link.is_closed() {
                return;
            }
            let stable = connected.elapsed() >= STABLE;
            self.link.send_replace(if stable { Link::Connecting } else { Link::Down });
            tracing::warn!(redis = self.shown, cause, "store connection lost");
            if !stable {
                sleep(MAX_BACKOFF).await;
            }
        }
    }

    /// Tries until it succeeds.
    async fn connect(&mut self, throttle: &mut Throttle) -> (MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>) {
        let mut backoff = MIN_BACKOFF;
        loop {
            self.connections = self.connections.saturating_add(1);
            let (sender, lost) = mpsc::unbounded_channel();
            let resp3 = self.client.get_connection_info().redis_settings().protocol().supports_resp3();
            let mut config = AsyncConnectionConfig::new()
                // One deadline for all of connecting, and each check has its own.
                .set_connection_timeout(None)
                .set_response_timeout(None)
                .set_pipeline_buffer_size(WRITE_QUEUE);
            if resp3 {
                config = config.set_push_sender(sender);
            }
            let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
            let error = match timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(Ok(connection)) => return (connection, lost),
                Ok(Err(error)) if resp3 && is_about_hello(&error) => {
                    match Client::open(resp(self.client.get_connection_info(), ProtocolVersion::RESP2)) {
                        Ok(client) => {
                            self.client = client;
                            continue;
                        }
                        Err(error) => StoreError::from(error),
                    }
                }
                Ok(Err(error)) => StoreError::from(error),
                Err(_) => StoreError::Timeout,
            };
            self.link.send_replace(Link::Down);
            if let Some(suppressed) = throttle.admit() {
                let kind = error.kind();
                tracing::warn!(redis = self.shown, kind, suppressed, "store is down, cannot connect: {error}");
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Returns when the connection is no longer of use, with the reason.
    async fn watch(
        &mut self,
        mut connection: MultiplexedConnection,
        mut lost: mpsc::UnboundedReceiver<PushInfo>,
    ) -> &'static str {
        let number = self.connections;
        let connected = Instant::now();
        let mut next = connected + HEARTBEAT;
        loop {
            // With RESP2 there are no pushes: the channel is closed from the first.
            let pushes = !lost.is_closed();
            let suspected = async {
                let _ = self.suspect.wait_for(|suspect| *suspect >= number).await;
                sleep_until(connected + STABLE).await;
            };
            tokio::select! {
                push = lost.recv(), if pushes => {
                    if push.is_some_and(|push| push.kind == PushKind::Disconnection) {
                        return "closed by the server";
                    }
                }
                () = suspected => return "a check failed",
                () = sleep_until(next) => {
                    let ping = async { redis::cmd("PING").query_async::<Value>(&mut connection).await };
                    match timeout(CONNECT_TIMEOUT, ping).await {
                        Ok(Err(error)) if error.is_unrecoverable_error() => return "heartbeat failed",
                        // Alive, whatever it says.
                        Ok(_) => next = Instant::now() + HEARTBEAT,
                        Err(_) => return "no answer to a heartbeat",
                    }
                }
            }
        }
    }
}

/// Whether the server, or a proxy in front of it, knows no RESP3 or refuses the command that asks for it.
fn is_about_hello(error: &RedisError) -> bool {
    match (error.kind(), error.code()) {
        (ErrorKind::RESP3NotSupported, _) | (_, Some("NOPROTO")) => true,
        // It wants a password, and mentions HELLO as a way to send one.
        (_, Some("NOAUTH")) => false,
        (ErrorKind::Server(_) | ErrorKind::Extension, _) => error.to_string().to_ascii_lowercase().contains("hello"),
        _ => false,
    }
}

fn resp(info: &redis::ConnectionInfo, protocol: ProtocolVersion) -> redis::ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.clone().set_redis_settings(settings)
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connecting => "Connecting",
            Self::Down => "Down",
            Self::Up { .. } => "Up",
        })
    }
}
