//! Logs: structured, to standard error.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Lets one event a second through and counts the others. For what can happen with every request.
#[derive(Debug, Default)]
pub struct Throttle {
    last: Option<Instant>,
    suppressed: u64,
}

const EVERY: Duration = Duration::from_secs(1);

/// Starts logging. `level` is a level or a filter of the `RUST_LOG` kind; without one, `RUST_LOG`; without that, info.
pub fn init(format: LogFormat, level: Option<&str>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = match level {
        Some(level) => EnvFilter::try_new(level)?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    }
}

// === impl Throttle ===

impl Throttle {
    /// One that lets the next event through.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to report this event, and how many were not since the last that was.
    pub fn admit(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}
