//! Quantities such as `500m`, `128Mi` and `1e3`, as exact numbers of thousandths.

use thiserror::Error;

/// The text is no quantity. The message is upstream's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct QuantityError;

/// Suffixes of powers of two, with the power.
pub const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// Suffixes of powers of ten, with the power.
pub const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// The greatest result of [`milli`]: a stored quantity has at most 2^63-1 units, and many such amounts can be added.
const MILLI_MAX: i128 = i64::MAX as i128 * 1000;
/// Billionths of a unit.
pub const NANO: i128 = 1_000_000_000;
/// Digits that always fit an `i128`; further digits round the last one up.
const DIGITS_MAX: usize = 38;
/// Digits that fit when they are multiplied by 2^60.
const BINARY_DIGITS_MAX: usize = 20;
/// Greater exponents have the same result.
const EXPONENT_MAX: i32 = 1000;

/// Thousandths, rounded up as upstream does (`MilliValue`), and limited to 2^63-1 units above and below zero.
pub fn milli(text: &str) -> Result<i128, QuantityError> {
    Ok(parts(text, 3)?.clamp(-MILLI_MAX, MILLI_MAX))
}

/// Billionths, rounded up, which is upstream's precision. A value that does not fit is an error.
pub fn nano(text: &str) -> Result<i128, QuantityError> {
    let nano = parts(text, 9)?;
    if nano.saturating_abs() == i128::MAX { Err(QuantityError) } else { Ok(nano) }
}

/// The value in units of ten to the power of `-digits`. A value that does not fit becomes the greatest or least number.
fn parts(text: &str, digits: i32) -> Result<i128, QuantityError> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(split).ok_or(QuantityError)?;
    if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
        let (mantissa, scale) = decimal(number, BINARY_DIGITS_MAX)?;
        return Ok(scaled(mantissa.saturating_mul(1_i128 << power), digits - scale));
    }
    let (mantissa, scale) = decimal(number, DIGITS_MAX)?;
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
        return Ok(scaled(mantissa, digits - scale + power));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse().ok()).ok_or(QuantityError)?;
    Ok(scaled(mantissa, digits - scale + exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX)))
}

/// Whole units, rounded up as upstream does (`Value`).
pub fn value(text: &str) -> Result<i64, QuantityError> {
    let milli = milli(text)?;
    let whole = milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) != 0);
    i64::try_from(whole).map_err(|_| QuantityError)
}

/// Upstream's canonical text of billionths: with the largest suffix that leaves a whole number, or with `e` and an exponent.
pub fn decimal_text(nano: i128, exponent: bool) -> String {
    if nano == 0 {
        return "0".to_owned();
    }
    let (mut value, mut power) = (nano, -9);
    while value % 1000 == 0 && (exponent || power < 18) {
        value /= 1000;
        power += 3;
    }
    match DECIMAL_SUFFIXES.iter().find(|(_, p)| *p == power).filter(|_| !exponent || power == 0) {
        Some((suffix, _)) => format!("{value}{suffix}"),
        None => format!("{value}e{power}"),
    }
}

/// Upstream's canonical text of a number of bytes.
pub fn bytes_text(bytes: i128) -> String {
    binary_text(bytes.saturating_mul(NANO))
}

/// The same with binary suffixes. There is none below 1024, nor where it would lose a fraction.
pub fn binary_text(nano: i128) -> String {
    if nano.saturating_abs() < 1024 * NANO || nano % NANO != 0 {
        return decimal_text(nano, false);
    }
    let (mut value, mut power) = (nano / NANO, 0);
    while value % 1024 == 0 && power < 60 {
        value /= 1024;
        power += 10;
    }
    let suffix = BINARY_SUFFIXES.iter().find(|(_, p)| *p == power).map_or("", |(name, _)| name);
    format!("{value}{suffix}")
}

/// The first digits without the point, and the number of digits after the point. The number is negative if digits
/// before the point are dropped.
fn decimal(number: &str, digits_max: usize) -> Result<(i128, i32), QuantityError> {
    let (sign, unsigned) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut all = whole.bytes().chain(fraction.bytes()).peekable();
    if all.peek().is_none() || !all.all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError);
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let digits = format!("{whole}{fraction}");
    let (significant, dropped) = digits.split_at_checked(digits_max).unwrap_or((&digits, ""));
    let mantissa: i128 = if significant.is_empty() { 0 } else { significant.parse().map_err(|_| QuantityError)? };
    let rest = i128::from(dropped.bytes().any(|byte| byte != b'0'));
    let length = |text: &str| i32::try_from(text.len()).map_err(|_| QuantityError);
    Ok((sign * (mantissa + rest), length(significant)? - length(whole)?))
}

fn scaled(mantissa: i128, power: i32) -> i128 {
    let factor = 10_i128.checked_pow(power.unsigned_abs()).unwrap_or(i128::MAX);
    if power >= 0 {
        return mantissa.saturating_mul(factor);
    }
    let (quotient, rest) = (mantissa.div_euclid(factor), mantissa.rem_euclid(factor));
    quotient + i128::from(rest != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact() {
        for (text, wanted) in [
            ("0", 0),
            ("1", 1000),
            ("500m", 500),
            ("1.5", 1500),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2e3", 2_000_000),
            ("1n", 1),
            ("-1", -1000),
            ("1E", 10_i128.pow(21)),
            (".5", 500),
        ] {
            assert_eq!(milli(text), Ok(wanted), "{text}");
        }
        assert_eq!(nano("1n"), Ok(1));
        assert_eq!(nano("1.5k"), Ok(1_500_000_000_000));
        assert_eq!(value("100m"), Ok(1));
        assert_eq!(value("64Mi"), Ok(67_108_864));
    }

    #[test]
    fn what_is_too_much_is_as_much_as_there_is() {
        let most = i128::from(i64::MAX) * 1000;
        let long = format!("1.{}", "0".repeat(60));
        for (text, wanted) in [
            ("9223372036854775807", most),
            ("9223372036854775808", most),
            ("9.3E", most),
            ("9Ei", most),
            ("1e35", most),
            ("-1e35", -most),
            ("1e127", most),
            ("1e1000000", most),
            ("99999999999999999999999999999999999999999999", most),
            ("99999999999999999999999999999999999999999999Ki", most),
            ("0e1000", 0),
            ("1e-1000", 1),
            (long.as_str(), 1000),
            ("1.00000000000000000000000000000000000000000001", 1001),
            ("1.00000000000000000000000000000000000000000001Ki", 1_024_001),
            ("10000000000000000000000000000000000000000e-40", 1000),
        ] {
            assert_eq!(milli(text), Ok(wanted), "{text}");
        }
        assert_eq!(value("1e35"), Ok(i64::MAX));
        assert_eq!(nano("1e20"), Ok(10_i128.pow(29)));
        assert_eq!(nano("1e35"), Err(QuantityError));
        assert_eq!(nano("-1e35"), Err(QuantityError));
    }

    #[test]
    fn nonsense_is_rejected() {
        for text in ["", "x", "1x", "1 Gi", "1KiB", "1.2.3", "--1", "1e", ".", "-", "+-1", "1-2", "1.-2", "1e99999999999"] {
            assert!(milli(text).is_err(), "{text}");
        }
    }
}
