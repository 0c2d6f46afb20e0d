//! `weir`: arguments, policy file, sockets, signals, exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use weir_protocol::duration;
use weir_service::auth::Tokens;
use weir_service::config::{Auth, Config};
use weir_service::telemetry::{self, LogFormat};
use weir_service::{Listeners, Shutdown, StartError};

/// The policy file or the environment is wrong: EX_USAGE of sysexits(3), as other proxies use it.
const BAD_CONFIG: u8 = 64;
/// The system does not let it start or go on.
const FAILED: u8 = 1;

/// Exact, distributed rate limits.
#[derive(Parser)]
#[command(name = "weir", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve checks
    Serve(Serve),
    /// Check a policy file: print what it holds, or all its mistakes (exit code 64)
    CheckConfig {
        /// The policy file
        file: PathBuf,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// The policy file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A level (error, warn, info, debug, trace), or a filter as in RUST_LOG, which counts where this is not given
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How logs are written to standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// How long to go on serving, with /readyz red, after SIGTERM or SIGINT
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = read_duration)]
    drain: Duration,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve(arguments),
        Command::CheckConfig { file } => check_config(&file),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

struct Failure {
    code: u8,
    message: String,
}

fn check_config(file: &Path) -> Result<(), Failure> {
    let config = load(file)?;
    let (count, listen, admin) = (config.policies.len(), config.listen, config.admin_listen);
    let policies = if count == 1 { "policy" } else { "policies" };
    for warning in config.warnings() {
        eprintln!("{}: warning: {warning}", file.display());
    }
    println!("{}: ok; {count} {policies}, checks on {listen}, admin on {admin}", file.display());
    Ok(())
}

fn serve(arguments: Serve) -> Result<(), Failure> {
    telemetry::init(arguments.log_format, arguments.log_level.as_deref())
        .map_err(|error| bad_config(format!("--log-level: {error}")))?;
    let config = load(&arguments.config)?;
    for warning in config.warnings() {
        tracing::warn!("{}: {warning}", arguments.config.display());
    }
    let tokens = match config.auth {
        Auth::None => None,
        Auth::Token => {
            Some(Tokens::from_env(|name| env::var(name).ok()).map_err(|error| bad_config(error.to_string()))?)
        }
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|error| failed(error.into()))?;
    let served = runtime.block_on(async {
        // Before anything else, so that a signal that comes early is not lost.
        // SIGHUP would otherwise end the process until the policy file is followed.
        drop(signal(SignalKind::hangup())?);
        let shutdown = Shutdown { signal: asked_to_leave()?, drain: arguments.drain };
        let listeners = Listeners::bind(&config).await?;
        weir_service::run(listeners, config, &arguments.config, tokens, shutdown).await
    });
    // Does not wait for what was cut off.
    runtime.shutdown_background();
    served.map_err(failed)
}

fn load(file: &Path) -> Result<Config, Failure> {
    let text =
        fs::read_to_string(file).map_err(|error| bad_config(format!("cannot read {}: {error}", file.display())))?;
    Config::parse(&text).map_err(|mistakes| {
        let lines: Vec<String> =
            mistakes.messages().iter().map(|message| format!("{}: {message}", file.display())).collect();
        bad_config(lines.join("\n"))
    })
}

fn asked_to_leave() -> Result<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>, StartError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }))
}

fn read_duration(text: &str) -> Result<Duration, duration::NotADuration> {
    duration::parse_ms(text).map(Duration::from_millis)
}

fn bad_config(message: String) -> Failure {
    Failure { code: BAD_CONFIG, message }
}

fn failed(error: StartError) -> Failure {
    Failure { code: FAILED, message: error.to_string() }
}
