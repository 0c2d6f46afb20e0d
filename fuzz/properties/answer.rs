//! Any answer of the service to a check that was asked.

use arbitrary::{Result, Unstructured};
use serde_json::{Value, json};
use weir_filter::answer::Answer;
use weir_filter::config::{Config, FailureMode, Rule, UpstreamHeaders};
use weir_filter::exchange::{Edit, Exchange, Step, Transition};
use weir_filter::reply::{GrpcStatus, LocalReply};
use weir_filter::stats::Outcome;
use weir_protocol::fields::Style;
use weir_protocol::{CheckRequest, Mode};

use super::bytes;
use super::exchange::{on_answer, on_request, on_response};
use super::request::CONFIGS;

/// Paths that some rule asks about.
const PATHS: [&str; 7] = ["/api/a", "/keys/a", "/first", "/costs", "/shadow", "/many/a/b", "/"];
const CONTENT_TYPES: [&str; 4] = ["", "application/grpc", "application/grpc-web", "application/grpc-web-text+proto"];

/// What the service sent, and what is known of it.
struct Sent {
    answer: Answer,
    /// The status and the body, where there was an answer.
    parsed: Option<(u16, Option<Value>)>,
    /// Made as a service makes it: it has to be understood.
    is_sound: bool,
}

/// A request that asks, then an answer, a response, and a second answer.
pub fn holds(data: &[u8]) {
    let _ = run(&mut Unstructured::new(data));
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let config = u.choose(&CONFIGS)?;
    let (path, content_type) = (*u.choose(&PATHS)?, *u.choose(&CONTENT_TYPES)?);
    let mut exchange = Exchange::new(u.arbitrary()?);
    let headers = [
        (":method", "GET"),
        (":authority", "api.example.com"),
        (":path", path),
        ("content-type", content_type),
        ("x-api-key", "org_1"),
    ]
    .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    let address = |_: &[&str]| Some(b"198.51.100.7:4711".to_vec());
    let (transition, Some(check)) = on_request(&mut exchange, config, &headers, &address) else { return Ok(()) };
    let rule = &config.rules[transition.rule.expect("a rule that asks")];

    let sent = sent(u, &check)?;
    let transition = on_answer(&mut exchange, config, sent.answer);
    match (&transition.failure, sent.parsed) {
        (None, Some((200, Some(reply)))) => verdict(config, rule, &check, &reply, &transition),
        (None, parsed) => panic!("no failure for {parsed:?}"),
        (Some(failure), parsed) => {
            assert!(!sent.is_sound, "{}: {parsed:?}", failure.reason);
            let refused_itself = matches!(parsed, Some((400 | 401 | 404, _)));
            assert_eq!(failure.misconfigured, refused_itself);
            failed(rule, &transition);
        }
    }

    let present: u16 = u.arbitrary()?;
    let edits = response(&exchange, config, present);
    let second = match u.arbitrary::<bool>()? {
        true => Answer::NoAnswer,
        false => Answer::Answered { status: 200, body: sound(u, &check)?.to_string().into_bytes() },
    };
    on_answer(&mut exchange, config, second);
    assert_eq!(response(&exchange, config, present), edits);
    Ok(())
}

/// What became of a request with a verdict, told from the JSON of the answer alone.
fn verdict(config: &Config, rule: &Rule, check: &CheckRequest, reply: &Value, transition: &Transition) {
    let limits = reply["limits"].as_array().expect("limits");
    assert_eq!(limits.len(), check.limits.len());
    for (asked, limit) in check.limits.iter().zip(limits) {
        assert_eq!(limit["policy"], asked.policy.as_str());
    }
    let refusing: Vec<_> =
        limits.iter().filter(|limit| limit["allowed"] == false && limit["mode"] != "shadow").collect();
    assert_eq!(reply["allowed"], refusing.is_empty());
    let degraded = reply.get("degraded").is_some_and(|degraded| !degraded.is_null());
    assert_eq!(transition.outcomes.contains(&Outcome::Degraded), degraded);
    let outcome = transition.outcomes.last().expect("an outcome");
    match &transition.step {
        Step::Reply(reply) => {
            assert_eq!((rule.mode, *outcome), (Mode::Enforce, Outcome::Refused));
            assert!(!refusing.is_empty(), "a refusal without a verdict");
            refusal(config, rule, &refusing, reply);
        }
        Step::Continue => {
            assert!(rule.mode == Mode::Shadow || refusing.is_empty(), "passed against the verdict");
            assert!(matches!(outcome, Outcome::Allowed | Outcome::Shadow));
        }
        Step::Ask(_) => panic!("asked again"),
    }
}

