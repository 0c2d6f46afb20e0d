use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::*;

fn us(instant: &str) -> u64 {
    u64::try_from(instant.parse::<Timestamp>().unwrap().as_microsecond()).unwrap()
}

fn calendar(unit: Unit, zone: &str) -> Calendar {
    Calendar::new(unit, zone).unwrap_or_else(|| panic!("no zone {zone}"))
}

/// The window from start to end, and nothing but it, holds every instant from start to end.
#[track_caller]
fn assert_window(unit: Unit, zone: &str, start: &str, end: &str, hours: f64) {
    let (start_us, end_us) = (us(start), us(end));
    let calendar = calendar(unit, zone);
    assert_eq!(end_us - start_us, (hours * 3.6e9) as u64, "the test itself");
    for inside in [start_us, start_us + 1, start_us.midpoint(end_us), end_us - 1] {
        let Edges(edges) = calendar.edges(inside);
        assert_eq!(edges[1..3], [start_us, end_us], "{unit:?} of {zone} at {inside}");
        assert_eq!(Edges(edges).end_us(inside), Some(end_us));
    }
    assert_eq!(calendar.edges(start_us - 1).0[2], start_us, "the window before ends where this one starts");
    assert_eq!(calendar.edges(end_us).0[1], end_us, "the next window starts where this one ends");
    assert_eq!(calendar.length_us(end_us), end_us - start_us);
}

const DAY: f64 = 24.0;

#[test]
fn months_of_all_lengths() {
    let month = |start, end, days| assert_window(Unit::Month, "UTC", start, end, days * DAY);
    month("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", 31.0);
    month("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", 28.0);
    month("2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z", 30.0);
    month("2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", 31.0);
    // Leap years, and a century that is none.
    month("2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", 29.0);
    month("2000-02-01T00:00:00Z", "2000-03-01T00:00:00Z", 29.0);
    month("2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z", 28.0);
}

