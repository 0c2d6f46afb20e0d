//! The policy file is read again when it changes, and at SIGHUP.
//!
//! A good file takes effect at once and whole; a bad one changes nothing, and log and metrics say so until it is mended.
//! Only policies are taken over: sockets, `auth` and the store are those of the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::config::Config;
use crate::limiter::Limiter;
use crate::metrics::{Metrics, ReloadOutcome};

/// How often the file is looked at. Its whole text is compared, since times and inodes tell little about files that are
/// symbolic links into mounted volumes. A change counts when it was seen twice: half a file may be a good one.
const INTERVAL: Duration = Duration::from_secs(1);

/// Follows the policy file.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    hangup: Signal,
    /// As the process started, but for the policies.
    started: Config,
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
}

type Text = Result<String, io::ErrorKind>;

// === impl Follower ===

impl Follower {
    /// One that follows the file at `path`, from which `started` was read. Takes over SIGHUP.
    pub fn new(path: &Path, started: Config, limiter: Arc<Limiter>, metrics: Arc<Metrics>) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), hangup: signal(SignalKind::hangup())?, started, limiter, metrics })
    }

    /// Never ends.
    pub async fn follow(mut self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last: Option<Text> = None;
        let mut handled: Option<Text> = None;
        loop {
            let demanded = tokio::select! {
                hangup = self.hangup.recv() => hangup.is_some(),
                _ = ticks.tick() => false,
            };
            let path = self.path.clone();
            let read = move || fs::read_to_string(path).map_err(|error| error.kind());
            // Fails only while the runtime ends.
            let Ok(text) = tokio::task::spawn_blocking(read).await else { return };
            let settled = last.as_ref() == Some(&text);
            if demanded || (settled && handled.as_ref() != Some(&text)) {
                self.apply(&text, demanded);
                handled = Some(text.clone());
            }
            last = Some(text);
        }
    }

    fn apply(&self, text: &Text, demanded: bool) {
        let file = self.path.display();
        let config = match text {
            Ok(text) => Config::parse(text),
            Err(kind) => {
                tracing::error!("policy file not taken over: {file}: {kind}");
                return self.metrics.reload(ReloadOutcome::rejected);
            }
        };
        let config = match config {
            Ok(config) => config,
            Err(mistakes) => {
                for mistake in mistakes.messages() {
                    tracing::error!("policy file not taken over: {file}: {mistake}");
                }
                return self.metrics.reload(ReloadOutcome::rejected);
            }
        };
        let others = |config: &Config| (config.listen, config.auth, config.admin_listen, config.store.clone());
        if others(&config) != others(&self.started) {
            tracing::warn!("{file}: `listen`, `auth`, `admin` and `store` take effect with the next start");
        }
        if config.policies == *self.limiter.policies() {
            self.metrics.policy_file_in_force();
            if demanded {
                tracing::info!("{file}: policies are as before");
            }
            return;
        }
        for warning in config.warnings() {
            tracing::warn!("{file}: {warning}");
        }
        let count = config.policies.len();
        self.limiter.replace_policies(config.policies);
        self.metrics.reload(ReloadOutcome::applied);
        tracing::info!(policies = count, "{file}: policies taken over");
    }
}
