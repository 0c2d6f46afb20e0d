use std::time::Duration;

use harness::{Options, Stack, long_window, raw};
use serde_json::{Value, json};

use crate::support::{connection_manager, per_key, policy, remove_filter};

async fn stack(limit: u64, plugin: Value) -> Stack {
    let policies = policy("p", "fixed_window", limit, long_window(Duration::from_secs(60)));
    Stack::start(Options { policies, plugin: Some(plugin), concurrency: 2, ..Options::default() }).await
}

/// As [`stack`], with the address that a load balancer in front appends to `X-Forwarded-For`.
async fn stack_behind_a_balancer(limit: u64, plugin: Value) -> Stack {
    let policies = policy("p", "fixed_window", limit, long_window(Duration::from_secs(60)));
    let edit = |config: &mut Value| connection_manager(config)["xff_num_trusted_hops"] = json!(1);
    Stack::start(Options { policies, plugin: Some(plugin), edit: Some(Box::new(edit)), ..Options::default() }).await
}

fn status(answer: &[u8]) -> u16 {
    let line = answer.strip_prefix(b"HTTP/1.1 ").unwrap_or_else(|| panic!("{}", answer.escape_ascii()));
    std::str::from_utf8(&line[..3]).unwrap().parse().unwrap()
}

/// C06: bytes that are no UTF-8 are a key like any other, and harm nothing anywhere else.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_utf8_are_limited_like_any_other() {
    let stack = stack(2, per_key("p")).await;
    let send = async |key: &[u8], rest: &[u8]| {
        let request = [b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: ", key, b"\r\n", rest, b"\r\n"];
        status(&raw(&stack.envoy.address(), &request.concat()).await)
    };
    for key in [b"\xa1\xb1".as_slice(), b"\xa1\xb2", b"\xc0\xa7", b"a\xff", "é".as_bytes()] {
        assert_eq!(send(key, b"").await, 200, "{}", key.escape_ascii());
        assert_eq!(send(key, b"").await, 200, "{}", key.escape_ascii());
        assert_eq!(send(key, b"").await, 429, "{}", key.escape_ascii());
    }
    // In a header that is none of our business, in X-Forwarded-For, and in the name of a header.
    for rest in [b"user-agent: \xa1\xb1\r\n".as_slice(), b"x-forwarded-for: \xa1\xb1\r\n", b"x-\xa1\xb1: 1\r\n"] {
        let got = send(format!("elsewhere-{}", rest.len()).as_bytes(), rest).await;
        assert!([200, 400].contains(&got), "{}: {got}", rest.escape_ascii());
    }
    for target in [b"/\xa1\xb1".as_slice(), b"/%a1%b1", b"/?\xa1"] {
        let request =
            [b"GET ", target, b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: path\r\n\r\n"].concat();
        let got = status(&raw(&stack.envoy.address(), &request).await);
        assert!([200, 400, 429].contains(&got), "{}: {got}", target.escape_ascii());
    }
    for worker in 0..20 {
        assert_eq!(stack.get("/", &[("x-api-key", &format!("after-{worker}"))]).await.status, 200);
    }
    stack.envoy.assert_no_trap();
}

/// D11, D12: by default the client's address takes the place of a key that is missing or empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_empty_key_falls_back_to_the_address() {
    let stack = stack(3, per_key("p")).await;
    assert_eq!(stack.get("/", &[]).await.status, 200);
    assert_eq!(stack.get("/", &[("x-api-key", "")]).await.status, 200);
    assert_eq!(stack.get("/", &[("x-api-key", "   ")]).await.status, 200);
    assert_eq!(stack.get("/", &[]).await.status, 429);
    assert_eq!(stack.get("/", &[("x-api-key", "")]).await.status, 429);
    // A key that spells the address is not the client at that address.
    assert_eq!(stack.get("/", &[("x-api-key", "127.0.0.1")]).await.status, 200);
    assert_eq!(stack.get("/", &[("x-api-key", "ip=127.0.0.1")]).await.status, 200);
    assert_eq!(stack.envoy.stat("wasmcustom.weir.rule.all.outcome.key_missing").await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_key_can_be_refused_or_let_pass() {
    let mut plugin = per_key("p");
    plugin["rules"][0]["limits"][0]["on_missing_key"] = json!("reject");
    let rejecting = stack(1, plugin.clone()).await;
    let answer = rejecting.get("/", &[]).await;
    assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/problem+json".to_owned())));
    assert_eq!(rejecting.upstream.count(), 0);

    plugin["rules"][0]["limits"][0]["on_missing_key"] = json!("skip");
    let skipping = stack(1, plugin).await;
    assert_eq!(skipping.burst("/", &[], 10).await, [(200, 10)].into());
}

/// D13: a second value of the key header hands out no second bucket.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_header_is_refused() {
    let stack = stack(5, per_key("p")).await;
    for headers in [[("x-api-key", "K"), ("x-api-key", "rnd")], [("x-api-key", "rnd"), ("x-api-key", "K")]] {
        assert_eq!(stack.get("/", &headers).await.status, 400);
    }
    assert_eq!(stack.burst("/", &[("x-api-key", "K")], 8).await, [(200, 5), (429, 3)].into());
}

/// C18, D16: the port does not count, and an IPv4 address in IPv6 clothes is the same client.
#[tokio::test(flavor = "multi_thread")]
async fn ipv4_clients_have_one_limit_each() {
    let plugin = json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p", "key": [{ "client_ip": {} }] }] }] });
    let direct = stack(5, plugin.clone()).await;
    assert_eq!(direct.burst("/", &[], 20).await, [(200, 5), (429, 15)].into(), "20 connections of one address");

    let behind = stack_behind_a_balancer(5, plugin).await;
    let from = async |address: &str| behind.get("/", &[("x-forwarded-for", address)]).await.status;
    for address in ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201", "::FFFF:C000:0201", "192.0.2.1"] {
        assert_eq!(from(address).await, 200, "{address}");
    }
    assert_eq!(from("192.0.2.1").await, 429);
    assert_eq!(from("::ffff:192.0.2.1").await, 429);
    assert_eq!(from("::ffff:192.0.2.2").await, 200);
    // What a client writes in front of the balancer's entry changes nothing.
    assert_eq!(from("203.0.113.9, 192.0.2.1").await, 429);
    behind.envoy.assert_no_trap();
}

