use weir_protocol::fields::Style;

use super::*;
use crate::reply::GrpcStatus;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const ALLOWED: &str = r#"{"allowed":true,"limits":[{"policy":"per-key","allowed":true,"limit":100,"window_ms":60000,
    "unit":"requests","remaining":57,"reset_ms":11001,"retry_after_ms":0}]}"#;
const REFUSED: &str = r#"{"allowed":false,"limits":[{"policy":"per-key","allowed":false,"limit":100,"window_ms":60000,
    "unit":"requests","remaining":0,"reset_ms":11001,"retry_after_ms":11001}]}"#;

fn config(rule: &str) -> Config {
    let text = format!(r#"{{"service":{{"cluster":"weir"}},"rules":[{{"name":"api",{rule}}}]}}"#);
    Config::parse(text.as_bytes()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn per_key() -> Config {
    config(r#""limits":[{"policy":"per-key","key":[{"header":"x-api-key"}]}]"#)
}

fn on_request(exchange: &mut Exchange, config: &Config, headers: &[(&str, &str)]) -> Transition {
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    exchange.on_request(config, &Request::new(&headers, &|_| Some(b"192.0.2.7:4711".to_vec())))
}

fn asked(transition: &Transition) -> &str {
    match &transition.step {
        Step::Ask(check) => std::str::from_utf8(check).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn answered(status: u16, body: &str) -> Answer {
    Answer::Answered { status, body: body.as_bytes().to_vec() }
}

fn header<'a>(reply: &'a LocalReply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

/// An exchange that has asked, as client `k`.
fn asking(config: &Config) -> Exchange {
    let mut exchange = Exchange::default();
    let transition = on_request(&mut exchange, config, &[("x-api-key", "k")]);
    assert_eq!(asked(&transition), r#"{"limits":[{"policy":"per-key","key":"k","cost":1}]}"#);
    exchange
}

#[test]
fn an_admitted_request_passes_and_its_response_shows_the_limit() {
    let config = per_key();
    let mut exchange = asking(&config);
    let transition = exchange.on_answer(&config, answered(200, ALLOWED));
    assert_eq!((transition.step, transition.outcomes), (Step::Continue, vec![Outcome::Allowed]));
    assert!(exchange.wants_response());
    assert_eq!(
        exchange.on_response(&config, |_| false),
        [
            ("ratelimit-policy", "\"per-key\";q=100;w=60"),
            ("ratelimit", "\"per-key\";r=57;t=12"),
            ("ratelimit-limit", "100"),
            ("ratelimit-remaining", "57"),
            ("ratelimit-reset", "12"),
        ]
        .map(|(name, value)| Edit::Set(name, value.to_owned()))
    );
}

#[test]
fn a_refused_request_is_answered_429_once() {
    let config = per_key();
    let mut exchange = asking(&config);
    let transition = exchange.on_answer(&config, answered(200, REFUSED));
    assert_eq!(transition.outcomes, [Outcome::Refused]);
    let Step::Reply(reply) = transition.step else { panic!() };
    assert_eq!(reply.status, 429);
    assert_eq!(header(&reply, "retry-after"), Some("12"));
    assert_eq!(header(&reply, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&reply, "cache-control"), Some("no-store"));
    assert_eq!(header(&reply, "ratelimit"), Some("\"per-key\";r=0;t=12"));
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(body["violated-policies"], serde_json::json!(["per-key"]));
    assert_eq!(body["status"], 429);
    // Neither the reply's own headers nor a second answer does anything more.
    assert!(!exchange.wants_response());
    assert_eq!(exchange.on_answer(&config, answered(200, REFUSED)).step, Step::Continue);
}

#[test]
fn a_cost_above_capacity_has_no_retry_after() {
    let config = per_key();
    let body = REFUSED.replace(r#""retry_after_ms":11001"#, r#""retry_after_ms":null"#);
    let Step::Reply(reply) = asking(&config).on_answer(&config, answered(200, &body)).step else { panic!() };
    assert_eq!((reply.status, header(&reply, "retry-after")), (429, None));
}

#[test]
fn whatever_is_no_verdict_meets_the_failure_mode() {
    let open = per_key();
    let closed = config(r#""failure_mode":"closed","limits":[{"policy":"per-key","key":[{"header":"x-api-key"}]}]"#);
    let answers = || {
        let not_utf8 = Answer::Answered { status: 200, body: vec![0xff; 9] };
        let mut answers = vec![Answer::NotSent, Answer::NoAnswer, Answer::TooLarge(2_000_000), not_utf8];
        for status in [204, 301, 400, 401, 404, 413, 429, 500, 503, 504] {
            answers.push(answered(status, ALLOWED));
        }
        for body in
            ["", "<html>", "{}", "null", r#"{"allowed":true}"#, r#"{"allowed":true,"limits":[]}"#, &ALLOWED[..60]]
        {
            answers.push(answered(200, body));
        }
        answers.push(answered(200, &REFUSED.replacen("false", "true", 1)));
        answers.push(answered(200, &ALLOWED.replace("57", "\"57\"")));
        answers
    };
    for (index, answer) in answers().into_iter().enumerate() {
        let mut exchange = asking(&open);
        let transition = exchange.on_answer(&open, answer);
        assert_eq!(transition.step, Step::Continue, "{index}");
        assert_eq!(transition.outcomes.last(), Some(&Outcome::FailedOpen), "{index}");
        assert!(transition.failure.is_some_and(|failure| !failure.reason.is_empty()));
        assert!(!exchange.wants_response(), "nothing is known, so nothing is shown");
    }
    for (index, answer) in answers().into_iter().enumerate() {
        let transition = asking(&closed).on_answer(&closed, answer);
        let Step::Reply(reply) = transition.step else { panic!("{index}") };
        assert_eq!((reply.status, header(&reply, "retry-after")), (503, Some("1")), "{index}");
        assert_eq!(header(&reply, "ratelimit"), None);
        assert_eq!(transition.outcomes.last(), Some(&Outcome::FailedClosed));
    }
}

#[test]
fn a_request_that_the_host_does_not_show_meets_the_failure_mode() {
    let mut config = per_key();
    let transition = Exchange::default().on_unreadable(&config);
    assert_eq!((transition.step, transition.outcomes), (Step::Continue, vec![Outcome::FailedOpen]));
    config.failure_mode = FailureMode::Closed;
    let transition = Exchange::default().on_unreadable(&config);
    assert!(matches!(transition.step, Step::Reply(reply) if reply.status == 503));
    assert!(transition.failure.is_some());
}

#[test]
fn a_check_that_the_service_refuses_is_a_misconfiguration() {
    let config = per_key();
    for (status, misconfigured) in [(400, true), (401, true), (404, true), (413, false), (500, false), (503, false)] {
        let body = r#"{"type":"about:blank","title":"x","status":404,"detail":"unknown policy\r\n\"per-key\""}"#;
        let transition = asking(&config).on_answer(&config, answered(status, body));
        let failure = transition.failure.unwrap();
        assert_eq!(failure.misconfigured, misconfigured, "{status}");
        assert_eq!(failure.reason, format!("status {status}: unknown policy\"per-key\""));
        assert_eq!(transition.outcomes.contains(&Outcome::Misconfigured), misconfigured);
    }
}

#[test]
fn a_reason_cannot_forge_or_fill_the_log() {
    let config = per_key();
    let forged = ALLOWED.replace(r#""unit""#, r#""mode":"x\n[critical] forged","unit""#);
    let long = format!(r#"{{"detail":"{}"}}"#, "a".repeat(100_000));
    for answer in [answered(200, &forged), answered(503, &long), answered(404, r#"{"detail":"a\u001b[31m\nb"}"#)] {
        let reason = asking(&config).on_answer(&config, answer).failure.unwrap().reason;
        assert!(!reason.contains(char::is_control) && reason.len() <= 300, "{reason:?}");
    }
}

#[test]
fn the_first_matching_rule_decides_and_skip_asks_nothing() {
    let text = r#"{"service":{"cluster":"weir"},"rules":[
        {"name":"health","match":{"path":{"exact":"/healthz"}},"skip":true},
        {"name":"api","match":{"path":{"prefix":"/api/"}},"limits":[{"policy":"a","key":[{"literal":"all"}]}]},
        {"name":"deep","match":{"path":{"prefix":"/api/deep"}},"limits":[{"policy":"b","key":[{"literal":"all"}]}]}]}"#;
    let config = Config::parse(text.as_bytes()).unwrap();
    let step = |path| on_request(&mut Exchange::default(), &config, &[(":path", path)]);
    assert_eq!((step("/healthz").step, step("/healthz").rule), (Step::Continue, Some(0)));
    assert!(asked(&step("/api/deep")).contains(r#""policy":"a""#));
    assert_eq!((step("/other").step, step("/other").rule), (Step::Continue, None));
}

#[test]
fn a_missing_key_is_decided_by_the_rule() {
    // D11, D12
    let with = |policy: &str| {
        let config = config(&format!(r#""limits":[{{"policy":"per-key","key":[{{"header":"x-api-key"}}]{policy}}}]"#));
        [vec![], vec![("x-api-key", "")], vec![("x-api-key", "  ")]].map(|headers| {
            let transition = on_request(&mut Exchange::default(), &config, &headers);
            assert_eq!(transition.outcomes.first(), Some(&Outcome::KeyMissing));
            transition
        })
    };
    for transition in with("").iter().chain(&with(r#","on_missing_key":"client_ip""#)) {
        assert_eq!(asked(transition), r#"{"limits":[{"policy":"per-key","key":"ip=192.0.2.7","cost":1}]}"#);
    }
    for transition in with(r#","on_missing_key":"skip""#) {
        assert_eq!(transition.step, Step::Continue);
    }
    for transition in with(r#","on_missing_key":"reject""#) {
        let Step::Reply(reply) = transition.step else { panic!() };
        assert_eq!(reply.status, 400);
        assert_eq!(transition.outcomes.last(), Some(&Outcome::Rejected));
    }
}

#[test]
fn a_key_or_cost_with_several_values_is_refused() {
    // D13
    let config = config(
        r#""limits":[{"policy":"p","key":[{"first_of":[{"header":"x-api-key"},{"client_ip":{}}]}],
            "cost":{"header":"x-cost","max":9}}]"#,
    );
    for headers in [
        [("x-api-key", "K"), ("x-api-key", "rnd")],
        [("x-api-key", "K"), ("x-api-key", "K")],
        [("x-api-key", "K"), ("x-api-key", "")],
        [("x-cost", "1"), ("x-cost", "2")],
    ] {
        let transition = on_request(&mut Exchange::default(), &config, &headers);
        let Step::Reply(reply) = transition.step else { panic!("{headers:?}") };
        assert_eq!(reply.status, 400);
        assert!(String::from_utf8(reply.body).unwrap().contains("several values"));
    }
}

#[test]
fn a_cost_is_a_decimal_integer_within_bounds() {
    // A26
    let config = config(
        r#""limits":[{"policy":"p","key":[{"literal":"all"}],"cost":{"header":"X-Cost","default":2,"min":1,"max":1000}}]"#,
    );
    for (value, cost) in [
        ("5", 5),
        ("0", 1),
        ("007", 7),
        ("1000", 1000),
        ("1001", 1000),
        ("9223372036854775808", 1000),
        ("99999999999999999999999999", 1000),
        ("", 2),
        ("-1", 1000),
        ("+5", 1000),
        ("1.5", 1000),
        ("1e400", 1000),
        ("NaN", 1000),
        ("0x10", 1000),
        ("5 5", 1000),
        ("true", 1000),
    ] {
        let transition = on_request(&mut Exchange::default(), &config, &[("x-cost", value)]);
        assert!(asked(&transition).contains(&format!(r#""cost":{cost}}}"#)), "{value}: {}", asked(&transition));
    }
    assert!(asked(&on_request(&mut Exchange::default(), &config, &[])).contains(r#""cost":2}"#));
}

#[test]
fn preflights_are_free_unless_told_otherwise() {
    // D05
    let rule = r#""limits":[{"policy":"p","key":[{"literal":"all"}]}]"#;
    let preflight =
        [(":method", "OPTIONS"), ("origin", "https://app.example"), ("access-control-request-method", "PUT")];
    let free = config(rule);
    assert_eq!(on_request(&mut Exchange::default(), &free, &preflight).step, Step::Continue);
    assert!(matches!(on_request(&mut Exchange::default(), &free, &preflight[..1]).step, Step::Ask(_)));
    let mut checked = free;
    checked.preflights = Preflights::Checked;
    assert!(matches!(on_request(&mut Exchange::default(), &checked, &preflight).step, Step::Ask(_)));
}

#[test]
fn fields_of_the_upstream_are_replaced_or_kept() {
    // D04
    let mut config = per_key();
    config.styles = vec![Style::Ietf, Style::XRateLimit];
    let mut exchange = asking(&config);
    exchange.on_answer(&config, answered(200, ALLOWED));
    let names = |edits: Vec<Edit>| -> Vec<String> {
        edits
            .iter()
            .map(|edit| match edit {
                Edit::Set(name, _) => format!("+{name}"),
                Edit::Remove(name) => format!("-{name}"),
            })
            .collect()
    };
    let upstream = |name: &str| name == "x-ratelimit-reset";
    assert_eq!(
        names(exchange.on_response(&config, upstream)),
        ["+ratelimit-policy", "+ratelimit", "+x-ratelimit-limit", "+x-ratelimit-remaining", "+x-ratelimit-reset"]
    );
    config.upstream_headers = UpstreamHeaders::Keep;
    assert_eq!(names(exchange.on_response(&config, upstream)), ["+ratelimit-policy", "+ratelimit"]);
}

#[test]
fn an_unlimited_client_has_no_fields_and_shadow_is_told() {
    let config = per_key();
    let mut exchange = asking(&config);
    let unlimited = r#"{"allowed":true,"limits":[{"policy":"per-key","allowed":true,"limit":null,"window_ms":60000,
        "unit":"requests","remaining":null,"reset_ms":0,"retry_after_ms":0}]}"#;
    exchange.on_answer(&config, answered(200, unlimited));
    assert_eq!(exchange.on_response(&config, |_| false), []);
    assert_eq!(exchange.on_response(&config, |name| name == "ratelimit").len(), 2, "the upstream's do not stay");

    let shadow = REFUSED.replacen("false", "true", 1).replace(r#""unit""#, r#""mode":"shadow","unit""#);
    let transition = asking(&config).on_answer(&config, answered(200, &shadow));
    assert_eq!((transition.step, transition.outcomes), (Step::Continue, vec![Outcome::Shadow]));
}

#[test]
fn a_degraded_answer_is_counted_and_holds() {
    let config = per_key();
    let body = REFUSED.replacen("{", r#"{"degraded":"local","#, 1);
    let transition = asking(&config).on_answer(&config, answered(200, &body));
    assert_eq!(transition.outcomes, [Outcome::Degraded, Outcome::Refused]);
}

#[test]
fn an_answer_to_no_question_changes_nothing() {
    let config = per_key();
    let mut exchange = Exchange::default();
    assert_eq!(exchange.on_answer(&config, answered(200, REFUSED)).step, Step::Continue);
    assert_eq!(exchange.on_response(&config, |_| true), []);
}

#[test]
fn whoever_is_on_the_allow_list_is_not_asked_about() {
    let config = config(
        r#""allow":[{"client_ip":{},"values":["192.0.2.0/24"]},{"header":"x-api-key","values":["batch"]}],
        "limits":[{"policy":"per-key","key":[{"header":"x-api-key"}],"on_missing_key":"reject"}]"#,
    );
    let from = |address: &'static str, key: &[(&str, &str)]| {
        let headers: Vec<_> =
            key.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let mut exchange = Exchange::default();
        let property = |_: &[&str]| Some(address.as_bytes().to_vec());
        let transition = exchange.on_request(&config, &Request::new(&headers, &property));
        assert!(!exchange.wants_response());
        (matches!(transition.step, Step::Continue), transition.outcomes)
    };
    assert_eq!(from("192.0.2.7:1", &[]), (true, vec![Outcome::Exempt]));
    assert_eq!(from("198.51.100.7:1", &[("x-api-key", "batch")]), (true, vec![Outcome::Exempt]));
    assert_eq!(from("198.51.100.7:1", &[("x-api-key", "other")]), (false, vec![]));
    assert_eq!(
        from("198.51.100.7:1", &[("x-api-key", "batch"), ("x-api-key", "other")]),
        (false, vec![Outcome::Rejected])
    );
}

#[test]
fn a_rule_limits_a_share_of_its_keys() {
    let limits = r#""limits":[{"policy":"per-key","key":[{"header":"x-api-key"}]},
        {"policy":"all","key":[{"literal":"all"}],"hash":true}]"#;
    let outcomes = |percent: u8, key: &str| {
        let config = config(&format!(r#""percent":{percent},{limits}"#));
        on_request(&mut Exchange::default(), &config, &[("x-api-key", key)])
    };
    let none = outcomes(0, "k");
    assert_eq!((none.step, none.outcomes), (Step::Continue, vec![Outcome::Exempt, Outcome::Exempt]));
    let all = outcomes(100, "k");
    assert!(asked(&all).contains(r#""key":"k""#) && asked(&all).contains(r#""key":"sha256="#));
    assert_eq!(all.outcomes, []);
    // A key that is in brings its own limit alone.
    let asked = (0..100).filter(|key| matches!(outcomes(30, &format!("k{key}")).step, Step::Ask(_))).count();
    let literal = matches!(outcomes(30, "k").step, Step::Ask(_));
    assert!(literal || (1..99).contains(&asked), "{asked}");
}

fn told(exchange: &Exchange, config: &Config) -> Vec<Edit> {
    exchange.on_response(config, |_| true)
}

#[test]
fn a_rule_in_shadow_mode_changes_no_answer_and_tells() {
    let limits = r#""limits":[{"policy":"per-key","key":[{"header":"x-api-key"}],"on_missing_key":"reject"}]"#;
    let shadow = |more: &str| config(&format!(r#""mode":"shadow",{more}{limits}"#));
    let field = |value: &str| [Edit::Set("weir-shadow", value.to_owned())];
    let answered_by = |config: &Config, answer: Answer| {
        let mut exchange = asking(config);
        let transition = exchange.on_answer(config, answer);
        assert_eq!(transition.step, Step::Continue);
        assert!(exchange.wants_response());
        (transition.outcomes, told(&exchange, config))
    };
    let open = shadow("");
    let closed = shadow(r#""failure_mode":"closed","#);
    let (outcomes, edits) = answered_by(&open, answered(200, ALLOWED));
    assert_eq!((outcomes, &edits[..]), (vec![Outcome::Allowed], &field(r#"allowed;rule="api""#)[..]));
    let (outcomes, edits) = answered_by(&open, answered(200, REFUSED));
    assert_eq!((outcomes, &edits[..]), (vec![Outcome::Shadow], &field(r#"refused;rule="api""#)[..]));
    let (outcomes, edits) = answered_by(&open, Answer::NoAnswer);
    assert_eq!((outcomes, &edits[..]), (vec![Outcome::FailedOpen], &field(r#"failed_open;rule="api""#)[..]));
    let (outcomes, edits) = answered_by(&closed, Answer::NoAnswer);
    assert_eq!((outcomes, &edits[..]), (vec![Outcome::FailedOpen], &field(r#"failed_closed;rule="api""#)[..]));

    let mut exchange = Exchange::default();
    let transition = on_request(&mut exchange, &open, &[]);
    assert_eq!((transition.step, transition.outcomes), (Step::Continue, vec![Outcome::KeyMissing, Outcome::Shadow]));
    assert_eq!(told(&exchange, &open), field(r#"rejected;rule="api""#));

    let mut silent = shadow("");
    silent.styles.clear();
    let mut exchange = asking(&silent);
    exchange.on_answer(&silent, answered(200, REFUSED));
    assert_eq!(told(&exchange, &silent), []);
}

fn refused(config: &Config, seed: u64, content_type: &str) -> LocalReply {
    let mut exchange = Exchange::new(seed);
    on_request(&mut exchange, config, &[("x-api-key", "k"), ("content-type", content_type)]);
    match exchange.on_answer(config, answered(200, REFUSED)).step {
        Step::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rule_has_its_own_refusal() {
    let refusal = r#""refusal":{"status":503,"body":"<p>later</p>","content_type":"text/html",
        "headers":[{"name":"X-Reason","value":"quota"}]},"#;
    let limits = r#""limits":[{"policy":"per-key","key":[{"header":"x-api-key"}]}]"#;
    let config = config(&format!("{refusal}{limits}"));
    let reply = refused(&config, 0, "application/json");
    assert_eq!((reply.status, reply.body.as_slice()), (503, b"<p>later</p>".as_slice()));
    assert_eq!(header(&reply, "content-type"), Some("text/html"));
    assert_eq!(reply.headers.iter().filter(|(name, _)| name == "content-type").count(), 1);
    assert_eq!(header(&reply, "x-reason"), Some("quota"));
    assert_eq!(header(&reply, "retry-after"), Some("12"));
    // To gRPC, a status and a body of HTTP mean nothing.
    let reply = refused(&config, 0, "application/grpc");
    assert_eq!(reply.grpc_status, Some(GrpcStatus::ResourceExhausted));
    assert_eq!(reply.body, b"per-key has no quota left for this request: retry in 12 s");
    assert_eq!(header(&reply, "grpc-retry-pushback-ms"), Some("12000"));
    assert_eq!((header(&reply, "content-type"), header(&reply, "x-reason")), (None, Some("quota")));
    let reply = refused(&config, 0, "application/grpc-web+proto");
    assert_eq!((reply.status, reply.body.get(5..18)), (200, Some(b"grpc-status:8".as_slice())));
    assert!(header(&reply, "ratelimit").is_some());
}

#[test]
fn jitter_spreads_waits_and_shortens_none() {
    let mut config = per_key();
    config.retry_after_jitter_s = 5;
    let mut seen: Vec<u64> =
        (0..600).map(|seed| header(&refused(&config, seed, ""), "retry-after").unwrap().parse().unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [12, 13, 14, 15, 16, 17]);
    let reply = refused(&config, 5, "");
    assert_eq!(header(&reply, "ratelimit-reset"), Some("12"), "the fields tell the truth");
    assert!(String::from_utf8(reply.body).unwrap().contains("retry in 17 s"));
}
