//! JSON as CEL values: a schema's numbers are doubles whatever they look like, its times are times.

use std::collections::HashMap;
use std::sync::Arc;

use api_schema::{Additional, Structural};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::Value;
use cel::objects::{Key, Map};
use chrono::{DateTime, NaiveDate};
use serde_json::Value as Json;

use crate::names::escape;

/// A value with the types of its schema.
pub fn typed(schema: &Structural, json: &Json) -> Value {
    match json {
        Json::Object(fields) => {
            let entries = fields.iter().map(|(name, json)| match (schema.properties.get(name), &schema.additional) {
                (Some(property), _) => (escape(name), typed(property, json)),
                (None, Additional::Schema(further)) => (name.clone(), typed(further, json)),
                (None, _) => (escape(name), plain(json)),
            });
            map(entries)
        }
        Json::Array(list) => match &schema.items {
            Some(items) => Value::List(Arc::new(list.iter().map(|json| typed(items, json)).collect())),
            None => plain(json),
        },
        Json::Number(number) if schema.kind == "number" => Value::Float(number.as_f64().unwrap_or_default()),
        Json::String(text) => formatted(&schema.format, text).unwrap_or_else(|| plain(json)),
        _ => plain(json),
    }
}

fn plain(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::UInt(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(list) => Value::List(Arc::new(list.iter().map(plain).collect())),
        Json::Object(fields) => map(fields.iter().map(|(name, json)| (name.clone(), plain(json)))),
    }
}

fn map(entries: impl Iterator<Item = (String, Value)>) -> Value {
    let map: HashMap<Key, Value> = entries.map(|(name, value)| (Key::from(name), value)).collect();
    Value::Map(Map { map: Arc::new(map) })
}

/// A text that stands for something else; none where it is not what its format says.
fn formatted(format: &str, text: &str) -> Option<Value> {
    match format {
        "date-time" => DateTime::parse_from_rfc3339(text).ok().map(Value::Timestamp),
        "date" => {
            let date: NaiveDate = text.parse().ok()?;
            Some(Value::Timestamp(date.and_hms_opt(0, 0, 0)?.and_utc().fixed_offset()))
        }
        "byte" => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(Arc::new(bytes))),
        "duration" => duration(text).map(Value::Duration),
        _ => None,
    }
}

/// `1h30m`, as Go writes durations.
fn duration(text: &str) -> Option<chrono::Duration> {
    const UNITS: [(&str, f64); 7] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        nanoseconds += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    #[expect(clippy::cast_possible_truncation, reason = "durations beyond 292 years saturate")]
    Some(chrono::Duration::nanoseconds((sign * nanoseconds) as i64))
}
