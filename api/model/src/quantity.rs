//! Quantities such as `500m`, `128Mi` and `1e3`, as exact numbers of thousandths.

use thiserror::Error;

/// Why a quantity was refused; the message is upstream's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct QuantityError;

/// Suffixes with the power of two or ten they stand for.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 9] = [("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// Thousandths, rounded up as upstream does (`MilliValue`).
pub fn milli(text: &str) -> Result<i128, QuantityError> {
    parts(text, 3)
}

/// Billionths, rounded up: upstream's quantities are no finer.
pub fn nano(text: &str) -> Result<i128, QuantityError> {
    parts(text, 9)
}

/// Parts of which a unit has ten to the power of `digits`.
fn parts(text: &str, digits: i32) -> Result<i128, QuantityError> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(split).ok_or(QuantityError)?;
    let (mantissa, scale) = decimal(number)?;
    if let Some((_, power)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return scaled(mantissa.checked_mul(1_i128 << power).ok_or(QuantityError)?, digits - scale);
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return scaled(mantissa, digits - scale + power);
    }
    match suffix.strip_prefix(['e', 'E']) {
        _ if suffix.is_empty() => scaled(mantissa, digits - scale),
        Some(exponent) => scaled(mantissa, digits - scale + exponent.parse::<i8>().map(i32::from).map_err(|_| QuantityError)?),
        None => Err(QuantityError),
    }
}

/// Whole units, rounded up as upstream does (`Value`).
pub fn value(text: &str) -> Result<i64, QuantityError> {
    let milli = milli(text)?;
    let whole = milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) != 0);
    i64::try_from(whole).map_err(|_| QuantityError)
}

/// Digits without the point, and how many of them stood after it.
fn decimal(number: &str) -> Result<(i128, i32), QuantityError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if !digits.bytes().any(|b| b.is_ascii_digit()) || fraction.contains(['+', '-']) {
        return Err(QuantityError);
    }
    let mantissa = digits.parse().map_err(|_| QuantityError)?;
    Ok((mantissa, i32::try_from(fraction.len()).map_err(|_| QuantityError)?))
}

fn scaled(mantissa: i128, power: i32) -> Result<i128, QuantityError> {
    let factor = 10_i128.checked_pow(power.unsigned_abs()).ok_or(QuantityError)?;
    if power >= 0 {
        return mantissa.checked_mul(factor).ok_or(QuantityError);
    }
    let (quotient, rest) = (mantissa.div_euclid(factor), mantissa.rem_euclid(factor));
    Ok(quotient + i128::from(rest != 0))
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
    fn nonsense_is_refused() {
        for text in ["", "x", "1x", "1 Gi", "1KiB", "1.2.3", "--1", "1e"] {
            assert!(milli(text).is_err(), "{text}");
        }
    }
}
