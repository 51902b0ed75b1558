//! Quantities: `quantity('200Mi').isLessThan(quantity('1Gi'))`.

use std::cmp::Ordering;

use api_model::quantity;

use super::CallResult;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::Value;

/// A unit in billionths.
const UNIT: i128 = 1_000_000_000;

/// Calls a function of quantities.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    if let [Value::String(text)] = args {
        let is_wanted = function == "quantity";
        if !is_wanted && function != "isQuantity" {
            return Ok(None);
        }
        meter.pay_text(text.len() as u64)?;
        return Ok(Some(match quantity::nano(text) {
            parsed if !is_wanted => Value::Bool(parsed.is_ok()),
            Ok(parsed) => Value::Quantity(parsed),
            Err(error) => return Err(EvaluateError::failed(error.to_string())),
        }));
    }
    let [Value::Quantity(this), rest @ ..] = args else { return Ok(None) };
    let overflow = || EvaluateError::failed("quantity overflow");
    let value = match (function, rest) {
        ("sign", []) => Value::Int(number_of(this.cmp(&0))),
        ("isInteger", []) => Value::Bool(whole(*this).is_some()),
        ("asInteger", []) => Value::Int(whole(*this).ok_or_else(|| EvaluateError::failed("cannot convert value to integer"))?),
        #[expect(clippy::cast_precision_loss, reason = "it is called approximate")]
        ("asApproximateFloat", []) => Value::Double(*this as f64 / UNIT as f64),
        ("isGreaterThan", [Value::Quantity(other)]) => Value::Bool(this > other),
        ("isLessThan", [Value::Quantity(other)]) => Value::Bool(this < other),
        ("compareTo", [Value::Quantity(other)]) => Value::Int(number_of(this.cmp(other))),
        ("add", [other]) => Value::Quantity(this.checked_add(operand(other)?).ok_or_else(overflow)?),
        ("sub", [other]) => Value::Quantity(this.checked_sub(operand(other)?).ok_or_else(overflow)?),
        _ => return Ok(None),
    };
    meter.pay(1)?;
    Ok(Some(value))
}

pub(super) fn number_of(order: Ordering) -> i64 {
    match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

fn whole(this: i128) -> Option<i64> {
    if this % UNIT == 0 { i64::try_from(this / UNIT).ok() } else { None }
}

fn operand(value: &Value<'_>) -> Result<i128, EvaluateError> {
    match value {
        Value::Quantity(other) => Ok(*other),
        Value::Int(number) => Ok(i128::from(*number) * UNIT),
        _ => Err(EvaluateError::no_overload()),
    }
}
