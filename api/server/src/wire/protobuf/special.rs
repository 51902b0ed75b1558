//! Messages that are something else in JSON: quantities, times, ports by number or name, free JSON.

use api_model::meta;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::ProtobufError;
use super::read::{self, Reader, Wire};

/// Bytes are base64 in JSON.
pub(super) fn base64(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

/// The JSON form of such a message; `None` for all others.
pub(super) fn decode(id: &str, bytes: &[u8]) -> Result<Option<Value>, ProtobufError> {
    Ok(Some(match id.rsplit('.').next().unwrap_or_default() {
        "Quantity" => quantity(bytes)?,
        "IntOrString" => int_or_string(bytes)?,
        "Time" => time(bytes, meta::time)?,
        "MicroTime" => time(bytes, meta::micro_time)?,
        "RawExtension" | "FieldsV1" | "JSON" => json(bytes)?,
        _ => return Ok(None),
    }))
}

fn quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut text = "0";
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        if let (1, Wire::Bytes(bytes)) = (tag, wire) {
            text = read::text(bytes)?;
        }
    }
    Ok(text.into())
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
    Ok(if is_text { text.into() } else { super::integer(number) })
}

/// A time; an empty message is none.
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
    let (Some(seconds), Some(nanoseconds)) = (super::integer(seconds).as_i64(), i32::try_from(nanoseconds).ok()) else {
        return Err(ProtobufError::Malformed);
    };
    Timestamp::new(seconds, nanoseconds).map(|at| write(at).into()).map_err(|_| ProtobufError::Malformed)
}

fn json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut raw: &[u8] = b"null";
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        if let (1, Wire::Bytes(bytes)) = (tag, wire) {
            raw = bytes;
        }
    }
    serde_json::from_slice(raw).map_err(|_| ProtobufError::Malformed)
}
