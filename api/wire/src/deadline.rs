//! How long a request may take: the `timeout` in its query, within the server's own limit. Watches and connections have no such
//! limit.

use std::time::Duration;

use api_model::go::parse_duration;

use super::query::Query;
use crate::status::{ApiError, ApiResult};

/// The limit of a request. As upstream, zero means the server's limit, and a longer timeout is cut to it.
pub fn of(query: &Query, limit: Duration) -> ApiResult<Duration> {
    let Some(text) = query.filled("timeout") else { return Ok(limit) };
    let requested =
        parse_duration(text).map_err(|why| ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    // A timeout below zero counts as zero.
    let requested = u64::try_from(requested).map(Duration::from_nanos).unwrap_or_default();
    Ok(if requested.is_zero() { limit } else { requested.min(limit) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn deadline(text: &str) -> Result<Duration, String> {
        of(&Query::of([("timeout".to_owned(), text.to_owned())]), LIMIT).map_err(|error| error.message().to_string())
    }

    #[test]
    fn a_shorter_timeout_applies_and_a_longer_one_does_not() {
        for (text, wanted_ms) in [
            ("", 60_000),
            ("0", 60_000),
            ("0s", 60_000),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("500ms", 500),
            ("1m1s", 60_000),
            ("-1s", 60_000),
        ] {
            assert_eq!(deadline(text), Ok(Duration::from_millis(wanted_ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_rejected_in_gos_words() {
        for (text, wanted) in [
            ("invalid", "time: invalid duration"),
            ("s", "time: invalid duration"),
            ("-", "time: invalid duration"),
            (".s", "time: invalid duration"),
            ("9999999999999h", "time: invalid duration"),
            ("30", "time: missing unit in duration"),
            ("1x", "time: unknown unit"),
        ] {
            let refused = deadline(text).expect_err(text);
            assert!(refused.contains(&format!("invalid timeout specified in the request URL - {wanted}")), "{refused}");
        }
    }
}
