use std::time::{Duration, Instant};

use harness::{Answer, Envoy, EnvoyOptions, Options, Stack, Upstream, eventually, free_port, get};
use serde_json::{Value, json};

use crate::support::{cluster, has_limit_fields, per_key, policy};

/// Deadline of a check where the test is about it.
const TIMEOUT: Duration = Duration::from_millis(200);
/// How much longer than the deadline an answer may take.
const SLACK: Duration = Duration::from_millis(50);

/// Envoy with one worker, an upstream, and something in the place of the service.
struct Broken {
    envoy: Envoy,
    upstream: Upstream,
}

/// `/open` fails open, `/closed` fails closed.
fn both_modes(timeout: Duration) -> Value {
    let rule = |mode: &str| {
        json!({ "name": mode, "match": { "path": { "exact": format!("/{mode}") } }, "failure_mode": mode,
                "limits": [{ "policy": "p", "key": [{ "header": "x-api-key" }] }] })
    };
    json!({ "service": { "cluster": "weir", "timeout": format!("{}ms", timeout.as_millis()) }, "rules": [rule("open"), rule("closed")] })
}

async fn broken(service: u16, timeout: Duration, edit: Option<harness::Edit>) -> Broken {
    let upstream = Upstream::start().await;
    let envoy = Envoy::start(EnvoyOptions {
        service,
        upstream: upstream.port(),
        plugin: Some(both_modes(timeout)),
        edit,
        ..EnvoyOptions::default()
    })
    .await;
    Broken { envoy, upstream }
}

impl Broken {
    /// Open passes without limit fields, closed is a 503 that cannot be taken for a 429; how long each took.
    async fn meets_its_failure_modes(&self, what: &str) -> Vec<Duration> {
        let mut times = Vec::new();
        for _ in 0..5 {
            let before = self.upstream.count();
            let started = Instant::now();
            let open = get(&self.envoy.url("/open"), &[("x-api-key", "k")]).await;
            times.push(started.elapsed());
            assert_eq!((open.status, has_limit_fields(&open)), (200, false), "{what}");
            assert_eq!(self.upstream.count(), before + 1, "{what}");

            let started = Instant::now();
            let closed = get(&self.envoy.url("/closed"), &[("x-api-key", "k")]).await;
            times.push(started.elapsed());
            assert_eq!((closed.status, has_limit_fields(&closed)), (503, false), "{what}");
            assert_eq!(closed.header("retry-after").as_deref(), Some("1"), "{what}");
            assert_eq!(closed.header("content-type").as_deref(), Some("application/problem+json"), "{what}");
            assert_eq!(self.upstream.count(), before + 1, "{what}: a refused request does not pass");
        }
        self.envoy.assert_no_trap();
        times
    }
}

/// The middle one: a stall of the test machine moves the slowest only.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    assert!(times.iter().all(|time| *time < Duration::from_secs(3)), "{times:?}");
    times[times.len() / 2]
}

fn rude(status: u16, body: impl Into<Vec<u8>>) -> Answer {
    Answer { status, body: Some(body.into().into()), ..Answer::default() }
}

