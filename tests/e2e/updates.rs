use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Answer, Envoy, EnvoyOptions, Upstream, eventually, get, statuses};
use serde_json::{Value, json};

/// A listener that Envoy reads from a file, as a control plane would send it.
struct Listener {
    file: PathBuf,
    resource: Value,
}

impl Listener {
    /// Puts another plug-in configuration in force, whole or not at all.
    fn update(&mut self, plugin: &Value) {
        let filters = &mut self.resource["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
        let weir = filters.as_array_mut().unwrap().iter_mut().find(|filter| filter["name"] == "weir").unwrap();
        weir["typed_config"]["config"]["configuration"] =
            json!({ "@type": "type.googleapis.com/google.protobuf.StringValue", "value": plugin.to_string() });
        let next = self.file.with_extension("next");
        std::fs::write(&next, json!({ "resources": [self.resource] }).to_string()).unwrap();
        std::fs::rename(next, &self.file).unwrap();
    }
}

fn plugin(limits: usize) -> Value {
    let limits: Vec<_> =
        (0..limits).map(|n| json!({ "policy": format!("p{n}"), "key": [{ "literal": "all" }] })).collect();
    json!({
        "service": { "cluster": "weir", "timeout": "5s" },
        "failure_mode": "closed",
        "headers": ["ietf"],
        "rules": [{ "name": "all", "limits": limits }],
    })
}

/// What a service answers to a check of `plugin(limits)`.
fn verdict(limits: usize) -> Answer {
    let limits: Vec<_> = (0..limits)
        .map(|n| {
            json!({ "policy": format!("p{n}"), "allowed": true, "limit": 9, "window_ms": 60000, "unit": "requests",
                    "remaining": 8, "reset_ms": 1, "retry_after_ms": 0 })
        })
        .collect();
    let body = json!({ "allowed": true, "limits": limits }).to_string();
    Answer { body: Some(body.into()), ..Answer::default() }
}

/// C15: updates under load lose nothing; requests that wait for their check finish under the configuration that they
/// began with; a bad update keeps the old one.
#[tokio::test(flavor = "multi_thread")]
async fn updates_under_load_lose_no_request() {
    const UPDATES: usize = 30;
    let service = Upstream::start().await;
    let upstream = Upstream::start().await;
    let dir = std::env::temp_dir().join(format!("weir-updates-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let listener = Arc::new(Mutex::new(Listener { file: dir.join("listeners.json"), resource: Value::Null }));
    let to_file = {
        let listener = Arc::clone(&listener);
        move |config: &mut Value| {
            let mut listener = listener.lock().unwrap();
            let mut resource = config["static_resources"]["listeners"][0].take();
            resource["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
            listener.resource = resource;
            listener.update(&plugin(1));
            config["static_resources"]["listeners"] = json!([]);
            config["node"] = json!({ "id": "test", "cluster": "test" });
            config["dynamic_resources"] = json!({ "lds_config": { "path_config_source": { "path": listener.file }, "resource_api_version": "V3" } });
        }
    };
    let envoy = Envoy::start(EnvoyOptions {
        service: service.port(),
        upstream: upstream.port(),
        concurrency: 2,
        edit: Some(Box::new(to_file)),
        ..EnvoyOptions::default()
    })
    .await;
    let url = envoy.url("/");
    service.answer(verdict(1));
    let policies = async |expected: usize| {
        // A request may still meet the old configuration; its check then does not fit the answer, and is a 503.
        eventually("the update is in force", Duration::from_secs(10), async || {
            let answer = get(&url, &[]).await;
            (answer.status == 200 && answer.header("ratelimit")?.matches(";r=").count() == expected).then_some(())
        })
        .await;
    };
    policies(1).await;

    // The number of limits stays, so every answer fits; what changes is the name of the rule.
    service.answer(Answer { delay: Duration::from_millis(100), ..verdict(1) });
    for update in 0..UPDATES {
        let mut changed = plugin(1);
        changed["rules"][0]["name"] = json!(format!("rule-{}", update % 2));
        let load = harness::burst(&url, 25, |_| Vec::<(&str, &str)>::new());
        let (answers, ()) = tokio::join!(load, async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            listener.lock().unwrap().update(&changed);
        });
        assert_eq!(statuses(&answers), [(200, 25)].into(), "update {update}: {}", envoy.log());
    }
    envoy.assert_no_trap();

    // Refused as a whole; the old one goes on.
    service.answer(verdict(1));
    listener.lock().unwrap().update(&json!({ "service": { "cluster": "weir" }, "rules": [] }));
    eventually("the bad update is refused", Duration::from_secs(10), async || {
        envoy.log().contains("rules: expected at least one rule, found none").then_some(())
    })
    .await;
    for _ in 0..10 {
        let answer = get(&url, &[]).await;
        assert_eq!((answer.status, answer.header("ratelimit").is_some()), (200, true));
    }

    service.answer(verdict(2));
    listener.lock().unwrap().update(&plugin(2));
    policies(2).await;
    let _ = std::fs::remove_dir_all(dir);
}
