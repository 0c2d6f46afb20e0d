//! The policy file changes while the service serves.

use std::fs;
use std::time::Duration;

use harness::{Service, eventually, get};

use crate::support::{allowed, in_memory};

const DEADLINE: Duration = Duration::from_secs(10);
const ONE: &str = "[{name: p, algorithm: token_bucket, limit: 1, window: 90d}]";

/// Writes the file as an editor does, with `from` replaced.
fn edit(service: &Service, from: &str, to: &str) {
    let path = service.policy_path();
    let text = fs::read_to_string(&path).expect("the policy file");
    assert!(text.contains(from), "{text}");
    let beside = path.with_extension("new");
    fs::write(&beside, text.replace(from, to)).expect("a file");
    fs::rename(&beside, &path).expect("the policy file");
}

async fn limit(service: &Service) -> u64 {
    service.check("p", "a", 0).await.json()["limits"][0]["limit"].as_u64().expect("a number")
}

async fn metric(service: &Service, line: &str) {
    eventually(line, DEADLINE, async || {
        let metrics = get(&service.admin_url("/metrics"), &[]).await.text();
        metrics.lines().any(|found| found == line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_taken_over_and_the_count_stays() {
    let service = in_memory(ONE).await;
    assert!(allowed(&service.check("p", "a", 1).await));
    assert!(!allowed(&service.check("p", "a", 1).await));
    edit(&service, "\"limit\": 1", "\"limit\": 3");
    eventually("the new limit", DEADLINE, async || (limit(&service).await == 3).then_some(())).await;
    metric(&service, "weir_policy_reloads_total{outcome=\"applied\"} 1").await;
    let reply = service.check("p", "a", 0).await.json();
    assert_eq!(reply["limits"][0]["remaining"], 2, "what was taken stays taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_takes_it_over_too() {
    let service = in_memory(ONE).await;
    edit(&service, "\"limit\": 1", "\"limit\": 4");
    service.reload();
    eventually("the new limit", DEADLINE, async || (limit(&service).await == 4).then_some(())).await;
    service.reload();
    eventually("it says so", DEADLINE, async || service.log().contains("policies are as before").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_changes_nothing_and_is_told() {
    let service = in_memory(ONE).await;
    edit(&service, "\"limit\": 1", "\"limit\": 0");
    metric(&service, "weir_policy_file_rejected 1").await;
    assert_eq!(limit(&service).await, 1);
    assert!(service.log().contains("policies[0].limit: expected a whole number"), "{}", service.log());
    edit(&service, "\"limit\": 0", "\"limit\": 1");
    metric(&service, "weir_policy_file_rejected 0").await;
    fs::remove_file(service.policy_path()).expect("the policy file");
    metric(&service, "weir_policy_file_rejected 1").await;
    assert_eq!(limit(&service).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_change_under_way_is_told() {
    let service = in_memory(ONE).await;
    edit(&service, "\"auth\": \"none\"", "\"auth\": \"token\"");
    service.reload();
    eventually("it says so", DEADLINE, async || service.log().contains("with the next start").then_some(())).await;
    assert!(allowed(&service.check("p", "a", 1).await));
}
