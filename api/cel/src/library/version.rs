//! Semantic versions: `semver('1.2.3').isLessThan(semver('2.0.0'))`.

use std::cmp::Ordering;
use std::sync::Arc;

use super::CallResult;
use super::quantity::number_of;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::Value;
use crate::version;

/// Calls a function of versions.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let value = match (function, args) {
        ("semver" | "isSemver", [Value::String(text), normalizes @ ..]) => {
            let normalizes = match normalizes {
                [] => false,
                [Value::Bool(flag)] => *flag,
                _ => return Err(EvaluateError::no_overload()),
            };
            meter.pay_text(text.len() as u64)?;
            match (version::parse(text, normalizes), function) {
                (parsed, "isSemver") => Value::Bool(parsed.is_some()),
                (Some(parsed), _) => Value::Semver(Arc::new(parsed)),
                (None, _) => return Err(EvaluateError::failed(format!("No Major.Minor.Patch elements found in {text:?}"))),
            }
        }
        (_, [Value::Semver(this), rest @ ..]) => {
            meter.pay(1)?;
            let number = |part: u64| Value::Int(i64::try_from(part).unwrap_or(i64::MAX));
            match (function, rest) {
                ("major", []) => number(this.major),
                ("minor", []) => number(this.minor),
                ("patch", []) => number(this.patch),
                ("isGreaterThan", [Value::Semver(other)]) => Value::Bool(this.cmp_precedence(other) == Ordering::Greater),
                ("isLessThan", [Value::Semver(other)]) => Value::Bool(this.cmp_precedence(other) == Ordering::Less),
                ("compareTo", [Value::Semver(other)]) => Value::Int(number_of(this.cmp_precedence(other))),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}
