//! Schedules of CronJobs, in the syntax and with the meaning of upstream's library (robfig/cron v3): five fields, or a descriptor
//! such as `@daily`, after an optional `TZ=` prefix.
//!
//! The API server checks a schedule with [`Schedule::parse`]; the CronJob controller asks the same value for times. The crates
//! for cron expressions have other syntax, other messages and other rules for days and daylight saving time.

mod field;
#[cfg(test)]
mod tests;
mod times;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::go::parse_duration;
use crate::message::Message;
use field::Field;
use times::Times;

/// The fields of a descriptor.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// A prefix with a time zone.
const ZONE_PREFIXES: [&str; 2] = ["TZ=", "CRON_TZ="];
const NANOSECONDS: i64 = 1_000_000_000;

/// When a CronJob is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    recurrence: Recurrence,
    /// The time zone of the prefix.
    zone: Option<TimeZone>,
}

#[derive(Clone, Debug, PartialEq)]
enum Recurrence {
    /// `@every`: whole seconds between two times, counted from the time before.
    Every(i64),
    /// The times of the wall clock that match.
    At(Times),
}

impl Schedule {
    /// Parses a schedule; the error is upstream's message.
    ///
    /// # Errors
    /// The text is no schedule.
    pub fn parse(text: &str) -> Result<Self, Message> {
        if text.is_empty() {
            return Err("empty spec string".into());
        }
        let (zone, text) = split_zone(text)?;
        let recurrence = match text.strip_prefix("@every ") {
            Some(every) => {
                let nanoseconds = parse_duration(every).map_err(|why| format!("failed to parse duration {text}: {why}"))?;
                Recurrence::Every((nanoseconds / NANOSECONDS).max(1))
            }
            None if text.starts_with('@') => {
                let fields = DESCRIPTORS.iter().find(|(name, _)| *name == text).map(|(_, fields)| *fields);
                Recurrence::At(parse_fields(fields.ok_or_else(|| format!("unrecognized descriptor: {text}"))?)?)
            }
            None => Recurrence::At(parse_fields(text)?),
        };
        Ok(Self { recurrence, zone })
    }

    /// The first time after `after`, or `None` if there is none within five years. `zone` is the time zone of a schedule without
    /// a prefix.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.recurrence {
            Recurrence::Every(seconds) => Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok(),
            Recurrence::At(times) => times.next(after, self.zone.as_ref().unwrap_or(zone)),
        }
    }

    /// The last time after `after` and not after `until`. Those of `@every` are counted from `after`.
    pub fn last(&self, after: Timestamp, until: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.recurrence {
            Recurrence::Every(seconds) => {
                let times = until.as_second().checked_sub(after.as_second())?.checked_div(*seconds)?;
                let second = after.as_second().checked_add(times.checked_mul(*seconds)?)?;
                Timestamp::from_second(second).ok().filter(|_| times > 0)
            }
            Recurrence::At(times) => times.last(after, until, self.zone.as_ref().unwrap_or(zone)),
        }
    }
}

/// The time zone of that name, as `spec.timeZone` names it.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" { Some(TimeZone::UTC) } else { TimeZone::get(name).ok() }
}

/// The time zone of the prefix, if there is one, and the schedule after it.
fn split_zone(text: &str) -> Result<(Option<TimeZone>, &str), Message> {
    let Some(rest) = ZONE_PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) else {
        return Ok((None, text));
    };
    let (name, fields) = rest.split_once(' ').unwrap_or((rest, ""));
    let zone = match name {
        "" => TimeZone::UTC,
        name => time_zone(name).ok_or_else(|| format!("provided bad location {name}: unknown time zone {name}"))?,
    };
    Ok((Some(zone), fields.trim()))
}

fn parse_fields(text: &str) -> Result<Times, Message> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = parts.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")).into());
    };
    Ok(Times {
        minutes: Field::MINUTES.parse(minutes)?,
        hours: Field::HOURS.parse(hours)?,
        days: Field::DAYS.parse(days)?,
        months: Field::MONTHS.parse(months)?,
        weekdays: Field::WEEKDAYS.parse(weekdays)?,
    })
}
