//! Durations as upstream's flags take them: `300s`, `5m`, `1h30m`, `1.5h`, or `0`.

use std::time::Duration;

const UNITS: &[(&str, f64)] = &[("h", 3600.0), ("ms", 0.001), ("m", 60.0), ("s", 1.0)];

/// Reads one.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let refused = || format!("{text:?} is not a duration such as 300s, 5m or 1h30m");
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or_else(refused)?;
        let (number, after) = rest.split_at(digits);
        let number = number.parse::<f64>().map_err(|_| refused())?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(refused)?;
        seconds += number * factor;
        rest = after.strip_prefix(unit).unwrap_or_default();
    }
    if text.is_empty() {
        return Err(refused());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
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
