use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use harness::{Answer, Edit, Envoy, EnvoyOptions, H2, Options, Stack, Upstream, eventually, statuses};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{cluster, connection_manager, per_key, policy};

const STREAMS: usize = 1000;

/// A thousand streams on one connection, which all may go on to the upstream.
fn many_streams(config: &mut Value) {
    cluster(config, "upstream")["circuit_breakers"] = json!({
        "thresholds": [{ "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000 }]
    });
    connection_manager(config)["http2_protocol_options"] = json!({ "max_concurrent_streams": 10_000 });
}

/// All refused in the same moment: replies run nested in the host, and must not overflow its stack.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_are_refused_at_once() {
    let stack = Stack::start(Options {
        policies: policy("p", "sliding_window_log", 1, "1d"),
        plugin: Some(per_key("p")),
        edit: Some(Box::new(many_streams)),
        ..Options::default()
    })
    .await;
    let key = || vec![("x-api-key", "k")];
    assert_eq!(stack.get("/", &key()).await.status, 200);
    let connection = H2::connect(&stack.envoy.address()).await;
    for _ in 0..5 {
        let answers = connection.burst("/", STREAMS, |_| key()).await;
        assert_eq!(statuses(&answers), [(429, STREAMS)].into());
    }
    assert_eq!(stack.upstream.count(), 1);
    stack.envoy.assert_no_trap();
}

/// All fail in the same moment, since the check cannot even be sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_fail_at_once() {
    let misspelt = |config: &mut Value| {
        let weir = cluster(config, "weir");
        weir["name"] = json!("wier");
        weir["load_assignment"]["cluster_name"] = json!("wier");
    };
    let no_endpoints = |config: &mut Value| cluster(config, "weir")["load_assignment"]["endpoints"] = json!([]);
    let breaker = |config: &mut Value| {
        cluster(config, "weir")["circuit_breakers"]["thresholds"][0]["max_requests"] = json!(0);
    };
    type EditFn = fn(&mut Value);
    let edits: [(&str, EditFn); 3] =
        [("misspelt cluster", misspelt), ("no endpoints", no_endpoints), ("max_requests 0", breaker)];
    for (what, edit) in edits {
        for (mode, status) in [("open", 200), ("closed", 503)] {
            let upstream = Upstream::start().await;
            // Something listens there, so that only the cluster's own state keeps a check from being sent.
            let service = Upstream::start().await;
            let mut plugin = per_key("p");
            plugin["service"] = json!({ "cluster": "weir", "timeout": "1s" });
            plugin["failure_mode"] = json!(mode);
            let both: Edit = Box::new(move |config| {
                many_streams(config);
                edit(config);
            });
            let envoy = Envoy::start(EnvoyOptions {
                service: service.port(),
                upstream: upstream.port(),
                plugin: Some(plugin),
                edit: Some(both),
                ..EnvoyOptions::default()
            })
            .await;
            let connection = H2::connect(&envoy.address()).await;
            for _ in 0..2 {
                let answers = connection.burst("/", STREAMS, |number| vec![("x-api-key", number.to_string())]).await;
                assert_eq!(statuses(&answers), [(status, STREAMS)].into(), "{what}, {mode}");
            }
            assert_eq!(service.count(), 0, "{what}: nothing was sent");
            envoy.assert_no_trap();
        }
    }
}

/// C07: clients that leave while their check is under way, mixed with clients that stay.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_at_any_moment_harm_nobody() {
    const ROUNDS: usize = 40;
    const LEAVING: usize = 50;
    for (limit, expected) in [(1_000_000, 200), (1, 429)] {
        let stack = Stack::start(Options {
            policies: policy("p", "sliding_window_counter", limit, "1d"),
            plugin: Some(per_key("p")),
            edit: Some(Box::new(many_streams)),
            concurrency: 2,
            ..Options::default()
        })
        .await;
        stack.upstream.answer(Answer { delay: Duration::from_millis(1), ..Answer::default() });
        assert_eq!(stack.get("/", &[("x-api-key", "k")]).await.status, 200);
        let mut connections = JoinSet::new();
        for number in 0..4u64 {
            let address = stack.envoy.address();
            connections.spawn(async move {
                for round in 0..ROUNDS as u64 {
                    // HTTP/2 resets and whole connections that break off.
                    let connection = H2::connect(&address).await;
                    let mut leaving = Vec::new();
                    for _ in 0..LEAVING {
                        leaving
                            .push(connection.start(Method::GET, "/", &[("x-api-key", "k")]).await.expect("a stream"));
                    }
                    // Another moment each time, from "just sent" to "just answered".
                    let moment = RandomState::new().hash_one((round, number)) % 6000;
                    tokio::time::sleep(Duration::from_micros(moment)).await;
                    for stream in leaving {
                        stream.reset();
                    }
                    let mut half = tokio::net::TcpStream::connect(&address).await.expect("a connection");
                    let request = b"GET / HTTP/1.1\r\nhost: a\r\nx-api-key: k\r\n\r\n";
                    tokio::io::AsyncWriteExt::write_all(&mut half, request).await.expect("a request");
                    drop(half);
                    let stays = connection.get("/", &[("x-api-key", "k")]).await;
                    assert_eq!(stays.status, expected);
                }
            });
        }
        connections.join_all().await;
        eventually("no stream is left open", Duration::from_secs(10), async || {
            (stack.envoy.stat("http.ingress.downstream_rq_active").await == 0).then_some(())
        })
        .await;
        for _ in 0..50 {
            assert_eq!(stack.get("/", &[("x-api-key", "k")]).await.status, expected);
        }
        stack.envoy.assert_no_trap();
        assert_eq!(stack.envoy.stat("wasmcustom.weir.rule.all.outcome.failed_open").await, 0);
    }
}

/// A worker that has seen every fault still decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_on_after_a_service_that_vanishes_under_load() {
    let mut stack = Stack::start(Options {
        policies: policy("p", "sliding_window_log", 3, "1d"),
        plugin: Some(per_key("p")),
        edit: Some(Box::new(many_streams)),
        ..Options::default()
    })
    .await;
    for _ in 0..3 {
        let connection = H2::connect(&stack.envoy.address()).await;
        let flood = connection.burst("/", STREAMS, |number| vec![("x-api-key", number.to_string())]);
        let (answers, ()) = tokio::join!(flood, async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            stack.service.kill();
        });
        assert!(answers.iter().all(|answer| [200, 429].contains(&answer.status)), "{:?}", statuses(&answers));
        stack.service.restart().await;
        eventually("the limit applies", Duration::from_secs(5), async || {
            (stack.get("/", &[("x-api-key", "k")]).await.status == 429).then_some(())
        })
        .await;
    }
    stack.envoy.assert_no_trap();
}
