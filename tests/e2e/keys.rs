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

/// Cookies and parameters: one key whatever stands around them, and a second value hands out no second limit.
#[tokio::test(flavor = "multi_thread")]
async fn cookies_and_parameters_are_keys() {
    let plugin =
        |source: Value| json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p", "key": [source] }] }] });
    let by_cookie = stack(2, plugin(json!({ "cookie": "session" }))).await;
    for (cookie, expected) in
        [("session=a", 200), ("x=1; session=\"a\"; y", 200), ("y;session= a", 429), ("session=b", 200)]
    {
        assert_eq!(by_cookie.get("/", &[("cookie", cookie)]).await.status, expected, "{cookie}");
    }
    assert_eq!(by_cookie.get("/", &[("cookie", "session=a; session=c")]).await.status, 400);
    assert_eq!(by_cookie.get("/", &[("cookie", "session=a"), ("cookie", "session=c")]).await.status, 400);
    // HTTP/2 clients send each cookie in a line of its own (RFC 9113 section 8.2.3).
    let h2 = harness::H2::connect(&by_cookie.envoy.address()).await;
    assert_eq!(h2.get("/", &[("cookie", "x=1"), ("cookie", "session=a")]).await.status, 429);

    let by_parameter = stack(2, plugin(json!({ "query": "api_key" }))).await;
    for (target, expected) in [
        ("/?api_key=a%20b", 200),
        ("/?x&api%5Fkey=a+b", 200),
        ("/other?api_key=%61%20b", 429),
        ("/?api_key=b", 200),
        ("/?api_key=a&api_key=rnd", 400),
    ] {
        assert_eq!(by_parameter.get(target, &[]).await.status, expected, "{target}");
    }
    assert!(by_parameter.redis().keys().await.iter().any(|key| key.contains("{a%2520b}")));
    by_parameter.envoy.assert_no_trap();
}

/// What Envoy knows besides: numbers arrive as bytes, and what is not of the kind asked for is missing.
#[tokio::test(flavor = "multi_thread")]
async fn properties_are_keys() {
    let property = |path: &[&str], kind: &str| json!({ "property": { "path": path, "type": kind } });
    let plugin = json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p", "on_missing_key": "reject", "key": [
        property(&["request", "protocol"], "string"),
        property(&["request", "size"], "int"),
        property(&["connection", "mtls"], "bool"),
        { "first_of": [property(&["request", "method"], "uint"), property(&["nothing", "here"], "string"),
            { "literal": "else" }] },
    ] }] }] });
    let stack = stack(1, plugin).await;
    let answer = stack.get("/", &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(stack.get("/", &[]).await.status, 429);
    let keys = stack.redis().keys().await;
    let key = "{prop.request.protocol=HTTP/1.1,prop.request.size=0,prop.connection.mtls=false,literal=else}";
    assert!(keys.iter().any(|known| known.contains(key)), "{keys:?}");
    // Another version of HTTP is another value.
    let h2 = harness::H2::connect(&stack.envoy.address()).await;
    assert_eq!(h2.get("/", &[]).await.status, 200);
    stack.envoy.assert_no_trap();
}

/// A hashed key does not leave the proxy; a roll-out limits the same share of clients whatever worker they meet.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_hashed_and_rules_are_rolled_out() {
    let mut plugin = per_key("p");
    plugin["rules"][0]["limits"][0]["hash"] = json!(true);
    // printf org_9921 | sha256sum
    let digest = "sha256=403d708eb0798c4e17156ad612f33829c688ea2081ac53ea690fd0cb9c899d2a";
    let policies = json!([{ "name": "p", "algorithm": "fixed_window", "limit": 1, "window": "1h",
        "overrides": [{ "key": digest, "limit": "unlimited" }] }]);
    let options = Options { policies: policies.to_string(), plugin: Some(plugin.clone()), ..Options::default() };
    let hashed = Stack::start(options).await;
    assert_eq!(hashed.burst("/", &[("x-api-key", "org_9921")], 3).await, [(200, 3)].into());
    for _ in 0..20 {
        hashed.get("/", &[("x-api-key", "org_1")]).await;
    }
    assert_eq!(hashed.get("/", &[("x-api-key", "org_1")]).await.status, 429);

    plugin["rules"][0]["percent"] = json!(40);
    let part = stack(1, plugin).await;
    let limited = async |key: u32| {
        let key = format!("org_{key}");
        part.burst("/", &[("x-api-key", &key)], 4).await.contains_key(&429)
    };
    let mut count = 0;
    for key in 0..50 {
        count += usize::from(limited(key).await);
    }
    // 50 fixed keys, so the same number on every run.
    assert_eq!(count, 20);
    assert_eq!(part.envoy.stat("wasmcustom.weir.rule.all.outcome.exempt").await, 4 * (50 - count as u64));
}

