//! `time.ParseDuration`: `300s`, `5m`, `1h30m`, `-1.5h`, or `0`; and `Duration.String`.

use std::time::Duration;

use thiserror::Error;

/// Names of units with their nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// The maximum of digits that the parser reads after the point. Further digits cannot add a nanosecond, even to hours.
const FRACTION_DIGITS_MAX: usize = 18;

/// Why a text is no duration. The messages are Go's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DurationError {
    /// The text has another form, or the duration has more than 63 bits of nanoseconds.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A number has an unknown unit.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unknown unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Parses a duration. Returns nanoseconds, rounded towards zero.
///
/// # Errors
/// The text is no duration.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds = 0_i128;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !is_of_number(c));
        let (unit, after) = split_where(after, is_of_number);
        let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if number.is_empty() || number == "." => return Err(invalid()),
            None if unit.is_empty() => return Err(DurationError::MissingUnit(text.to_owned())),
            None => return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() }),
        };
        let part = scaled(number, factor).ok_or_else(invalid)?;
        nanoseconds = nanoseconds.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    i64::try_from(sign * nanoseconds).map_err(|_| invalid())
}

/// A duration as `Duration.String` writes it: `1h2m5s`, `15.016s`, `250ms`, `0s`.
pub fn duration_text(duration: Duration) -> String {
    let below_second = |unit: u128, name: &str| with_fraction(duration.as_nanos(), unit, name);
    match duration.as_nanos() {
        0 => return "0s".to_owned(),
        nanoseconds @ 1..1_000 => return format!("{nanoseconds}ns"),
        1_000..1_000_000 => return below_second(1_000, "µs"),
        1_000_000..1_000_000_000 => return below_second(1_000_000, "ms"),
        _ => {}
    }
    let (minutes, rest) = (duration.as_secs() / 60, Duration::new(duration.as_secs() % 60, duration.subsec_nanos()));
    let seconds = with_fraction(rest.as_nanos(), 1_000_000_000, "s");
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

/// A number of units with as many digits after the point as it needs.
fn with_fraction(nanoseconds: u128, unit: u128, name: &str) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", nanoseconds % unit);
    match fraction.trim_end_matches('0') {
        "" => format!("{}{name}", nanoseconds / unit),
        fraction => format!("{}.{fraction}{name}", nanoseconds / unit),
    }
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn split_where(text: &str, is_other: impl Fn(char) -> bool) -> (&str, &str) {
    text.find(is_other).and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""))
}

/// A number with or without a point, times a factor, rounded down.
fn scaled(number: &str, factor: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = fraction.get(..fraction.len().min(FRACTION_DIGITS_MAX)).unwrap_or_default();
    let below = match fraction {
        "" => 0,
        digits => digits.parse::<i128>().ok()?.checked_mul(factor)? / 10_i128.checked_pow(u32::try_from(digits.len()).ok()?)?,
    };
    whole.checked_mul(factor)?.checked_add(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("-0", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1ns2us3µs4μs", 9_001),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse_duration(text), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_500, "1.5µs"),
            (250_000_000, "250ms"),
            (15_000_000_000, "15s"),
            (15_016_000_000, "15.016s"),
            (60_000_000_000, "1m0s"),
            (300_500_000_000, "5m0.5s"),
            (3_725_000_000_000, "1h2m5s"),
            (90_000_000_000_001, "25h0m0.000000001s"),
        ] {
            assert_eq!(duration_text(Duration::from_nanos(nanoseconds)), text);
            assert_eq!(parse_duration(text).map(i64::unsigned_abs), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_rejected_in_gos_words() {
        for (text, wanted) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            (".", "time: invalid duration \".\""),
            (".s", "time: invalid duration \".s\""),
            ("soon", "time: invalid duration \"soon\""),
            ("--1s", "time: invalid duration \"--1s\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("30", "time: missing unit in duration \"30\""),
            ("1m30", "time: missing unit in duration \"1m30\""),
            ("1x", "time: unknown unit \"x\" in duration \"1x\""),
            ("1d2h", "time: unknown unit \"d\" in duration \"1d2h\""),
        ] {
            assert_eq!(parse_duration(text).map_err(|error| error.to_string()), Err(wanted.to_owned()), "{text}");
        }
    }
}
