//! `'%s has %d'.format([…])`, as cel-go's first formatter, which Kubernetes uses: numbers with a point have the English
//! format, and values in lists and maps have the form of literals.

use super::strings::quote;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::time::duration_text;
use crate::value::{Key, Value};

/// The maximum of digits after the point.
const PRECISION_MAX: usize = 1_000;
const PRECISION: usize = 6;

/// Replaces the format specifiers.
pub(super) fn format(text: &str, values: &[Value<'_>], meter: &mut Meter) -> Result<String, EvaluateError> {
    meter.pay_text(text.len() as u64)?;
    let mut values = values.iter().enumerate();
    let mut count = 0;
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let (index, value) = values.next().ok_or_else(|| EvaluateError::failed(format!("index {count} out of range")))?;
        count = index + 1;
        let (precision, after) = precision(after)?;
        let mut letters = after.chars();
        let verb = letters.next().ok_or_else(|| EvaluateError::failed("unexpected end of string"))?;
        let start = made.len();
        fill(&mut made, verb, precision, value, meter)?;
        meter.pay_text((made.len() - start) as u64)?;
        rest = letters.as_str();
    }
    made.push_str(rest);
    Ok(made)
}

fn precision(text: &str) -> Result<(Option<usize>, &str), EvaluateError> {
    let Some(after) = text.strip_prefix('.') else { return Ok((None, text)) };
    let (digits, rest) = after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len()));
    let wanted = digits.parse().ok().filter(|wanted| *wanted <= PRECISION_MAX);
    let wanted = wanted.ok_or_else(|| EvaluateError::failed("could not parse formatting clause: error while parsing precision"))?;
    Ok((Some(wanted), rest))
}

fn fill(made: &mut String, verb: char, precision: Option<usize>, value: &Value<'_>, meter: &mut Meter) -> Result<(), EvaluateError> {
    let wrong = |what: &str| EvaluateError::failed(format!("error during formatting: {what}, was given {}", value.type_of()));
    match verb {
        's' => return show(made, value, meter),
        'd' => made.push_str(&match value {
            Value::Int(number) => number.to_string(),
            Value::Uint(number) => number.to_string(),
            _ => return Err(wrong("decimal clause can only be used on integers")),
        }),
        'f' => {
            let number = number(value).ok_or_else(|| wrong("fixed-point clause can only be used on doubles"))?;
            made.push_str(&fixed(number, precision.unwrap_or(PRECISION)));
        }
        'e' => {
            let number = number(value).ok_or_else(|| wrong("scientific clause can only be used on doubles"))?;
            made.push_str(&scientific(number, precision.unwrap_or(PRECISION)));
        }
        'b' => made.push_str(&match value {
            Value::Int(number) => signed(*number, |size| format!("{size:b}")),
            Value::Uint(number) => format!("{number:b}"),
            Value::Bool(flag) => u8::from(*flag).to_string(),
            _ => return Err(wrong("only integers and bools can be formatted as binary")),
        }),
        'o' => made.push_str(&match value {
            Value::Int(number) => signed(*number, |size| format!("{size:o}")),
            Value::Uint(number) => format!("{number:o}"),
            _ => return Err(wrong("octal clause can only be used on integers")),
        }),
        'x' | 'X' => {
            let hex = match value {
                Value::Int(number) => signed(*number, |size| format!("{size:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => hex_of(text.as_bytes()),
                Value::Bytes(bytes) => hex_of(bytes),
                _ => return Err(wrong("only integers, byte buffers, and strings can be formatted as hex")),
            };
            made.push_str(&if verb == 'X' { hex.to_uppercase() } else { hex });
        }
        other => {
            let message = format!("could not parse formatting clause: unrecognized formatting clause \"{other}\"");
            return Err(EvaluateError::failed(message));
        }
    }
    Ok(())
}

/// The value as a floating point number. The texts `NaN`, `Infinity` and `-Infinity` also count as numbers.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn signed(number: i64, write: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, write(number.unsigned_abs()))
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `1,052.033`
fn fixed(number: f64, precision: usize) -> String {
    let Some(text) = digits(number, || format!("{:.precision$}", number.abs())) else { return nameless(number) };
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::from(if number.is_sign_negative() { "-" } else { "" });
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// `1.052033 × 10⁰³`, with narrow spaces that do not break.
fn scientific(number: f64, precision: usize) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let Some(text) = digits(number, || format!("{number:.precision$e}")) else { return nameless(number) };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, size) = exponent.strip_prefix('-').map_or(("", exponent), |size| ("⁻", size));
    let raised =
        format!("{size:0>2}").chars().filter_map(|digit| RAISED.get(usize::try_from(digit.to_digit(10)?).ok()?)).collect::<String>();
    format!("{mantissa}\u{202f}×\u{202f}10{sign}{raised}")
}

fn digits(number: f64, write: impl FnOnce() -> String) -> Option<String> {
    number.is_finite().then(write)
}

fn nameless(number: f64) -> String {
    let name = match number {
        number if number.is_nan() => "NaN",
        number if number > 0.0 => "∞",
        _ => "-∞",
    };
    name.to_owned()
}

/// A float in CEL's form: as Go's `%g`, with an exponent for numbers of a million and more.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else if number != 0.0 && !(1e-4..1e6).contains(&number.abs()) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
        format!("{mantissa}e{sign}{digits:0>2}")
    } else {
        format!("{number}")
    }
}

