//! Equality and order of values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{Text, Value};
use crate::names::escape;

/// Whether two values are equal. Numbers of different types are compared by value. Values of unrelated types are not
/// equal. The order of a list does not matter if the schema declares it as a set or a map.
pub(crate) fn equals(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => **left == **right,
        (Value::Bytes(left), Value::Bytes(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => equals(left, right),
            (left, right) => left.is_none() && right.is_none(),
        },
        (Value::Type(left), Value::Type(right)) => base(left) == base(right),
        (Value::Quantity(left), Value::Quantity(right)) => left == right,
        (Value::Url(left), Value::Url(right)) => left == right,
        (Value::Ip(left), Value::Ip(right)) => left == right,
        (Value::Cidr(left), Value::Cidr(right)) => left == right,
        (Value::Semver(left), Value::Semver(right)) => left.cmp_precedence(right) == Ordering::Equal,
        (Value::Format(left), Value::Format(right)) => std::ptr::eq(*left, *right),
        _ if is_number(left) && is_number(right) => compare(left, right) == Some(Ordering::Equal),
        _ if left.is_map() && right.is_map() => maps(left, right),
        _ => lists(left, right),
    }
}

/// The name of a type without its parameters: the comparison of types as values ignores them.
fn base(of: &crate::Type) -> String {
    let text = of.to_string();
    text.split('(').next().unwrap_or_default().to_owned()
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

fn maps(left: &Value<'_>, right: &Value<'_>) -> bool {
    let (Some(left), Some(others)) = (left.entries(), right.entries()) else { return false };
    left.len() == others.len()
        && left.iter().all(|(key, value)| right.contains_key(key) && right.at_key(key).is_some_and(|other| equals(value, &other)))
}

fn lists(left: &Value<'_>, right: &Value<'_>) -> bool {
    if left.size() != right.size() {
        return false;
    }
    let (Some(mut elements), Some(others)) = (left.elements(), right.elements()) else { return false };
    let Some(kind) = list_kind(left).filter(|_| list_kind(right).is_some()) else {
        return elements.zip(others).all(|(left, right)| equals(&left, &right));
    };
    let others: BTreeMap<String, Value<'_>> = others.map(|other| (kind.identity(&other), other)).collect();
    elements.all(|element| others.get(&kind.identity(&element)).is_some_and(|other| equals(&element, other)))
}

/// The list type of a list.
pub(crate) enum ListKind<'s> {
    Set,
    Map(&'s [String]),
}

impl ListKind<'_> {
    /// The key by which an element is compared with others.
    pub(crate) fn identity(&self, element: &Value<'_>) -> String {
        let text = |value: &Value<'_>| value.to_json().map(|json| json.to_string()).unwrap_or_default();
        match self {
            Self::Set => text(element),
            Self::Map(keys) => {
                let keys = keys.iter().map(|key| element.field(&escape(key)).map(|value| text(&value)).unwrap_or_default());
                keys.collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// The list type of a list with a schema.
pub(crate) fn list_kind<'v>(value: &Value<'v>) -> Option<ListKind<'v>> {
    let Value::Json(Json::Array(_), shape) = value else { return None };
    let schema = shape.schema()?;
    match schema.list_type.as_str() {
        "set" => Some(ListKind::Set),
        "map" => Some(ListKind::Map(&schema.list_map_keys)),
        _ => None,
    }
}

/// The order of two values; `None` if they cannot be compared.
pub(crate) fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Uint(left), Value::Uint(right)) => left.cmp(right),
        (Value::Int(left), Value::Uint(right)) => i128::from(*left).cmp(&i128::from(*right)),
        (Value::Uint(left), Value::Int(right)) => i128::from(*left).cmp(&i128::from(*right)),
        (Value::Double(left), Value::Double(right)) => return left.partial_cmp(right),
        (Value::Double(left), Value::Int(right)) => return float(*left, i128::from(*right)),
        (Value::Double(left), Value::Uint(right)) => return float(*left, i128::from(*right)),
        (Value::Int(left), Value::Double(right)) => return float(*right, i128::from(*left)).map(Ordering::reverse),
        (Value::Uint(left), Value::Double(right)) => return float(*right, i128::from(*left)).map(Ordering::reverse),
        (Value::String(left), Value::String(right)) => str_of(left).cmp(str_of(right)),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        _ => return None,
    })
}

fn str_of<'t>(text: &'t Text<'_>) -> &'t str {
    text
}

/// Compares a float with a whole number without loss.
fn float(left: f64, right: i128) -> Option<Ordering> {
    if left.is_nan() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
    let whole = left.trunc() as i128;
    Some(whole.cmp(&right).then(left.fract().partial_cmp(&0.0)?))
}
