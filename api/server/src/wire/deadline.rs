//! How long a request may take: what `timeout` in its query says, within the server's own limit. Not for watches and
//! connections, which may take as long as they like.

use std::time::Duration;

use super::query::Query;
use crate::status::{ApiError, ApiResult};

/// The limit that holds for a request. As upstream: none is asked for by zero, and none above the server's is had.
pub(crate) fn of(query: &Query, limit: Duration) -> ApiResult<Duration> {
    let Some(text) = query.filled("timeout") else { return Ok(limit) };
    let seconds = seconds(text).map_err(|why| ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    Ok(if 0.0 < seconds && seconds < limit.as_secs_f64() { Duration::from_secs_f64(seconds) } else { limit })
}

/// Go's `time.ParseDuration`, with its words for what is none.
fn seconds(text: &str) -> Result<f64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0.0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let (number, tail) = split_where(rest, |c| !is_of_number(c));
        let (unit, tail) = split_where(tail, is_of_number);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        sum += number
            * match unit {
                "ns" => 1e-9,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "" => return Err(format!("time: missing unit in duration {text:?}")),
                unknown => return Err(format!("time: unknown unit {unknown:?} in duration {text:?}")),
            };
        rest = tail;
    }
    // Go counts nanoseconds in 63 bits.
    if sum * 1e9 > 2_f64.powi(63) {
        return Err(invalid());
    }
    Ok(if text.starts_with('-') { -sum } else { sum })
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn split_where(text: &str, is_other: impl Fn(char) -> bool) -> (&str, &str) {
    text.find(is_other).and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn deadline(text: &str) -> Result<Duration, String> {
        of(&Query::of([("timeout".to_owned(), text.to_owned())]), LIMIT).map_err(|error| error.message().to_string())
    }

    #[test]
    fn a_shorter_timeout_is_had_and_a_longer_one_is_not() {
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
    fn what_is_no_duration_is_refused_in_gos_words() {
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
