//! Durations in upstream's flags: `300s`, `5m`, `1h30m`, `1.5h`, or `0`.

use std::time::Duration;

use api_model::go::parse_duration;
use thiserror::Error;

/// The least interval between two readings of metrics: the metrics server's.
const RESOLUTION_MIN: Duration = Duration::from_secs(10);

/// The text of a flag that is no duration, or none that the flag takes.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DurationError {
    /// The text is no duration.
    #[error("{0:?} is not a duration such as 300s, 5m or 1h30m")]
    Malformed(String),
    /// Readings would be too close together.
    #[error("metric-resolution should be a time duration at least 10s, but value {0} provided")]
    TooOften(String),
}

/// Parses a duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let nanoseconds = parse_duration(text).ok().and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    nanoseconds.map(Duration::from_nanos).ok_or_else(|| DurationError::Malformed(text.to_owned()))
}

/// Parses the interval between two readings of metrics.
pub fn parse_resolution(text: &str) -> Result<Duration, DurationError> {
    let resolution = parse(text)?;
    let is_possible = resolution.is_zero() || resolution >= RESOLUTION_MIN;
    if is_possible { Ok(resolution) } else { Err(DurationError::TooOften(text.to_owned())) }
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

    #[test]
    fn metrics_are_not_read_too_often() {
        for text in ["0", "10s", "1m"] {
            assert_eq!(parse_resolution(text), parse(text));
        }
        assert_eq!(parse_resolution("9.9s"), Err(DurationError::TooOften("9.9s".to_owned())));
        assert_eq!(parse_resolution("x"), Err(DurationError::Malformed("x".to_owned())));
    }
}
