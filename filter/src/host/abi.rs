//! The host calls that the filter makes, as functions that cannot panic.
//!
//! The SDK's own wrappers panic on any status that they do not expect and on header names that are not UTF-8; a panic
//! is a trap, and a trap takes the worker's VM down with everything in flight. Here every status but Ok is an error
//! value, and everything that comes from outside is bytes. Only the callout itself goes through the SDK, which must
//! know its token.
#![allow(unsafe_code, reason = "host calls are foreign functions")]

use std::ptr::null_mut;

/// Any status but Ok.
#[derive(Clone, Copy, Debug)]
pub struct Refused;

type Result<T> = std::result::Result<T, Refused>;

/// Header maps by their numbers in proxy-wasm ABI 0.2.1.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Map {
    Request = 0,
    Response = 2,
    CalloutResponse = 6,
}

/// Log levels by their numbers.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Level {
    Info = 2,
    Warn = 3,
    Error = 4,
}

const OK: u32 = 0;
const BUFFER_CALLOUT_RESPONSE_BODY: u32 = 4;
const BUFFER_PLUGIN_CONFIGURATION: u32 = 7;
const METRIC_COUNTER: u32 = 0;
const STREAM_HTTP_REQUEST: u32 = 0;
const NOT_GRPC: i32 = -1;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_replace_header_map_value(map: u32, name: *const u8, n: usize, value: *const u8, v: usize) -> u32;
    fn proxy_remove_header_map_value(map: u32, name: *const u8, n: usize) -> u32;
    fn proxy_get_buffer_bytes(buffer: u32, start: usize, max: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_get_property(path: *const u8, n: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, n: usize, value: *const u8, v: usize) -> u32;
    fn proxy_get_shared_data(key: *const u8, n: usize, data: *mut *mut u8, size: *mut usize, cas: *mut u32) -> u32;
    fn proxy_set_shared_data(key: *const u8, n: usize, value: *const u8, v: usize, cas: u32) -> u32;
    fn proxy_register_shared_queue(name: *const u8, n: usize, queue: *mut u32) -> u32;
    fn proxy_enqueue_shared_queue(queue: u32, value: *const u8, v: usize) -> u32;
    fn proxy_dequeue_shared_queue(queue: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, n: usize, metric: *mut u32) -> u32;
    fn proxy_increment_metric(metric: u32, offset: i64) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
}

/// Writes to the host's log.
pub fn log(level: Level, message: &str) {
    // SAFETY: the host reads `message` during the call.
    let _ = unsafe { proxy_log(level as u32, message.as_ptr(), message.len()) };
}

/// The host's clock: nanoseconds since the Unix epoch. 0 if the host has none.
pub fn now_ns() -> u64 {
    let mut time = 0;
    // SAFETY: the host writes one u64.
    let _ = unsafe { proxy_get_current_time_nanoseconds(&mut time) };
    time
}

/// Asks for `on_tick` every so many milliseconds.
pub fn set_tick_period_ms(period: u32) -> Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { proxy_set_tick_period_milliseconds(period) })
}

/// Makes the following calls act on another context.
pub fn set_effective_context(context: u32) -> Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { proxy_set_effective_context(context) })
}

/// Lets the paused request of the effective context go on.
pub fn continue_request() -> Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { proxy_continue_stream(STREAM_HTTP_REQUEST) })
}

/// All field lines of a map, in order, names in lower case.
pub fn header_pairs(map: Map) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let bytes = returned(|data, size| {
        // SAFETY: the host writes a pointer that it allocated through the SDK, and its size.
        unsafe { proxy_get_header_map_pairs(map as u32, data, size) }
    })?;
    if bytes.is_empty() { Ok(Vec::new()) } else { pairs(&bytes).ok_or(Refused) }
}

