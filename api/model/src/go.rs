//! Behaviour of Go's standard library that clients see: durations, truth values, and the names of JSON types in
//! messages.

mod duration;

use serde_json::Value;

pub use duration::{DurationError, duration_text, parse_duration};

/// The name of a value's type in `encoding/json`.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `strconv.ParseBool`; `None` if Go returns an error.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
