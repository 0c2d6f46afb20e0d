//! Days, weeks and months of a time zone, as instants.
//!
//! Pure: time is an argument, and the time zones are those that are compiled in, so that all replicas of one version
//! agree, whatever their machines know. A window is half open, and the next one starts where it ends: every instant
//! lies in exactly one.

use std::fmt;
use std::sync::LazyLock;

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};

static TIME_ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// What a calendar counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// From midnight to midnight: 23 to 25 hours where clocks are changed.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
}

/// The days, weeks or months of a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: Unit,
    zone: TimeZone,
}

/// Where three windows in a row begin and where the last of them ends, in microseconds since the Unix epoch; never
/// falling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edges(pub [u64; 4]);

// === impl Unit ===

impl Unit {
    /// All units.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// Its word in policy files, replies and state keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// The first day of the unit that a date lies in.
    fn first_day(self, date: Date) -> Date {
        match self {
            Self::Day => date,
            Self::Week => date.saturating_sub(Span::new().days(date.weekday().to_monday_zero_offset())),
            Self::Month => date.first_of_month(),
        }
    }

    fn times(self, number: i32) -> Span {
        match self {
            Self::Day => Span::new().days(number),
            Self::Week => Span::new().weeks(number),
            Self::Month => Span::new().months(number),
        }
    }
}

// === impl Calendar ===

impl Calendar {
    /// The calendar of a time zone, which has its name in the IANA database (`Europe/Berlin`) or is `UTC`. `None` if
    /// there is none of exactly this name.
    pub fn new(unit: Unit, zone: &str) -> Option<Self> {
        let found = TIME_ZONES.get(zone).ok()?;
        // The database finds names in any case. One name for one zone: it is part of state keys.
        (found.iana_name() == Some(zone)).then_some(Self { unit, zone: found })
    }

    /// The names of all time zones.
    pub fn zones() -> impl Iterator<Item = String> {
        TIME_ZONES.available().map(|name| name.as_str().to_owned())
    }

    /// What it counts by.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The window that a time lies in, with the one before and the one after.
    pub fn edges(&self, now_us: u64) -> Edges {
        let now = i64::try_from(now_us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
        let today = self.zone.to_datetime(now.unwrap_or(Timestamp::MAX)).date();
        let first = self.unit.first_day(today);
        // Two to spare on the left and one on the right: a day that a zone has skipped altogether is no window
        // (Pacific/Apia, 2011-12-30), and when clocks are put back across midnight the date is yesterday's again,
        // after today's window has begun (America/St_Johns until 2011).
        let starts = (-2..=3).map(|number| self.start_us(first.saturating_add(self.unit.times(number))));
        let mut edges = [0; 4];
        let mut last = None;
        // Shifts until the third is above now, and takes one more.
        for start in starts {
            if last == Some(start) {
                continue;
            }
            last = Some(start);
            let [_, second, third, fourth] = edges;
            edges = [second, third, fourth, start];
            if fourth > now_us {
                break;
            }
        }
        Edges(edges)
    }

    /// The length in microseconds of the window that ends at this time.
    pub fn length_us(&self, end_us: u64) -> u64 {
        let Edges([_, start, end, _]) = self.edges(end_us.saturating_sub(1));
        end.saturating_sub(start)
    }

    /// The first instant of a day: midnight, the first of two midnights, or the end of the gap where clocks are put
    /// forward over midnight.
    fn start_us(&self, date: Date) -> u64 {
        let midnight = date.at(0, 0, 0, 0);
        let start = match self.zone.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(midnight),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(midnight),
            AmbiguousOffset::Gap { before, .. } => before.to_timestamp(midnight).map(|after_gap| {
                let after_gap = after_gap.saturating_add(Span::new().microseconds(1)).unwrap_or(after_gap);
                self.zone.preceding(after_gap).next().map_or(after_gap, |transition| transition.timestamp())
            }),
        };
        // Before 1970 is no time of a store's clock, and after the year 9999 none of a calendar.
        u64::try_from(start.unwrap_or(Timestamp::MAX).as_microsecond()).unwrap_or(0)
    }
}

/// As state keys hold it: `month@Europe/Berlin`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.unit.as_str(), self.zone.iana_name().unwrap_or("UTC"))
    }
}

// === impl Edges ===

impl Edges {
    /// The end of the window that a time lies in; `None` if it lies outside all three.
    pub fn end_us(&self, now_us: u64) -> Option<u64> {
        let [first, rest @ ..] = self.0;
        if now_us < first { None } else { rest.into_iter().find(|edge| now_us < *edge) }
    }

    /// The length in microseconds of the window in the middle.
    pub fn length_us(&self) -> u64 {
        let [_, start, end, _] = self.0;
        end.saturating_sub(start)
    }
}

#[cfg(test)]
mod tests;
