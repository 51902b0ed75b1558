//! Conversions between types: `int('3')`, `string(true)`, `type(x)` and so on.

use jiff::Timestamp;

use super::{CallResult, printf};
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::time::{duration, duration_text, timestamp};
use crate::value::{Value, whole};

/// Calls a conversion.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let [value] = args else { return Ok(None) };
    let converted = match function {
        "int" => int(value),
        "uint" => uint(value),
        "double" => double(value),
        "string" => text(value),
        "bytes" => match value {
            Value::Bytes(_) => Some(value.clone()),
            Value::String(text) => Some(Value::Bytes(text.as_bytes().into())),
            _ => None,
        },
        "bool" => match value {
            Value::Bool(_) => Some(value.clone()),
            Value::String(text) => match &**text {
                "true" | "True" | "TRUE" | "t" | "1" => Some(Value::Bool(true)),
                "false" | "False" | "FALSE" | "f" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            _ => None,
        },
        "duration" => match value {
            Value::Duration(_) => Some(value.clone()),
            Value::Int(nanoseconds) => Some(Value::Duration(*nanoseconds)),
            Value::String(text) => duration(text).map(Value::Duration),
            _ => None,
        },
        "timestamp" => match value {
            Value::Timestamp(_) => Some(value.clone()),
            Value::Int(seconds) => Timestamp::from_second(*seconds).ok().map(Value::Timestamp),
            Value::String(text) => timestamp(text).map(Value::Timestamp),
            _ => None,
        },
        "dyn" => Some(value.clone()),
        "type" => Some(Value::Type(value.type_of())),
        _ => return Ok(None),
    };
    meter.pay(1)?;
    if matches!(function, "string" | "bytes") {
        meter.pay_text(value.size())?;
    }
    converted.map(Some).ok_or_else(|| failed(function, value))
}

fn failed(wanted: &str, value: &Value<'_>) -> EvaluateError {
    match value {
        // Functions of other libraries may have the same name.
        Value::String(_) | Value::Double(_) | Value::Int(_) | Value::Uint(_) => {
            EvaluateError::failed(format!("type conversion error from '{}' to '{wanted}'", value.type_of()))
        }
        _ => EvaluateError::no_overload(),
    }
}

fn int<'v>(value: &Value<'v>) -> Option<Value<'v>> {
    Some(Value::Int(match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).ok()?,
        Value::Double(number) => whole(number.trunc())?,
        Value::String(text) => text.parse().ok()?,
        Value::Timestamp(time) => time.as_second(),
        Value::Duration(nanoseconds) => *nanoseconds,
        _ => return None,
    }))
}

fn uint<'v>(value: &Value<'v>) -> Option<Value<'v>> {
    // 2^64, the first float beyond the range.
    const END: f64 = 18_446_744_073_709_551_616.0;
    Some(Value::Uint(match value {
        Value::Uint(number) => *number,
        Value::Int(number) => u64::try_from(*number).ok()?,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
        Value::Double(number) if (0.0..END).contains(&number.trunc()) => number.trunc() as u64,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    }))
}

#[expect(clippy::cast_precision_loss, reason = "that is what the conversion does")]
fn double<'v>(value: &Value<'v>) -> Option<Value<'v>> {
    Some(Value::Double(match value {
        Value::Double(number) => *number,
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    }))
}

fn text<'v>(value: &Value<'v>) -> Option<Value<'v>> {
    Some(Value::from(match value {
        Value::String(_) => return Some(value.clone()),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => printf::float(*number),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.to_owned(),
        Value::Timestamp(time) => time.to_string(),
        Value::Duration(nanoseconds) => duration_text(*nanoseconds),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return None,
    }))
}
