//! The only module that talks to the host.
//!
//! It performs the steps of [`Exchange`]. Checks are sent by the root context and not by the stream that needs them: a
//! client that leaves then cancels nobody else's check, and one callout may carry the checks of many streams. A stream
//! puts its check into the root's `pending` list and pauses; the first one of a turn wakes the root through a shared
//! queue; the root sends, and answers the streams by their ids when the answer is there.
//!
//! - All state lives in the root context: listeners with the same vm_id and code share a VM, and an update puts a new
//!   root beside the old one.
//! - A stream that is gone is never touched: `streams` is the live set, an entry removed in the stream's `Drop`.
//! - One call into the VM answers at most [`MAX_ANSWERS_PER_CALL`] streams: each reply recurses in the host.
//! - Where the host has no shared queues, each stream sends its own callout.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};
use weir_protocol::Mode;

mod abi;

use self::abi::{Level, Map};
use crate::answer::{Answer, Failure, MAX_ANSWER_BYTES};
use crate::config::Config;
use crate::exchange::{Edit, Exchange, Step, Transition};
use crate::reply::{Form, LocalReply};
use crate::request::Request;
use crate::stats::Outcome;
use crate::throttle::Throttle;

/// How many streams one call into the VM may answer. Replies of one call run nested in the host: a thousand of them
/// overflow its stack.
const MAX_ANSWERS_PER_CALL: usize = 32;
/// How often the root looks for checks whose wake-up was lost, in milliseconds. No request waits for it otherwise.
const TICK_MS: u32 = 100;
/// The shared value that numbers the workers; all shared names start with `weir.`.
const WORKER_NUMBER: &str = "weir.worker";
/// The property in which the access log finds what became of a request.
const OUTCOME_PROPERTY: &str = "weir_outcome";

proxy_wasm::main! {{
    // Installs the hook that logs a panic, should there ever be one.
    proxy_wasm::set_log_level(LogLevel::Warn);
    proxy_wasm::set_root_context(|id| Box::new(Root { id, shared: Rc::default() }));
}}

/// The plug-in on one worker.
struct Root {
    id: u32,
    shared: Rc<RefCell<Shared>>,
}

/// One request.
struct Stream {
    id: u32,
    shared: Rc<RefCell<Shared>>,
}

/// What the root and its streams share. Never borrowed across a host call that may come back into the VM.
#[derive(Default)]
struct Shared {
    active: Option<Rc<Active>>,
    queue: Option<u32>,
    /// A message that wakes the root is under way.
    woken: bool,
    /// Checks to be sent, with their streams.
    pending: VecDeque<(u32, Vec<u8>)>,
    /// The stream that waits for a callout, by the callout's token.
    in_flight: BTreeMap<u32, u32>,
    /// The live streams, each with the configuration that it began under.
    streams: BTreeMap<u32, (Rc<Active>, Exchange)>,
    failures: Throttle,
    misconfigurations: Throttle,
}

/// A configuration in force.
struct Active {
    config: Config,
    /// Ids of the host's counters, a row a rule.
    counters: Vec<[Option<u32>; Outcome::ALL.len()]>,
}

