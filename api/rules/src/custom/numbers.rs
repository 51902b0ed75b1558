//! Numbers as Go prints them with `%v`: the limits in messages are floating-point upstream.

use serde_json::Value;

/// Go writes numbers below the first or from the second limit on with an exponent, as `1e+06`.
const EXPONENT_MIN: i32 = -4;
const EXPONENT_MAX: i32 = 6;

/// `1`, `0.5`, `1e+06`.
pub fn go_text(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(EXPONENT_MIN..EXPONENT_MAX).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{number}"),
    }
}

/// Whether a number has no fraction.
pub fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() < 9.0e18)
}

/// Whether a number is a multiple of a factor, within floating-point precision.
pub fn is_multiple(number: f64, factor: f64) -> bool {
    let ratio = number / factor;
    (ratio - ratio.round()).abs() < 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_like_gos() {
        for (number, wanted) in
            [(1.0, "1"), (0.5, "0.5"), (-3.0, "-3"), (65535.0, "65535"), (1e6, "1e+06"), (1e-5, "1e-05"), (123456789.0, "1.23456789e+08")]
        {
            assert_eq!(go_text(number), wanted);
        }
    }
}