/// D15: hosts of one /64 share a limit; a neighbour does not.
#[tokio::test(flavor = "multi_thread")]
async fn ipv6_clients_are_limited_by_subnet() {
    let plugin = json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p", "key": [{ "client_ip": {} }] }] }] });
    let behind = stack_behind_a_balancer(5, plugin.clone()).await;
    let mut passed = 0;
    for host in 0..50 {
        let address = format!("2001:db8:1:2:{:x}::{:x}", host * 7919 % 65536, host + 1);
        passed += usize::from(behind.get("/", &[("x-forwarded-for", &address)]).await.status == 200);
    }
    assert_eq!(passed, 5);
    assert_eq!(behind.get("/", &[("x-forwarded-for", "2001:db8:1:3::1")]).await.status, 200);

    // And over a real IPv6 connection.
    let edit = |config: &mut Value| {
        config["static_resources"]["listeners"][0]["address"]["socket_address"]["address"] = json!("::1");
    };
    let policies = policy("p", "fixed_window", 5, long_window(Duration::from_secs(60)));
    let options = Options { policies, plugin: Some(plugin), edit: Some(Box::new(edit)), ..Options::default() };
    let over_ipv6 = Stack::start(options).await;
    let url = over_ipv6.envoy.url("/").replace("127.0.0.1", "[::1]");
    let answers = harness::burst(&url, 20, |_| Vec::<(&str, &str)>::new()).await;
    assert_eq!(harness::statuses(&answers), [(200, 5), (429, 15)].into());
    assert_eq!(
        over_ipv6.redis().keys().await,
        ["weir:1:{ip=::/64}:p:fw:3600000"].map(|key| key.replace("3600000", &window_ms(&over_ipv6)))
    );
}

