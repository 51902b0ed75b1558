//! Quantities in upstream's canonical writing: `1000m` is `1`, `1.5Gi` is `1536Mi`, `0.5` is `500m`.

use std::cmp::Ordering;

use thiserror::Error;

/// Nano is the smallest unit; finer is rounded up.
const NANO_DIGITS: i32 = 9;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// Upstream caps quantities at 2^63-1 whole units.
const NANO_MAX: i128 = i64::MAX as i128 * 1_000_000_000;

/// Why a text is no quantity; upstream's words.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QuantityError {
    /// The text has the wrong shape.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is fine, what follows is not.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Binary,
    Decimal,
    Exponent,
}

/// A parsed quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nano: i128,
    writing: Writing,
}

/// Parses a quantity.
pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let split = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(split).ok_or(QuantityError::Format)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.is_empty() || number == "." || fraction.contains('.') {
        return Err(QuantityError::Format);
    }
    if !suffix.bytes().all(|b| b.is_ascii_digit() || b"eEinumkKMGTP+-".contains(&b)) {
        return Err(QuantityError::Format);
    }
    let (writing, factor, power) = suffix_of(suffix)?;
    let magnitude = to_nano(whole, fraction, factor, power);
    Ok(Quantity { nano: sign * magnitude.min(NANO_MAX), writing })
}

/// The writing, and the factor `f * 10^p` that a suffix stands for.
fn suffix_of(suffix: &str) -> Result<(Writing, i128, i32), QuantityError> {
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Ok((Writing::Binary, 1_i128 << power, 0));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Writing::Decimal, 1, *power));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    Ok((Writing::Exponent, 1, exponent.clamp(-100, 100)))
}

/// Digits times `factor * 10^power`, in billionths, rounded up and held below the cap.
fn to_nano(whole: &str, fraction: &str, factor: i128, power: i32) -> i128 {
    const CAP: i128 = NANO_MAX + 1;
    let mut value: i128 = 0;
    let mut rest = false;
    // Digits beyond 20 after the point cannot change the result but by rounding up.
    let (kept, dropped) = fraction.split_at_checked(20).unwrap_or((fraction, ""));
    rest |= dropped.bytes().any(|b| b != b'0');
    for digit in whole.bytes().chain(kept.bytes()) {
        value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0')).min(CAP.saturating_mul(10_i128.pow(9)));
    }
    let mut scale = power + NANO_DIGITS - i32::try_from(kept.len()).unwrap_or(i32::MAX);
    // A factor may overflow before the scale shrinks the value: shrink first, as far as that is exact.
    while scale < 0 && value % 10 == 0 && value != 0 {
        value /= 10;
        scale += 1;
    }
    value = value.saturating_mul(factor);
    while scale > 0 && value != 0 && value < CAP {
        value = value.saturating_mul(10);
        scale -= 1;
    }
    while scale < 0 && value != 0 {
        rest |= value % 10 != 0;
        value /= 10;
        scale += 1;
    }
    value.saturating_add(i128::from(rest)).min(CAP)
}

impl Quantity {
    /// In billionths of a unit.
    pub fn nano(self) -> i128 {
        self.nano
    }

    /// The sum, in this one's writing.
    pub fn plus(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano).min(NANO_MAX), writing: self.writing }
    }

    /// Whether the value is a whole number.
    pub fn is_whole(self) -> bool {
        self.nano % 1_000_000_000 == 0
    }

    /// Upstream's canonical writing, rounded up to thousandths as resource lists are.
    pub fn canonical(self) -> String {
        let milli = ceil_div(self.nano, 1_000_000);
        let whole_enough = !(-1024 * 1000 < milli && milli < 1024 * 1000);
        if self.writing == Writing::Binary && whole_enough {
            return binary(ceil_div(milli, 1000));
        }
        decimal(milli, self.writing == Writing::Exponent)
    }
}

fn ceil_div(value: i128, by: i128) -> i128 {
    let (quotient, rest) = (value / by, value % by);
    // Upstream rounds away from zero.
    quotient + rest.signum()
}

fn binary(mut value: i128) -> String {
    let mut power = 0;
    while value != 0 && value % 1024 == 0 && power < 60 {
        value /= 1024;
        power += 10;
    }
    let suffix = BINARY.iter().find(|(_, p)| *p == power).map_or("", |(name, _)| name);
    format!("{value}{suffix}")
}

fn decimal(milli: i128, exponent: bool) -> String {
    if milli == 0 {
        return "0".to_owned();
    }
    let (mut value, mut power) = (milli, -3);
    while value % 1000 == 0 && power < 18 {
        value /= 1000;
        power += 3;
    }
    match (exponent, DECIMAL.iter().find(|(_, p)| *p == power)) {
        (true, _) if power == 0 => value.to_string(),
        (true, _) => format!("{value}e{power}"),
        (false, Some((suffix, _))) => format!("{value}{suffix}"),
        (false, None) => format!("{value}e{power}"),
    }
}

/// Orders two quantities; texts that are none count as zero.
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
            ("0.1Gi", "107374183"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("100e6", "100e6"),
            ("1E", "1E"),
            ("100u", "1m"),
            ("-1", "-1"),
            ("00100m", "100m"),
            ("1.0", "1"),
            ("99999999999999999999E", "9223372036854775807"),
        ] {
            assert_eq!(parse(text).map(Quantity::canonical), Ok(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_upstreams_words() {
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
    }
}