/// Exempt by address or by a value: no check is made, and the access log says why.
#[tokio::test(flavor = "multi_thread")]
async fn the_allow_list_exempts() {
    let plugin = json!({ "rules": [{ "name": "all",
        "allow": [{ "client_ip": {}, "values": ["10.0.0.0/8", "2001:db8::/32"] },
            { "header": "x-api-key", "values": ["internal-batch"] }],
        "limits": [{ "policy": "p", "key": [{ "literal": "all" }] }] }] });
    let stack = stack_behind_a_balancer(1, plugin).await;
    let get =
        async |address: &str, key: &str| stack.get("/", &[("x-forwarded-for", address), ("x-api-key", key)]).await;
    assert_eq!(get("192.0.2.1", "k").await.status, 200);
    assert_eq!(get("192.0.2.1", "k").await.status, 429);
    for (address, key) in
        [("10.1.2.3", "k"), ("::ffff:10.1.2.3", "k"), ("2001:db8::1", "k"), ("192.0.2.1", "internal-batch")]
    {
        let answer = get(address, key).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (200, None), "{address} {key}");
    }
    // Not for what a client writes in front of the balancer's entry.
    assert_eq!(get("10.1.2.3, 192.0.2.1", "k").await.status, 429);
    assert_eq!(stack.envoy.stat("wasmcustom.weir.rule.all.outcome.exempt").await, 4);
    assert!(
        harness::eventually("the access log", Duration::from_secs(10), async || {
            stack.envoy.access_log().contains("weir=exempt").then_some(true)
        })
        .await
    );
}

/// Claims of tokens that Envoy has verified; forged and missing ones never reach the filter as claims.
#[tokio::test(flavor = "multi_thread")]
async fn verified_claims_are_keys() {
    let plugin = json!({ "rules": [{ "name": "all",
        "allow": [{ "jwt_claim": { "path": ["payload", "role"] }, "values": ["admin"] }],
        "limits": [{ "policy": "p", "key": [{ "first_of": [
            { "jwt_claim": { "path": ["payload", "tenant", "id"] } },
            { "jwt_claim": { "path": ["payload", "level"], "type": "double" } },
        ] }] }] }] });
    let policies = policy("p", "fixed_window", 2, long_window(Duration::from_secs(60)));
    let edit = |config: &mut Value| {
        let filters = connection_manager(config)["http_filters"].as_array_mut().unwrap();
        let at = filters.iter().position(|filter| filter["name"] == "weir").unwrap();
        filters.insert(at, jwt::filter());
    };
    let stack =
        Stack::start(Options { policies, plugin: Some(plugin), edit: Some(Box::new(edit)), ..Options::default() })
            .await;
    let get = async |claims: Value| {
        let token = format!("Bearer {}", jwt::token(&claims));
        stack.get("/", &[("authorization", &token)]).await.status
    };
    let org = |number: u32| json!({ "iss": "weir", "jti": number.to_string(), "tenant": { "id": "org_1" } });
    // Another token of the same tenant is the same client.
    assert_eq!([get(org(1)).await, get(org(2)).await, get(org(3)).await], [200, 200, 429]);
    assert_eq!(get(json!({ "iss": "weir", "tenant": { "id": "org_2" } })).await, 200);
    assert_eq!(get(json!({ "iss": "weir", "tenant": { "id": "org_1" }, "role": "admin" })).await, 200);
    for _ in 0..2 {
        assert_eq!(get(json!({ "iss": "weir", "level": 7 })).await, 200);
    }
    assert_eq!(get(json!({ "iss": "weir", "level": 7.0 })).await, 429);
    // What is not a text is missing, so that the address takes its place, or is some bytes; nothing traps.
    for claims in [
        json!({}),
        json!({ "tenant": null }),
        json!({ "tenant": { "id": null } }),
        json!({ "tenant": [] }),
        json!({ "tenant": {}, "level": "x" }),
        json!({ "level": null }),
        json!({ "tenant": { "id": ["a", 1, null] } }),
        json!({ "tenant": { "id": { "a": [true] } } }),
        json!({ "tenant": { "id": true } }),
        json!({ "tenant": { "id": "" } }),
    ] {
        let mut all = json!({ "iss": "weir" });
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let status = get(all).await;
        assert!(status == 200 || status == 429, "{claims}: {status}");
    }
    let keys = stack.redis().keys().await;
    assert!(keys.iter().any(|key| key.contains("{org_1}")), "{keys:?}");
    assert!(keys.iter().any(|key| key.contains("{7}")), "{keys:?}");
    assert!(keys.iter().any(|key| key.contains("{ip=127.0.0.1}")), "{keys:?}");

    let forged = format!("Bearer {}x", jwt::token(&org(4)));
    assert_eq!(stack.get("/", &[("authorization", &forged)]).await.status, 401);
    stack.envoy.assert_no_trap();
}