/// The window that [`long_window`] chose, as keys write it.
fn window_ms(stack: &Stack) -> String {
    let file = std::fs::read_to_string(stack.service.policy_path()).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let window = file["policies"][0]["window"].as_str().unwrap();
    let (number, unit) = window.split_at(window.len() - 1);
    (number.parse::<u64>().unwrap() * if unit == "h" { 3_600_000 } else { 60_000 }).to_string()
}

/// Method, host and path in one key, by whatever spelling and version of HTTP they come.
#[tokio::test(flavor = "multi_thread")]
async fn composed_keys_part_and_join_requests() {
    let plugin = json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p",
        "key": [{ "host": {} }, { "method": {} }, { "path": {} }] }] }] });
    let stack = stack(2, plugin).await;
    assert_eq!(stack.get("/a?x=1", &[("host", "API.example.com")]).await.status, 200);
    assert_eq!(stack.get("/a?x=2", &[("host", "api.example.com:443")]).await.status, 200);
    assert_eq!(stack.get("/a", &[("host", "api.example.com")]).await.status, 429);
    assert_eq!(stack.get("/./b/../a", &[("host", "api.example.com")]).await.status, 429, "Envoy normalises the path");
    assert_eq!(stack.get("/b", &[("host", "api.example.com")]).await.status, 200);
    assert_eq!(stack.get("/a", &[("host", "example.com")]).await.status, 200);
    let keys = stack.redis().keys().await;
    assert!(keys.iter().any(|key| key.contains("{host=api.example.com,method=GET,path=/a}")), "{keys:?}");
}

/// A26: what is not a decimal number costs the most; several values are refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_cost_comes_from_a_header_within_bounds() {
    let mut plugin = per_key("p");
    plugin["headers"] = json!(["x-ratelimit"]);
    plugin["rules"][0]["limits"][0]["cost"] = json!({ "header": "x-cost", "default": 2, "max": 50 });
    let policies = policy("p", "fixed_window", 100, long_window(Duration::from_secs(60)));
    let options = |edit: Option<harness::Edit>| Options {
        policies: policies.clone(),
        plugin: Some(plugin.clone()),
        edit,
        ..Options::default()
    };
    let trusting = |config: &mut Value| remove_filter(config, "envoy.filters.http.header_mutation");
    let trusted = Stack::start(options(Some(Box::new(trusting)))).await;
    for (number, (cost, left)) in
        [("7", 93), ("", 98), ("0", 99), ("1e3", 50), ("-1", 50), ("1.5", 50), ("9223372036854775808", 50)]
            .iter()
            .enumerate()
    {
        let answer = trusted.get("/", &[("x-api-key", &number.to_string()), ("x-cost", cost)]).await;
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string()), "{cost}");
    }
    assert_eq!(trusted.get("/", &[("x-api-key", "a"), ("x-cost", "1"), ("x-cost", "2")]).await.status, 400);

    // As envoy.yaml is, a client's own x-cost does not arrive.
    let edge = Stack::start(options(None)).await;
    let answer = edge.get("/", &[("x-api-key", "a"), ("x-cost", "0")]).await;
    assert_eq!(answer.header("x-ratelimit-remaining").as_deref(), Some("98"));
}

/// Envoy joins repeated lines of `authorization` before any filter sees them. The upstream gets the joined value, so the
/// credential that it accepts has one key.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_authorization_is_another_key_and_another_credential() {
    let plugin = json!({ "rules": [{ "name": "all",
        "limits": [{ "policy": "p", "key": [{ "header": "authorization" }] }] }] });
    let stack = stack(2, plugin).await;
    let key = [("authorization", "Bearer K")];
    assert_eq!(stack.burst("/", &key, 4).await, [(200, 2), (429, 2)].into());
    let twice = [("authorization", "Bearer K"), ("authorization", "x1")];
    let answer = stack.get("/", &twice).await;
    assert_eq!(answer.status, 200);
    let seen = stack.upstream.seen();
    assert_eq!(seen.last().unwrap().all("authorization"), ["Bearer K,x1"], "one value, and not the credential");
    assert_eq!(stack.get("/", &key).await.status, 429);
}
