use harness::{Envoy, EnvoyOptions};
use serde_json::{Value, json};

use crate::support::{file, per_key};

async fn refused(plugin: Value) -> String {
    let options = EnvoyOptions { plugin: Some(plugin), ..EnvoyOptions::default() };
    match Envoy::try_start(options).await {
        Ok(_) => panic!("Envoy started"),
        Err(log) => log,
    }
}

/// A static start with a bad configuration fails, and the log names the field. Which mistakes are found, and how each
/// is named, is tested file by file with the filter.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_is_refused_at_start_by_the_name_of_its_field() {
    for name in ["service_timeout_zero", "key_header_with_space", "many_mistakes_at_once", "not_json"] {
        let plugin = file(&format!("filter/tests/config/invalid/{name}.json"));
        let message = file(&format!("filter/tests/config/invalid/{name}.message"));
        let log = refused(json!(plugin)).await;
        assert!(log.contains(&format!("configuration refused: {}", message.trim_end())), "{name}: {log}");
        assert!(!log.contains("panicked"), "{log}");
    }
    let log = refused(json!("")).await;
    assert!(log.contains("the configuration is empty; expected at least"), "{log}");
}

/// The same configuration as text (JSON) is accepted; `reference.rs` has it as YAML.
#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_as_text_is_accepted() {
    let mut plugin = per_key("p");
    plugin["service"] = json!({ "cluster": "weir" });
    let options = EnvoyOptions { plugin: Some(json!(plugin.to_string())), ..EnvoyOptions::default() };
    Envoy::start(options).await.assert_no_trap();
}
