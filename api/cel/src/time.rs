//! Durations and timestamps as text.

use api_model::go::parse_duration;
use jiff::Timestamp;

/// Nanoseconds of `1h30m`, as Go writes durations.
pub(crate) fn duration(text: &str) -> Option<i64> {
    parse_duration(text).ok()
}

/// Seconds, as CEL writes durations.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let (sign, size) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    let (whole, below) = (size / 1_000_000_000, size % 1_000_000_000);
    match below {
        0 => format!("{sign}{whole}s"),
        below => format!("{sign}{whole}.{}s", format!("{below:09}").trim_end_matches('0')),
    }
}

/// A point in time as CEL reads it.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    // RFC 3339 has a zone that is an offset; more lenient forms are none.
    let is_strict = text.get(10..11).is_some_and(|t| t == "T" || t == "t") && !text.contains('[');
    if is_strict { text.parse().ok() } else { None }
}
