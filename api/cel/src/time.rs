//! Durations and timestamps as text.

use api_model::go::parse_duration;
use jiff::Timestamp;

/// The nanoseconds of a duration in Go's form, such as `1h30m`.
pub(crate) fn duration(text: &str) -> Option<i64> {
    parse_duration(text).ok()
}

/// The text of a duration in CEL's form, in seconds.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let (sign, size) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    let (whole, below) = (size / 1_000_000_000, size % 1_000_000_000);
    match below {
        0 => format!("{sign}{whole}s"),
        below => format!("{sign}{whole}.{}s", format!("{below:09}").trim_end_matches('0')),
    }
}

/// Parses a point in time as CEL does.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    // An RFC 3339 zone is an offset. The more lenient forms of `jiff` are invalid.
    let is_strict = text.get(10..11).is_some_and(|t| t == "T" || t == "t") && !text.contains('[');
    if is_strict { text.parse().ok() } else { None }
}
