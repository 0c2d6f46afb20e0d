//! Envoy with the repository's own `envoy.yaml` and the shipped filter.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use crate::child::{self, Child, workspace};
use crate::client;
use crate::ports::free_port;

/// What `envoy.yaml` says, and what the harness puts in its place.
const LISTENER: u16 = 10_000;
const ADMIN: u16 = 9_901;
const SERVICE: u16 = 8_080;
const UPSTREAM: u16 = 8_000;
const FILTER: &str = "dist/weir_filter.wasm";

/// Signs in the log that the filter died: a failed call into the VM, or a panic of the module.
const TRAPS: [&str; 6] = [
    "Function: proxy_on_",
    "Uncaught RuntimeError",
    "panicked at",
    "Wasm VM failed",
    "Plugin configured to fail",
    "VM failed",
];

/// A change to the parsed `envoy.yaml`.
pub type Edit = Box<dyn FnOnce(&mut Value) + Send>;

/// How Envoy differs from what `envoy.yaml` says.
pub struct EnvoyOptions {
    /// Port of the service on 127.0.0.1.
    pub service: u16,
    /// Port of the upstream on 127.0.0.1.
    pub upstream: u16,
    /// Port to listen on; 0: a free one.
    pub listener: u16,
    /// Port of Envoy's own admin interface; 0: a free one.
    pub admin: u16,
    /// Number of worker threads.
    pub concurrency: u32,
    /// Replaces the plug-in configuration; a JSON string is passed on as its bare text, so that it can be malformed.
    pub plugin: Option<Value>,
    /// Any further change to the file.
    pub edit: Option<Edit>,
}

impl Default for EnvoyOptions {
    /// One worker, free ports, `envoy.yaml` as it is; nobody listens where service and upstream should be.
    fn default() -> Self {
        let (service, upstream) = (free_port(), free_port());
        Self { service, upstream, listener: 0, admin: 0, concurrency: 1, plugin: None, edit: None }
    }
}

/// A running Envoy. Killed on drop.
pub struct Envoy {
    child: Child,
    listener: u16,
    admin: u16,
}