/// Status, and a wait that is never shorter than the truth, nor longer than it and the jitter.
fn refusal(config: &Config, rule: &Rule, refusing: &[&Value], reply: &LocalReply) {
    let header = |name: &str| reply.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let is_web = header("content-type").is_some_and(|value| value.starts_with("application/grpc-web"));
    assert_eq!(reply.status, if is_web { 200 } else { rule.refusal.status });
    assert!(matches!(reply.grpc_status, None | Some(GrpcStatus::ResourceExhausted)));
    let waits: Vec<Option<u64>> = refusing.iter().map(|limit| limit["retry_after_ms"].as_u64()).collect();
    let told: Option<u64> = header("retry-after").map(|value| value.parse().expect("whole seconds"));
    let longest = waits.iter().copied().collect::<Option<Vec<_>>>().and_then(|waits| waits.into_iter().max());
    assert_eq!(told.is_some(), longest.is_some(), "{waits:?}");
    if let (Some(told), Some(longest)) = (told, longest) {
        assert!(told * 1000 >= longest, "{told} s for {longest} ms");
        assert!(told <= longest / 1000 + 1 + config.retry_after_jitter_s, "{told} s for {longest} ms");
    }
}

/// What became of a request whose check failed: what the rule's failure mode says, and no refusal.
fn failed(rule: &Rule, transition: &Transition) {
    let outcome = transition.outcomes.last().expect("an outcome");
    match (&transition.step, rule.mode, rule.failure_mode) {
        (Step::Continue, Mode::Shadow, _) | (Step::Continue, Mode::Enforce, FailureMode::Open) => {
            assert_eq!(*outcome, Outcome::FailedOpen);
        }
        (Step::Reply(reply), Mode::Enforce, FailureMode::Closed) => {
            assert_eq!(*outcome, Outcome::FailedClosed);
            assert!(matches!(reply.status, 503 | 200), "{}", reply.status);
            assert!(matches!(reply.grpc_status, None | Some(GrpcStatus::Unavailable)));
        }
        (step, mode, failure_mode) => panic!("{step:?} in {mode:?}, {failure_mode:?}"),
    }
}

/// A response with some limit fields of the upstream's own, one a bit of `present`.
fn response(exchange: &Exchange, config: &Config, present: u16) -> Vec<Edit> {
    let names: Vec<_> = Style::ALL.iter().flat_map(|style| style.names()).copied().collect();
    let has = |name: &str| names.iter().position(|known| *known == name).is_some_and(|bit| present >> bit & 1 == 1);
    let edits = on_response(exchange, config, has);
    for edit in &edits {
        let name = match edit {
            Edit::Set(name, _) => *name,
            Edit::Remove(name) => {
                assert!(
                    Style::ALL
                        .iter()
                        .any(|style| style.names().contains(name) && style.names().iter().any(|name| has(name)))
                );
                *name
            }
        };
        let style = Style::ALL.iter().find(|style| style.names().contains(&name));
        assert!(style.is_none_or(|style| config.styles.contains(style)), "{name} was not asked for");
        if config.upstream_headers == UpstreamHeaders::Keep {
            assert!(style.is_none_or(|style| !style.names().iter().any(|name| has(name))), "{name} is the upstream's");
        }
    }
    edits
}

fn sent(u: &mut Unstructured<'_>, check: &CheckRequest) -> Result<Sent> {
    let unanswered = |answer| Sent { answer, parsed: None, is_sound: false };
    let (status, body, is_sound) = match u.int_in_range(0..=9)? {
        0 => {
            return Ok(unanswered(match u.int_in_range(0..=2)? {
                0 => Answer::NotSent,
                1 => Answer::NoAnswer,
                _ => Answer::TooLarge(u.arbitrary()?),
            }));
        }
        1 => (200, bytes(u, &[b"{\"allowed\":", b"false", b"true", b",\"limits\":[", b"]}", b"{"])?, false),
        2 => (status(u)?, problem(u)?, false),
        3 => (status(u)?, sound(u, check)?.to_string().into_bytes(), false),
        4..=6 => (200, sound(u, check)?.to_string().into_bytes(), true),
        7 | 8 => {
            let mut reply = sound(u, check)?;
            for _ in 0..u.int_in_range(1..=3)? {
                distort(u, &mut reply)?;
            }
            (200, reply.to_string().into_bytes(), false)
        }
        _ => {
            let mut body = sound(u, check)?.to_string().into_bytes();
            for _ in 0..u.int_in_range(1..=4)? {
                let at = u.choose_index(body.len())?;
                body[at] = *u.choose(b"{}[]:,\"0123456789-eE.tfn\\u \0\xff")?;
            }
            (200, body, false)
        }
    };
    let parsed = serde_json::from_slice(&body).ok();
    Ok(Sent { answer: Answer::Answered { status, body }, parsed: Some((status, parsed)), is_sound })
}

