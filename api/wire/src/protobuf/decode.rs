//! Messages into JSON values.
//!
//! Go clients write a zero for every field that is not a pointer, which JSON omits; so zeros are dropped, except for fields
//! where zero has a meaning.

use serde_json::{Map, Value};

use super::ProtobufError;
use super::read::{self, Reader, Wire};
use super::special;
use super::table::{Field, Kind, Message, Shape};

/// Messages in messages; upstream's deepest has about twenty levels, and schemas may be deeper.
const DEPTH_MAX: usize = 100;
/// The deepest nesting of lists and maps: the JSON parser accepts no more.
const JSON_DEPTH_MAX: usize = 127;

/// A message that is a whole object.
pub(super) fn object(message: &'static Message, bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
    let mut out = Map::new();
    fields(message, bytes, &mut out, 1)?;
    match out.values().map(depth).max() {
        Some(depth) if depth >= JSON_DEPTH_MAX => Err(ProtobufError::Deep),
        _ => Ok(out),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Adds a message's fields to the present ones. A field that occurs twice is merged or, if it is not a message, has the last
/// value.
pub(super) fn fields(message: &'static Message, bytes: &[u8], out: &mut Map<String, Value>, depth: usize) -> Result<(), ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(ProtobufError::Deep);
    }
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        // A field that is newer than the table is unknown, as for an older server.
        let Some(field) = message.numbered(tag) else { continue };
        match (field.shape, field.kind) {
            (Shape::One, Kind::Message(inner)) => match inner.list() {
                None if field.is_inlined() => fields(inner, field.bytes(wire)?, out, depth + 1)?,
                None => {
                    if let Value::Object(map) = map(out, field.name) {
                        fields(inner, field.bytes(wire)?, map, depth + 1)?;
                    }
                }
                // A list with a message of its own, such as `ExtraValue`.
                Some(list) => list_items(list, field.bytes(wire)?, items(out, field.name), depth + 1)?,
            },
            (Shape::One, _) => {
                let value = value(field, wire, depth)?;
                if field.drops(&value) {
                    out.remove(field.name);
                } else {
                    out.insert(field.name.to_owned(), value);
                }
            }
            (Shape::List, _) => push(field, wire, items(out, field.name), depth)?,
            (Shape::Map, _) => {
                let (key, value) = entry(field, field.bytes(wire)?, depth)?;
                if let Value::Object(map) = map(out, field.name) {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// The map of that name, created if it does not exist.
fn map<'a>(out: &'a mut Map<String, Value>, name: &str) -> &'a mut Value {
    let value = out.entry(name).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
}

/// The list of that name, created if it does not exist.
fn items<'a>(out: &'a mut Map<String, Value>, name: &str) -> &'a mut Value {
    let value = out.entry(name).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value
}

/// The items of a message that is a list.
fn list_items(list: &'static Field, bytes: &[u8], items: &mut Value, depth: usize) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        if tag == u64::from(list.tag) {
            push(list, wire, items, depth)?;
        }
    }
    Ok(())
}

fn push(field: &'static Field, wire: Wire<'_>, items: &mut Value, depth: usize) -> Result<(), ProtobufError> {
    let Value::Array(items) = items else { return Ok(()) };
    match (field.kind, wire) {
        (Kind::Integer | Kind::Truth, Wire::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while let Some(number) = reader.packed()? {
                items.push(value(field, Wire::Number(number), depth)?);
            }
        }
        _ => items.push(value(field, wire, depth)?),
    }
    Ok(())
}

fn entry(field: &'static Field, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    let mut found = match field.kind {
        Kind::Message(inner) if inner.list().is_some() => Value::Array(Vec::new()),
        Kind::Message(_) => Value::Object(Map::new()),
        _ => "".into(),
    };
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        match (tag, wire) {
            (1, Wire::Bytes(text)) => key = read::text(text)?.to_owned(),
            (2, wire) => found = value(field, wire, depth)?,
            _ => {}
        }
    }
    Ok((key, found))
}

/// One value of a field's type.
fn value(field: &'static Field, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match (field.kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => read::text(bytes)?.into(),
        (Kind::Bytes, Wire::Bytes(bytes)) => special::base64(bytes),
        (Kind::Integer, Wire::Number(number)) => integer(number),
        (Kind::Truth, Wire::Number(number)) => (number != 0).into(),
        (Kind::Double, Wire::Fixed64(bits)) => double(f64::from_bits(bits)),
        (Kind::Special(special), Wire::Bytes(bytes)) => special.decode(bytes, depth + 1)?,
        (Kind::Message(inner), Wire::Bytes(bytes)) => match inner.list() {
            Some(list) => {
                let mut items = Value::Array(Vec::new());
                list_items(list, bytes, &mut items, depth + 1)?;
                items
            }
            None => {
                let mut out = Map::new();
                fields(inner, bytes, &mut out, depth + 1)?;
                Value::Object(out)
            }
        },
        _ => return Err(field.wrong(wire)),
    })
}

impl Field {
    /// Whether a value means the same as an absent field. For values with a JSON form of their own, a port of zero or a default
    /// of `false`, only an absent value does.
    fn drops(&self, value: &Value) -> bool {
        match self.kind {
            Kind::Special(_) => value.is_null(),
            _ => is_zero(value) && !self.keeps_zero,
        }
    }

    fn bytes<'a>(&self, wire: Wire<'a>) -> Result<&'a [u8], ProtobufError> {
        match wire {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong(wire)),
        }
    }

    fn wrong(&self, wire: Wire<'_>) -> ProtobufError {
        ProtobufError::WrongWireType(wire.number(), self.name)
    }
}

/// JSON writes whole numbers without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "only numbers that 64 bits hold")]
fn double(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9.0e15 { (number as i64).into() } else { number.into() }
}

/// Whole numbers are two's complement in 64 bits, whatever their size.
pub(super) fn integer(number: u64) -> Value {
    number.cast_signed().into()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}
