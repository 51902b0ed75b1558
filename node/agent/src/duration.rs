//! Durations in the values of flags, as Go writes them: `1m30s`.

use std::time::Duration;

/// `None` when the text is no duration, or a negative one.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let nanoseconds = api_model::go::parse_duration(text).ok()?;
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}
