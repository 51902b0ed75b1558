//! `'%s has %d'.format([…])`.

use crate::error::EvaluateError;
use crate::evaluate::Meter;
use crate::value::{Value, duration_text};

/// Digits after the point that can be asked for.
const PRECISION_MAX: usize = 1_000;
const PRECISION: usize = 6;

/// Fills in what stands at the percent signs.
pub(super) fn format(text: &str, values: &[Value<'_>], meter: &mut Meter) -> Result<String, EvaluateError> {
    meter.pay_text(text.len() as u64)?;
    let mut values = values.iter();
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let (precision, after) = precision(after)?;
        let mut letters = after.chars();
        let verb = letters.next().ok_or_else(|| EvaluateError::failed("unexpected end of string"))?;
        let value = values.next().ok_or_else(|| EvaluateError::failed("index out of range"))?;
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
    let wrong =
        |clause: &str| EvaluateError::failed(format!("error during formatting: {clause} clause cannot be used on {}", value.type_of()));
    match verb {
        's' => return show(made, value, meter),
        'd' => made.push_str(&match value {
            Value::Int(number) => number.to_string(),
            Value::Uint(number) => number.to_string(),
            Value::Double(number) if !number.is_finite() => float(*number),
            _ => return Err(wrong("integer")),
        }),
        'f' => made.push_str(&format!("{:.*}", precision.unwrap_or(PRECISION), number(value).ok_or_else(|| wrong("fixed-point"))?)),
        'e' => {
            let number = number(value).ok_or_else(|| wrong("scientific"))?;
            made.push_str(&scientific(number, precision.unwrap_or(PRECISION)));
        }
        'b' => made.push_str(&match value {
            Value::Int(number) => signed(*number, |size| format!("{size:b}")),
            Value::Uint(number) => format!("{number:b}"),
            Value::Bool(flag) => u8::from(*flag).to_string(),
            _ => return Err(wrong("binary")),
        }),
        'o' => made.push_str(&match value {
            Value::Int(number) => signed(*number, |size| format!("{size:o}")),
            Value::Uint(number) => format!("{number:o}"),
            _ => return Err(wrong("octal")),
        }),
        'x' | 'X' => {
            let hex = match value {
                Value::Int(number) => signed(*number, |size| format!("{size:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => hex_of(text.as_bytes()),
                Value::Bytes(bytes) => hex_of(bytes),
                _ => return Err(wrong("hex")),
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

#[expect(clippy::cast_precision_loss, reason = "shown as a float, as asked for")]
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        _ => None,
    }
}

fn signed(number: i64, write: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, write(number.unsigned_abs()))
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `1.052033e+03`
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => float(number),
    }
}

/// A float as CEL writes it.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else if number != 0.0 && !(1e-4..1e21).contains(&number.abs()) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
        format!("{mantissa}e{sign}{digits:0>2}")
    } else {
        format!("{number}")
    }
}

/// `%s`: lists and maps with all that is in them.
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
            show(made, &element, meter)?;
        }
        made.push(']');
    } else if let Some(entries) = value.entries() {
        made.push('{');
        for (index, (key, value)) in entries.iter().enumerate() {
            made.push_str(if index > 0 { ", " } else { "" });
            made.push_str(&key.to_string());
            made.push_str(": ");
            show(made, value, meter)?;
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
