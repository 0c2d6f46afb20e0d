//! `make up` and `make down`: the stack on the default ports, owned by one process in the background.
//!
//! That process holds a lock on `.weir/run/stack.pid` as long as it lives. Whoever finds the file unlocked knows that
//! its number is stale, so no process but this one is ever signalled.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Envoy, EnvoyOptions, Redis, Service, Store, Upstream, free_port, workspace};
use tokio::signal::unix::{SignalKind, signal};

use crate::rules::{PER_CLIENT, plugin, policies};
use crate::terminal::{bold, line, say};

const ENVOY: u16 = 10_000;
const ENVOY_ADMIN: u16 = 9_901;
const SERVICE: u16 = 8_080;
const SERVICE_ADMIN: u16 = 8_081;
const UPSTREAM: u16 = 8_000;
const REDIS: u16 = 6_379;

/// How long the stack may take to start or to stop.
const DEADLINE: Duration = Duration::from_secs(60);

fn run_dir() -> PathBuf {
    workspace().join(".weir/run")
}

fn pid_file() -> Result<File, String> {
    let path = run_dir().join("stack.pid");
    fs::create_dir_all(run_dir())
        .and_then(|()| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The process in the background, if one runs.
fn running(file: &mut File) -> Result<Option<i32>, String> {
    match file.try_lock() {
        Ok(()) => {
            file.unlock().map_err(|error| error.to_string())?;
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(|error| error.to_string())?;
            text.trim().parse().map(Some).map_err(|_| "the stack is just starting".to_owned())
        }
        Err(TryLockError::Error(error)) => Err(error.to_string()),
    }
}

/// Starts the stack in the background and says what to try.
pub async fn up() -> Result<(), String> {
    if running(&mut pid_file()?)?.is_some() {
        say("The stack is running already; `make down` stops it.");
        invite();
        return Ok(());
    }
    for (port, part) in [
        (ENVOY, "Envoy"),
        (ENVOY_ADMIN, "Envoy's admin interface"),
        (SERVICE, "the service"),
        (SERVICE_ADMIN, "the service's metrics"),
        (UPSTREAM, "the upstream"),
    ] {
        if !is_free(port) {
            return Err(format!("port {port}, for {part}, is taken by another program: stop that one first"));
        }
    }

    forget_the_last_run();
    let ready = run_dir().join("ready");
    let log_path = run_dir().join("stack.log");
    let log = File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut process = Command::new(program)
        .arg("serve")
        // The parts' private directories, with their logs.
        .env("TMPDIR", run_dir())
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(|error| error.to_string())?)
        .stderr(log)
        // So that Ctrl-C in this terminal does not reach it.
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + DEADLINE;
    while !ready.exists() {
        if let Ok(Some(status)) = process.try_wait() {
            let log = fs::read_to_string(&log_path).unwrap_or_default();
            return Err(format!("{log}\nthe stack did not start ({status})"));
        }
        if Instant::now() > deadline {
            let _ = process.kill();
            return Err(format!("the stack was not ready after {DEADLINE:?}; see {}", log_path.display()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    line(&bold("The stack runs in the background."));
    invite();
    Ok(())
}

/// Runs the stack until SIGTERM or SIGINT.
pub async fn serve() -> Result<(), String> {
    let mut file = pid_file()?;
    file.try_lock().map_err(|_| "the stack is running already".to_owned())?;
    // From here on: a signal that comes while the parts start must stop them too.
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(|error| error.to_string())?;
    tokio::select! {
        () = run() => {}
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let _ = fs::remove_file(run_dir().join("ready"));
    Ok(())
}

/// Starts the parts and keeps them until this future is dropped.
async fn run() {
    let redis = if Redis::is_installed() {
        Some(Redis::start_on(if is_free(REDIS) { REDIS } else { free_port() }).await)
    } else {
        None
    };
    let policy_file = serde_json::json!({ "policies": policies() }).to_string();
    let store = redis.as_ref().map_or(Store::Memory, Store::Redis);
    let service = Service::start_on(SERVICE, SERVICE_ADMIN, &policy_file, store).await;
    let upstream = Upstream::start_on(UPSTREAM).await;
    let _envoy = Envoy::start(EnvoyOptions {
        service: service.check_port(),
        upstream: upstream.port(),
        listener: ENVOY,
        admin: ENVOY_ADMIN,
        concurrency: 2,
        plugin: Some(plugin()),
        ..EnvoyOptions::default()
    })
    .await;
    let store = redis.as_ref().map_or_else(|| "the service's memory".to_owned(), Redis::url);
    fs::write(run_dir().join("ready"), store).expect("a file that says the stack is ready");
    std::future::pending::<()>().await;
}

/// Stops the stack.
pub async fn down() -> Result<(), String> {
    let mut file = pid_file()?;
    let Some(pid) = running(&mut file)? else {
        say("The stack is not running.");
        return Ok(());
    };
    // SAFETY: kill(2) takes two integers; the locked file says that the process lives and is ours.
    #[allow(unsafe_code)]
    let result = unsafe { libc::kill(pid, libc::SIGTERM) };
    if result != 0 {
        return Err(format!("cannot stop process {pid}: {}", std::io::Error::last_os_error()));
    }
    let deadline = Instant::now() + DEADLINE;
    while file.try_lock().is_err() {
        if Instant::now() > deadline {
            return Err(format!("process {pid} did not stop within {DEADLINE:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    say("The stack has been stopped.");
    Ok(())
}

/// Removes what a stack that was killed has left behind.
fn forget_the_last_run() {
    let _ = fs::remove_file(run_dir().join("ready"));
    for entry in fs::read_dir(run_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("weir-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn invite() {
    let store = fs::read_to_string(run_dir().join("ready")).unwrap_or_default();
    line(&format!(
        "Envoy :{ENVOY} (admin :{ENVOY_ADMIN}), service :{SERVICE} (admin :{SERVICE_ADMIN}), upstream :{UPSTREAM}"
    ));
    line(&format!("counts: {store}; logs: .weir/run/"));
    line("");
    line(&format!("{PER_CLIENT} requests a minute for each API key:"));
    line(&format!("  curl -i -H 'x-api-key: alice' http://127.0.0.1:{ENVOY}/orders"));
    line("20 requests in 4 seconds, by one of the four algorithms (the path names it):");
    line(&format!("  curl -i -H 'x-api-key: alice' http://127.0.0.1:{ENVOY}/token_bucket"));
    line("The service alone:");
    line(&format!(
        "  curl -H 'content-type: application/json' -d '{{\"limits\":[{{\"policy\":\"per-key\",\"key\":\"dave\"}}]}}' \
         http://127.0.0.1:{SERVICE}/v1/check"
    ));
    line("What happened so far:");
    line(&format!("  curl -s http://127.0.0.1:{SERVICE_ADMIN}/metrics"));
    line(&format!("  curl -s 'http://127.0.0.1:{ENVOY_ADMIN}/stats?filter=wasmcustom&usedonly'"));
    line("Stop it: make down");
}
