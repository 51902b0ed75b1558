//! The schedule syntax of upstream's parser (robfig/cron): five fields, or a descriptor such as `@daily`.

use api_model::go::parse_duration;
use api_model::message::Message;

/// Names and bounds of the fields.
const FIELDS: [Field; 5] = [
    Field { min: 0, max: 59, names: &[] },
    Field { min: 0, max: 23, names: &[] },
    Field { min: 1, max: 31, names: &[] },
    Field { min: 1, max: 12, names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"] },
    Field { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];
const WORDS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

struct Field {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

/// Checks a schedule; the error is the problem.
pub fn check(text: &str) -> Result<(), Message> {
    if let Some(duration) = text.strip_prefix("@every ") {
        return parse_duration(duration).map(drop).map_err(|why| format!("failed to parse duration {text}: {why}").into());
    }
    if text.starts_with('@') {
        return if WORDS.contains(&text) { Ok(()) } else { Err(format!("unrecognized descriptor: {text}").into()) };
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Err(format!("expected exactly {} fields, found {}: [{}]", FIELDS.len(), parts.len(), parts.join(" ")).into());
    }
    FIELDS.iter().zip(parts).try_for_each(|(field, part)| part.split(',').try_for_each(|range| field.range(range)))
}

impl Field {
    /// `*`, `?`, `n`, `n-m`, each with an optional `/step`.
    fn range(&self, text: &str) -> Result<(), Message> {
        let (bounds, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
            [bounds] => (*bounds, None),
            [bounds, step] => (*bounds, Some(*step)),
            _ => return Err(format!("too many slashes: {text}").into()),
        };
        let (start, end) = match bounds.split('-').collect::<Vec<_>>().as_slice() {
            ["*" | "?"] => (self.min, self.max),
            [only] if step.is_some() => (self.number(only)?, self.max),
            [only] => (self.number(only)?, self.number(only)?),
            [start, end] => (self.number(start)?, self.number(end)?),
            _ => return Err(format!("too many hyphens: {text}").into()),
        };
        if start < self.min {
            return Err(format!("beginning of range ({start}) below minimum ({}): {text}", self.min).into());
        }
        if end > self.max {
            return Err(format!("end of range ({end}) above maximum ({}): {text}", self.max).into());
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}").into());
        }
        match step.map(number).transpose()? {
            Some(0) => Err(format!("step of range should be a positive number: {text}").into()),
            _ => Ok(()),
        }
    }

    fn number(&self, text: &str) -> Result<u32, Message> {
        let position = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match position.and_then(|position| u32::try_from(position).ok()) {
            Some(position) => Ok(self.min + position),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, Message> {
    text.parse().map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_that_cron_takes() {
        for text in ["* * * * *", "*/5 * * * *", "0 0 1,15 jan-MAR mon", "5-10/2 1 * * ?", "@hourly", "@every 1h30m", "0 3 * * SUN"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn schedules_that_it_does_not() {
        for (text, wanted) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("10-5 * * * *", "beginning of range (10) beyond end of range (5): 10-5"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ] {
            assert_eq!(check(text), Err(wanted.into()), "{text}");
        }
        assert!(check("@every soon").is_err());
    }
}
