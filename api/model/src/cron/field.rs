//! One field of a schedule: a list of ranges, as a set of numbers.

use crate::message::Message;

/// Bounds and names of a field.
pub struct Field {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

/// The numbers that a field allows; all of them are below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bits {
    numbers: u64,
    /// Whether a part of the field is `*` or `?` without a step above 1.
    pub star: bool,
}

impl Bits {
    /// Whether the field allows the number.
    pub fn contains(self, number: i8) -> bool {
        u32::try_from(number).ok().and_then(|number| self.numbers.checked_shr(number)).is_some_and(|rest| rest & 1 == 1)
    }
}

impl Field {
    pub const MINUTES: Self = Self { min: 0, max: 59, names: &[] };
    pub const HOURS: Self = Self { min: 0, max: 23, names: &[] };
    pub const DAYS: Self = Self { min: 1, max: 31, names: &[] };
    pub const MONTHS: Self =
        Self { min: 1, max: 12, names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"] };
    pub const WEEKDAYS: Self = Self { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

    /// Parses ranges with commas between them. Upstream ignores empty ranges; a field of nothing else allows no number.
    pub fn parse(&self, text: &str) -> Result<Bits, Message> {
        let mut bits = Bits::default();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let range = self.range(range)?;
            bits.numbers |= range.numbers;
            bits.star |= range.star;
        }
        Ok(bits)
    }

    /// `*`, `?`, `n`, `n-m`, each with an optional `/step`.
    fn range(&self, text: &str) -> Result<Bits, Message> {
        let (bounds, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
            [bounds] => (*bounds, None),
            [bounds, step] => (*bounds, Some(*step)),
            _ => return Err(format!("too many slashes: {text}").into()),
        };
        let (start, end, star) = match bounds.split('-').collect::<Vec<_>>().as_slice() {
            // Upstream ignores the rest of `*-5`.
            ["*" | "?", ..] => (self.min, self.max, true),
            [only] if step.is_some() => (self.number(only)?, self.max, false),
            [only] => (self.number(only)?, self.number(only)?, false),
            [start, end] => (self.number(start)?, self.number(end)?, false),
            _ => return Err(format!("too many hyphens: {text}").into()),
        };
        let step = step.map_or(Ok(1), number)?;
        if start < self.min {
            return Err(format!("beginning of range ({start}) below minimum ({}): {text}", self.min).into());
        }
        if end > self.max {
            return Err(format!("end of range ({end}) above maximum ({}): {text}", self.max).into());
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}").into());
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}").into());
        }
        let numbers = (start..=end).filter(|number| (number - start) % step == 0).fold(0, |numbers, number| numbers | 1_u64 << number);
        Ok(Bits { numbers, star: star && step == 1 })
    }

    fn number(&self, text: &str) -> Result<u32, Message> {
        let index = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match index.and_then(|index| u32::try_from(index).ok()) {
            Some(index) => Ok(self.min + index),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, Message> {
    if let Ok(negative @ ..=-1) = text.parse::<i64>() {
        return Err(format!("negative number ({negative}) not allowed: {text}").into());
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax").into())
}
