//! Operators on values: arithmetic with overflow errors, comparisons, indexes, membership.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::{Key, Value, compare, equals, list_kind};

type Outcome<'v> = Result<Value<'v>, EvaluateError>;

/// The result of an operator; `None` if the function is no operator.
pub(crate) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> Result<Option<Value<'v>>, EvaluateError> {
    let value = match (function, args) {
        ("_==_", [left, right]) => Value::Bool(same(left, right, meter)?),
        ("_!=_", [left, right]) => Value::Bool(!same(left, right, meter)?),
        ("_<_", [left, right]) => Value::Bool(order(left, right, meter)? == Some(Ordering::Less)),
        ("_<=_", [left, right]) => Value::Bool(order(left, right, meter)?.is_some_and(Ordering::is_le)),
        ("_>_", [left, right]) => Value::Bool(order(left, right, meter)? == Some(Ordering::Greater)),
        ("_>=_", [left, right]) => Value::Bool(order(left, right, meter)?.is_some_and(Ordering::is_ge)),
        ("_+_", [left, right]) => add(left, right, meter)?,
        ("_-_", [left, right]) => paid(meter, subtract(left, right))?,
        ("_*_", [left, right]) => paid(meter, multiply(left, right))?,
        ("_/_", [left, right]) => paid(meter, divide(left, right))?,
        ("_%_", [left, right]) => paid(meter, remainder(left, right))?,
        ("-_", [Value::Int(number)]) => paid(meter, number.checked_neg().map(Value::Int).ok_or_else(overflow))?,
        ("-_", [Value::Double(number)]) => paid(meter, Ok(Value::Double(-number)))?,
        ("!_", [Value::Bool(flag)]) => paid(meter, Ok(Value::Bool(!flag)))?,
        ("-_" | "!_", _) => return Err(EvaluateError::no_overload()),
        ("@in", [wanted, container]) => Value::Bool(is_in(wanted, container, meter)?),
        ("_[_]", [container, index]) => paid(meter, at(container, index))?,
        ("_[?_]", [container, index]) => paid(meter, optional_at(container, index))?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn paid<'v>(meter: &mut Meter, outcome: Outcome<'v>) -> Outcome<'v> {
    meter.pay(1)?;
    outcome
}

fn overflow() -> EvaluateError {
    EvaluateError::failed("integer overflow")
}

/// Whether two values are equal. Pays for the compared parts before it compares them.
pub(crate) fn same(left: &Value<'_>, right: &Value<'_>, meter: &mut Meter) -> Result<bool, EvaluateError> {
    meter.pay(1)?;
    match (left, right) {
        (Value::String(left), Value::String(right)) => meter.pay_text(left.len().min(right.len()) as u64)?,
        (Value::Bytes(left), Value::Bytes(right)) => meter.pay_text(left.len().min(right.len()) as u64)?,
        // Values of different sizes differ, without a comparison of their parts.
        _ if is_composite(left) && left.size() == right.size() => meter.pay_text(extent(left, meter))?,
        _ => {}
    }
    Ok(equals(left, right))
}

/// Whether a value has parts.
fn is_composite(value: &Value<'_>) -> bool {
    matches!(value, Value::List(_) | Value::Map(_) | Value::MapWithDefault(_) | Value::Message(_) | Value::Json(..) | Value::Optional(_))
}

/// The number of parts in a value, counted up to the limit that the meter can pay for.
fn extent(value: &Value<'_>, meter: &Meter) -> u64 {
    let mut count = Count { found: 0, limit: meter.left().saturating_mul(10) };
    count.value(value);
    count.found
}

struct Count {
    found: u64,
    limit: u64,
}

impl Count {
    fn add(&mut self, more: usize) -> bool {
        self.found = self.found.saturating_add(more as u64);
        self.found <= self.limit
    }

    fn json(&mut self, json: &serde_json::Value) -> bool {
        match json {
            serde_json::Value::Array(list) => self.add(1) && list.iter().all(|json| self.json(json)),
            serde_json::Value::Object(map) => self.add(1) && map.iter().all(|(name, json)| self.add(name.len()) && self.json(json)),
            serde_json::Value::String(text) => self.add(text.len()),
            _ => self.add(1),
        }
    }

    fn value(&mut self, value: &Value<'_>) -> bool {
        match value {
            Value::Json(json, _) => self.json(json),
            Value::List(list) => self.add(1) && list.iter().all(|value| self.value(value)),
            Value::Map(map) => self.add(1) && map.values().all(|value| self.value(value)),
            Value::MapWithDefault(map) => self.add(1) && map.0.values().all(|value| self.value(value)),
            Value::Message(message) => self.add(1) && message.1.values().all(|value| self.value(value)),
            Value::Optional(Some(value)) => self.value(value),
            value => self.add(usize::try_from(value.size()).unwrap_or(usize::MAX)),
        }
    }
}

fn order(left: &Value<'_>, right: &Value<'_>, meter: &mut Meter) -> Result<Option<Ordering>, EvaluateError> {
    meter.pay(1.max(left.size().min(right.size()).div_ceil(10)))?;
    match (compare(left, right), left, right) {
        (Some(order), ..) => Ok(Some(order)),
        // A number and NaN have no order.
        (None, Value::Double(_), Value::Double(_) | Value::Int(_) | Value::Uint(_))
        | (None, Value::Int(_) | Value::Uint(_), Value::Double(_)) => Ok(None),
        _ => Err(EvaluateError::no_overload()),
    }
}

