//! What several files need.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use harness::{Redis, Response, Service, Store, workspace};
use serde_json::{Value, json};

/// The four algorithms.
pub const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket"];

/// A service on its own memory.
pub async fn in_memory(policies: &str) -> Service {
    Service::start(&file(policies), Store::Memory).await
}

/// A service on a Redis of its own, with a deadline that a stalling test machine meets.
pub async fn on_redis(policies: &str) -> (Service, Redis) {
    let redis = Redis::start().await;
    let service = Service::start(&file(policies), Store::Redis(&redis)).await;
    (service, redis)
}

fn file(policies: &str) -> String {
    format!("store: {{ timeout: 2s }}\npolicies: {policies}\n")
}

/// A check of several limits.
pub fn check_of(limits: &[(&str, &str, u64)]) -> Value {
    let limits: Vec<Value> =
        limits.iter().map(|(policy, key, cost)| json!({ "policy": policy, "key": key, "cost": cost })).collect();
    json!({ "limits": limits })
}

/// The verdict of an answer that must be one.
pub fn allowed(response: &Response) -> bool {
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["allowed"].as_bool().expect("a verdict")
}

/// The binary under test.
pub fn binary() -> PathBuf {
    std::env::var_os("WEIR_BIN").map_or_else(|| workspace().join("dist/weir"), PathBuf::from)
}

/// A file in a folder of this process.
pub fn temporary(name: &str, text: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-service-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

/// Runs the binary to its end.
pub fn run(arguments: &[&str], file: &Path) -> Output {
    Command::new(binary()).args(arguments).arg(file).env_remove("WEIR_TOKEN").output().expect("the binary")
}

/// The binary on free ports that it chose itself, with an environment of the test's choice. Killed on drop.
pub struct Weir {
    process: Child,
    /// What it wrote to standard error until it served.
    pub log: Vec<String>,
    pub check: String,
    pub admin: String,
}

impl Weir {
    pub fn start(file: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let process = Command::new(binary())
            .args(["serve", "--config"])
            .arg(file)
            .args(arguments)
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary");
        // Owned from here on, so that it is killed if it does not start.
        let mut weir = Self { process, log: Vec::new(), check: String::new(), admin: String::new() };
        let mut lines = BufReader::new(weir.process.stderr.take().expect("a pipe")).lines();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {:?}", weir.log)).expect("text");
            weir.log.push(line.clone());
            if line.contains("serving") {
                weir.check = address(&line, "check");
                weir.admin = address(&line, "admin");
                // Goes on reading, or the process would stall when the pipe is full.
                std::thread::spawn(move || lines.for_each(drop));
                return weir;
            }
        }
    }
}

/// The address under this name in a line of the log, of either format: `check=127.0.0.1:1` or `"check":"127.0.0.1:1"`.
fn address(line: &str, name: &str) -> String {
    let start = [format!("{name}="), format!("\"{name}\":\"")]
        .iter()
        .find_map(|label| line.find(label).map(|at| at + label.len()))
        .unwrap_or_else(|| panic!("{name} is missing in {line}"));
    let rest = &line[start..];
    rest[..rest.find([' ', '"']).unwrap_or(rest.len())].to_owned()
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
