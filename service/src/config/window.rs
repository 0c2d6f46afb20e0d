//! The window of a policy: a length, or a unit of the calendar and a time zone.

use weir_protocol::MAX_WINDOW_MS;
use weir_protocol::document::{Fields, Mistakes, Value};

use super::read_duration;
use crate::calendar::{Calendar, Unit};
use crate::policy::{Algorithm, Window};

const BOUNDS: &str = "1ms to 3660d";
const BOUNDS_OR_UNIT: &str = "1ms to 3660d, or one of day, week, month";
const ZONE: &str = "UTC, or the name of a time zone as the IANA database writes it, such as Europe/Berlin";
/// Nobody's day begins earlier or later for it.
const DEFAULT_ZONE: &str = "UTC";

/// Reads `window` and `time_zone`. `None` only if a mistake was added.
pub(super) fn read(fields: &mut Fields<'_>, algorithm: Option<Algorithm>, mistakes: &mut Mistakes) -> Option<Window> {
    let window = fields.required("window", "a duration, such as 1m", mistakes);
    let zone = fields.optional("time_zone");
    let (path, value) = window?;
    let Some(unit) = unit(value) else {
        let bounds = if algorithm == Some(Algorithm::FixedWindow) { BOUNDS_OR_UNIT } else { BOUNDS };
        let window_ms = read_duration(&path, value, 1..=MAX_WINDOW_MS, bounds, mistakes)?;
        if let Some((path, value)) = zone {
            mistakes.expected(&path, "nothing: only a window of day, week or month has a time zone", value);
            return None;
        }
        return Some(Window::Length(window_ms));
    };
    let calendar = match zone {
        Some((path, value)) => mistakes.text(&path, value, ZONE).and_then(|zone| {
            let calendar = Calendar::new(unit, zone);
            if calendar.is_none() {
                mistakes.expected(&path, ZONE, value);
            }
            calendar
        }),
        None => Calendar::new(unit, DEFAULT_ZONE),
    };
    // With an algorithm that is a mistake itself there is nothing to add.
    if algorithm.is_some_and(|algorithm| algorithm != Algorithm::FixedWindow) {
        mistakes.expected(
            &path,
            format_args!("a duration from {BOUNDS}; day, week and month go with fixed_window only"),
            value,
        );
        return None;
    }
    calendar.map(Window::Calendar)
}

fn unit(value: &Value) -> Option<Unit> {
    let Value::Text(text) = value else { return None };
    Unit::ALL.into_iter().find(|unit| unit.as_str() == text)
}
