//! Durations in upstream's flags: `300s`, `5m`, `1h30m`, `1.5h`, or `0`.

use std::time::Duration;

use api_model::go::parse_duration;

/// The text of a flag that is no duration.
#[derive(Debug, PartialEq, Eq)]
pub struct DurationError(String);

impl std::fmt::Display for DurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is not a duration such as 300s, 5m or 1h30m", self.0)
    }
}

impl std::error::Error for DurationError {}

/// Parses a duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let nanoseconds = parse_duration(text).ok().and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    nanoseconds.map(Duration::from_nanos).ok_or_else(|| DurationError(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_upstream_writes_them() {
        for (text, ms) in [("0", 0), ("300s", 300_000), ("5m0s", 300_000), ("1h30m", 5_400_000), ("1.5h", 5_400_000), ("250ms", 250)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "m", "5x", "-5m", "5m6"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
