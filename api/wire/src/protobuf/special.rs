//! Messages with a JSON form of their own: quantities, times, durations, ports by number or name, free JSON, and the alternatives to a
//! schema.

use std::time::Duration;

use api_model::{go, meta};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::read::{self, Reader, Wire};
use super::table::{self, Message};
use super::{ProtobufError, decode, write};

/// Such a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    /// Any JSON, as its text.
    Json,
    /// A schema, or `false` or `true`.
    SchemaOrBool,
    /// A schema, or several.
    SchemaOrArray,
    /// A schema, or names.
    SchemaOrNames,
}

const APIEXTENSIONS: &str = "apiextensions_apiserver.pkg.apis.apiextensions.v1.";
const MACHINERY: &str = "apimachinery.pkg.";
/// 9999-12-31T23:59:59Z, which many clients write for "never".
const YEAR_9999_LAST: i64 = 253_402_300_799;

impl Special {
    /// By the message's path.
    pub(super) fn of(id: &str) -> Option<Self> {
        let path = id.strip_prefix(MACHINERY).or(id.strip_prefix(APIEXTENSIONS))?;
        Some(match path {
            "api.resource.Quantity" => Self::Quantity,
            "util.intstr.IntOrString" => Self::IntOrString,
            "apis.meta.v1.Time" => Self::Time,
            "apis.meta.v1.MicroTime" => Self::MicroTime,
            "apis.meta.v1.Duration" => Self::Duration,
            "runtime.RawExtension" | "apis.meta.v1.FieldsV1" | "JSON" => Self::Json,
            "JSONSchemaPropsOrBool" => Self::SchemaOrBool,
            "JSONSchemaPropsOrArray" => Self::SchemaOrArray,
            "JSONSchemaPropsOrStringArray" => Self::SchemaOrNames,
            _ => return None,
        })
    }

    /// The JSON form of such a message.
    pub(super) fn decode(self, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        match self {
            Self::Quantity => quantity(bytes),
            Self::IntOrString => int_or_string(bytes),
            Self::Time => time(bytes, meta::time),
            Self::MicroTime => time(bytes, meta::micro_time),
            Self::Duration => duration(bytes),
            Self::Json => json(bytes),
            Self::SchemaOrBool => schema_or(bytes, (2, 1), Value::Bool(false), depth, |found, wire| match wire {
                Wire::Number(number) => {
                    *found = (number != 0).into();
                    Ok(())
                }
                _ => Err(ProtobufError::WrongWireType(wire.number(), "allows")),
            }),
            Self::SchemaOrArray => {
                schema_or(bytes, (1, 2), Value::Null, depth, |found, wire| push(found, wire, |bytes| schema(bytes, depth)))
            }
            Self::SchemaOrNames => {
                schema_or(bytes, (1, 2), Value::Null, depth, |found, wire| push(found, wire, |bytes| Ok(read::text(bytes)?.into())))
            }
        }
    }
}

/// The message of schemas.
pub(super) fn schemas() -> Option<&'static Message> {
    table::message("apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
}

/// Bytes are base64 in JSON.
pub(super) fn base64(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

/// Base64's bytes.
pub(super) fn unbase64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

fn quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let text = read::text(read::last_bytes(bytes, 1)?)?;
    Ok(if text.is_empty() { "0" } else { text }.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        match (tag, wire) {
            (1, Wire::Number(kind)) => is_text = kind != 0,
            (2, Wire::Number(found)) => number = found,
            (3, Wire::Bytes(bytes)) => text = read::text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { decode::integer(number) })
}

/// A time; an empty message is no time.
fn time(bytes: &[u8], write: fn(Timestamp) -> String) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        match (tag, wire) {
            (1, Wire::Number(number)) => seconds = number,
            (2, Wire::Number(number)) => nanoseconds = number,
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (Some(seconds), Ok(nanoseconds)) = (decode::integer(seconds).as_i64(), i32::try_from(nanoseconds)) else {
        return Err(ProtobufError::Time);
    };
    // Later times are limited to the last one that can be written, as in JSON.
    let seconds = if seconds <= YEAR_9999_LAST { seconds.min(Timestamp::MAX.as_second()) } else { seconds };
    Timestamp::new(seconds, nanoseconds).map(|at| write(at).into()).map_err(|_| ProtobufError::Time)
}

/// Writes a time as the message's fields; `None` when the text is not a time.
pub(super) fn write_time(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let at: Timestamp = text.parse().ok()?;
    // A time before 1970 has negative seconds and positive nanoseconds.
    let nanoseconds = at.subsec_nanosecond();
    let (seconds, nanoseconds) = match nanoseconds < 0 {
        true => (at.as_second() - 1, nanoseconds + 1_000_000_000),
        false => (at.as_second(), nanoseconds),
    };
    write::number(out, 1, seconds.cast_unsigned());
    write::number(out, 2, u64::try_from(nanoseconds).ok()?);
    Some(())
}

/// A duration in Go's words; an empty message is none.
fn duration(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut nanoseconds = 0;
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        if let (1, Wire::Number(number)) = (tag, wire) {
            nanoseconds = number.cast_signed();
        }
    }
    let text = go::duration_text(Duration::from_nanos(nanoseconds.unsigned_abs()));
    Ok(if nanoseconds < 0 { format!("-{text}") } else { text }.into())
}

/// Writes a duration as the message's field; `None` when the text is not a duration.
pub(super) fn write_duration(out: &mut Vec<u8>, text: &str) -> Option<()> {
    write::number(out, 1, go::parse_duration(text).ok()?.cast_unsigned());
    Some(())
}

fn json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    match read::last_bytes(bytes, 1)? {
        [] => Ok(Value::Null),
        raw => serde_json::from_slice(raw).map_err(|_| ProtobufError::Json),
    }
}

fn schema(bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let mut fields = Map::new();
    if let Some(message) = schemas() {
        decode::fields(message, bytes, &mut fields, depth + 1)?;
    }
    Ok(Value::Object(fields))
}

/// A schema in the first field, or else the value of the second field.
fn schema_or<'a>(
    bytes: &'a [u8],
    (schema_tag, other_tag): (u64, u64),
    mut instead: Value,
    depth: usize,
    mut other: impl FnMut(&mut Value, Wire<'a>) -> Result<(), ProtobufError>,
) -> Result<Value, ProtobufError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        match wire {
            Wire::Bytes(bytes) if tag == schema_tag => found = Some(schema(bytes, depth)?),
            _ if tag == schema_tag => return Err(ProtobufError::WrongWireType(wire.number(), "schema")),
            wire if tag == other_tag => other(&mut instead, wire)?,
            _ => {}
        }
    }
    Ok(found.unwrap_or(instead))
}

fn push(found: &mut Value, wire: Wire<'_>, item: impl FnOnce(&[u8]) -> Result<Value, ProtobufError>) -> Result<(), ProtobufError> {
    let Wire::Bytes(bytes) = wire else { return Err(ProtobufError::WrongWireType(wire.number(), "items")) };
    let item = item(bytes)?;
    match found {
        Value::Array(items) => items.push(item),
        other => *other = Value::Array(vec![item]),
    }
    Ok(())
}
