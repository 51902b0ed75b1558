//! Quantities in upstream's canonical form: `1000m` is `1`, `1.5Gi` is `1536Mi`, `0.5` is `500m`. Upstream's code is
//! apimachinery's `pkg/api/resource/quantity.go`.

use std::cmp::Ordering;

use api_model::quantity::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, binary_text, decimal_text};
use thiserror::Error;

/// Digits of the smallest unit, nano; finer values are rounded up.
const NANO_DIGITS: i32 = 9;
const NANO: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
/// Upstream caps quantities with a binary suffix at 2^63-1 whole units, and no others.
const BINARY_NANO_MAX: i128 = i64::MAX as i128 * NANO;
/// Digits after the point that count in a binary quantity; further digits round it up.
const BINARY_FRACTION_MAX: usize = 18;
/// Greater exponents make no difference.
const EXPONENT_MAX: i32 = 1_000_000;
/// Digits of numbers that upstream reads into 64 bits.
const FAST_DIGITS_MAX: usize = 18;

/// A text is not a quantity. The messages are upstream's.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// The format is wrong.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is wrong.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Binary,
    Decimal,
    Exponent,
}

/// A parsed quantity. A value that is too large is the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nano: i128,
    writing: Writing,
}

/// The parts of a quantity's text.
struct Parts<'t> {
    is_negative: bool,
    whole: &'t str,
    fraction: &'t str,
    writing: Writing,
    /// The power of two or ten of the suffix.
    power: i32,
}

/// Parses a quantity.
pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
    parts(text).map(|parts| parts.quantity())
}

/// The form in which upstream stores a quantity: the canonical form, or the text itself where upstream's parser regards it
/// as canonical (`+1` and `1.500` too).
pub fn stored(text: &str) -> Result<String, QuantityError> {
    let parts = parts(text)?;
    let quantity = parts.quantity();
    Ok(if parts.is_canonical(-NANO_DIGITS) || quantity.is_too_much() { text.to_owned() } else { quantity.canonical() })
}

/// As [`stored`], for a resource list, where quantities are rounded up to thousandths.
pub fn listed(text: &str) -> Result<String, QuantityError> {
    let parts = parts(text)?;
    let quantity = parts.quantity();
    Ok(if parts.is_canonical(-3) || quantity.is_too_much() { text.to_owned() } else { quantity.in_thousandths().canonical() })
}

fn parts(text: &str) -> Result<Parts<'_>, QuantityError> {
    let is_negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let split = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(split).ok_or(QuantityError::Format)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.is_empty() || number == "." || fraction.contains('.') {
        return Err(QuantityError::Format);
    }
    if !suffix.bytes().all(|b| b.is_ascii_digit() || b"eEinumkKMGTP+-".contains(&b)) {
        return Err(QuantityError::Format);
    }
    let (writing, power) = suffix_of(suffix)?;
    Ok(Parts { is_negative, whole: whole.trim_start_matches('0'), fraction, writing, power })
}

/// The form of a suffix, and its power of two or ten.
fn suffix_of(suffix: &str) -> Result<(Writing, i32), QuantityError> {
    if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok((Writing::Binary, power.cast_signed()));
    }
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok((Writing::Decimal, *power));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    Ok((Writing::Exponent, exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX)))
}

impl Parts<'_> {
    fn quantity(&self) -> Quantity {
        let nano = if self.writing == Writing::Binary { self.binary_nano() } else { self.decimal_nano() };
        Quantity { nano: if self.is_negative { -nano } else { nano }, writing: self.writing }
    }

    fn decimal_nano(&self) -> i128 {
        let digits = [self.whole, self.fraction].concat();
        let fraction_len = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let scale = self.power.saturating_add(NANO_DIGITS).saturating_sub(fraction_len);
        let too_fine = if scale < 0 { usize::try_from(scale.unsigned_abs()).unwrap_or(usize::MAX) } else { 0 };
        let (leading, dropped) = digits.split_at_checked(digits.len().saturating_sub(too_fine)).unwrap_or((&digits, ""));
        let value = number(leading).saturating_add(i128::from(is_something(dropped)));
        // Zero and the largest number do not change.
        (0..scale.clamp(0, 60)).fold(value, |value, _| value.saturating_mul(10))
    }

    fn binary_nano(&self) -> i128 {
        let factor = 1_i128 << self.power.clamp(0, 60);
        let (leading, dropped) = self.fraction.split_at_checked(BINARY_FRACTION_MAX).unwrap_or((self.fraction, ""));
        let mut fraction = number(leading).saturating_mul(factor);
        let scale = i32::try_from(leading.len()).unwrap_or_default() - NANO_DIGITS;
        let ten = 10_i128.pow(scale.unsigned_abs());
        fraction = if scale > 0 { ceil_div(fraction, ten) } else { fraction.saturating_mul(ten) };
        let whole = number(self.whole).saturating_mul(factor).saturating_mul(NANO);
        whole.saturating_add(fraction).saturating_add(i128::from(is_something(dropped))).min(BINARY_NANO_MAX)
    }

    /// Whether upstream's parser keeps the text ("if the number is in canonical form, reuse the string"), and
    /// rounding to the power of ten `finest` does not change that.
    fn is_canonical(&self, finest: i32) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let digits = [whole, self.fraction].concat();
        let Ok(len) = i32::try_from(digits.len()) else { return false };
        if self.writing == Writing::Binary {
            return self.fraction.is_empty() && len + self.power * 3 / 10 < 15 && number(whole) % 8 != 0;
        }
        let scale = self.power.saturating_sub(i32::try_from(self.fraction.len()).unwrap_or(i32::MAX));
        digits.len() <= FAST_DIGITS_MAX && scale >= finest && scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
    }
}

