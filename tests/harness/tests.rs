//! The harness itself, without the shipped artefacts.

use std::time::Duration;

use http::Method;

use crate::{Answer, H2, Redis, Upstream, burst, eventually, get, raw, statuses};

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_paused_and_started_again_on_its_port() {
    let mut redis = Redis::start().await;
    let () = redis.command(&["SET", "a", "1"]).await;
    assert_eq!(redis.keys().await, ["a"]);

    redis.pause();
    let waits = tokio::time::timeout(Duration::from_millis(50), redis.command::<String>(&["PING"])).await;
    assert!(waits.is_err(), "a paused Redis answers nothing");
    redis.resume();
    assert_eq!(redis.command::<String>(&["PING"]).await, "PONG");

    redis.kill();
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", redis.port())).await.is_err());
    redis.restart().await;
    assert!(redis.keys().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_echoes_over_both_versions_of_http_and_counts() {
    let upstream = Upstream::start().await;
    let address = format!("127.0.0.1:{}", upstream.port());

    let echo = get(&format!("http://{address}/a?b=c"), &[("x-a", "1"), ("x-a", "2")]).await;
    assert_eq!((echo.status, &echo.json()["path"]), (200, &"/a?b=c".into()));
    assert_eq!(upstream.seen()[0].all("x-a"), ["1", "2"]);

    upstream.answer(Answer { status: 418, headers: vec![("x-b".into(), "3".into())], ..Answer::default() });
    let h2 = H2::connect(&address).await;
    let answers = h2.burst("/", 50, |number| vec![("x-number", number.to_string())]).await;
    assert_eq!(statuses(&answers), [(418, 50)].into());
    assert_eq!(answers[0].header("x-b").as_deref(), Some("3"));
    let answers = burst(&format!("http://{address}/"), 20, |_| vec![("x-c", "4")]).await;
    assert_eq!(statuses(&answers), [(418, 20)].into());
    assert_eq!(upstream.count(), 71);

    let answer = raw(&address, b"GET / HTTP/1.1\r\nhost: a\r\nx-a: \xff\xfe\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 418 "), "{}", answer.escape_ascii());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_reset_does_not_harm_its_connection() {
    let upstream = Upstream::start().await;
    upstream.answer(Answer { delay: Duration::from_secs(10), ..Answer::default() });
    let h2 = H2::connect(&format!("127.0.0.1:{}", upstream.port())).await;
    let stream = h2.start(Method::GET, "/", &[]).await.expect("a stream");
    eventually("the upstream sees it", Duration::from_secs(5), async || (upstream.count() == 1).then_some(())).await;
    stream.reset();
    upstream.answer(Answer::default());
    assert_eq!(h2.get("/", &[]).await.status, 200);
}
