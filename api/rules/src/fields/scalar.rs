//! Scalars with a format: integers of a width, quantities, times, base64, int-or-string.

use api_model::decode::DecodeError;
use api_schema::{Format, Shape};
use base64::engine::general_purpose::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use serde_json::Value;

use super::Trail;
use crate::quantity;

/// Go's `StdEncoding`: trailing bits of the last character are ignored.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Checks one scalar and writes it in its stored form.
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

/// Upstream's type has its own unmarshaler, so the message names no field.
fn int_or_string(value: &Value) -> Result<(), DecodeError> {
    let value_type = match value {
        Value::String(_) => return Ok(()),
        Value::Number(_) if integer(Format::Int32, value) => return Ok(()),
        Value::Number(number) => format!("number {number}"),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        _ => "object".to_owned(),
    };
    Err(DecodeError::Type(format!("json: cannot unmarshal {value_type} into Go value of type int32")))
}

/// Writes a quantity in upstream's canonical form.
fn plain_quantity(value: &mut Value) -> Result<(), DecodeError> {
    let text = match &*value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    *value = quantity::stored(&text).map_err(|error| DecodeError::Type(error.to_string()))?.into();
    Ok(())
}

/// Writes a quantity of a resource list, which upstream's defaulting rounds up to thousandths.
pub fn listed_quantity(value: &mut Value) {
    if let Some(text) = value.as_str().and_then(|text| quantity::listed(text).ok()) {
        *value = Value::String(text);
    }
}

fn time(format: Format, value: &mut Value) -> Result<(), DecodeError> {
    let Value::String(text) = value else {
        let value_type = if value.is_number() {
            "number"
        } else if value.is_boolean() {
            "bool"
        } else if value.is_array() {
            "array"
        } else {
            "object"
        };
        return Err(DecodeError::Type(format!("json: cannot unmarshal {value_type} into Go value of type string")));
    };
    *value = super::time::stored(format, text).map_err(|why| DecodeError::Type(why.into()))?.map_or(Value::Null, Value::String);
    Ok(())
}

fn bytes(value: &mut Value, trail: &Trail<'_>) -> Result<(), DecodeError> {
    let Value::String(text) = value else {
        return Err(trail.mismatch(value, "[]uint8"));
    };
    if text.contains(['\r', '\n']) {
        text.retain(|c| c != '\r' && c != '\n');
    }
    if STANDARD.decode(text.as_bytes()).is_ok() {
        return Ok(());
    }
    let illegal = match LENIENT.decode(text.as_bytes()) {
        Ok(bytes) => {
            *text = STANDARD.encode(bytes);
            return Ok(());
        }
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => at,
        Err(base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding) => text.len() - text.len() % 4,
    };
    Err(DecodeError::Type(format!("illegal base64 data at input byte {illegal}")))
}
