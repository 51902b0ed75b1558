//! Numbers as Go writes them in Prometheus text: `strconv.FormatFloat` with the format `g` and the fewest digits that
//! identify the number. Exponents from -4 to 5 are written out; all others have a sign and at least two digits.

use std::io::Write as _;

/// Decimal exponents of the numbers that are written without an exponent.
const PLAIN_EXPONENTS: std::ops::Range<i32> = -4..6;

/// Appends a finite number.
pub(crate) fn write(out: &mut Vec<u8>, value: f64) {
    if value == 0.0 {
        // Also the negative zero.
        return out.push(b'0');
    }
    let scientific = format!("{value:e}");
    let parts = scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    // Writing into a vector cannot fail.
    let _ = match parts {
        Some((digits, exponent)) if !PLAIN_EXPONENTS.contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => write!(out, "{value}"),
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (0.25, "0.25"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (137.0, "137"),
            (100_000.0, "100000"),
            (123_456.5, "123456.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (67_108_864.0, "6.7108864e+07"),
            (1_791_954_000.0, "1.791954e+09"),
            (9_223_372_036_854_775_807.0, "9.223372036854776e+18"),
            (1e100, "1e+100"),
        ] {
            let mut out = Vec::new();
            super::write(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
