//! The times of the wall clock that the five fields of a schedule match.
//!
//! A time that a change to daylight saving time skips does not match on that day. A time that a change repeats matches twice. Both
//! are upstream's.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::field::Bits;

/// Upstream searches for the next time in this number of years.
const YEARS_MAX: i16 = 5;

/// The five fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub minutes: Bits,
    pub hours: Bits,
    pub days: Bits,
    pub months: Bits,
    pub weekdays: Bits,
}

impl Times {
    /// The first time after `after`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut date = zone.to_datetime(after).date();
        let year_max = date.year().checked_add(YEARS_MAX)?;
        while date.year() <= year_max {
            if let Some(first) = self.on(date, zone).and_then(|mut times| times.find(|time| *time > after)) {
                return Some(first);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The last time after `after` and not after `until`.
    pub fn last(&self, after: Timestamp, until: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (mut date, first) = (zone.to_datetime(until).date(), zone.to_datetime(after).date());
        while date >= first {
            if let Some(last) = self.on(date, zone).and_then(|mut times| times.rfind(|time| *time <= until)) {
                return Some(last).filter(|last| *last > after);
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// The times of a day in order, or `None` if the day does not match.
    fn on(&self, date: Date, zone: &TimeZone) -> Option<Box<dyn DoubleEndedIterator<Item = Timestamp> + '_>> {
        if !self.has(date) {
            return None;
        }
        if let Some(offset) = only_offset(date, zone) {
            return Some(Box::new(self.clock(date).filter_map(move |time| offset.to_timestamp(time).ok())));
        }
        let offsets = |time: DateTime| {
            let offsets = match zone.to_ambiguous_timestamp(time).offset() {
                AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                AmbiguousOffset::Gap { .. } => [None, None],
                AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
            };
            offsets.into_iter().flatten().filter_map(move |offset| offset.to_timestamp(time).ok())
        };
        let mut times: Vec<Timestamp> = self.clock(date).flat_map(offsets).collect();
        times.sort_unstable();
        Some(Box::new(times.into_iter()))
    }

    /// Whether the day matches. A day of the month and a day of the week are alternatives, unless one of them is `*`.
    fn has(&self, date: Date) -> bool {
        let (day, weekday) = (self.days.contains(date.day()), self.weekdays.contains(date.weekday().to_sunday_zero_offset()));
        let both = self.days.star || self.weekdays.star;
        self.months.contains(date.month()) && if both { day && weekday } else { day || weekday }
    }

    /// What the clock shows at the times of a day.
    fn clock(&self, date: Date) -> impl DoubleEndedIterator<Item = DateTime> + '_ {
        let hours = (0..24).filter(|hour| self.hours.contains(*hour));
        hours.flat_map(move |hour| (0..60).filter(|minute| self.minutes.contains(*minute)).map(move |minute| date.at(hour, minute, 0, 0)))
    }
}

/// The offset of a day that has one offset from midnight to midnight.
fn only_offset(date: Date, zone: &TimeZone) -> Option<Offset> {
    let midnight = |date: Date| match zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).offset() {
        AmbiguousOffset::Unambiguous { offset } => Some(offset),
        _ => None,
    };
    let (start, end) = (midnight(date)?, midnight(date.checked_add(1.day()).ok()?)?);
    (start == end).then_some(start)
}