fn add<'v>(left: &Value<'v>, right: &Value<'v>, meter: &mut Meter) -> Outcome<'v> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => {
            meter.pay_text(a.len() as u64 + b.len() as u64)?;
            return Ok(Value::from(format!("{}{}", &**a, &**b)));
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.pay_text(a.len() as u64 + b.len() as u64)?;
            return Ok(Value::Bytes([&**a, &**b].concat().into()));
        }
        _ => meter.pay(1)?,
    }
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => {
            a.checked_add(*b).map(Value::Uint).ok_or_else(|| EvaluateError::failed("unsigned integer overflow"))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::Duration(a), Value::Duration(b)) => {
            a.checked_add(*b).map(Value::Duration).ok_or_else(|| EvaluateError::failed("duration overflow"))
        }
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => shifted(time, *span),
        _ => lists(left, right, meter),
    }
}

fn shifted<'v>(time: &jiff::Timestamp, nanoseconds: i64) -> Outcome<'v> {
    let moved = time.checked_add(SignedDuration::from_nanos(nanoseconds));
    moved.map(Value::Timestamp).map_err(|_| EvaluateError::failed("timestamp overflow"))
}

/// Concatenates two lists. If the schema says that the list is a set or a map, an element of the right list replaces
/// the equal element of the left list.
fn lists<'v>(left: &Value<'v>, right: &Value<'v>, meter: &mut Meter) -> Outcome<'v> {
    let (Some(elements), Some(more)) = (left.elements(), right.elements()) else { return Err(EvaluateError::no_overload()) };
    // cel-go concatenates lists without a copy; this code moves each element.
    meter.pay(left.size().saturating_add(right.size()))?;
    let mut joined: Vec<Value<'v>> = elements.collect();
    let Some(kind) = list_kind(left) else {
        joined.extend(more);
        return Ok(Value::list(joined));
    };
    meter.pay_text(extent(left, meter).saturating_add(extent(right, meter)))?;
    let mut places: BTreeMap<String, usize> = joined.iter().enumerate().map(|(index, element)| (kind.identity(element), index)).collect();
    for element in more {
        let position = *places.entry(kind.identity(&element)).or_insert(joined.len());
        match joined.get_mut(position) {
            Some(other) => *other = element,
            None => joined.push(element),
        }
    }
    Ok(Value::list(joined))
}

fn subtract<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => a.checked_sub(*b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => {
            a.checked_sub(*b).map(Value::Uint).ok_or_else(|| EvaluateError::failed("unsigned integer overflow"))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => {
            a.checked_sub(*b).map(Value::Duration).ok_or_else(|| EvaluateError::failed("duration overflow"))
        }
        (Value::Timestamp(time), Value::Duration(span)) => {
            shifted(time, span.checked_neg().ok_or_else(|| EvaluateError::failed("duration overflow"))?)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            let nanoseconds = i64::try_from(a.duration_since(*b).as_nanos());
            nanoseconds.map(Value::Duration).map_err(|_| EvaluateError::failed("duration overflow"))
        }
        _ => Err(EvaluateError::no_overload()),
    }
}

fn multiply<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => a.checked_mul(*b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => {
            a.checked_mul(*b).map(Value::Uint).ok_or_else(|| EvaluateError::failed("unsigned integer overflow"))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(EvaluateError::no_overload()),
    }
}

fn divide<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(EvaluateError::failed("division by zero")),
        (Value::Int(a), Value::Int(b)) => a.checked_div(*b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_div(*b).map(Value::Uint).ok_or_else(overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(EvaluateError::no_overload()),
    }
}

fn remainder<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(EvaluateError::failed("modulus by zero")),
        (Value::Int(a), Value::Int(b)) => a.checked_rem(*b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_rem(*b).map(Value::Uint).ok_or_else(overflow),
        _ => Err(EvaluateError::no_overload()),
    }
}

fn is_in(wanted: &Value<'_>, container: &Value<'_>, meter: &mut Meter) -> Result<bool, EvaluateError> {
    if container.is_map() {
        meter.pay(1)?;
        return Ok(Key::from_value(wanted).is_some_and(|key| container.contains_key(&key)));
    }
    let elements = container.elements().ok_or_else(EvaluateError::no_overload)?;
    meter.pay(container.size().max(1))?;
    for element in elements {
        let is_equal = if is_composite(wanted) { same(wanted, &element, meter)? } else { equals(wanted, &element) };
        if is_equal {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `held[index]`.
fn at<'v>(container: &Value<'v>, index: &Value<'v>) -> Outcome<'v> {
    match container {
        Value::Optional(_) => optional_at(container, index),
        container if container.is_map() => {
            let key = Key::from_value(index).ok_or_else(EvaluateError::no_overload)?;
            container.at_key(&key).ok_or_else(|| EvaluateError::failed(format!("no such key: {key}")))
        }
        container => {
            let (number, found) = element(container, index)?;
            found.ok_or_else(|| EvaluateError::failed(format!("index out of bounds: {number}")))
        }
    }
}

/// `held[?index]`.
fn optional_at<'v>(container: &Value<'v>, index: &Value<'v>) -> Outcome<'v> {
    match container {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(container)) => optional_at(container, index),
        container if container.is_map() => Ok(Value::optional(Key::from_value(index).and_then(|key| container.at_key(&key)))),
        container => element(container, index).map(|(_, found)| Value::optional(found)),
    }
}

fn element<'v>(container: &Value<'v>, index: &Value<'v>) -> Result<(i64, Option<Value<'v>>), EvaluateError> {
    let mut elements = container.elements().ok_or_else(EvaluateError::no_overload)?;
    let Some(Key::Int(number)) = Key::from_value(index) else { return Err(EvaluateError::no_overload()) };
    Ok((number, usize::try_from(number).ok().and_then(|index| elements.nth(index))))
}
