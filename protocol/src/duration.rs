//! Durations in configuration: `250ms`, `7s`, `1h30m`, `30d`.

use std::fmt;

/// What is accepted, for error messages.
pub const ACCEPTED: &str = "a duration with units, such as 250ms, 7s, 1h30m or 30d (units ms, s, m, h, d, w)";

/// A text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADuration;

impl fmt::Display for NotADuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {ACCEPTED}")
    }
}

impl std::error::Error for NotADuration {}

/// Whole milliseconds of a text of one or more `<digits><unit>`, each unit at most once and the largest first. A bare
/// number, a sign, a fraction and an unknown unit are refused; so is what does not fit in 64 bits.
pub fn parse_ms(text: &str) -> Result<u64, NotADuration> {
    let mut rest = text;
    let mut total = 0u64;
    let mut previous_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(NotADuration)?;
        let (number, tail) = rest.split_at_checked(digits).ok_or(NotADuration)?;
        let letters = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(letters).ok_or(NotADuration)?;
        let unit = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 60 * 60 * 1000,
            "d" => 24 * 60 * 60 * 1000,
            "w" => 7 * 24 * 60 * 60 * 1000,
            _ => return Err(NotADuration),
        };
        if unit >= previous_unit {
            return Err(NotADuration);
        }
        previous_unit = unit;
        let number: u64 = number.parse().map_err(|_| NotADuration)?;
        total = number.checked_mul(unit).and_then(|ms| total.checked_add(ms)).ok_or(NotADuration)?;
        rest = tail;
    }
    if previous_unit == u64::MAX { Err(NotADuration) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn units_add_up() {
        for (text, ms) in [
            ("250ms", 250),
            ("7s", 7000),
            ("1h30m", 5_400_000),
            ("30d", 2_592_000_000),
            ("1w", 604_800_000),
            ("1m1ms", 60_001),
            ("0s", 0),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "7",
            "s",
            "-1s",
            "+1s",
            "1.5s",
            "1 s",
            " 1s",
            "1s ",
            "500us",
            "1S",
            "30m1h",
            "1s1s",
            "1y",
            "abc",
            "1e3s",
            "99999999999999999999s",
            "99999999999999999w",
            "１s",
            "1s½",
        ] {
            assert_eq!(parse_ms(text), Err(NotADuration), "{text:?}");
        }
    }
}
