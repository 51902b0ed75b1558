//! The change of a mutating policy, as JSON.

use api_cel::Value;
use api_model::message::Message;
use serde_json::{Map, Value as Json};

/// A change to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Fields to merge into the object, as by server-side apply.
    Apply(Json),
    /// A JSON Patch.
    Patch(Json),
}

/// The limits of a change: the nesting, and the number of parts and characters.
const DEPTH_MAX: usize = 500;
const SIZE_MAX: u64 = 4 << 20;

const OBJECT: &str = "Object";
const JSON_PATCH: &str = "JSONPatch";

impl Change {
    pub(super) fn apply(value: &Value<'_>) -> Result<Self, Message> {
        match value {
            Value::Message(message) if message.0 == OBJECT => {
                check_size(value)?;
                check_names(value).map_err(|why| format!("type mismatch: {why}"))?;
                value.to_json().map(Self::Apply).map_err(|error| error.to_string().into())
            }
            other => Err(format!("unsupported return type from ApplyConfiguration expression: {}", other.type_of()).into()),
        }
    }

    pub(super) fn patch(value: &Value<'_>) -> Result<Self, Message> {
        let Value::List(operations) = value else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array".into());
        };
        operations.iter().map(operation).collect::<Result<Vec<_>, _>>().map(|operations| Self::Patch(operations.into()))
    }
}

fn operation(value: &Value<'_>) -> Result<Json, Message> {
    let Value::Message(message) = value else {
        return Err(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {}",
            value.type_of()
        )
        .into());
    };
    if message.0 != JSON_PATCH {
        return Err(
            format!("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {}", message.0).into()
        );
    }
    let mut operation = Map::new();
    for (field, value) in &message.1 {
        let field = field.to_string();
        let json = match field.as_str() {
            "value" => {
                check_size(value)?;
                check_names(value).map_err(|why| format!("type mismatch: {why}"))?;
                let foreign = |error| format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}");
                value.to_json().map_err(foreign)?
            }
            _ => value.as_str().unwrap_or_default().into(),
        };
        operation.insert(field, json);
    }
    for required in ["op", "path"] {
        operation.entry(required).or_insert_with(|| "".into());
    }
    Ok(operation.into())
}

/// Limits the size. Values share their parts, so the JSON can be far larger than the cost of the value.
fn check_size(value: &Value<'_>) -> Result<(), Message> {
    if value.is_within(DEPTH_MAX, SIZE_MAX) {
        return Ok(());
    }
    Err(format!("the result has more than {SIZE_MAX} parts and characters, or is nested more than {DEPTH_MAX} levels deep").into())
}

/// Checks that the type name of each message in an object is its field path.
fn check_names(value: &Value<'_>) -> Result<(), Message> {
    let Value::Message(message) = value else { return Ok(()) };
    message.1.iter().try_for_each(|(field, value)| check_name(value, &format!("{}.{field}", message.0)))
}

fn check_name(value: &Value<'_>, expected: &str) -> Result<(), Message> {
    match value {
        Value::Message(message) if message.0 != expected => Err(format!(
            "unexpected type name {:?}, expected {expected:?}, which must match field name path from root Object type",
            message.0
        )
        .into()),
        Value::Message(_) => check_names(value),
        Value::List(values) => values.iter().try_for_each(|value| check_name(value, expected)),
        _ => Ok(()),
    }
}
