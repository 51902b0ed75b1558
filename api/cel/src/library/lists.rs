//! Functions of lists, maps and sets.

use std::cmp::Ordering;

use super::{CallResult, Outcome};
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::operators;
use crate::value::{Value, compare};

/// Calls a function of lists.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let [list, rest @ ..] = args else { return Ok(None) };
    if function == "size" {
        return size(list, meter).map(Some);
    }
    let Some(mut elements) = list.elements() else { return Ok(None) };
    Ok(Some(match (function, rest) {
        ("isSorted", []) => {
            traverse(list, meter)?;
            let mut before = None;
            for element in elements {
                if let Some(before) = before.replace(element.clone())
                    && order(&before, &element)? == Ordering::Greater
                {
                    return Ok(Some(Value::Bool(false)));
                }
            }
            Value::Bool(true)
        }
        ("min" | "max", []) => {
            traverse(list, meter)?;
            let wanted = if function == "min" { Ordering::Less } else { Ordering::Greater };
            let mut best = elements.next().ok_or_else(|| EvaluateError::failed(format!("{function} called on empty list")))?;
            for element in elements {
                if order(&element, &best)? == wanted {
                    best = element;
                }
            }
            best
        }
        ("sum", []) => {
            traverse(list, meter)?;
            let Some(mut sum) = elements.next() else { return Ok(Some(Value::Int(0))) };
            for element in elements {
                let added = operators::call("_+_", &[sum, element], meter)?;
                sum = added.ok_or_else(EvaluateError::no_overload)?;
            }
            sum
        }
        ("indexOf", [wanted]) => index_of(elements.enumerate(), wanted, meter)?,
        ("lastIndexOf", [wanted]) => index_of(elements.enumerate().collect::<Vec<_>>().into_iter().rev(), wanted, meter)?,
        ("sets.contains", [other]) => Value::Bool(contains(list, other, meter)?),
        ("sets.equivalent", [other]) => Value::Bool(contains(list, other, meter)? && contains(other, list, meter)?),
        ("sets.intersects", [other]) => {
            for element in elements {
                if holds(other, &element, meter)? {
                    return Ok(Some(Value::Bool(true)));
                }
            }
            Value::Bool(false)
        }
        _ => return Ok(None),
    }))
}

fn size<'v>(of: &Value<'v>, meter: &mut Meter) -> Outcome<'v> {
    meter.pay(1)?;
    match of {
        Value::Bytes(_) => {}
        of if of.elements().is_some() => {}
        // Expressions may not see all fields of an object, so only the visible entries count.
        of if of.is_map() => {
            let len = of.entries().map_or(0, |entries| entries.len());
            meter.pay_text(len as u64)?;
            return Ok(Value::Int(i64::try_from(len).unwrap_or(i64::MAX)));
        }
        _ => return Err(EvaluateError::no_overload()),
    }
    Ok(Value::Int(i64::try_from(of.size()).unwrap_or(i64::MAX)))
}

/// Adds the cost of visiting every element.
fn traverse(list: &Value<'_>, meter: &mut Meter) -> Result<(), EvaluateError> {
    meter.pay(list.size())?;
    for element in list.elements().into_iter().flatten() {
        meter.pay(element.size().div_ceil(10).saturating_sub(1))?;
    }
    Ok(())
}

fn order(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, EvaluateError> {
    compare(left, right).ok_or_else(EvaluateError::no_overload)
}

fn index_of<'v>(elements: impl Iterator<Item = (usize, Value<'v>)>, wanted: &Value<'v>, meter: &mut Meter) -> Outcome<'v> {
    for (index, element) in elements {
        if operators::same(&element, wanted, meter)? {
            return Ok(Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

/// Whether every element of `other` is in `list`.
fn contains(list: &Value<'_>, other: &Value<'_>, meter: &mut Meter) -> Result<bool, EvaluateError> {
    for element in other.elements().ok_or_else(EvaluateError::no_overload)? {
        if !holds(list, &element, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds(list: &Value<'_>, wanted: &Value<'_>, meter: &mut Meter) -> Result<bool, EvaluateError> {
    for element in list.elements().ok_or_else(EvaluateError::no_overload)? {
        if operators::same(&element, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}