/// Sets a field to one value.
pub fn set_header(map: Map, name: &str, value: &str) -> Result<()> {
    // SAFETY: the host reads both during the call.
    check(unsafe { proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// Removes a field.
pub fn remove_header(map: Map, name: &str) -> Result<()> {
    // SAFETY: the host reads `name` during the call.
    check(unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
}

/// The first `size` bytes of the body of a callout's answer.
pub fn callout_body(size: usize) -> Result<Vec<u8>> {
    buffer(BUFFER_CALLOUT_RESPONSE_BODY, size)
}

/// The plug-in's configuration.
pub fn plugin_configuration(size: usize) -> Result<Vec<u8>> {
    buffer(BUFFER_PLUGIN_CONFIGURATION, size)
}

/// A property of the effective context.
pub fn property(path: &[&str]) -> Result<Vec<u8>> {
    let path = path.join("\0");
    returned(|data, size| {
        // SAFETY: as in `header_pairs`; the host reads `path` during the call.
        unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) }
    })
}

/// Sets a property of the effective context.
pub fn set_property(name: &str, value: &str) -> Result<()> {
    // SAFETY: the host reads both during the call.
    check(unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// A value that all VMs of one vm_id share, and its version for [`set_shared_data`].
pub fn shared_data(key: &str) -> Result<(Vec<u8>, u32)> {
    let mut version = 0;
    let value = returned(|data, size| {
        // SAFETY: as in `header_pairs`; the host writes one u32.
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &mut version) }
    })?;
    Ok((value, version))
}

/// Writes a shared value if its version is still the one given; version 0 writes in any case.
pub fn set_shared_data(key: &str, value: &[u8], version: u32) -> Result<()> {
    // SAFETY: the host reads both during the call.
    check(unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version) })
}

/// Registers a queue whose messages wake the calling root context.
pub fn register_queue(name: &str) -> Result<u32> {
    let mut queue = 0;
    // SAFETY: the host reads `name` and writes one u32.
    check(unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &mut queue) })?;
    Ok(queue)
}

/// Puts a message on a queue.
pub fn enqueue(queue: u32, message: &[u8]) -> Result<()> {
    // SAFETY: the host reads `message` during the call.
    check(unsafe { proxy_enqueue_shared_queue(queue, message.as_ptr(), message.len()) })
}

/// Takes a message off a queue.
pub fn dequeue(queue: u32) -> Result<Vec<u8>> {
    returned(|data, size| {
        // SAFETY: as in `header_pairs`.
        unsafe { proxy_dequeue_shared_queue(queue, data, size) }
    })
}

/// Defines a counter; the same name gives the same counter.
pub fn define_counter(name: &str) -> Result<u32> {
    let mut metric = 0;
    // SAFETY: the host reads `name` and writes one u32.
    check(unsafe { proxy_define_metric(METRIC_COUNTER, name.as_ptr(), name.len(), &mut metric) })?;
    Ok(metric)
}

/// Adds one to a counter.
pub fn count(metric: u32) {
    // SAFETY: no memory is passed.
    let _ = unsafe { proxy_increment_metric(metric, 1) };
}

/// Answers the request of the effective context; with a gRPC status in gRPC, the body being the message.
pub fn send_local_response(status: u16, headers: &[(&str, &str)], body: &[u8], grpc_status: Option<i32>) -> Result<()> {
    let headers = serialized(headers);
    // SAFETY: the host reads all of it during the call.
    check(unsafe {
        proxy_send_local_response(
            u32::from(status),
            std::ptr::null(),
            0,
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            grpc_status.unwrap_or(NOT_GRPC),
        )
    })
}

fn buffer(buffer: u32, size: usize) -> Result<Vec<u8>> {
    returned(|data, length| {
        // SAFETY: as in `header_pairs`.
        unsafe { proxy_get_buffer_bytes(buffer, 0, size, data, length) }
    })
}

fn check(status: u32) -> Result<()> {
    if status == OK { Ok(()) } else { Err(Refused) }
}

/// Takes over what the host allocated and filled.
fn returned(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Vec<u8>> {
    let mut data: *mut u8 = null_mut();
    let mut size: usize = 0;
    check(call(&mut data, &mut size))?;
    if data.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the host got `data` from the SDK's `proxy_on_memory_allocate(size)`, a `Vec<u8>` of that capacity that
    // it forgot, and has filled it.
    Ok(unsafe { Vec::from_raw_parts(data, size, size) })
}

/// Decodes a serialised map: the number of pairs, the sizes of each, then names and values, each ended by a zero byte;
/// all numbers are 32-bit little endian. `None` if it is cut short.
fn pairs(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let (count, rest) = number(bytes)?;
    let (mut sizes, mut content) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut pairs = Vec::with_capacity(count);
    for _ in 0..count {
        let (name_size, rest) = number(sizes)?;
        let (value_size, rest) = number(rest)?;
        sizes = rest;
        let (name, rest) = content.split_at_checked(name_size)?;
        let (value, rest) = rest.get(1..)?.split_at_checked(value_size)?;
        content = rest.get(1..)?;
        pairs.push((name.to_vec(), value.to_vec()));
    }
    Some(pairs)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}

/// The same encoding, the other way.
fn serialized(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + headers.iter().map(|(n, v)| n.len() + v.len() + 10).sum::<usize>());
    bytes.extend((headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
    }
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text.as_bytes());
        bytes.push(0);
    }
    bytes
}