// === impl Root ===

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body_size: usize, _trailers: usize) {
        let waiting = self.shared.borrow_mut().in_flight.remove(&token);
        if let Some(id) = waiting {
            answer(&self.shared, id, read_answer(headers, body_size));
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        let configuration = if size == 0 { Ok(Vec::new()) } else { abi::plugin_configuration(size) };
        let config = match Config::parse(&configuration.unwrap_or_default()) {
            Ok(config) => config,
            Err(mistakes) => {
                abi::log(Level::Error, &format!("weir: configuration refused: {mistakes}"));
                return false;
            }
        };
        let counters = config
            .rules
            .iter()
            .map(|rule| Outcome::ALL.map(|outcome| abi::define_counter(&outcome.counter(&rule.name)).ok()));
        let active = Active { counters: counters.collect(), config };
        let queue = self.shared.borrow().queue.or_else(|| register_queue(self.id));
        if queue.is_none() {
            abi::log(Level::Info, "weir: this host has no shared queues; each request sends its own callout");
        }
        let _ = abi::set_tick_period_ms(TICK_MS);
        let mut shared = self.shared.borrow_mut();
        shared.active = Some(Rc::new(active));
        shared.queue = queue;
        true
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let _ = abi::dequeue(queue);
        self.send_pending();
    }

    fn on_tick(&mut self) {
        if !self.shared.borrow().pending.is_empty() {
            self.send_pending();
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let mut shared = self.shared.borrow_mut();
        if let Some(active) = shared.active.clone() {
            shared.streams.insert(id, (active, Exchange::new(seed(id))));
        }
        drop(shared);
        Some(Box::new(Stream { id, shared: Rc::clone(&self.shared) }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Root {
    /// Sends what is pending, one callout a check. Checks that cannot be sent are answered by their failure mode, at
    /// most [`MAX_ANSWERS_PER_CALL`] now and the rest in another call.
    fn send_pending(&self) {
        self.shared.borrow_mut().woken = false;
        let mut not_sent = Vec::new();
        while not_sent.len() < MAX_ANSWERS_PER_CALL {
            let (id, check, active) = {
                let mut shared = self.shared.borrow_mut();
                let Some((id, check)) = shared.pending.pop_front() else { break };
                let Some((active, _)) = shared.streams.get(&id) else { continue };
                let active = Rc::clone(active);
                (id, check, active)
            };
            match dispatch(&active.config, &check) {
                Some(token) => {
                    self.shared.borrow_mut().in_flight.insert(token, id);
                }
                None => not_sent.push(id),
            }
        }
        for id in not_sent {
            answer(&self.shared, id, Answer::NotSent);
        }
        let _ = abi::set_effective_context(self.id);
        if !self.shared.borrow().pending.is_empty() {
            // If this fails, the next tick goes on.
            let _ = wake(&self.shared);
        }
    }
}

// === impl Stream ===

impl Context for Stream {
    /// Only for callouts that the stream sent itself.
    fn on_http_call_response(&mut self, _token: u32, headers: usize, body_size: usize, _trailers: usize) {
        answer(&self.shared, self.id, read_answer(headers, body_size));
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let Ok(headers) = abi::header_pairs(Map::Request) else {
            return self.advance(|exchange, config| exchange.on_unreadable(config));
        };
        let property = |path: &[&str]| abi::property(path).ok();
        let request = Request::new(&headers, &property);
        self.advance(|exchange, config| exchange.on_request(config, &request))
    }

    fn on_http_request_body(&mut self, _size: usize, _end_of_stream: bool) -> Action {
        self.hold()
    }

    fn on_http_request_trailers(&mut self, _trailers: usize) -> Action {
        self.hold()
    }

    fn on_http_response_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        for edit in self.response_edits() {
            // A field that the host will not change is left as it is; the response matters more.
            let _ = match edit {
                Edit::Set(name, value) => abi::set_header(Map::Response, name, &value),
                Edit::Remove(name) => abi::remove_header(Map::Response, name),
            };
        }
        Action::Continue
    }
}

impl Stream {
    /// Performs a step in this stream's own callback.
    fn advance(&self, event: impl FnOnce(&mut Exchange, &Config) -> Transition) -> Action {
        let Some((active, transition)) = step(&self.shared, self.id, event) else {
            // No configuration is in force. Hosts send no traffic then; should one, nothing may pass unlimited.
            send(&LocalReply::unavailable(&Form::Http, 0));
            return Action::Pause;
        };
        tell(&self.shared, &active, &transition);
        match transition.step {
            Step::Continue => Action::Continue,
            Step::Reply(reply) => {
                send(&reply);
                Action::Pause
            }
            Step::Ask(check) => self.ask(&active, check),
        }
    }

    fn ask(&self, active: &Active, check: Vec<u8>) -> Action {
        let mut shared = self.shared.borrow_mut();
        if shared.queue.is_some() {
            shared.pending.push_back((self.id, check));
            let woken = shared.woken;
            drop(shared);
            if woken || wake(&self.shared) {
                return Action::Pause;
            }
            // The queue is gone: take the check back and send it from here.
            let taken = self.shared.borrow_mut().pending.pop_back();
            let Some((_, check)) = taken else { return Action::Pause };
            return self.ask_alone(active, &check);
        }
        drop(shared);
        self.ask_alone(active, &check)
    }

    /// Sends this stream's check in a callout that belongs to it.
    fn ask_alone(&self, active: &Active, check: &[u8]) -> Action {
        match dispatch(&active.config, check) {
            Some(_) => Action::Pause,
            None => self.advance(|exchange, config| exchange.on_answer(config, Answer::NotSent)),
        }
    }

    /// For hosts that go on delivering the rest of a request whose headers are held.
    fn hold(&self) -> Action {
        let asking = self.shared.borrow().streams.get(&self.id).is_some_and(|(_, exchange)| exchange.is_asking());
        if asking { Action::Pause } else { Action::Continue }
    }

    fn response_edits(&self) -> Vec<Edit> {
        let wanted = self.shared.borrow().streams.get(&self.id).is_some_and(|(_, exchange)| exchange.wants_response());
        if !wanted {
            return Vec::new();
        }
        let headers = abi::header_pairs(Map::Response).unwrap_or_default();
        let has = |name: &str| headers.iter().any(|(known, _)| known == name.as_bytes());
        let shared = self.shared.borrow();
        let Some((active, exchange)) = shared.streams.get(&self.id) else { return Vec::new() };
        exchange.on_response(&active.config, has)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A check that is still pending is dropped when its turn comes; one in flight is answered to nobody.
        if let Ok(mut shared) = self.shared.try_borrow_mut() {
            shared.streams.remove(&self.id);
        }
    }
}

// === steps ===

/// Advances a live stream's exchange.
fn step(
    shared: &RefCell<Shared>,
    id: u32,
    event: impl FnOnce(&mut Exchange, &Config) -> Transition,
) -> Option<(Rc<Active>, Transition)> {
    // The exchange is taken out meanwhile: an event may make host calls.
    let (active, mut exchange) = {
        let mut shared = shared.borrow_mut();
        let (active, exchange) = shared.streams.get_mut(&id)?;
        (Rc::clone(active), std::mem::take(exchange))
    };
    let transition = event(&mut exchange, &active.config);
    if let Some((_, place)) = shared.borrow_mut().streams.get_mut(&id) {
        *place = exchange;
    }
    Some((active, transition))
}

/// Answers a stream that waits, from whatever context is active.
fn answer(shared: &RefCell<Shared>, id: u32, answer: Answer) {
    if !shared.borrow().streams.contains_key(&id) || abi::set_effective_context(id).is_err() {
        return;
    }
    let Some((active, transition)) = step(shared, id, |exchange, config| exchange.on_answer(config, answer)) else {
        return;
    };
    tell(shared, &active, &transition);
    match transition.step {
        Step::Continue => {
            let _ = abi::continue_request();
        }
        Step::Reply(reply) => send(&reply),
        // An answer is never answered with a question.
        Step::Ask(_) => {}
    }
}

/// Counts, marks the stream for the access log, and warns. The stream's context is effective.
fn tell(shared: &RefCell<Shared>, active: &Active, transition: &Transition) {
    if let Some(outcome) = transition.outcomes.last().filter(|outcome| **outcome != Outcome::Allowed) {
        let _ = abi::set_property(OUTCOME_PROPERTY, outcome.as_str());
    }
    if let Some(failure) = &transition.failure {
        warn(shared, active, transition, failure);
    }
    let Some(rule) = transition.rule else { return };
    if let Some(counters) = active.counters.get(rule) {
        for outcome in &transition.outcomes {
            if let Some(counter) = counters.get(*outcome as usize).copied().flatten() {
                abi::count(counter);
            }
        }
    }
}

fn warn(shared: &RefCell<Shared>, active: &Active, transition: &Transition, failure: &Failure) {
    let admitted = {
        let mut shared = shared.borrow_mut();
        let throttle = if failure.misconfigured { &mut shared.misconfigurations } else { &mut shared.failures };
        throttle.admit(abi::now_ns() / 1_000_000_000)
    };
    let Some(left_out) = admitted else { return };
    let rule = transition.rule.and_then(|rule| active.config.rules.get(rule)).map_or("none", |rule| &rule.name);
    let shadow =
        transition.rule.and_then(|rule| active.config.rules.get(rule)).is_some_and(|rule| rule.mode == Mode::Shadow);
    let consequence = match transition.step {
        _ if shadow => "the request passes unlimited (mode shadow)",
        Step::Reply(_) => "the request is answered 503 (failure_mode closed)",
        Step::Continue | Step::Ask(_) => "the request passes unlimited (failure_mode open)",
    };
    let level = if failure.misconfigured { Level::Error } else { Level::Warn };
    let mut line = format!(
        "weir: rule {rule}: check through cluster {} failed: {}; {consequence}",
        active.config.service.cluster, failure.reason
    );
    if left_out > 0 {
        line.push_str(&format!("; {left_out} like this since the last line"));
    }
    abi::log(level, &line);
}

fn send(reply: &LocalReply) {
    let headers: Vec<(&str, &str)> =
        reply.headers.iter().map(|(name, value)| (name.as_ref(), value.as_str())).collect();
    // A host that does not like the reply still owes the client one.
    let grpc_status = reply.grpc_status.map(|status| status as i32);
    if abi::send_local_response(reply.status, &headers, &reply.body, grpc_status).is_err()
        && abi::send_local_response(reply.status, &[], &[], grpc_status).is_err()
    {
        abi::log(Level::Error, &format!("weir: the host refused to send a local reply with status {}", reply.status));
    }
}

/// A number that differs from stream to stream and from worker to worker: the clock and the stream's id, mixed by the
/// finaliser of SplitMix64.
fn seed(id: u32) -> u64 {
    let mut z = abi::now_ns().wrapping_add(u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

// === callouts ===

/// Sends a check in a callout of the active context; its token, or `None` if the host would not.
fn dispatch(config: &Config, check: &[u8]) -> Option<u32> {
    let service = &config.service;
    let authorization = service.token.as_ref().map(|token| format!("Bearer {token}"));
    let mut headers = vec![
        (":method", "POST"),
        (":path", "/v1/check"),
        (":authority", service.authority.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json"),
    ];
    if let Some(authorization) = &authorization {
        headers.push(("authorization", authorization));
    }
    dispatch_http_call(&service.cluster, headers, Some(check), Vec::new(), Duration::from_millis(service.timeout_ms))
        .ok()
}

/// Reads what a callout brought. The context that sent it is effective.
fn read_answer(headers: usize, body_size: usize) -> Answer {
    if headers == 0 {
        return Answer::NoAnswer;
    }
    let headers = abi::header_pairs(Map::CalloutResponse).unwrap_or_default();
    let status = headers.iter().find(|(name, _)| name == b":status");
    let Some(status) = status.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok()) else {
        return Answer::NoAnswer;
    };
    if body_size > MAX_ANSWER_BYTES {
        return Answer::TooLarge(body_size);
    }
    let body = if body_size == 0 { Vec::new() } else { abi::callout_body(body_size).unwrap_or_default() };
    Answer::Answered { status, body }
}

/// Wakes the root; false if that is not possible.
fn wake(shared: &RefCell<Shared>) -> bool {
    let queue = shared.borrow().queue;
    let woken = queue.is_some_and(|queue| abi::enqueue(queue, b"1").is_ok());
    shared.borrow_mut().woken = woken;
    woken
}

/// A queue of this root alone: the name holds a number that no other worker has, and the root's id. Two roots with
/// one name would take each other's wake-ups.
fn register_queue(root: u32) -> Option<u32> {
    abi::register_queue(&format!("weir.{}.{root}", worker_number()?)).ok()
}

/// Takes the next number by compare-and-swap. The count starts at the clock's nanoseconds, so that two workers that
/// start it at once, which no compare-and-swap can part, still get different numbers.
fn worker_number() -> Option<u64> {
    const TRIES: usize = 1000;
    for _ in 0..TRIES {
        match abi::shared_data(WORKER_NUMBER) {
            Ok((value, version)) => {
                let number = <[u8; 8]>::try_from(value.as_slice()).map_or(0, u64::from_le_bytes).wrapping_add(1);
                if abi::set_shared_data(WORKER_NUMBER, &number.to_le_bytes(), version).is_ok() {
                    return Some(number);
                }
            }
            Err(_) => abi::set_shared_data(WORKER_NUMBER, &abi::now_ns().to_le_bytes(), 0).ok()?,
        }
    }
    None
}
