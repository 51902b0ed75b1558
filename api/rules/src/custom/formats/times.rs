//! Dates, times and durations.

use std::sync::LazyLock;

use api_model::go::parse_duration;
use regex::Regex;

use super::pattern;

static DATE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d{2}-\d{2}$"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static AMOUNT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\d+)\s*([A-Za-zµ]+)"));

/// Names of units, and prefixes of names.
const UNITS: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
const UNIT_BEGINNINGS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];

/// `full-date` of RFC 3339.
pub(super) fn is_date(text: &str) -> bool {
    DATE.is_match(text) && text.parse::<jiff::civil::Date>().is_ok()
}

/// `date-time` of RFC 3339; the text after a second `T` is ignored.
pub(super) fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(captures) = TIME.captures(time) else { return false };
    let at_most = |group: usize, max: &str| captures.get(group).is_some_and(|number| number.as_str() <= max);
    is_date(date) && at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}

/// A duration in Go's form, or a text that contains an amount and a unit: `10 minutes`.
pub(super) fn is_duration(text: &str) -> bool {
    if parse_duration(text).is_ok() {
        return true;
    }
    let mut is_any = false;
    for captures in AMOUNT.captures_iter(text) {
        let group = |index: usize| captures.get(index).map_or("", |group| group.as_str());
        if group(1).parse::<i64>().is_err() {
            return false;
        }
        let unit = group(2).to_lowercase();
        is_any |= UNITS.contains(&&*unit) || UNIT_BEGINNINGS.iter().any(|beginning| unit.starts_with(beginning));
    }
    is_any
}
