//! Parts of timestamps, in UTC or another zone, and of durations.

use jiff::Zoned;
use jiff::tz::{Offset, TimeZone};

use super::CallResult;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of times.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let found = match args {
        [Value::Timestamp(time)] => part(function, &time.to_zoned(TimeZone::UTC)),
        [Value::Timestamp(time), Value::String(zone)] => part(function, &time.to_zoned(zone_of(zone)?)),
        [Value::Duration(nanoseconds)] => match function {
            "getHours" => Some(nanoseconds / 3_600_000_000_000),
            "getMinutes" => Some(nanoseconds / 60_000_000_000),
            "getSeconds" => Some(nanoseconds / 1_000_000_000),
            "getMilliseconds" => Some(nanoseconds / 1_000_000),
            _ => None,
        },
        _ => None,
    };
    match found {
        Some(number) => {
            meter.pay(1)?;
            Ok(Some(Value::Int(number)))
        }
        None => Ok(None),
    }
}

/// A part of a time. Months and days count from zero; only `getDate` counts from one.
fn part(function: &str, time: &Zoned) -> Option<i64> {
    Some(match function {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _ => return None,
    })
}

/// A time zone by its name or offset (`-08:00`).
fn zone_of(text: &str) -> Result<TimeZone, EvaluateError> {
    let offset = || {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let (hours, minutes) = digits.split_once(':')?;
        let seconds =
            hours.parse::<i32>().ok().filter(|hours| *hours < 24)? * 3_600 + minutes.parse::<i32>().ok().filter(|m| *m < 60)? * 60;
        Offset::from_seconds(sign * seconds).ok().map(TimeZone::fixed)
    };
    offset().or_else(|| TimeZone::get(text).ok()).ok_or_else(|| EvaluateError::failed(format!("unknown time zone {text}")))
}
