//! The limiter as it ships: `dist/weir`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use serde_json::{Value, json};

use crate::child::{self, Child};
use crate::client::{self, Response};
use crate::ports::free_port;
use crate::redis::Redis;

/// Where the service keeps its counts.
#[derive(Clone, Copy)]
pub enum Store<'a> {
    /// In this Redis; other fields under `store` of the policy file stay.
    Redis(&'a Redis),
    /// In its own memory.
    Memory,
    /// Whatever the policy file says under `store`.
    AsWritten,
}

/// A running service. Killed on drop.
pub struct Service {
    child: Child,
    check_port: u16,
    admin_port: u16,
}

impl Service {
    /// Starts it with this policy file, in which only `listen`, `admin.listen` and the store are replaced; waits until
    /// it is ready. The binary is `dist/weir`, or the one that the environment variable `WEIR_BIN` names.
    pub async fn start(policy_file: &str, store: Store<'_>) -> Self {
        Self::start_on(free_port(), free_port(), policy_file, store).await
    }

    /// As [`Self::start`], on these ports.
    pub async fn start_on(check_port: u16, admin_port: u16, policy_file: &str, store: Store<'_>) -> Self {
        let mut file: Value = serde_saphyr::from_str(policy_file).unwrap_or_else(|error| panic!("{error}"));
        file["listen"] = json!(format!("127.0.0.1:{check_port}"));
        file["admin"]["listen"] = json!(format!("127.0.0.1:{admin_port}"));
        if file.get("auth").is_none() {
            file["auth"] = json!("none");
        }
        match store {
            Store::Redis(redis) => file["store"]["redis"]["url"] = json!(redis.url()),
            Store::Memory => file["store"] = json!({ "memory": {} }),
            Store::AsWritten => {}
        }
        let binary = child::binary("WEIR_BIN", "dist/weir", "make build");
        let dir = child::private_dir("service");
        let path = dir.join("weir.yaml");
        // JSON is YAML.
        fs::write(&path, serde_json::to_string_pretty(&file).expect("JSON")).expect("a policy file");
        let child = Child::start("service", dir, move || {
            let mut command = Command::new(&binary);
            command.arg("serve").arg("--config").arg(&path);
            command
        });
        let mut service = Self { child, check_port, admin_port };
        service.ready().await;
        service
    }

    async fn ready(&mut self) {
        let url = self.admin_url("/readyz");
        self.child
            .ready(async || client::try_get(&url, &[]).await.is_ok_and(|response| response.status == 200))
            .await
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// The port of the check API.
    pub fn check_port(&self) -> u16 {
        self.check_port
    }

    /// A URL of the check API.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.check_port)
    }

    /// A URL of the admin listener: metrics, health.
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.admin_port)
    }

    /// `POST /v1/check` of one limit.
    pub async fn check(&self, policy: &str, key: &str, cost: u64) -> Response {
        self.post_check(&json!({ "limits": [{ "policy": policy, "key": key, "cost": cost }] })).await
    }

    /// `POST /v1/check` with this body.
    pub async fn post_check(&self, body: &Value) -> Response {
        client::post_json(&self.url("/v1/check"), body).await
    }

    /// Its policy file, for tests that change it.
    pub fn policy_path(&self) -> PathBuf {
        self.child.dir().join("weir.yaml")
    }

    /// SIGHUP: read the policy file again.
    pub fn reload(&self) {
        self.child.signal(libc::SIGHUP);
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// SIGTERM, and waits for it to end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.child.terminate()
    }

    /// Starts it again on the same ports, and waits until it is ready.
    pub async fn restart(&mut self) {
        self.child.kill();
        self.child.start_again();
        self.ready().await;
    }

    /// SIGSTOP: connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.child.signal(libc::SIGSTOP);
    }

    /// Ends [`Self::pause`].
    pub fn resume(&self) {
        self.child.signal(libc::SIGCONT);
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.child.log()
    }
}
