use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn zone(name: &str) -> TimeZone {
    time_zone(name).expect("a time zone")
}

/// The next times after `after`.
fn times(schedule: &str, after: &str, zone: &TimeZone, count: usize) -> Vec<String> {
    let schedule = Schedule::parse(schedule).expect("a schedule");
    let next = |time: &Timestamp| schedule.next(*time, zone);
    std::iter::successors(next(&at(after)), next)
        .take(count)
        .map(|time| time.to_zoned(zone.clone()).strftime("%FT%R%:z").to_string())
        .collect()
}

#[test]
fn schedules_that_cron_takes() {
    for text in [
        "* * * * *",
        "*/5 * * * *",
        "0 0 1,15 jan-MAR mon",
        "5-10/2 1 * * ?",
        "@hourly",
        "@every 1h30m",
        "0 3 * * SUN",
        "0,,5 * * * *",
        "*-5 * * * *",
        "TZ=Europe/Paris 0 3 * * *",
        "CRON_TZ=UTC @daily",
    ] {
        assert!(Schedule::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn schedules_that_it_does_not() {
    for (text, wanted) in [
        ("", "empty spec string"),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("10-5 * * * *", "beginning of range (10) beyond end of range (5): 10-5"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("@often", "unrecognized descriptor: @often"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("TZ=Moon 0 3 * * *", "provided bad location Moon: unknown time zone Moon"),
        ("TZ=UTC", "expected exactly 5 fields, found 0: []"),
    ] {
        assert_eq!(Schedule::parse(text), Err(wanted.into()), "{text}");
    }
    assert!(Schedule::parse("@every soon").is_err());
}

#[test]
fn times_in_utc() {
    let after = "2024-02-28T23:59:59.5Z";
    for (schedule, wanted) in [
        ("* * * * *", ["2024-02-29T00:00", "2024-02-29T00:01", "2024-02-29T00:02"]),
        ("30 6-16/4 * * 1-5", ["2024-02-29T06:30", "2024-02-29T10:30", "2024-02-29T14:30"]),
        ("0 0 29 2 *", ["2024-02-29T00:00", "2028-02-29T00:00", "2032-02-29T00:00"]),
        ("@monthly", ["2024-03-01T00:00", "2024-04-01T00:00", "2024-05-01T00:00"]),
        ("@yearly", ["2025-01-01T00:00", "2026-01-01T00:00", "2027-01-01T00:00"]),
        ("@weekly", ["2024-03-03T00:00", "2024-03-10T00:00", "2024-03-17T00:00"]),
        ("@hourly", ["2024-02-29T00:00", "2024-02-29T01:00", "2024-02-29T02:00"]),
        // The first and each Monday: two restricted fields are alternatives.
        ("0 9 1 * mon", ["2024-03-01T09:00", "2024-03-04T09:00", "2024-03-11T09:00"]),
        // A star makes them both necessary; a star with a step is no star.
        ("0 9 * * mon", ["2024-03-04T09:00", "2024-03-11T09:00", "2024-03-18T09:00"]),
        ("0 9 */15 * mon", ["2024-03-01T09:00", "2024-03-04T09:00", "2024-03-11T09:00"]),
    ] {
        let wanted = wanted.map(|time| format!("{time}+00:00"));
        assert_eq!(times(schedule, after, &TimeZone::UTC, 3), wanted, "{schedule}");
    }
}

#[test]
fn a_schedule_can_be_without_times() {
    for text in ["0 0 31 2 *", "0 0 30 2 ?", ", * * * *"] {
        let schedule = Schedule::parse(text).expect("a schedule");
        let now = at("2024-02-28T00:00:00Z");
        assert_eq!(schedule.next(now, &TimeZone::UTC), None, "{text}");
        assert_eq!(schedule.last(at("2010-01-01T00:00:00Z"), now, &TimeZone::UTC), None, "{text}");
    }
}

#[test]
fn skipped_times_do_not_match_and_repeated_times_match_twice() {
    let cases: [(&str, &str, &str, &[&str]); 8] = [
        // New York skips 02:00 to 03:00 on 10 March 2024 and repeats 01:00 to 02:00 on 3 November.
        ("America/New_York", "30 2 * * *", "2024-03-09T12:00:00Z", &["2024-03-11T02:30-04:00", "2024-03-12T02:30-04:00"]),
        ("America/New_York", "0 3 * * *", "2024-03-09T12:00:00Z", &["2024-03-10T03:00-04:00", "2024-03-11T03:00-04:00"]),
        (
            "America/New_York",
            "30 1 * * *",
            "2024-11-03T00:00:00Z",
            &["2024-11-03T01:30-04:00", "2024-11-03T01:30-05:00", "2024-11-04T01:30-05:00"],
        ),
        (
            "America/New_York",
            "@hourly",
            "2024-11-03T04:30:00Z",
            &["2024-11-03T01:00-04:00", "2024-11-03T01:00-05:00", "2024-11-03T02:00-05:00"],
        ),
        ("America/New_York", "@hourly", "2024-03-10T06:30:00Z", &["2024-03-10T03:00-04:00", "2024-03-10T04:00-04:00"]),
        // Midnight of 4 November 2018 does not exist in Sao Paulo.
        ("America/Sao_Paulo", "@daily", "2018-11-03T12:00:00Z", &["2018-11-05T00:00-02:00"]),
        // Lord Howe changes by half an hour.
        ("Australia/Lord_Howe", "15 2,3 * * *", "2024-10-05T12:00:00Z", &["2024-10-06T03:15+11:00", "2024-10-07T02:15+11:00"]),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2024-04-06T12:00:00Z",
            &["2024-04-07T01:45+11:00", "2024-04-07T01:45+10:30", "2024-04-08T01:45+10:30"],
        ),
    ];
    for (name, schedule, after, wanted) in cases {
        assert_eq!(times(schedule, after, &zone(name), wanted.len()), wanted, "{schedule} in {name}");
    }
}

#[test]
fn the_prefix_decides_the_time_zone() {
    let wanted = ["2024-06-01T01:00+00:00", "2024-06-02T01:00+00:00"];
    for text in ["TZ=Europe/Paris 0 3 * * *", "CRON_TZ=Europe/Paris 0 3 * * *"] {
        assert_eq!(times(text, "2024-06-01T00:00:00Z", &TimeZone::UTC, 2), wanted);
    }
    assert_eq!(times("0 3 * * *", "2024-06-01T00:00:00Z", &zone("Europe/Paris"), 1), ["2024-06-01T03:00+02:00"]);
}

#[test]
fn an_interval_counts_from_the_time_before() {
    let schedule = Schedule::parse("@every 1h30m").expect("a schedule");
    let start = at("2024-06-01T00:00:20.7Z");
    assert_eq!(schedule.next(start, &TimeZone::UTC), Some(at("2024-06-01T01:30:20Z")));
    assert_eq!(schedule.last(start, at("2024-06-01T10:00:00Z"), &TimeZone::UTC), Some(at("2024-06-01T09:00:20Z")));
    assert_eq!(schedule.last(start, at("2024-06-01T01:00:00Z"), &TimeZone::UTC), None);
    let short = Schedule::parse("@every 10ms").expect("a schedule");
    assert_eq!(short.next(start, &TimeZone::UTC), Some(at("2024-06-01T00:00:21Z")), "at least a second");
}

/// Whether a minute matches, by the fields alone.
fn matches(schedule: &Schedule, time: Timestamp, zone: &TimeZone) -> bool {
    let clock = zone.to_datetime(time);
    let Recurrence::At(times) = &schedule.recurrence else { return false };
    times.minutes.contains(clock.minute()) && times.hours.contains(clock.hour()) && times.days.contains(clock.day())
}

proptest! {
    /// Compares with a search minute by minute over three days around changes of the clock.
    #[test]
    fn next_and_last_are_those_of_a_search_minute_by_minute(
        minute in 0..60_u8, step in 1..30_u8, hour in 0..24_u8, any_hour: bool, start in 0..(3 * 1440_i64), case in 0..4_usize,
    ) {
        let (name, from) = [
            ("America/New_York", "2024-03-09T00:00:00Z"), ("America/New_York", "2024-11-02T00:00:00Z"),
            ("Australia/Lord_Howe", "2024-04-06T00:00:00Z"), ("Asia/Kathmandu", "2024-04-06T00:00:00Z"),
        ][case];
        let (zone, from) = (zone(name), at(from));
        let hours = if any_hour { "*".to_owned() } else { hour.to_string() };
        let schedule = Schedule::parse(&format!("{minute}/{step} {hours} * * *")).expect("a schedule");
        let minutes = |count: i64| from + SignedDuration::from_mins(count);
        let after = minutes(start);
        let found = (start + 1..start + 3 * 1440).map(minutes).find(|time| matches(&schedule, *time, &zone));
        prop_assert_eq!(schedule.next(after, &zone), found);
        let found = (0..=start).rev().map(minutes).find(|time| matches(&schedule, *time, &zone) && *time > from);
        prop_assert_eq!(schedule.last(from, after, &zone), found);
    }
}
