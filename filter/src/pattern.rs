//! Conditions on a text.

use regex_lite::{Regex, RegexBuilder};

/// Largest compiled expression: the time to match a value is its length times this, at worst.
const MAX_COMPILED_BYTES: usize = 64 << 10;

/// A condition on one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The whole text.
    Exact(String),
    /// Its beginning.
    Prefix(String),
    /// An expression that the whole text matches.
    Regex(WholeRegex),
}

/// A regular expression for a whole text, compiled once.
#[derive(Clone, Debug)]
pub struct WholeRegex {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Whether the condition holds. To an expression, bytes that are not UTF-8 are U+FFFD.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact.as_bytes() == value,
            Self::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
            Self::Regex(regex) => regex.regex.is_match(&String::from_utf8_lossy(value)),
        }
    }
}

impl WholeRegex {
    /// Compiles an expression; the reason if it is none.
    pub fn new(text: &str) -> Result<Self, String> {
        let compile = |text: &str| {
            RegexBuilder::new(text)
                .dot_matches_new_line(true)
                .size_limit(MAX_COMPILED_BYTES)
                .build()
                .map_err(|error| error.to_string())
        };
        // Alone first: `a)|(b` is an expression only between brackets.
        compile(text)?;
        Ok(Self { text: text.to_owned(), regex: compile(&format!("^(?:{text})$"))? })
    }
}

impl PartialEq for WholeRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for WholeRegex {}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn regex(text: &str) -> Pattern {
        Pattern::Regex(WholeRegex::new(text).unwrap())
    }

    #[test]
    fn an_expression_is_for_the_whole_text() {
        assert!(regex("/v[0-9]+/x").matches(b"/v12/x"));
        assert!(!regex("/v[0-9]+/x").matches(b"/v12/xy"));
        assert!(!regex("/v[0-9]+/x").matches(b"/a/v12/x"));
        // Alternatives of every level.
        assert!(!regex("a|b").matches(b"ab"));
        assert!(!regex("a|b").matches(b"xb"));
        // No line ends early, and none is left out.
        assert!(!regex("a").matches(b"a\nb"));
        assert!(!regex("a$").matches(b"a\n"));
        assert!(regex("a.*").matches(b"a\nb"));
        assert!(!regex("(?m)a").matches(b"a\nb"));
        assert!(regex("").matches(b""));
    }

    #[test]
    fn bytes_that_are_not_utf8_can_be_matched() {
        assert!(regex(".+").matches(b"\xa1\xb1"));
        assert!(!regex("[a-z]+").matches(b"a\xa1"));
    }

    #[test]
    fn what_is_no_expression_or_too_large_is_refused() {
        for text in ["(", "a)|(b", "[", "a{5000}{5000}", "(?x)a #", "\\"] {
            assert!(WholeRegex::new(text).is_err(), "{text}");
        }
    }
}