/// The repository's `envoy.yaml`.
pub fn reference_config() -> Value {
    let path = workspace().join("envoy.yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Envoy {
    /// Starts it and waits until it serves. The binary is `.weir/envoy`, or the one that the environment variable
    /// `ENVOY_BIN` names.
    pub async fn start(options: EnvoyOptions) -> Self {
        Self::try_start(options).await.unwrap_or_else(|log| panic!("{log}"))
    }

    /// As [`Self::start`], but an Envoy that refuses its configuration is an error, with its log.
    pub async fn try_start(options: EnvoyOptions) -> Result<Self, String> {
        let listener = if options.listener == 0 { free_port() } else { options.listener };
        let admin = if options.admin == 0 { free_port() } else { options.admin };
        let filter = std::env::var("WEIR_FILTER")
            .unwrap_or_else(|_| workspace().join(FILTER).to_str().expect("a path in UTF-8").to_owned());
        assert!(fs::exists(&filter).unwrap_or(false), "{filter} is missing: run `make build` first");

        let mut config = reference_config();
        for (old, new) in
            [(LISTENER, listener), (ADMIN, admin), (SERVICE, options.service), (UPSTREAM, options.upstream)]
        {
            // Marked, lest a new port is taken for an old one.
            assert!(replace(&mut config, "port_value", &json!(old), &json!(-i32::from(new))) > 0, "no port {old}");
        }
        unmark(&mut config);
        assert!(replace(&mut config, "filename", &json!(FILTER), &json!(filter)) > 0, "envoy.yaml has no {FILTER}");
        if let Some(plugin) = options.plugin {
            assert!(set_plugin(&mut config, &plugin) > 0, "envoy.yaml has no plug-in configuration");
        }
        if let Some(edit) = options.edit {
            edit(&mut config);
        }

        let binary = child::binary("ENVOY_BIN", ".weir/envoy", "make setup");
        let dir = child::private_dir("envoy");
        let path = dir.join("envoy.json");
        fs::write(&path, serde_json::to_string_pretty(&config).expect("JSON")).expect("a configuration file");
        let concurrency = options.concurrency.to_string();
        let mut child = Child::start("envoy", dir, move || {
            let mut command = Command::new(&binary);
            command.arg("-c").arg(&path);
            // Several run side by side.
            command.arg("--disable-hot-restart");
            command.args(["--concurrency", &concurrency, "-l", "warning", "--component-log-level", "wasm:info"]);
            command
        });
        let ready = format!("http://127.0.0.1:{admin}/ready");
        child.ready(async || client::try_get(&ready, &[]).await.is_ok_and(|response| response.status == 200)).await?;
        Ok(Self { child, listener, admin })
    }

    /// A URL that clients ask.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.listener)
    }

    /// `127.0.0.1:<port>`, for [`crate::Connection`], [`crate::H2`] and [`crate::raw`].
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.listener)
    }

    /// A URL of Envoy's own admin interface.
    pub fn admin_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.admin)
    }

    /// Its counters and gauges, by name.
    pub async fn stats(&self) -> BTreeMap<String, u64> {
        let text = client::get(&self.admin_url("/stats"), &[]).await.text();
        // Histograms and text read-outs are no numbers.
        text.lines()
            .filter_map(|line| line.rsplit_once(": "))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }

    /// One counter or gauge; 0 if it does not exist yet.
    pub async fn stat(&self, name: &str) -> u64 {
        self.stats().await.get(name).copied().unwrap_or(0)
    }

    /// The sum of all counters whose name contains this text.
    pub async fn stat_sum(&self, part: &str) -> u64 {
        self.stats().await.iter().filter(|(name, _)| name.contains(part)).map(|(_, value)| value).sum()
    }

    /// Its log (standard error).
    pub fn log(&self) -> String {
        self.child.read("stderr.log")
    }

    /// What it wrote to standard output: the access log.
    pub fn access_log(&self) -> String {
        self.child.read("stdout.log")
    }

    /// Panics if Envoy has ended or its log tells of a dead VM.
    pub fn assert_no_trap(&self) {
        let alive = TcpStream::connect((Ipv4Addr::LOCALHOST, self.admin)).is_ok();
        assert!(alive, "Envoy has ended:\n{}", self.log());
        let log = self.log();
        let traps: Vec<_> = log.lines().filter(|line| TRAPS.iter().any(|trap| line.contains(trap))).collect();
        assert!(traps.is_empty(), "the filter died:\n{}", traps.join("\n"));
    }
}

/// Replaces the values of all members of this name that equal `old`; how many there were.
fn replace(node: &mut Value, name: &str, old: &Value, new: &Value) -> usize {
    match node {
        Value::Object(members) => members
            .iter_mut()
            .map(|(key, value)| {
                if key == name && value == old {
                    *value = new.clone();
                    1
                } else {
                    replace(value, name, old, new)
                }
            })
            .sum(),
        Value::Array(items) => items.iter_mut().map(|item| replace(item, name, old, new)).sum(),
        _ => 0,
    }
}

/// Makes marked (negative) ports positive.
fn unmark(node: &mut Value) {
    match node {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_i64() {
                    Some(port) if key == "port_value" => *value = json!(port.abs()),
                    _ => unmark(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unmark),
        _ => {}
    }
}

/// Replaces `configuration` beside every `vm_config`; how many there were.
fn set_plugin(node: &mut Value, plugin: &Value) -> usize {
    match node {
        Value::Object(members) => {
            if members.contains_key("vm_config") {
                let text = plugin.as_str().map_or_else(|| plugin.to_string(), str::to_owned);
                let string = "type.googleapis.com/google.protobuf.StringValue";
                members.insert("configuration".into(), json!({ "@type": string, "value": text }));
                return 1;
            }
            members.values_mut().map(|value| set_plugin(value, plugin)).sum()
        }
        Value::Array(items) => items.iter_mut().map(|item| set_plugin(item, plugin)).sum(),
        _ => 0,
    }
}
