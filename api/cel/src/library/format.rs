//! Functions of named formats: `format.dns1123Label().validate(self.name)`.

use super::CallResult;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::named_format::FORMATS;
use crate::value::Value;

/// Calls a function of formats.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let named = |name: &str| FORMATS.iter().find(|format| format.name == name);
    let value = match (function, args) {
        ("format.named", [Value::String(name)]) => Value::optional(named(name).map(Value::Format)),
        ("validate", [Value::Format(format), Value::String(text)]) => {
            // The patterns have about forty characters.
            meter.pay(crate::estimate::matching(text.len() as u64, 40))?;
            let wrong = (format.check)(text);
            Value::optional((!wrong.is_empty()).then(|| Value::list(wrong.into_iter().map(Value::from).collect())))
        }
        (function, []) => match function.strip_prefix("format.").and_then(named) {
            Some(format) => Value::Format(format),
            None => return Ok(None),
        },
        ("validate", _) => return Err(EvaluateError::no_overload()),
        _ => return Ok(None),
    };
    meter.pay(1)?;
    Ok(Some(value))
}
