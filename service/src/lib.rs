//! The Weir limiter: policies, four algorithms, one atomic decision in Redis (or in memory), a check API over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use admin::Admin;
use auth::Tokens;
use config::Config;
use http::Api;
use limiter::Limiter;
use metrics::Metrics;
use reload::Follower;
use store::{Store, StoreError};

pub mod admin;
pub mod algorithm;
pub mod auth;
pub mod calendar;
pub mod config;
pub mod error;
pub mod http;
pub mod key;
pub mod limiter;
pub mod metrics;
pub mod policy;
pub mod reload;
pub mod script;
pub mod server;
pub mod store;
pub mod telemetry;

/// How long checks that are under way may take to end, unless the store's deadline is longer.
const GRACE: Duration = Duration::from_secs(10);

/// Bound sockets.
#[derive(Debug)]
pub struct Listeners {
    check: TcpListener,
    admin: TcpListener,
}

/// Why the service does not run.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address of the file cannot be listened on.
    #[error("{field}: cannot listen on {address}: {source}")]
    Bind {
        /// The field of the policy file.
        field: &'static str,
        /// Its value.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The store cannot be used, now or ever.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// The system refused something basic.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// When to leave.
pub struct Shutdown {
    /// Ends when the service is asked to leave.
    pub signal: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    /// How long it goes on accepting checks after that, with its readiness red, so that whoever sends them can look
    /// for another.
    pub drain: Duration,
}

// === impl Listeners ===

impl Listeners {
    /// Binds the addresses of the file. Port 0 is any free one.
    pub async fn bind(config: &Config) -> Result<Self, StartError> {
        let bind = async |field, address| {
            TcpListener::bind(address).await.map_err(|source| StartError::Bind { field, address, source })
        };
        Ok(Self {
            check: bind("listen", config.listen).await?,
            admin: bind("admin.listen", config.admin_listen).await?,
        })
    }
}

/// Serves checks until it is asked to leave; then drains, and returns when all is finished or the time is up. `config` was
/// read from `policy_file`, whose changes are followed.
pub async fn run(
    listeners: Listeners,
    config: Config,
    policy_file: &Path,
    tokens: Option<Tokens>,
    shutdown: Shutdown,
) -> Result<(), StartError> {
    let grace = GRACE.max(config.store.timeout + Duration::from_secs(1));
    let metrics = Arc::new(Metrics::new());
    let store = Store::open(&config.store)?;
    let limiter = Arc::new(Limiter::new(config.policies.clone(), store, Arc::clone(&metrics)));
    let follower = Follower::new(policy_file, config, Arc::clone(&limiter), Arc::clone(&metrics))?;
    let follower = tokio::spawn(follower.follow());
    let api = Arc::new(Api {
        limiter: Arc::clone(&limiter),
        tokens,
        metrics: Arc::clone(&metrics),
        leaving: AtomicBool::new(false),
    });
    let admin = Arc::new(Admin { limiter: Arc::clone(&limiter), metrics, ready: AtomicBool::new(false) });

    let (stop_checks, checks_stopped) = watch::channel(());
    let (stop_admin, admin_stopped) = watch::channel(());
    let (check_address, admin_address) = (listeners.check.local_addr()?, listeners.admin.local_addr()?);
    let checks =
        tokio::spawn(server::serve(listeners.check, http::routes(Arc::clone(&api)), dropped(checks_stopped), grace));
    let admins = server::serve(listeners.admin, admin::routes(Arc::clone(&admin)), dropped(admin_stopped), grace);
    let admins = tokio::spawn(admins);
    admin.ready.store(true, Ordering::Relaxed);
    let (policies, store) = (limiter.policies().len(), limiter.store().kind());
    tracing::info!(check = %check_address, admin = %admin_address, policies, store, "serving");

    shutdown.signal.await;
    tracing::info!(drain = ?shutdown.drain, "leaving");
    admin.ready.store(false, Ordering::Relaxed);
    api.leaving.store(true, Ordering::Relaxed);
    sleep(shutdown.drain).await;
    drop(stop_checks);
    if !matches!(checks.await, Ok(true)) {
        tracing::warn!("checks were cut off: not finished within {grace:?}");
    }
    drop(stop_admin);
    // Whoever still reads metrics has read enough.
    admins.abort();
    follower.abort();
    tracing::info!("done");
    Ok(())
}

/// Ends when the sender is dropped.
async fn dropped(mut receiver: watch::Receiver<()>) {
    while receiver.changed().await.is_ok() {}
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("drain", &self.drain).finish_non_exhaustive()
    }
}
