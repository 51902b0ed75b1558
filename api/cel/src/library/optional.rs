//! Optional values. The evaluator implements `or` and `orValue`, which evaluate their second operand only if needed.

use super::CallResult;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of optional values.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let value = match (function, args) {
        ("optional.none", []) => Value::Optional(None),
        ("optional.of", [value]) => Value::optional(Some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => Value::optional((!is_zero(value)).then(|| value.clone())),
        ("hasValue", [Value::Optional(value)]) => Value::Bool(value.is_some()),
        ("value", [Value::Optional(Some(value))]) => Value::clone(value),
        ("value", [Value::Optional(None)]) => return Err(EvaluateError::failed("optional.none() dereference")),
        _ => return Ok(None),
    };
    meter.pay(1)?;
    Ok(Some(value))
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) | Value::Optional(None) => true,
        Value::Double(number) => *number == 0.0,
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::MapWithDefault(_) | Value::Json(..) => {
            value.size() == 0
        }
        _ => false,
    }
}
