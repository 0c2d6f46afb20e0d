//! The policy file changes while the service serves.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use harness::{Service, eventually, get, long_window};
use serde_json::{Value, json};

use crate::support::{allowed, check_of, in_memory, on_redis};

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

/// Writes other policies into the file, and waits until they are in force: the reload of this number.
async fn change_policies(service: &Service, policies: Value, number: u32) {
    let path = service.policy_path();
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&path).expect("the policy file")).expect("JSON");
    file["policies"] = policies;
    let beside = path.with_extension("new");
    fs::write(&beside, file.to_string()).expect("a file");
    fs::rename(&beside, &path).expect("the policy file");
    service.reload();
    metric(service, &format!("weir_policy_reloads_total{{outcome=\"applied\"}} {number}")).await;
}

/// How many of so many checks of cost 1 are admitted.
async fn admitted(service: &Service, policy: &str, checks: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..checks {
        admitted += usize::from(allowed(&service.check(policy, "a", 1).await));
    }
    admitted
}

/// A19: a new limit or window counts at once and never takes away what the old one would have given, while clients ask
/// all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_limit_counts_at_once() {
    let window = long_window(Duration::from_secs(120));
    let policies = |limit: u64, shorter: &str, rate: u64| {
        json!([
            { "name": "shorter", "algorithm": "fixed_window", "limit": 5, "window": shorter },
            { "name": "raised", "algorithm": "fixed_window", "limit": limit, "window": window },
            { "name": "faster", "algorithm": "token_bucket", "limit": rate, "window": "2s", "burst": 15 },
        ])
    };
    let (service, _redis) = on_redis(&policies(10, window, 10).to_string()).await;
    let shorter = Traffic::start(&service, "shorter", Duration::from_millis(20));
    let raised = Traffic::start(&service, "raised", Duration::from_millis(20));
    // Half of the bucket is used, and what comes is less than the old rate gives back.
    assert_eq!(admitted(&service, "faster", 7).await, 7);
    let faster = Traffic::start(&service, "faster", Duration::from_millis(300));
    eventually("all is used up", DEADLINE, async || {
        (shorter.refused() > 10 && raised.refused() > 10 && faster.admitted() > 2).then_some(())
    })
    .await;
    assert_eq!((shorter.admitted(), raised.admitted()), (5, 10));

    change_policies(&service, policies(20, "10s", 1000), 1).await;
    eventually("the shorter window's own count", DEADLINE, async || (shorter.admitted() >= 10).then_some(())).await;
    eventually("the raised limit", DEADLINE, async || (raised.admitted() == 20).then_some(())).await;
    let refused = raised.refused();
    eventually("and no more", DEADLINE, async || (raised.refused() > refused + 10).then_some(())).await;
    assert_eq!(raised.admitted(), 20, "what was taken stays taken");
    assert_eq!(faster.refused(), 0);
}

/// A client that asks all the time, for the key `a`; each answer must be a verdict.
struct Traffic {
    task: tokio::task::JoinHandle<()>,
    verdicts: Arc<[AtomicUsize; 2]>,
}

impl Traffic {
    fn start(service: &Service, policy: &'static str, pause: Duration) -> Self {
        let url = service.url("/v1/check");
        let verdicts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counts = Arc::clone(&verdicts);
        let task = tokio::spawn(async move {
            loop {
                let admitted = allowed(&harness::post_json(&url, &check_of(&[(policy, "a", 1)])).await);
                counts[usize::from(admitted)].fetch_add(1, Relaxed);
                tokio::time::sleep(pause).await;
            }
        });
        Self { task, verdicts }
    }

    fn refused(&self) -> usize {
        self.count(0)
    }

    fn admitted(&self) -> usize {
        self.count(1)
    }

    fn count(&self, verdict: usize) -> usize {
        assert!(!self.task.is_finished(), "an answer was no verdict");
        self.verdicts[verdict].load(Relaxed)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A20: another algorithm under the same name and key decides rightly at once, and nothing fails on what the last left.
#[tokio::test(flavor = "multi_thread")]
async fn another_algorithm_on_a_live_key_counts_anew() {
    let window = long_window(Duration::from_secs(60));
    let policies = |algorithm: &str| json!([{ "name": "p", "algorithm": algorithm, "limit": 3, "window": window }]);
    let (service, redis) = on_redis(&policies("fixed_window").to_string()).await;
    assert_eq!(admitted(&service, "p", 5).await, 3);
    // Every answer is asserted to be a verdict, before, during and after each change.
    let url = service.url("/v1/check");
    let traffic = tokio::spawn(async move {
        loop {
            allowed(&harness::post_json(&url, &check_of(&[("p", "traffic", 1)])).await);
        }
    });
    let order = ["sliding_window_log", "token_bucket", "sliding_window_counter", "fixed_window"];
    for (number, algorithm) in (1..).zip(order) {
        change_policies(&service, policies(algorithm), number).await;
        // Its own count, which for the first one is still that of before.
        let expected = if algorithm == "fixed_window" { 0 } else { 3 };
        assert_eq!(admitted(&service, "p", 5).await, expected, "{algorithm}");
    }
    assert!(!traffic.is_finished(), "it ended with {:?}", traffic.await);
    traffic.abort();
    let metrics = get(&service.admin_url("/metrics"), &[]).await.text();
    for line in metrics.lines().filter(|line| line.starts_with("weir_store_errors_total{")) {
        assert!(line.ends_with(" 0"), "{line}");
    }
    let of_key = redis.keys().await.into_iter().filter(|key| key.contains("{a}")).count();
    assert_eq!(of_key, 4, "one state for each algorithm");
}
