//! Converts JSON to values and back. The schema decides the type: a `number` is a double, a `date-time` is a timestamp.

use api_schema::Structural;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Map, Number, Value as Json};

use super::{Key, Text, Value};
use crate::error::EvaluateError;
use crate::names::{escape, unescape};
use crate::schema::Shape;
use crate::time::{duration, duration_text};

/// The value of JSON with a shape.
pub(super) fn read<'v>(json: &'v Json, shape: Shape<'v>) -> Value<'v> {
    let schema = shape.schema();
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) if schema.is_some_and(|schema| schema.kind == "number") => Value::Double(number.as_f64().unwrap_or_default()),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::Uint(number),
            (None, None) => float(number, schema),
        },
        Json::String(text) => schema.and_then(|schema| formatted(&schema.format, text)).unwrap_or(Value::String(Text::Borrowed(text))),
        Json::Array(_) | Json::Object(_) => Value::Json(json, shape),
    }
}

/// A number with a point. If the schema has type integer, a number such as `1.0` is a whole number.
fn float<'v>(number: &Number, schema: Option<&Structural>) -> Value<'v> {
    let float = number.as_f64().unwrap_or_default();
    match super::key::whole(float) {
        Some(whole) if schema.is_some_and(|schema| schema.kind == "integer") => Value::Int(whole),
        _ => Value::Double(float),
    }
}

/// A field by its name in expressions.
pub(super) fn field<'v>(map: &'v Map<String, Json>, name: &str, shape: Shape<'v>) -> Option<Value<'v>> {
    let unescaped;
    let name = if shape.escapes() && name.contains("__") {
        unescaped = unescape(name);
        unescaped.as_str()
    } else {
        name
    };
    let json = map.get(name)?;
    Some(read(json, shape.field(name)?))
}

/// All visible fields with their names in expressions.
pub(super) fn entries<'v>(map: &'v Map<String, Json>, shape: Shape<'v>) -> Vec<(Key, Value<'v>)> {
    let entry = |(name, json): (&String, &'v Json)| {
        let value = read(json, shape.field(name)?);
        let name = if shape.escapes() { escape(name) } else { name.clone() };
        Some((Key::String(name.into()), value))
    };
    map.iter().filter_map(entry).collect()
}

/// The value of a text with a format; `None` if the text does not match the format.
fn formatted<'v>(format: &str, text: &str) -> Option<Value<'v>> {
    match format {
        "date-time" => text.parse().ok().map(Value::Timestamp),
        "date" => {
            let date: Date = text.parse().ok()?;
            Some(Value::Timestamp(date.to_zoned(TimeZone::UTC).ok()?.timestamp()))
        }
        "byte" => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
        "duration" => duration(text).map(Value::Duration),
        _ => None,
    }
}

/// A value as JSON.
pub(super) fn write(value: &Value<'_>) -> Result<Json, EvaluateError> {
    let foreign = || EvaluateError::failed(format!("no such overload: {} has no JSON form", value.type_of()));
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Double(number) => Number::from_f64(*number).map(Json::Number).ok_or_else(foreign)?,
        Value::String(text) => Json::String(text.to_string()),
        Value::Bytes(bytes) => Json::String(STANDARD.encode(bytes)),
        Value::Duration(span) => Json::String(duration_text(*span)),
        Value::Timestamp(time) => Json::String(time.to_string()),
        Value::List(list) => Json::Array(list.iter().map(write).collect::<Result<_, _>>()?),
        Value::Map(map) => Json::Object(fields(map.iter())?),
        Value::MapWithDefault(map) => Json::Object(fields(map.0.iter())?),
        Value::Message(message) => Json::Object(fields(message.1.iter())?),
        Value::Json(json, _) => (*json).clone(),
        Value::Ip(ip) => Json::String(ip.to_string()),
        Value::Cidr(cidr) => Json::String(cidr.to_string()),
        Value::Quantity(_)
        | Value::Optional(_)
        | Value::Type(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Authorizer(_) => {
            return Err(foreign());
        }
    })
}

fn fields<'a, 'v: 'a>(entries: impl Iterator<Item = (&'a Key, &'a Value<'v>)>) -> Result<Map<String, Json>, EvaluateError> {
    entries.map(|(key, value)| Ok((key.to_string(), write(value)?))).collect()
}