fn status(u: &mut Unstructured<'_>) -> Result<u16> {
    match u.int_in_range(0..=3)? {
        0 => u.arbitrary(),
        _ => u.choose(&[0, 100, 201, 204, 301, 400, 401, 404, 413, 429, 500, 503, 504]).copied(),
    }
}

fn problem(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let detail = bytes(u, &[b"no such policy", b"\n[forged] line", b"\x1b[31m", "é".as_bytes()])?;
    let problem = json!({
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": String::from_utf8_lossy(&detail),
    });
    Ok(problem.to_string().into_bytes())
}

/// A reply as the service makes it.
fn sound(u: &mut Unstructured<'_>, check: &CheckRequest) -> Result<Value> {
    let mut allowed = true;
    let mut limits = Vec::new();
    for asked in &check.limits {
        let (admits, shadow): (bool, bool) = (u.ratio(2, 3)?, u.ratio(1, 5)?);
        allowed &= admits || shadow;
        let mut limit = json!({
            "policy": asked.policy,
            "allowed": admits,
            "limit": number(u)?.max(1),
            "window_ms": u.choose(&[1u64, 250, 1000, 60_000, 3660 * 86_400_000])?,
            "unit": u.choose(&["requests", "tokens", "a-1"])?,
            "remaining": number(u)?,
            "reset_ms": number(u)?,
            "retry_after_ms": if admits { json!(0) } else if u.ratio(1, 4)? { Value::Null } else { json!(number(u)?.max(1)) },
        });
        match u.int_in_range(0..=5)? {
            0 if admits => (limit["limit"], limit["remaining"]) = (Value::Null, Value::Null),
            1 => limit["burst"] = number(u)?.into(),
            2 => limit["calendar"] = "month".into(),
            3 => limit["added_later"] = json!([{}]),
            _ => {}
        }
        if shadow {
            limit["mode"] = "shadow".into();
        }
        limits.push(limit);
    }
    let mut reply = json!({ "allowed": allowed, "limits": limits });
    if u.ratio(1, 8)? {
        reply["degraded"] = "local".into();
    }
    Ok(reply)
}

fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    match u.int_in_range(0..=3)? {
        0 => u.int_in_range(0..=999_999_999_999_999),
        _ => u.choose(&[0, 1, 999, 1000, 1001, 59_999, 60_000, 999_999_999_999_999]).copied(),
    }
}

/// Changes one thing of a reply.
fn distort(u: &mut Unstructured<'_>, reply: &mut Value) -> Result<()> {
    const FIELDS: [&str; 9] =
        ["policy", "allowed", "limit", "window_ms", "unit", "remaining", "reset_ms", "retry_after_ms", "mode"];
    let value = match u.int_in_range(0..=12)? {
        0 => Value::Null,
        1 => json!(u.arbitrary::<bool>()?),
        2 => json!(u.arbitrary::<u64>()?),
        3 => json!(u.arbitrary::<i64>()?),
        4 => json!(1e300),
        5 => json!(0.5),
        6 => json!("a\r\nset-cookie: b"),
        7 => json!("shadow"),
        8 => json!(String::from_utf8_lossy(&bytes(u, &[b"requests", b"\"", b"\\"])?)),
        9 => json!([]),
        10 => json!({}),
        11 => json!(1_000_000_000_000_000u64),
        _ => json!(number(u)?),
    };
    let Some(limits) = reply["limits"].as_array_mut() else { return Ok(()) };
    match u.int_in_range(0..=7)? {
        0 => reply["allowed"] = value,
        1 => reply["limits"] = value,
        2 => drop(limits.pop()),
        3 => limits.push(value),
        4 => reply["degraded"] = value,
        _ if limits.is_empty() => {}
        5 => {
            let at = u.choose_index(limits.len())?;
            limits[at] = value;
        }
        _ => {
            let at = u.choose_index(limits.len())?;
            let field = *u.choose(&FIELDS)?;
            if let Some(limit) = limits[at].as_object_mut() {
                limit.insert(field.to_owned(), value);
            }
        }
    }
    Ok(())
}
