//! Free ports.
//!
//! Taken from below the range from which the kernel serves outgoing connections, so that a part can be stopped and
//! started again on its port while tests open thousands of client sockets.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// First port handed out; above the registered services people are likely to run.
const FIRST: u32 = 20_000;
/// How many ports there are to choose from; Linux takes outgoing ports from 32 768 on.
const COUNT: u32 = 12_000;

/// A port of 127.0.0.1 on which nothing listens, and which no other call in this process returns.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        // Test binaries that run at the same time start far from each other.
        let port = FIRST + (std::process::id().wrapping_mul(211) + turn) % COUNT;
        let port = u16::try_from(port).expect("below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
