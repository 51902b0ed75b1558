//! Plain scalars whose meaning in YAML 1.1 differs from 1.2, as upstream's go-yaml v2 reads them (its `resolve.go`): `yes`
//! is true, `0644` is 420, `1_000` is a thousand. The parser returns them as strings, like quoted ones.

use serde_json::{Number, Value};

/// Characters before a scalar that are searched for its tag and its anchor.
const PROPERTIES_LEN_MAX: usize = 64;
/// The longest text that is read as a number.
const NUMBER_LEN_MAX: usize = 512;

/// The value in YAML 1.1 of a text that the parser returned as a string, if the text is plain in the YAML text that it is
/// borrowed from and is not a string in YAML 1.1.
pub fn resolve(text: &str, scalar: &str) -> Option<Value> {
    let value = meaning(scalar)?;
    let at = scalar.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let before = text.get(..at)?;
    if before.ends_with(['"', '\'']) {
        return None;
    }
    // A tag such as `!!str` sets the type, also before an anchor.
    let start = before.char_indices().rev().take(PROPERTIES_LEN_MAX).last().map_or(0, |(start, _)| start);
    let words = before.get(start..)?.split_whitespace().rev().map(|word| word.trim_start_matches(['[', '{', ',']));
    let is_tagged = words.take(2).find(|word| !word.starts_with('&')).is_some_and(|word| word.starts_with('!'));
    (!is_tagged).then_some(value)
}

fn meaning(text: &str) -> Option<Value> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(true.into()),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(false.into()),
        _ => {}
    }
    if text.len() > NUMBER_LEN_MAX || !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain))
}

/// As Go's `strconv.ParseInt` with base 0: a leading zero makes it octal.
fn integer(plain: &str) -> Option<Value> {
    let (is_negative, unsigned) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(plain)),
    };
    let (digits, radix) = match unsigned.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => (digits, 16),
        Some(("0b" | "0B", digits)) => (digits, 2),
        Some(("0o" | "0O", digits)) => (digits, 8),
        _ if unsigned.len() > 1 && unsigned.starts_with('0') => (unsigned, 8),
        _ => (unsigned, 10),
    };
    let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))?;
    if !is_negative {
        return Some(number.into());
    }
    0_i64.checked_sub_unsigned(number).map(Value::from)
}

/// Digits with a point and an exponent. One without a fraction is a whole number, as Go writes it.
fn float(plain: &str) -> Option<Value> {
    let is_float = plain.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    let number: f64 = plain.parse().ok().filter(|_| is_float)?;
    match crate::numbers::whole(number) {
        Some(whole) => Some(whole.into()),
        None => Number::from_f64(number).map(Value::Number),
    }
}