/// C05, D24: whatever the service answers that is no verdict meets the failure mode, and the next good answer works
/// on the same worker.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_verdict_meets_the_failure_mode() {
    const GOOD: &str = r#"{"allowed":true,"limits":[{"policy":"p","allowed":true,"limit":9,"window_ms":60000,
        "unit":"requests","remaining":5,"reset_ms":1,"retry_after_ms":0}]}"#;
    let service = Upstream::start().await;
    // Good answers come in between, and a stalled test machine must not fail them.
    let broken = broken(service.port(), Duration::from_secs(10), None).await;
    let answers: Vec<(&str, Answer)> = vec![
        ("500", rude(500, "oops")),
        ("503 without a body", rude(503, "")),
        ("204", rude(204, "")),
        ("429 of its own", rude(429, GOOD)),
        ("301", rude(301, GOOD)),
        ("400", rude(400, r#"{"detail":"limits[0].key: empty"}"#)),
        ("404", rude(404, "not here")),
        ("200 without a body", rude(200, "")),
        ("HTML", rude(200, "<html>hello</html>")),
        ("cut JSON", rude(200, &GOOD[..70])),
        ("JSON of another kind", rude(200, "[1,2,3]")),
        ("nulls", rude(200, GOOD.replace("5,", "null,"))),
        ("numbers as text", rude(200, GOOD.replace(":5,", ":\"5\","))),
        ("another policy", rude(200, GOOD.replace("\"p\"", "\"q\""))),
        ("a contradiction", rude(200, GOOD.replacen("true", "false", 1))),
        ("a line break in a unit", rude(200, GOOD.replace("requests", "a\\r\\nset-cookie: b=c"))),
        ("not UTF-8", rude(200, vec![0xff, 0xfe, 0x00])),
        ("20 MB", rude(200, vec![b' '; 20 << 20])),
        (
            "a header that is not UTF-8",
            Answer { headers: vec![("x-odd".to_owned(), "caf\u{e9}".to_owned())], ..rude(500, "") },
        ),
    ];
    for (what, answer) in answers {
        service.answer(answer);
        let typical = median(broken.meets_its_failure_modes(what).await);
        assert!(typical <= TIMEOUT + SLACK, "{what}: {typical:?}");
        service.answer(rude(200, GOOD));
        let good = get(&broken.envoy.url("/closed"), &[("x-api-key", "k")]).await;
        assert_eq!((good.status, good.header("ratelimit").as_deref()), (200, Some("\"p\";r=5;t=1")), "after {what}");
    }
    let log = broken.envoy.log();
    assert!(log.contains("rule open: check through cluster weir failed: status 500"), "{log}");
    assert!(log.contains("status 400: limits[0].key: empty"), "the problem's detail is logged: {log}");
    assert!(broken.envoy.stat("wasmcustom.weir.rule.open.outcome.misconfigured").await >= 10);
}

/// A service that accepts and never answers: no request waits longer than the timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_service_meets_the_failure_mode_at_the_timeout() {
    let service = Upstream::start().await;
    let broken = broken(service.port(), TIMEOUT, None).await;
    service.answer(Answer { delay: Duration::from_secs(5), ..rude(200, "{}") });
    let times = broken.meets_its_failure_modes("slow").await;
    assert!(broken.envoy.log().contains("status 504: no answer within the timeout"), "{}", broken.envoy.log());
    let typical = median(times);
    assert!(typical >= TIMEOUT && typical <= TIMEOUT + SLACK, "{typical:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_down_meets_the_failure_mode_at_once() {
    let broken = broken(free_port(), TIMEOUT, None).await;
    let typical = median(broken.meets_its_failure_modes("down").await);
    assert!(broken.envoy.log().contains("status 503: no connection to the service"), "{}", broken.envoy.log());
    assert!(typical <= TIMEOUT + SLACK, "{typical:?}");
    assert!(broken.envoy.stat("wasmcustom.weir.rule.open.outcome.failed_open").await >= 5);
    assert!(broken.envoy.stat("wasmcustom.weir.rule.closed.outcome.failed_closed").await >= 5);
}

/// C01: a name that leads nowhere is told in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_cluster_meets_the_failure_mode_at_once() {
    let edit = |config: &mut Value| {
        let name = cluster(config, "weir");
        name["name"] = json!("wier");
        name["load_assignment"]["cluster_name"] = json!("wier");
    };
    let broken = broken(free_port(), TIMEOUT, Some(Box::new(edit))).await;
    let typical = median(broken.meets_its_failure_modes("misspelt").await);
    assert!(typical <= TIMEOUT + SLACK, "{typical:?}");
    assert!(broken.envoy.log().contains("check through cluster weir failed: the check could not be sent"));
}

/// What the service's problem says when its store is away; an answer that Envoy makes itself does not.
const STORE_AWAY: &str = "the store gave no decision";

/// The service dies and comes back, and so does Redis; nobody restarts anything.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_back_when_the_service_or_redis_is() {
    let mut plugin = per_key("p");
    plugin["service"] = json!({ "cluster": "weir", "timeout": "2s" });
    let mut stack = Stack::start(Options {
        policies: policy("p", "sliding_window_log", 2, "1h"),
        plugin: Some(plugin),
        store_timeout: "1s",
        ..Options::default()
    })
    .await;
    let key = [("x-api-key", "k")];
    let refused = async |stack: &Stack| (stack.get("/", &key).await.status == 429).then_some(());
    assert_eq!(stack.burst("/", &key, 5).await, [(200, 2), (429, 3)].into());

    stack.service.kill();
    assert_eq!(stack.burst("/", &key, 10).await, [(200, 10)].into(), "open while the service is away");
    stack.service.restart().await;
    eventually("the count goes on where it was", Duration::from_secs(5), async || refused(&stack).await).await;

    stack.service.pause();
    let answer = stack.get("/", &key).await;
    assert_eq!((answer.status, has_limit_fields(&answer)), (200, false), "open while the service is silent");
    stack.service.resume();
    eventually("the limit applies again", Duration::from_secs(5), async || refused(&stack).await).await;

    stack.redis_mut().kill();
    // Lines are at most one a second, so the first request may leave none.
    eventually("open while Redis is away, and the log says why", Duration::from_secs(5), async || {
        let answer = stack.get("/", &key).await;
        assert_eq!((answer.status, has_limit_fields(&answer)), (200, false), "open while Redis is away");
        stack.envoy.log().contains(STORE_AWAY).then_some(())
    })
    .await;
    stack.redis_mut().restart().await;
    eventually("the limit applies again, from nothing", Duration::from_secs(5), async || refused(&stack).await).await;

    stack.redis().pause();
    let answer = stack.get("/", &key).await;
    assert_eq!((answer.status, has_limit_fields(&answer)), (200, false), "open while Redis is silent");
    stack.redis().resume();
    eventually("the limit applies again", Duration::from_secs(5), async || refused(&stack).await).await;
    stack.envoy.assert_no_trap();
}

/// A policy that the service does not know is an operator's mistake: counted, logged as an error with its name.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_policy_is_told_as_a_misconfiguration() {
    let stack = Stack::start(Options {
        policies: policy("p", "fixed_window", 2, "1h"),
        plugin: Some(per_key("typo")),
        ..Options::default()
    })
    .await;
    let answer = stack.get("/", &[("x-api-key", "k")]).await;
    assert_eq!((answer.status, has_limit_fields(&answer)), (200, false));
    assert_eq!(stack.envoy.stat("wasmcustom.weir.rule.all.outcome.misconfigured").await, 1);
    let log = stack.envoy.log();
    let line = log.lines().find(|line| line.contains("status 404")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("[error]") && line.contains("typo"), "{line}");
}
