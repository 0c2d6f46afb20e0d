//! Names of limit state in the store: `weir:1:{<key>}:<policy>:<algorithm>:<window>`, where a window is its length in
//! milliseconds, or unit and time zone of a calendar (`month@Europe/Berlin`).
//!
//! The only builder of Redis keys. Two limits never share a name, whatever bytes a client puts into its key, and all
//! limits of one key share a slot of a cluster: the key is the hash tag, which is the first `{...}` of a name, because
//! braces inside it are escaped. `1` is the version of what is stored under the name.

use std::fmt::{Display, Write as _};

use sha2::{Digest as _, Sha256};

use crate::policy::Algorithm;

/// Longest key that stands in a name as it is, in bytes after escaping. With the longest policy and window, a month of
/// America/Argentina/ComodRivadavia, the whole name is 256 bytes.
const MAX_PLAIN: usize = 140;
/// Room for a name, so that it is allocated once.
const MAX_NAME: usize = 256;
/// What a digested key begins with. A key that begins so is digested too, so that none can equal a digest.
const DIGEST: &str = "sha256=";

/// The name of the state of one limit. Policy names are safe by their grammar, and so are windows.
pub fn state_key(key: &str, policy: &str, algorithm: Algorithm, window: impl Display) -> String {
    let mut name = String::with_capacity(MAX_NAME);
    name.push_str("weir:1:{");
    let start = name.len();
    if key.starts_with(DIGEST) || !push_escaped(&mut name, key) {
        name.truncate(start);
        push_digest(&mut name, key);
    }
    // Writing to a string cannot fail.
    let _ = write!(name, "}}:{policy}:{}:{window}", algorithm.code());
    name
}

/// Percent-encodes every byte but a few that are safe anywhere; false, with a part written, if that gets too long.
fn push_escaped(name: &mut String, key: &str) -> bool {
    let most = name.len() + MAX_PLAIN;
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => name.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b'@' | b'=' | b',' => name.push(char::from(byte)),
            _ => drop(write!(name, "%{byte:02X}")),
        }
        if name.len() > most {
            return false;
        }
    }
    true
}

fn push_digest(name: &mut String, key: &str) {
    name.push_str(DIGEST);
    for byte in Sha256::digest(key) {
        let _ = write!(name, "{byte:02x}");
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test stops at the first surprise")]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::calendar::{Calendar, Unit};
    use crate::policy::Window;
    use weir_protocol::MAX_WINDOW_MS;

    fn name(key: &str) -> String {
        state_key(key, "per-key", Algorithm::TokenBucket, 60_000)
    }

    /// What Redis hashes to find the slot: the bytes between the first `{` and the first `}` after it.
    fn hash_tag(name: &str) -> &str {
        let (_, rest) = name.split_once('{').expect("an opening brace");
        let (tag, _) = rest.split_once('}').expect("a closing brace");
        tag
    }

    #[test]
    fn ordinary_keys_read_as_they_are() {
        assert_eq!(name("org_9921"), "weir:1:{org_9921}:per-key:tb:60000");
        assert_eq!(name("ip=192.0.2.1,path=/a:b"), "weir:1:{ip=192.0.2.1,path=/a:b}:per-key:tb:60000");
        assert_eq!(
            state_key("a", "p", Algorithm::SlidingWindowLog, 250),
            "weir:1:{a}:p:sl:250",
            "algorithm and window are part of the name"
        );
    }

    #[test]
    fn a_calendar_is_part_of_the_name() {
        let name = |unit, zone| {
            let window = Window::Calendar(Calendar::new(unit, zone).expect("a zone"));
            state_key("org_9921", "per-key", Algorithm::FixedWindow, window)
        };
        assert_eq!(name(Unit::Month, "Europe/Berlin"), "weir:1:{org_9921}:per-key:fw:month@Europe/Berlin");
        assert_eq!(name(Unit::Week, "Europe/Berlin"), "weir:1:{org_9921}:per-key:fw:week@Europe/Berlin");
        assert_eq!(name(Unit::Month, "UTC"), "weir:1:{org_9921}:per-key:fw:month@UTC");
        let ten = state_key("org_9921", "per-key", Algorithm::FixedWindow, Window::Length(10));
        assert_eq!(ten, state_key("org_9921", "per-key", Algorithm::FixedWindow, 10));
    }

    #[test]
    fn odd_bytes_are_escaped() {
        assert_eq!(hash_tag(&name("a{b}c")), "a%7Bb%7Dc");
        assert_eq!(hash_tag(&name("a b%\r\n\0")), "a%20b%25%0D%0A%00");
        assert_eq!(hash_tag(&name("ключ")), "%D0%BA%D0%BB%D1%8E%D1%87");
    }

    #[test]
    fn long_keys_and_keys_that_look_like_digests_are_digested() {
        let longest = "a".repeat(MAX_PLAIN);
        assert_eq!(hash_tag(&name(&longest)), longest);
        let digest = hash_tag(&name(&"a".repeat(MAX_PLAIN + 1))).to_owned();
        assert!(digest.starts_with(DIGEST) && digest.len() == DIGEST.len() + 64, "{digest}");
        assert_ne!(hash_tag(&name(&digest)), digest, "a client that sends the digest is another client");
    }

    #[test]
    fn names_are_bounded() {
        let policy = "p".repeat(64);
        for key in ["a".repeat(MAX_PLAIN), "{".repeat(10_000)] {
            let name = state_key(&key, &policy, Algorithm::FixedWindow, MAX_WINDOW_MS);
            assert!(name.len() <= 256, "{}", name.len());
            for zone in Calendar::zones() {
                let month = Calendar::new(Unit::Month, &zone).expect("a zone of the list");
                let name = state_key(&key, &policy, Algorithm::FixedWindow, month);
                assert!(name.len() <= 256, "{zone}: {}", name.len());
                assert!(!zone.contains([':', '@', '{', '}']) && zone.is_ascii(), "{zone}");
            }
        }
    }

    #[test]
    fn different_limits_never_share_a_name() {
        let pieces = ["", "a", "{", "}", "%", "%7B", "7B", ":", "}:p:tb:1", "=", "sha256=", " ", "%20", "é", "\u{0}"];
        let mut seen = HashMap::new();
        let two = pieces.iter().flat_map(|first| pieces.map(|second| format!("{first}{second}")));
        for key in two.flat_map(|start| pieces.map(|end| format!("{start}{end}"))) {
            for policy in ["p", "p-tb", "tb"] {
                for (algorithm, window_ms) in [(Algorithm::TokenBucket, 1), (Algorithm::FixedWindow, 11)] {
                    let name = state_key(&key, policy, algorithm, window_ms);
                    assert!(!hash_tag(&name).contains(['{', '}']), "{name}");
                    let limit = (key.clone(), policy, window_ms);
                    if let Some(other) = seen.insert(name.clone(), limit.clone()) {
                        assert_eq!(other, limit, "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn one_client_is_one_slot() {
        for key in ["a", "a}b", "{}", &"long".repeat(100)] {
            let tags = [("p", Algorithm::FixedWindow), ("q", Algorithm::SlidingWindowCounter)]
                .map(|(policy, algorithm)| hash_tag(&state_key(key, policy, algorithm, 7)).to_owned());
            assert_eq!(tags[0], tags[1]);
            assert!(!tags[0].is_empty(), "an empty tag is none");
        }
    }
}
