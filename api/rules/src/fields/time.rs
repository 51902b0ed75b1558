//! Times as upstream reads them: RFC 3339 as Go's `time.Parse` reads it, with its messages.
//!
//! `metav1.Time` accepts and drops any fraction of a second, `metav1.MicroTime` needs six digits. As Go, the parser accepts
//! an hour of one digit, and a comma before the fraction.

use api_model::message::Message;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;

use api_schema::Format;
use serde_json::Value;

const TIME: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_TIME: &str = "2006-01-02T15:04:05.000000Z07:00";
/// 0001-01-01T00:00:00Z, Go's zero time, which upstream writes as null.
const ZERO_SECOND: i64 = -62_135_596_800;
/// 0000-01-01T00:00:00Z.
const LEAST_SECOND: i64 = -62_167_219_200;

/// The stored form of a time, in UTC; `None` for the zero time. The parts of skiff and clients in Rust cannot read the last
/// day of the year 9999, so a time on it becomes the last time that they can read.
pub fn stored(format: Format, text: &str) -> Result<Option<String>, Message> {
    let mut reader = Reader { text, rest: text, layout: if format == Format::Time { TIME } else { MICRO_TIME } };
    let (at, offset) = reader.read(format)?;
    let at = offset.to_timestamp(at).unwrap_or(Timestamp::MAX);
    let least = Timestamp::from_second(LEAST_SECOND).unwrap_or(Timestamp::MIN);
    if at.as_second() == ZERO_SECOND && at.subsec_nanosecond() == 0 {
        return Ok(None);
    }
    let at = at.max(least);
    Ok(Some(if format == Format::Time { api_model::meta::time(at) } else { api_model::meta::micro_time(at) }))
}

/// A text, the rest of it, and its expected layout.
struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    layout: &'static str,
}