/// D10: the name of a header in any case, in the configuration and over both versions of HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_headers_have_no_case() {
    for name in ["X-Api-Key", "x-api-key", "X-API-KEY"] {
        let mut plugin = per_key("p");
        plugin["rules"][0]["limits"][0]["key"] = json!([{ "header": name }]);
        let stack = stack(2, plugin).await;
        assert_eq!(stack.get("/", &[("x-api-key", "K")]).await.status, 200);
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nX-aPi-KEY: K\r\n\r\n";
        assert_eq!(status(&raw(&stack.envoy.address(), request).await), 200);
        let h2 = harness::H2::connect(&stack.envoy.address()).await;
        assert_eq!(h2.get("/", &[("x-api-key", "K")]).await.status, 429);
        assert_eq!(h2.get("/", &[("x-api-key", "k")]).await.status, 200, "a value has a case");
    }
}

/// C20: whatever a client writes into X-Forwarded-For, it cannot change the address that the balancer appended.
#[tokio::test(flavor = "multi_thread")]
async fn no_forwarded_for_hands_out_a_second_limit() {
    let plugin = json!({ "rules": [{ "name": "all", "limits": [{ "policy": "p", "key": [{ "client_ip": {} }] }] }] });
    let behind = stack_behind_a_balancer(3, plugin).await;
    let many = (0..500).map(|host| format!("192.0.2.{}", host % 250)).collect::<Vec<_>>().join(", ");
    let huge = "203.0.113.7, ".repeat(16 * 1024 / 13);
    let untrusted = [
        "",
        ", ,1.2.3.4",
        "1.2.3.4:5678",
        "[2001:db8::7]:443",
        "2001:db8::1:8080",
        "unknown",
        "_x",
        "fe80::1%eth0",
        &many,
        huge.trim_end_matches(", "),
        "\"quoted\"",
    ];
    let mut statuses = Vec::new();
    for forwarded in untrusted {
        statuses.push(behind.get("/", &[("x-forwarded-for", &format!("{forwarded}, 198.51.100.1"))]).await.status);
        // Two lines are one list (RFC 9110 section 5.3).
        let lines = [("x-forwarded-for", forwarded), ("x-forwarded-for", "198.51.100.1")];
        statuses.push(behind.get("/", &lines).await.status);
    }
    assert_eq!(statuses[..3], [200; 3]);
    assert_eq!(statuses[3..], [429; 19]);

    // What the balancer itself garbles is no address: the address of the connection takes its place.
    let garbled = ["unknown", "_x", "1.2.3", "198.51.100.1, unknown"];
    let statuses: Vec<u16> = {
        let mut statuses = Vec::new();
        for forwarded in garbled {
            statuses.push(behind.get("/", &[("x-forwarded-for", forwarded)]).await.status);
        }
        statuses
    };
    assert_eq!(statuses, [200, 200, 200, 429]);
    behind.envoy.assert_no_trap();
}

mod jwt {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use serde_json::{Value, json};
    use sha2::Sha256;

    const SECRET: &[u8] = b"a secret of the test, of 32 bytes";

    /// A signed token (RFC 7519, HS256).
    pub fn token(claims: &Value) -> String {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let head = encode(json!({ "alg": "HS256", "typ": "JWT", "kid": "k" }).to_string().as_bytes());
        let signed = format!("{head}.{}", encode(claims.to_string().as_bytes()));
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap();
        mac.update(signed.as_bytes());
        format!("{signed}.{}", encode(&mac.finalize().into_bytes()))
    }

    /// Envoy's filter that verifies them and leaves the claims under `payload`.
    pub fn filter() -> Value {
        let keys =
            json!({ "keys": [{ "kty": "oct", "alg": "HS256", "kid": "k", "k": URL_SAFE_NO_PAD.encode(SECRET) }] });
        json!({ "name": "envoy.filters.http.jwt_authn", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": { "weir": { "issuer": "weir", "payload_in_metadata": "payload",
                "local_jwks": { "inline_string": keys.to_string() } } },
            "rules": [{ "match": { "prefix": "/" }, "requires": { "provider_name": "weir" } }],
        } })
    }
}