#[test]
fn weeks_start_on_monday() {
    assert_window(Unit::Week, "UTC", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z", 7.0 * DAY);
    // Over the end of a year, and over a leap day.
    assert_window(Unit::Week, "UTC", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", 7.0 * DAY);
    assert_window(Unit::Week, "UTC", "2028-02-28T00:00:00Z", "2028-03-06T00:00:00Z", 7.0 * DAY);
    // Both changes of the clocks fall on the Sunday.
    assert_window(Unit::Week, "Europe/Berlin", "2026-03-23T00:00:00+01", "2026-03-30T00:00:00+02", 7.0 * DAY - 1.0);
    assert_window(Unit::Week, "Europe/Berlin", "2026-10-19T00:00:00+02", "2026-10-26T00:00:00+01", 7.0 * DAY + 1.0);
}

#[test]
fn days_are_longer_and_shorter_where_clocks_are_changed() {
    let day = |zone, start, end, hours| assert_window(Unit::Day, zone, start, end, hours);
    day("Europe/Berlin", "2026-03-28T00:00:00+01", "2026-03-29T00:00:00+01", 24.0);
    day("Europe/Berlin", "2026-03-29T00:00:00+01", "2026-03-30T00:00:00+02", 23.0);
    day("Europe/Berlin", "2026-10-25T00:00:00+02", "2026-10-26T00:00:00+01", 25.0);
    day("Europe/Berlin", "2027-12-31T00:00:00+01", "2028-01-01T00:00:00+01", 24.0);
    // Rules that hold until further notice, decades from now.
    day("Europe/Berlin", "2099-03-29T00:00:00+01", "2099-03-30T00:00:00+02", 23.0);
    // Half hours: an offset, and a change.
    day("Asia/Kolkata", "2028-02-29T00:00:00+05:30", "2028-03-01T00:00:00+05:30", 24.0);
    day("Australia/Lord_Howe", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11", 23.5);
    day("Australia/Lord_Howe", "2026-04-05T00:00:00+11", "2026-04-06T00:00:00+10:30", 24.5);
    assert_window(Unit::Month, "Europe/Berlin", "2026-03-01T00:00:00+01", "2026-04-01T00:00:00+02", 31.0 * DAY - 1.0);
    assert_window(Unit::Month, "Europe/Berlin", "2026-10-01T00:00:00+02", "2026-11-01T00:00:00+01", 31.0 * DAY + 1.0);
}

#[test]
fn a_day_without_midnight_starts_with_its_first_instant() {
    let day = |zone, start, end, hours| assert_window(Unit::Day, zone, start, end, hours);
    // 24:00 is 01:00.
    day("America/Asuncion", "2023-10-01T01:00:00-03", "2023-10-02T00:00:00-03", 23.0);
    day("America/Santiago", "2026-09-06T01:00:00-03", "2026-09-07T00:00:00-03", 23.0);
    day("Asia/Beirut", "2026-03-29T01:00:00+03", "2026-03-30T00:00:00+03", 23.0);
    // 24:00 is 23:00 again: there is one midnight, an hour later.
    day("America/Asuncion", "2023-03-25T00:00:00-03", "2023-03-26T00:00:00-04", 25.0);
    day("America/Santiago", "2026-04-04T00:00:00-03", "2026-04-05T00:00:00-04", 25.0);
    day("Asia/Beirut", "2026-10-24T00:00:00+03", "2026-10-25T00:00:00+02", 25.0);
    // A month that starts with such a day.
    assert_window(
        Unit::Month,
        "America/Asuncion",
        "2023-10-01T01:00:00-03",
        "2023-11-01T00:00:00-03",
        31.0 * DAY - 1.0,
    );
}

#[test]
fn a_gap_may_start_before_midnight() {
    // 23:30 is 00:30: no zone since 1970, but nothing forbids it.
    let zone = TimeZone::posix("AAA0BBB-1,M3.4.0/23:30,M10.5.0/2").unwrap();
    let days = Calendar { unit: Unit::Day, zone };
    let (start, end) = (us("2026-03-23T00:30:00+01"), us("2026-03-24T00:00:00+01"));
    assert_eq!(days.edges(start).0[1..3], [start, end]);
    assert_eq!(days.edges(start - 1).0[1..3], [us("2026-03-22T00:00:00+00"), start]);
}

#[test]
fn a_day_with_two_midnights_starts_with_the_first() {
    // 00:01 is 23:01 again, of the day before: the day that has begun goes on.
    let (start, end) = ("2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30");
    assert_window(Unit::Day, "America/St_Johns", start, end, 25.0);
    let yesterday_again = us("2010-11-06T23:30:00-03:30");
    assert_eq!(calendar(Unit::Day, "America/St_Johns").edges(yesterday_again).0[1..3], [us(start), us(end)]);
    // 01:00 is 00:00 again, of the same day.
    assert_window(Unit::Day, "America/Havana", "2019-11-03T00:00:00-04", "2019-11-04T00:00:00-05", 25.0);
}

#[test]
fn a_day_that_was_skipped_is_no_window() {
    let (before, after) = ("2011-12-29T00:00:00-10", "2011-12-31T00:00:00+14");
    assert_window(Unit::Day, "Pacific/Apia", before, after, 24.0);
    assert_window(Unit::Day, "Pacific/Apia", after, "2012-01-01T00:00:00+14", 24.0);
    assert_eq!(calendar(Unit::Day, "Pacific/Apia").edges(us(after)).0[0], us(before));
    assert_eq!(calendar(Unit::Day, "Pacific/Apia").edges(us(before)).0[3], us("2012-01-01T00:00:00+14"));
    assert_window(Unit::Month, "Pacific/Apia", "2011-12-01T00:00:00-10", "2012-01-01T00:00:00+14", 30.0 * DAY);
}

#[test]
fn a_zone_has_one_name() {
    for zone in ["", "Mars/Olympus", "europe/berlin", "utc", "Europe", "+02:00", "Europe/Berlin ", "../etc/passwd"] {
        assert_eq!(Calendar::new(Unit::Day, zone), None, "{zone}");
    }
    assert!(Calendar::zones().count() > 400);
    for zone in Calendar::zones() {
        let month = calendar(Unit::Month, &zone);
        assert_eq!(month.to_string(), format!("month@{zone}"));
    }
    assert_ne!(calendar(Unit::Day, "Europe/Berlin"), calendar(Unit::Day, "Europe/Paris"));
    assert_ne!(calendar(Unit::Day, "UTC"), calendar(Unit::Week, "UTC"));
}

#[test]
fn a_time_lies_in_one_window_or_in_none() {
    let edges = Edges([10, 20, 30, 40]);
    for (now_us, end_us) in [
        (0, None),
        (9, None),
        (10, Some(20)),
        (19, Some(20)),
        (20, Some(30)),
        (30, Some(40)),
        (39, Some(40)),
        (40, None),
    ] {
        assert_eq!(edges.end_us(now_us), end_us, "{now_us}");
    }
}

#[test]
fn the_ends_of_time_are_no_surprise() {
    for zone in ["UTC", "Pacific/Kiritimati", "America/Adak"] {
        for unit in Unit::ALL {
            let calendar = calendar(unit, zone);
            for now_us in [0, 1, us("1970-01-01T12:00:00Z"), us("2255-06-05T00:00:00Z"), u64::MAX] {
                let Edges(edges) = calendar.edges(now_us);
                assert!(edges.is_sorted(), "{edges:?}");
                assert!(now_us == u64::MAX || (edges[1]..edges[2]).contains(&now_us), "{edges:?} at {now_us}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/calendar.txt"))), ..ProptestConfig::default() })]

    #[test]
    fn windows_follow_each_other_without_gaps(
        unit in proptest::sample::select(&Unit::ALL[..]),
        zone in proptest::sample::select(Calendar::zones().collect::<Vec<_>>()),
        now_us in us("1971-01-01T00:00:00Z")..us("2200-01-01T00:00:00Z"),
    ) {
        let calendar = calendar(unit, &zone);
        let Edges(edges) = calendar.edges(now_us);
        prop_assert!(edges.is_sorted_by(|left, right| left < right), "{:?}", edges);
        prop_assert!((edges[1]..edges[2]).contains(&now_us), "{:?}", edges);
        // The neighbours, from their first to their last instant, see the same edges.
        for in_next in [edges[2], edges[3] - 1] {
            prop_assert_eq!(&calendar.edges(in_next).0[..3], &edges[1..]);
        }
        for in_previous in [edges[0], edges[1] - 1] {
            prop_assert_eq!(&calendar.edges(in_previous).0[1..], &edges[..3]);
        }
        // Each starts with the first instant of its first day.
        for edge in edges {
            let local = |us: u64| calendar.zone.to_datetime(Timestamp::from_microsecond(i64::try_from(us).unwrap()).unwrap());
            let (first, before) = (local(edge).date(), local(edge - 1).date());
            prop_assert!(before < first, "{} is not before {}", before, first);
            // Where a zone skipped the first day itself, it starts with the next one.
            prop_assert!(unit.first_day(first) == first || before < unit.first_day(first));
        }
    }
}
