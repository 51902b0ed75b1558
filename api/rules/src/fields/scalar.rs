//! Scalars with a format: integers of a width, quantities, times, base64, int-or-string.

use api_schema::{Format, Shape};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::Trail;
use crate::decode::DecodeError;
use crate::quantity;

/// Checks one scalar and brings it to its stored writing.
pub fn check(shape: Shape<'_>, value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
    match shape {
        Shape::String(Format::Byte) => bytes(value, trail),
        Shape::String(format @ (Format::Time | Format::MicroTime)) => time(format, value),
        Shape::String(_) if value.is_string() => Ok(()),
        Shape::Boolean if value.is_boolean() => Ok(()),
        Shape::Number if value.is_number() => Ok(()),
        Shape::Integer(format) if integer(format, value) => Ok(()),
        Shape::IntOrString => int_or_string(value),
        Shape::Quantity => plain_quantity(value),
        _ => Err(trail.mismatch(value, go_type(shape))),
    }
}

/// Go's name of a scalar's type.
pub fn go_type(shape: Shape<'_>) -> &'static str {
    match shape {
        Shape::String(Format::Byte) => "[]uint8",
        Shape::String(Format::Time) => "v1.Time",
        Shape::String(Format::MicroTime) => "v1.MicroTime",
        Shape::String(_) => "string",
        Shape::Boolean => "bool",
        Shape::Number => "float64",
        Shape::Integer(Format::Int32) => "int32",
        Shape::Integer(_) => "int64",
        Shape::IntOrString => "intstr.IntOrString",
        Shape::Quantity => "resource.Quantity",
        _ => "object",
    }
}

fn integer(format: Format, value: &Value) -> bool {
    match (format, value.as_i64()) {
        (Format::Int32, Some(number)) => i32::try_from(number).is_ok(),
        (_, number) => number.is_some(),
    }
}

/// An unmarshaler of its own upstream, so its complaint names no field.
fn int_or_string(value: &Value) -> Result<(), DecodeError> {
    let found = match value {
        Value::String(_) => return Ok(()),
        Value::Number(_) if integer(Format::Int32, value) => return Ok(()),
        Value::Number(number) => format!("number {number}"),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        _ => "object".to_owned(),
    };
    Err(DecodeError::Type(format!("json: cannot unmarshal {found} into Go value of type int32")))
}

fn plain_quantity(value: &mut Value) -> Result<(), DecodeError> {
    let text = match &*value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => other.to_string(),
    };
    quantity::parse(&text).map_err(|error| DecodeError::Type(error.to_string()))?;
    *value = Value::String(text);
    Ok(())
}

/// Resource lists are stored in canonical writing: upstream's defaulting rounds them up to
/// thousandths, which makes `1000m` a `1`. Other quantities keep the user's spelling.
pub fn canonical_quantity(value: &mut Value) {
    if let Some(canonical) = value.as_str().and_then(|text| quantity::parse(text).ok()).map(|parsed| parsed.canonical()) {
        *value = Value::String(canonical);
    }
}

fn time(format: Format, value: &mut Value) -> Result<(), DecodeError> {
    let Value::String(text) = value else {
        let found = if value.is_number() {
            "number"
        } else if value.is_boolean() {
            "bool"
        } else if value.is_array() {
            "array"
        } else {
            "object"
        };
        return Err(DecodeError::Type(format!("json: cannot unmarshal {found} into Go value of type string")));
    };
    let layout = if format == Format::Time { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
    let shaped = text.as_bytes().get(10) == Some(&b'T');
    match text.parse::<Timestamp>() {
        Ok(at) if shaped => {
            *text = if format == Format::Time { api_model::meta::time(at) } else { api_model::meta::micro_time(at) };
            Ok(())
        }
        _ => {
            let shown = Value::from(text.as_str());
            Err(DecodeError::Type(format!("parsing time {shown} as \"{layout}\": cannot parse {shown} as \"2006\"")))
        }
    }
}

fn bytes(value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
    let Value::String(text) = value else {
        return Err(trail.mismatch(value, "[]uint8"));
    };
    if text.contains(['\r', '\n']) {
        text.retain(|c| c != '\r' && c != '\n');
    }
    let illegal = match STANDARD.decode(text.as_bytes()) {
        Ok(_) => return Ok(()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => at,
        Err(base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding) => text.len() - text.len() % 4,
    };
    Err(DecodeError::Type(format!("illegal base64 data at input byte {illegal}")))
}
