//! The path of a request in one spelling, for matching and for keys.
//!
//! The normal form is that of RFC 3986 section 6.2.2, with repeated slashes merged afterwards, in the order in which
//! Envoy does both: percent-encoded unreserved characters are decoded, the hex digits of other escapes are in upper
//! case, and `.` and `..` segments are gone. What may not stand in a path as it is (other bytes, a `%` without two hex
//! digits) is percent-encoded, so that the normal form is ASCII. It is a fixed point of [`normal`].
//!
//! Reserved characters keep their spelling: `/a%2Fb` is not `/a/b`, and `/a;x=1` is not `/a`.

use std::fmt::Write as _;

/// The normal form of a request target's path. Empty for an empty target, as CONNECT has; `*` for `*`; anything else
/// begins with a slash. Of an absolute target (`http://host/path`) it is the path.
pub fn normal(target: &[u8]) -> String {
    let path = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    if target.is_empty() || path == b"*" {
        return String::from_utf8_lossy(path).into_owned();
    }
    without_dot_segments(&escaped(after_authority(path)))
}

/// The query of a request target, without its question mark.
pub fn query(target: &[u8]) -> &[u8] {
    let whole = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    whole.iter().position(|byte| *byte == b'?').and_then(|mark| whole.get(mark + 1..)).unwrap_or_default()
}

/// What follows scheme and authority, where there are any.
fn after_authority(path: &[u8]) -> &[u8] {
    let scheme = path.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
    match path.get(scheme..).and_then(|rest| rest.strip_prefix(b"://")) {
        Some(rest) if scheme > 0 => {
            rest.iter().position(|byte| *byte == b'/').and_then(|slash| rest.get(slash..)).unwrap_or_default()
        }
        _ => path,
    }
}

fn escaped(mut path: &[u8]) -> String {
    let mut escaped = String::with_capacity(path.len() + 1);
    if !path.starts_with(b"/") {
        escaped.push('/');
    }
    while let Some((&byte, rest)) = path.split_first() {
        path = rest;
        let stays = match (byte, rest.split_first_chunk::<2>()) {
            (b'%', Some((&[high, low], rest))) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                path = rest;
                let decoded = hex(high) << 4 | hex(low);
                push(&mut escaped, decoded, is_unreserved(decoded));
                continue;
            }
            _ => is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte),
        };
        push(&mut escaped, byte, stays);
    }
    escaped
}

fn push(escaped: &mut String, byte: u8, stays: bool) {
    if stays {
        escaped.push(char::from(byte));
    } else {
        // Writing to a string cannot fail.
        let _ = write!(escaped, "%{byte:02X}");
    }
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The value of a hex digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a' - 10),
    }
}

/// RFC 3986 section 5.2.4, then repeated slashes merged. `path` begins with a slash.
fn without_dot_segments(path: &str) -> String {
    let mut segments = Vec::new();
    let mut is_folder = true;
    for segment in path.split('/').skip(1) {
        is_folder = matches!(segment, "" | "." | "..");
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_folder || normal.is_empty() {
        normal.push('/');
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn spellings_of_one_path_have_one_normal_form() {
        for (target, expected) in [
            ("/api/x", "/api/x"),
            ("/%61pi/%78", "/api/x"),
            ("/api//x", "/api/x"),
            ("//api///x", "/api/x"),
            ("/a/../api/x", "/api/x"),
            ("/a/%2e%2E/api/./x", "/api/x"),
            ("/../../api/x", "/api/x"),
            ("/api/x?y=/z#w", "/api/x"),
            ("/api/x#w?y", "/api/x"),
            ("http://a.example:80/api/x?y", "/api/x"),
            ("HTTPS://a.example/../api/x", "/api/x"),
            ("api/x", "/api/x"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/a/", "/a/"),
            ("/a//", "/a/"),
            ("/..", "/"),
            ("//", "/"),
            ("/", "/"),
            ("?a", "/"),
            ("http://a.example", "/"),
            ("http://a.example?b/c", "/"),
            ("", ""),
            ("*", "*"),
            ("*?a", "*"),
            // As Envoy: dot segments first, slashes after.
            ("/a//../b", "/a/b"),
            // Not a scheme.
            ("://a/b", "/:/a/b"),
            ("/http://a/b", "/http:/a/b"),
        ] {
            assert_eq!(normal(target.as_bytes()), expected, "{target}");
        }
    }

    #[test]
    fn other_paths_stay_apart() {
        for (target, expected) in [
            ("/a%2fb", "/a%2Fb"),
            ("/a%3fb", "/a%3Fb"),
            ("/a;x=1", "/a;x=1"),
            ("/a%3bx", "/a%3Bx"),
            ("/a%00", "/a%00"),
            ("/A", "/A"),
            ("/a%252e", "/a%252e"),
            ("/a%", "/a%25"),
            ("/a%4", "/a%254"),
            ("/a%%41", "/a%25A"),
            ("/a%zz", "/a%25zz"),
            ("/a b", "/a%20b"),
            ("/a\\b", "/a%5Cb"),
            ("/é", "/%C3%A9"),
            ("/%c3%a9", "/%C3%A9"),
            ("/...", "/..."),
            ("/a/..b", "/a/..b"),
        ] {
            assert_eq!(normal(target.as_bytes()), expected, "{target}");
        }
        // C06
        assert_eq!(normal(b"/\xa1\xb1"), "/%A1%B1");
        assert_eq!(normal(b"/\xc0\xa7"), "/%C0%A7");
    }

    #[test]
    fn the_query_begins_at_the_first_question_mark() {
        for (target, expected) in
            [("/a?b=c?d#e", "b=c?d"), ("/a", ""), ("/a?", ""), ("/a#b?c", ""), ("?a", "a"), ("", "")]
        {
            assert_eq!(query(target.as_bytes()), expected.as_bytes(), "{target}");
        }
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of which targets are made, those with a meaning more often than others.
    fn target() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            3 => prop::sample::select(vec!["/", "//", ".", "..", "%2e", "%2F", "%25", "%", "%4", "1", "a", "?", "#", ":"])
                .prop_map(|piece| piece.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..3),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn the_normal_form_is_a_fixed_point_in_ascii(target in target()) {
            let once = normal(&target);
            prop_assert_eq!(&normal(once.as_bytes()), &once);
            prop_assert!(once.bytes().all(|byte| (b'!'..=b'~').contains(&byte)));
            if !matches!(once.as_str(), "" | "*") {
                prop_assert!(once.starts_with('/') && !once.contains("//"));
                prop_assert!(!once.split('/').any(|segment| matches!(segment, "." | "..")));
            }
        }

        #[test]
        fn escaping_an_unreserved_character_changes_nothing(path in "[a-z./]{0,12}", escaped in any::<u16>()) {
            let path = format!("/{path}");
            let spelled: String = path.bytes().enumerate().map(|(index, byte)| {
                let escape = byte != b'/' && escaped >> (index % 16) & 1 == 1;
                if escape { format!("%{byte:02x}") } else { char::from(byte).to_string() }
            }).collect();
            prop_assert_eq!(normal(spelled.as_bytes()), normal(path.as_bytes()));
        }
    }
}