impl Reader<'_> {
    fn read(&mut self, format: Format) -> Result<(DateTime, Offset), Message> {
        let year = self.number("2006", 4..=4)?;
        self.literal("-")?;
        let month = self.within("01", 2..=2, 1..=12, "month")?;
        self.literal("-")?;
        let day = self.number("02", 2..=2)?;
        self.literal("T")?;
        let hour = self.within("15", 1..=2, 0..=23, "hour")?;
        self.literal(":")?;
        let minute = self.within("04", 2..=2, 0..=59, "minute")?;
        self.literal(":")?;
        let second = self.within("05", 2..=2, 0..=59, "second")?;
        let nanosecond = if format == Format::Time { self.any_fraction() } else { self.micros()? };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(self.complaint(&format!(": extra text: {}", Value::from(self.rest))));
        }
        let small = |number: i16| i8::try_from(number).unwrap_or_default();
        let date = Date::new(year, small(month), small(day)).map_err(|_| self.complaint(": day out of range"))?;
        let time = Time::new(small(hour), small(minute), small(second), nanosecond).map_err(|_| self.unreadable(self.text, "15"))?;
        Ok((DateTime::from_parts(date, time), offset))
    }

    fn literal(&mut self, wanted: &'static str) -> Result<(), Message> {
        self.rest = self.rest.strip_prefix(wanted).ok_or_else(|| self.unreadable(self.rest, wanted))?;
        Ok(())
    }

    /// Reads a number of so many digits.
    fn number(&mut self, element: &'static str, digits: std::ops::RangeInclusive<usize>) -> Result<i16, Message> {
        let count = self.rest.bytes().take(*digits.end()).take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.rest.split_at_checked(count).unwrap_or_default();
        match number.parse() {
            Ok(number) if digits.contains(&count) => {
                self.rest = rest;
                Ok(number)
            }
            _ => Err(self.unreadable(self.rest, element)),
        }
    }

    fn within(
        &mut self,
        element: &'static str,
        digits: std::ops::RangeInclusive<usize>,
        range: std::ops::RangeInclusive<i16>,
        name: &str,
    ) -> Result<i16, Message> {
        let number = self.number(element, digits)?;
        if range.contains(&number) { Ok(number) } else { Err(self.complaint(&format!(": {name} out of range"))) }
    }

    /// Skips a fraction that is not in the layout: whole seconds are stored.
    fn any_fraction(&mut self) -> i32 {
        if let Some(fraction) = self.rest.strip_prefix(['.', ',']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            self.rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        0
    }

    /// Exactly six digits, in nanoseconds.
    fn micros(&mut self) -> Result<i32, Message> {
        let parts = self.rest.strip_prefix(['.', ',']).and_then(|rest| rest.split_at_checked(6));
        let (micros, rest) =
            parts.filter(|(micros, _)| micros.bytes().all(|b| b.is_ascii_digit())).ok_or_else(|| self.unreadable(self.rest, ".000000"))?;
        self.rest = rest;
        Ok(micros.parse::<i32>().unwrap_or_default() * 1000)
    }

    /// `Z`, or a sign, hours, a colon and minutes.
    fn offset(&mut self) -> Result<Offset, Message> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(Offset::UTC);
        }
        let unreadable = self.unreadable(self.rest, "Z07:00");
        let (sign, rest) = match self.rest.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(unreadable),
        };
        self.rest = rest;
        let hours = self.number("Z07:00", 2..=2).map_err(|_| unreadable.clone())?;
        self.literal(":").map_err(|_| unreadable.clone())?;
        let minutes = self.number("Z07:00", 2..=2).map_err(|_| unreadable.clone())?;
        // As Go, 24 hours and 60 minutes are accepted.
        if hours > 24 {
            return Err(self.complaint(": time zone offset hour out of range"));
        }
        if minutes > 60 {
            return Err(self.complaint(": time zone offset minute out of range"));
        }
        Offset::from_seconds(sign * (i32::from(hours) * 60 + i32::from(minutes)) * 60).map_err(|_| unreadable)
    }

    fn complaint(&self, what: &str) -> Message {
        format!("parsing time {}{what}", Value::from(self.text)).into()
    }

    fn unreadable(&self, rest: &str, element: &str) -> Message {
        self.complaint(&format!(" as \"{}\": cannot parse {} as \"{element}\"", self.layout, Value::from(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(format: Format, text: &str) -> String {
        match stored(format, text) {
            Ok(Some(text)) => text,
            Ok(None) => "null".to_owned(),
            Err(why) => why.into(),
        }
    }

    #[test]
    fn times_are_read_as_gos_library_reads_them() {
        for (text, wanted) in [
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05.678+01:00", "2024-01-02T02:04:05Z"),
            ("2024-01-02T03:04:05,678-01:30", "2024-01-02T04:34:05Z"),
            ("1969-12-31T23:59:58.9Z", "1969-12-31T23:59:58Z"),
            ("2024-01-02T3:04:05Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05+24:60", "2024-01-01T02:04:05Z"),
            ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
            ("0000-01-01T00:00:00+02:00", "0000-01-01T00:00:00Z"),
            ("0001-01-01T00:00:00Z", "null"),
            ("0001-01-01T00:00:01Z", "0001-01-01T00:00:01Z"),
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00Z"),
            ("9999-12-31T23:59:59-12:00", "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(outcome(Format::Time, text), wanted, "{text}");
        }
    }

    #[test]
    fn micro_times_have_six_digits() {
        for (text, wanted) in [
            ("2024-01-02T03:04:05.678900Z", "2024-01-02T03:04:05.678900Z"),
            ("2024-01-02T03:04:05.000001+01:00", "2024-01-02T02:04:05.000001Z"),
            ("1969-12-31T23:59:58.900000Z", "1969-12-31T23:59:58.900000Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-30T22:00:00.999999Z"),
        ] {
            assert_eq!(outcome(Format::MicroTime, text), wanted, "{text}");
        }
        for text in ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123Z", "2024-01-02T03:04:05.1234567Z", "2024-01-02T03:04:05.12345+01:00"]
        {
            assert!(stored(Format::MicroTime, text).is_err(), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_no_time_in_gos_words() {
        let times = [
            "",
            "yesterday",
            "2024-01-01",
            "2024-01-01 00:00:00Z",
            "2024-01-01t00:00:00Z",
            "2024-01-01T00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-02-30T00:00:00Z",
            "2024-00-00T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00z",
            "2024-01-01T00:00:00+02",
            "2024-01-01T00:00:00+0200",
            "2024-01-01T00:00:00+25:00",
            "2024-01-01T00:00:00+00:61",
            "2024-01-01T00:00:00Z[UTC]",
            "+02024-01-01T00:00:00Z",
            "-001-01-01T00:00:00Z",
            "2024-01-01T00:00:00\u{2212}02:00",
        ]
        .map(|text| outcome(Format::Time, text));
        let micros = ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.1234567Z"].map(|text| outcome(Format::MicroTime, text));
        insta::assert_snapshot!([times.join("\n"), micros.join("\n")].join("\n"));
    }
}
