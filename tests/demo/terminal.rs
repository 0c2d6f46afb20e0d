//! Text on the terminal; in colour only where a person reads it.

use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use harness::Response;
use http::StatusCode;

/// Width of a paragraph.
const WIDTH: usize = 100;
/// Fields of an answer that have to do with limits.
const SHOWN: [&str; 8] = [
    "ratelimit-policy",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "cache-control",
    "content-type",
];

fn style(code: &str, text: &str) -> String {
    static COLOUR: OnceLock<bool> = OnceLock::new();
    let colour = COLOUR.get_or_init(|| std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    if *colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

pub fn bold(text: &str) -> String {
    style("1", text)
}

pub fn good(text: &str) -> String {
    style("32", text)
}

pub fn bad(text: &str) -> String {
    style("31", text)
}

pub fn faint(text: &str) -> String {
    style("2", text)
}

/// Prints a line. A reader that has gone away (`make demo | head`) is no reason to stop half way.
pub fn out(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub fn chapter(title: &str) {
    out(&format!("\n{}", bold(title)));
}

/// A paragraph, broken into lines.
pub fn say(text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            out(&format!("  {line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out(&format!("  {line}"));
}

/// A line as it is.
pub fn line(text: &str) {
    out(format!("  {text}").trim_end());
}

/// The request as the command that would send it.
pub fn request(url: &str, key: &str) {
    out(&format!("\n  {}", bold(&format!("$ curl -i -H 'x-api-key: {key}' {url}"))));
}

/// The answer: status, the fields that have to do with limits, and the body of a refusal.
pub fn answer(response: &Response) {
    let reason = StatusCode::from_u16(response.status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    let status = format!("HTTP/1.1 {} {reason}", response.status);
    line(&if response.status < 400 { good(&status) } else { bad(&status) });
    let refused = response.status >= 400;
    for name in SHOWN {
        for value in response.all(name) {
            if refused || name.starts_with("ratelimit") {
                line(&format!("{name}: {value}"));
            }
        }
    }
    if refused {
        line("");
        line(&response.text());
    }
}