/// `%s`: lists and maps with their content.
fn show(made: &mut String, value: &Value<'_>, meter: &mut Meter) -> Result<(), EvaluateError> {
    meter.pay(1)?;
    match value {
        Value::Null => made.push_str("null"),
        Value::Bool(flag) => made.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => made.push_str(&number.to_string()),
        Value::Uint(number) => made.push_str(&number.to_string()),
        Value::Double(number) => made.push_str(&float(*number)),
        Value::String(text) => {
            meter.pay_text(text.len() as u64)?;
            made.push_str(text);
        }
        Value::Bytes(bytes) => {
            meter.pay_text(bytes.len() as u64)?;
            made.push_str(&String::from_utf8_lossy(bytes));
        }
        Value::Duration(span) => made.push_str(&duration_text(*span)),
        Value::Timestamp(time) => made.push_str(&time.to_string()),
        Value::Type(of) => made.push_str(&of.to_string()),
        value => return show_all(made, value, meter),
    }
    Ok(())
}

fn show_all(made: &mut String, value: &Value<'_>, meter: &mut Meter) -> Result<(), EvaluateError> {
    if let Some(elements) = value.elements() {
        made.push('[');
        for (index, element) in elements.enumerate() {
            made.push_str(if index > 0 { ", " } else { "" });
            show_inner(made, &element, meter)?;
        }
        made.push(']');
    } else if let Some(entries) = value.entries() {
        let mut entries: Vec<(String, Value<'_>)> = entries.into_iter().map(|(key, value)| (show_key(&key), value)).collect();
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        made.push('{');
        for (index, (key, value)) in entries.iter().enumerate() {
            made.push_str(if index > 0 { ", " } else { "" });
            meter.pay_text(key.len() as u64)?;
            made.push_str(key);
            made.push(':');
            show_inner(made, value, meter)?;
        }
        made.push('}');
    } else {
        let message = format!(
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
            value.type_of()
        );
        return Err(EvaluateError::failed(message));
    }
    Ok(())
}

fn show_key(key: &Key) -> String {
    match key {
        Key::String(text) => quote(text),
        other => other.to_string(),
    }
}

/// A value in a list or map, as a literal.
fn show_inner(made: &mut String, value: &Value<'_>, meter: &mut Meter) -> Result<(), EvaluateError> {
    let text = match value {
        Value::String(text) => quote(text),
        Value::Bytes(bytes) => format!("b{}", quote(&String::from_utf8_lossy(bytes))),
        Value::Double(number) if number.is_finite() => format!("{number:.PRECISION$}"),
        Value::Double(number) => quote(&float(*number)),
        Value::Timestamp(time) => format!("timestamp({})", quote(&time.to_string())),
        Value::Duration(span) => format!("duration({})", quote(&duration_text(*span))),
        other => return show(made, other, meter),
    };
    meter.pay(1)?;
    meter.pay_text(text.len() as u64)?;
    made.push_str(&text);
    Ok(())
}
