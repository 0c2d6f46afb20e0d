//! Reads a condition on a text.

use weir_protocol::document::{Fields, Mistakes, Value};

use crate::pattern::{Pattern, WholeRegex};

/// Longest expression.
const MAX_REGEX_BYTES: usize = 1024;

/// `exact`, `prefix` or `regex`, whichever is given; `text` reads the first two.
pub fn pattern(
    fields: &mut Fields<'_>,
    mistakes: &mut Mistakes,
    text: impl Fn(&str, &Value, &mut Mistakes) -> Option<String>,
) -> Option<Pattern> {
    let exact = fields.optional("exact").and_then(|(path, value)| text(&path, value, mistakes));
    let prefix = fields.optional("prefix").and_then(|(path, value)| text(&path, value, mistakes));
    let regex = fields.optional("regex").and_then(|(path, value)| regex(&path, value, mistakes));
    exact.map(Pattern::Exact).or(prefix.map(Pattern::Prefix)).or(regex.map(Pattern::Regex))
}

fn regex(path: &str, value: &Value, mistakes: &mut Mistakes) -> Option<WholeRegex> {
    const ACCEPTED: &str = "a regular expression for the whole value";
    let text = mistakes.text(path, value, ACCEPTED)?;
    if text.len() > MAX_REGEX_BYTES {
        mistakes
            .add(path, format_args!("expected {ACCEPTED} of at most {MAX_REGEX_BYTES} bytes, found {}", text.len()));
        return None;
    }
    WholeRegex::new(text).map_err(|reason| mistakes.expected(path, format_args!("{ACCEPTED} ({reason})"), value)).ok()
}
