//! Request bodies in protobuf, as Go clients send them for built-in kinds: an envelope that names the
//! kind, and in it upstream's message, read into the same JSON value that the JSON form would give.
//!
//! Which field has which number is a table made from published definitions; what a field is called in
//! JSON, and which messages are inlined into their parent, is told by the kind's schema. Go clients
//! write a zero for every field that is no pointer, which JSON leaves out; so zeros are dropped,
//! but for fields that are pointers in upstream's types, where zero means something.

mod read;
mod special;
mod table;
#[cfg(test)]
mod tests;

use api_rules::Decoded;
use api_schema::Schema;
use serde_json::{Map, Value};
use thiserror::Error;

use self::read::{Reader, Wire};
use self::table::{Field, Kind, Shape};

/// The media type.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
/// Messages in messages; upstream's deepest has about twenty levels.
const DEPTH_MAX: usize = 64;

/// Why a body was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Magic,
    #[error("the protobuf message is cut short or malformed")]
    Malformed,
    #[error("the protobuf message holds text that is not UTF-8")]
    Utf8,
    #[error("the protobuf message is nested too deeply")]
    Deep,
    /// Not a kind that has a protobuf form here.
    #[error("the object's kind has no protobuf form")]
    UnknownKind,
}

/// Decodes an object in its envelope.
pub(crate) fn decode(body: &[u8]) -> Result<Decoded, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let mut raw: &[u8] = &[];
    let mut named = Map::new();
    let mut reader = Reader::new(envelope);
    while let Some((tag, wire)) = reader.next()? {
        match (tag, wire) {
            (1, Wire::Bytes(type_meta)) => named = message("apimachinery.pkg.runtime.TypeMeta", type_meta, None, 1)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let text = |field: &str| named.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let root = table::root(group, version, kind).ok_or(ProtobufError::UnknownKind)?;
    let mut object = message(&root, raw, api_schema::of_gvk(group, version, kind), 1)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Decoded { value: Value::Object(object), duplicates: Vec::new() })
}

/// The fields of a message as JSON.
fn message(id: &str, bytes: &[u8], schema: Option<&Schema>, depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(ProtobufError::Deep);
    }
    let fields = table::message(id).ok_or(ProtobufError::UnknownKind)?;
    let schema = if id.ends_with(".JSONSchemaProps") { schema_of_schemas() } else { schema };
    let mut out = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        // What is newer than the table is unknown, as it would be to an older server.
        let Some(field) = fields.iter().find(|field| field.tag == tag) else { continue };
        let property = schema.and_then(|schema| field.property(schema));
        if let (Some(schema), None, Kind::Message(inner), Shape::One, Wire::Bytes(bytes)) =
            (schema, property, &field.kind, field.shape, wire)
        {
            // Not a field of its own in JSON: its fields stand among its parent's.
            out.extend(message(inner, bytes, Some(schema), depth + 1)?);
            continue;
        }
        let (name, schema) = property.map_or((field.camel.as_str(), None), |(name, schema)| (name, Some(schema)));
        put(&mut out, name, field, schema, wire, depth)?;
    }
    Ok(out)
}

/// Adds what one field on the wire says.
fn put(
    out: &mut Map<String, Value>,
    name: &str,
    field: &Field,
    schema: Option<&Schema>,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    match field.shape {
        Shape::One => {
            let value = value(&field.kind, wire, schema, depth)?;
            if is_zero(&value) && !table::is_pointer(name) {
                out.remove(name);
            } else {
                out.insert(name.to_owned(), value);
            }
        }
        Shape::List => {
            let items = out.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = items {
                push(items, &field.kind, wire, schema.and_then(Schema::items), depth)?;
            }
        }
        Shape::Map => {
            let (key, value) = entry(&field.kind, wire, schema.and_then(Schema::additional), depth)?;
            let entries = out.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(entries) = entries {
                entries.insert(key, value);
            }
        }
    }
    Ok(())
}

fn push(items: &mut Vec<Value>, kind: &Kind, wire: Wire<'_>, schema: Option<&Schema>, depth: usize) -> Result<(), ProtobufError> {
    if let (Kind::Integer, Wire::Bytes(packed)) = (kind, wire) {
        let mut reader = Reader::new(packed);
        while let Some(number) = reader.packed()? {
            items.push(integer(number));
        }
        return Ok(());
    }
    items.push(value(kind, wire, schema, depth)?);
    Ok(())
}

fn entry(kind: &Kind, wire: Wire<'_>, schema: Option<&Schema>, depth: usize) -> Result<(String, Value), ProtobufError> {
    let Wire::Bytes(bytes) = wire else { return Err(ProtobufError::Malformed) };
    let mut key = String::new();
    let mut found = match kind {
        Kind::Message(_) => Value::Object(Map::new()),
        _ => "".into(),
    };
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next()? {
        match (tag, wire) {
            (1, Wire::Bytes(text)) => key = read::text(text)?.to_owned(),
            (2, wire) => found = value(kind, wire, schema, depth)?,
            _ => {}
        }
    }
    Ok((key, found))
}

fn value(kind: &Kind, wire: Wire<'_>, schema: Option<&Schema>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match (kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => read::text(bytes)?.into(),
        (Kind::Bytes, Wire::Bytes(bytes)) => special::base64(bytes),
        (Kind::Integer, Wire::Number(number)) => integer(number),
        (Kind::Truth, Wire::Number(number)) => (number != 0).into(),
        (Kind::Double, Wire::Fixed64(bits)) => double(f64::from_bits(bits)),
        (Kind::Message(id), Wire::Bytes(bytes)) => match special::decode(id, bytes)? {
            Some(value) => value,
            None if id.contains(".JSONSchemaPropsOr") => either(message(id, bytes, None, depth + 1)?),
            None => {
                let mut fields = message(id, bytes, schema.filter(|schema| schema.items().is_none()), depth + 1)?;
                // A list that has a message of its own, such as `ExtraValue`.
                match schema.and_then(Schema::items) {
                    Some(_) => fields.remove("items").unwrap_or_else(|| Value::Array(Vec::new())),
                    None => Value::Object(fields),
                }
            }
        },
        _ => return Err(ProtobufError::Malformed),
    })
}

/// A schema in a definition, and in that schema: wherever one stands it has the same fields.
fn schema_of_schemas() -> Option<&'static Schema> {
    let definition = api_schema::of_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")?;
    definition.property("spec")?.property("versions")?.items()?.property("schema")?.property("openAPIV3Schema")
}

/// A schema, or what may stand instead of one: a truth value, several schemas, names.
fn either(mut fields: Map<String, Value>) -> Value {
    let found = ["schema", "jSonSchemas", "property", "allows"].into_iter().find_map(|name| fields.remove(name));
    found.unwrap_or(Value::Bool(false))
}

/// JSON writes whole numbers without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "only numbers that 64 bits hold")]
fn double(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9.0e15 { (number as i64).into() } else { number.into() }
}

/// Whole numbers are two's complement in 64 bits, whatever their size.
#[expect(clippy::cast_possible_wrap, reason = "the wire's unsigned number is a signed one's bits")]
fn integer(number: u64) -> Value {
    (number as i64).into()
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