fn number(digits: &str) -> i128 {
    digits.bytes().fold(0, |value: i128, digit| value.saturating_mul(10).saturating_add(i128::from(digit.saturating_sub(b'0'))))
}

fn is_something(digits: &str) -> bool {
    digits.bytes().any(|b| b != b'0')
}

impl Quantity {
    /// In billionths of a unit.
    pub fn nano(self) -> i128 {
        self.nano
    }

    /// The sum, in the form of `self`.
    pub fn plus(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano), writing: self.writing }
    }

    /// Whether the value is too large to be written.
    fn is_too_much(self) -> bool {
        self.nano.saturating_abs() == i128::MAX
    }

    /// Rounded up to thousandths, away from zero, as resource lists are.
    fn in_thousandths(self) -> Self {
        Self { nano: ceil_div(self.nano, MILLI).saturating_mul(MILLI), writing: self.writing }
    }

    /// Whether the value is a whole number.
    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// Upstream's canonical form. It has no binary suffix below 1024, and where the suffix would lose a fraction.
    pub fn canonical(self) -> String {
        match self.writing {
            Writing::Binary => binary_text(self.nano),
            writing => decimal_text(self.nano, writing == Writing::Exponent),
        }
    }
}

fn ceil_div(value: i128, by: i128) -> i128 {
    let (quotient, rest) = (value / by, value % by);
    // Upstream rounds away from zero.
    quotient + rest.signum()
}

/// Compares two quantities; a text that is not a quantity counts as zero.
pub fn compare(a: &str, b: &str) -> Ordering {
    let nano = |text: &str| parse(text).map_or(0, Quantity::nano);
    nano(a).cmp(&nano(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_writing_is_upstreams() {
        for (text, wanted) in [
            ("0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1500m", "1500m"),
            ("1000", "1k"),
            ("1234", "1234"),
            ("100M", "100M"),
            ("1000M", "1G"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            // quantity.go:440: what would lose precision is shown as DecimalSI.
            ("0.1Gi", "107374182400m"),
            ("1.1Ki", "1126400m"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("100e6", "100e6"),
            ("1E", "1E"),
            ("100u", "1m"),
            ("-1", "-1"),
            ("1.0", "1"),
            // quantity.go:352 keeps the text of a number that looks canonical to it.
            ("00100m", "00100m"),
            ("+1", "+1"),
            ("1.500", "1.500"),
            ("0.500", "500m"),
            ("1E3", "1E3"),
            ("01Gi", "01Gi"),
            ("08Gi", "8Gi"),
            ("1.500m", "2m"),
            // quantity.go:379 caps only binary suffixes.
            ("8Ei", "9223372036854775807"),
            ("99999999999999999999Ki", "9223372036854775807"),
            ("10E", "10E"),
            ("9999999999999999999000", "9999999999999999999k"),
            ("1e100", "1e100"),
            ("99999999999999999999E", "99999999999999999999E"),
            ("1000e99", "1000e99"),
            ("1e-1000", "1e-3"),
        ] {
            assert_eq!(listed(text), Ok(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn outside_of_resource_lists_quantities_are_as_fine_as_upstreams() {
        for (text, wanted) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            (".5", "500m"),
            ("1e3", "1e3"),
            ("1000.0", "1k"),
            ("1500u", "1500u"),
            ("1.5m", "1500u"),
            ("0.0000000001", "1n"),
            ("3.001n", "4n"),
            ("-3.001n", "-4n"),
            ("0.000000000001Ki", "2n"),
            ("0.1Gi", "107374182400m"),
            ("1.123456789012345678Ei", "1295257491548890608726471714n"),
            ("12345678901234567890.12345678901234567890", "12345678901234567890123456790n"),
        ] {
            assert_eq!(stored(text), Ok(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn rejects_nonsense_with_upstreams_words() {
        for (text, wanted) in [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1GB", QuantityError::Format),
            ("1KiB", QuantityError::Format),
            ("1mm", QuantityError::Suffix),
            ("1ki", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
        ] {
            assert_eq!(parse(text).map(|_| ()), Err(wanted), "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        assert_eq!(compare("1Gi", "1024Mi"), Ordering::Equal);
        assert_eq!(compare("1500m", "2"), Ordering::Less);
        assert_eq!(compare("10E", "20E"), Ordering::Less);
        assert_eq!(compare("8Ei", "9223372036854775807"), Ordering::Equal);
    }
}
