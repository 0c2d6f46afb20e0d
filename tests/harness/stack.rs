//! Redis, the service, an upstream and Envoy, wired together.

use serde_json::Value;

use crate::client::{self, Response, Statuses, statuses};
use crate::envoy::{Edit, Envoy, EnvoyOptions};
use crate::redis::Redis;
use crate::service::{Service, Store};
use crate::upstream::Upstream;

/// What a test chooses; `..Options::default()` for the rest.
pub struct Options {
    /// The list under `policies` of the policy file, as YAML or JSON.
    pub policies: String,
    /// The plug-in configuration; without one, that of `envoy.yaml`. `service` is added if it is missing.
    pub plugin: Option<Value>,
    /// False: the service keeps its counts in memory, and [`Stack::redis`] panics.
    pub redis: bool,
    /// `store.timeout` of the policy file. The default is generous, since test machines stall.
    pub store_timeout: &'static str,
    /// Number of worker threads of Envoy.
    pub concurrency: u32,
    /// Any change to Envoy's configuration.
    pub edit: Option<Edit>,
}

impl Default for Options {
    fn default() -> Self {
        Self { policies: "[]".into(), plugin: None, redis: true, store_timeout: "2s", concurrency: 1, edit: None }
    }
}

/// Everything that a request passes. Its parts end when it is dropped.
pub struct Stack {
    // Dropped in this order: from the client's side to the store.
    /// Envoy with the filter.
    pub envoy: Envoy,
    /// The application behind it.
    pub upstream: Upstream,
    /// The limiter.
    pub service: Service,
    redis: Option<Redis>,
}

impl Stack {
    /// Starts the parts, each when those it needs are ready.
    pub async fn start(options: Options) -> Self {
        let redis = if options.redis { Some(Redis::start().await) } else { None };
        let service = Service::start(&policy_file(&options), redis.as_ref().map_or(Store::Memory, Store::Redis)).await;
        let upstream = Upstream::start().await;
        let envoy = Envoy::start(EnvoyOptions {
            service: service.check_port(),
            upstream: upstream.port(),
            concurrency: options.concurrency,
            plugin: options.plugin.map(with_service),
            edit: options.edit,
            ..EnvoyOptions::default()
        })
        .await;
        Self { envoy, upstream, service, redis }
    }

    /// Its Redis.
    pub fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("a stack with `redis: true`")
    }

    /// Its Redis, to stop or start it.
    pub fn redis_mut(&mut self) -> &mut Redis {
        self.redis.as_mut().expect("a stack with `redis: true`")
    }

    /// GET through Envoy, on a connection of its own.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        client::get(&self.envoy.url(path), headers).await
    }

    /// `count` GETs through Envoy with the same fields, released at once: how many had which status.
    pub async fn burst(&self, path: &str, headers: &[(&str, &str)], count: usize) -> Statuses {
        statuses(&client::burst(&self.envoy.url(path), count, |_| headers.to_vec()).await)
    }
}

/// A policy file with these policies.
fn policy_file(options: &Options) -> String {
    let policies: Value = serde_saphyr::from_str(&options.policies).unwrap_or_else(|error| panic!("policies: {error}"));
    let mut file = serde_json::json!({ "policies": policies });
    if options.redis {
        file["store"]["timeout"] = options.store_timeout.into();
    }
    file.to_string()
}

/// The service's cluster of `envoy.yaml`, with a deadline that a stalling test machine meets.
fn with_service(mut plugin: Value) -> Value {
    if plugin.is_object() && plugin.get("service").is_none() {
        plugin["service"] = serde_json::json!({ "cluster": "weir", "timeout": "5s" });
    }
    plugin
}
