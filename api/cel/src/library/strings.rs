//! Functions of texts. Indexes count characters.

use super::{CallResult, printf};
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of texts.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> CallResult<'v> {
    let [Value::String(text), rest @ ..] = args else {
        return if function == "join" { join(args, meter).map(Some) } else { Ok(None) };
    };
    meter.pay(price(function, text, rest))?;
    if let Some(found) = looked_up(function, text, rest)? {
        return Ok(Some(found));
    }
    Ok(Some(match (function, rest) {
        ("lowerAscii", []) => Value::from(text.to_ascii_lowercase()),
        ("upperAscii", []) => Value::from(text.to_ascii_uppercase()),
        ("trim", []) => Value::from(text.trim()),
        ("reverse", []) => Value::from(text.chars().rev().collect::<String>()),
        ("strings.quote", []) => Value::from(quote(text)),
        ("jsonpatch.escapeKey", []) => Value::from(text.replace('~', "~0").replace('/', "~1")),
        ("replace", [Value::String(old), Value::String(new), limit @ ..]) => replace(text, old, new, limit_of(limit)?, meter)?,
        ("split", [Value::String(separator), limit @ ..]) => split(text, separator, limit_of(limit)?, meter)?,
        ("substring", [Value::Int(from)]) => substring(text, *from, None)?,
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, Some(*to))?,
        ("format", [values]) => {
            let values = values.elements().ok_or_else(EvaluateError::no_overload)?.collect::<Vec<_>>();
            Value::from(printf::format(text, &values, meter)?)
        }
        _ => return Ok(None),
    }))
}

/// The cost of reading the text; the cost of a result is added when it is made.
fn price(function: &str, text: &str, args: &[Value<'_>]) -> u64 {
    let tenth = |len: usize| (len as u64).div_ceil(10);
    let first = || args.first().and_then(Value::as_str).map_or(0, |text| tenth(text.len()));
    match function {
        "size" => 1,
        "startsWith" | "endsWith" => first(),
        "contains" => tenth(text.len()).saturating_mul(first()),
        "charAt" | "indexOf" | "lastIndexOf" | "lowerAscii" | "upperAscii" | "trim" | "reverse" | "substring" => tenth(text.len()),
        "replace" | "split" | "strings.quote" | "jsonpatch.escapeKey" => tenth(text.len().saturating_mul(2)),
        _ => 0,
    }
}

/// Functions whose result is no text.
fn looked_up<'v>(function: &str, text: &str, args: &[Value<'v>]) -> CallResult<'v> {
    Ok(Some(match (function, args) {
        ("size", []) => Value::Int(int(text.chars().count())),
        ("startsWith", [Value::String(prefix)]) => Value::Bool(text.starts_with(&**prefix)),
        ("endsWith", [Value::String(suffix)]) => Value::Bool(text.ends_with(&**suffix)),
        ("contains", [Value::String(part)]) => Value::Bool(text.contains(&**part)),
        ("charAt", [Value::Int(index)]) => char_at(text, *index)?,
        ("indexOf" | "lastIndexOf", [Value::String(part), from @ ..]) => {
            let from = match from {
                [] => None,
                [Value::Int(from)] => Some(*from),
                _ => return Err(EvaluateError::no_overload()),
            };
            Value::Int(index_of(text, part, from, function == "lastIndexOf")?)
        }
        _ => return Ok(None),
    }))
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn out_of_range(index: i64) -> EvaluateError {
    EvaluateError::failed(format!("index out of range: {index}"))
}

/// The limit of a count; `None` means no limit.
fn limit_of(limit: &[Value<'_>]) -> Result<Option<usize>, EvaluateError> {
    match limit {
        [] => Ok(None),
        [Value::Int(limit)] => Ok(usize::try_from(*limit).ok()),
        _ => Err(EvaluateError::no_overload()),
    }
}

/// The byte offset of a character index, up to the end of the text.
fn byte_at(text: &str, index: i64) -> Result<usize, EvaluateError> {
    let index = usize::try_from(index).map_err(|_| out_of_range(index))?;
    let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    places.nth(index).ok_or_else(|| out_of_range(int(index)))
}

fn char_at<'v>(text: &str, index: i64) -> Result<Value<'v>, EvaluateError> {
    let rest = text.get(byte_at(text, index)?..).unwrap_or_default();
    Ok(Value::from(rest.chars().next().map(String::from).unwrap_or_default()))
}

/// The first index at or after `from`, or the last index at or before it; -1 if there is none.
fn index_of(text: &str, part: &str, from: Option<i64>, is_last: bool) -> Result<i64, EvaluateError> {
    let before = |at: usize| int(text.get(..at).unwrap_or_default().chars().count());
    let found = match (is_last, from) {
        (false, from) => {
            let start = byte_at(text, from.unwrap_or_default())?;
            text.get(start..).and_then(|rest| rest.find(part)).map(|at| before(start + at))
        }
        (true, None) => text.rfind(part).map(before),
        (true, Some(from)) => {
            let end = byte_at(text, from)?.saturating_add(part.len()).min(text.len());
            let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
            text.get(..end).and_then(|head| head.rfind(part)).map(before).filter(|at| *at <= from)
        }
    };
    Ok(found.unwrap_or(-1))
}

fn substring<'v>(text: &str, from: i64, to: Option<i64>) -> Result<Value<'v>, EvaluateError> {
    let start = byte_at(text, from)?;
    let end = match to {
        Some(to) => byte_at(text, to)?,
        None => text.len(),
    };
    let part = text
        .get(start..end)
        .ok_or_else(|| EvaluateError::failed(format!("invalid substring range. start: {from}, end: {}", to.unwrap_or_default())))?;
    Ok(Value::from(part))
}

/// Adds the cost of the result before it is made: a replacement can be far longer than the text.
fn replace<'v>(text: &str, old: &str, new: &str, limit: Option<usize>, meter: &mut Meter) -> Result<Value<'v>, EvaluateError> {
    let count = text.matches(old).take(limit.unwrap_or(usize::MAX)).count() as u64;
    let more = count.saturating_mul((new.len() as u64).saturating_sub(old.len() as u64));
    meter.pay_text(more)?;
    Ok(Value::from(text.replacen(old, new, limit.unwrap_or(usize::MAX))))
}

fn split<'v>(text: &str, separator: &str, limit: Option<usize>, meter: &mut Meter) -> Result<Value<'v>, EvaluateError> {
    // A part needs far more memory than a character.
    let count = if separator.is_empty() { text.len() } else { text.matches(separator).count() + 1 };
    meter.pay(count.min(limit.unwrap_or(usize::MAX)) as u64)?;
    let parts: Vec<Value<'v>> = match (limit, separator) {
        (Some(0), _) => Vec::new(),
        (limit, "") => {
            let whole = limit.map_or(usize::MAX, |limit| limit - 1);
            let rest = text.char_indices().nth(whole).map(|(at, _)| at);
            let letters = text.chars().take(whole).map(|letter| Value::from(letter.to_string()));
            letters.chain(rest.and_then(|at| text.get(at..)).map(Value::from)).collect()
        }
        (Some(limit), separator) => text.splitn(limit, separator).map(Value::from).collect(),
        (None, separator) => text.split(separator).map(Value::from).collect(),
    };
    Ok(Value::list(parts))
}

fn join<'v>(args: &[Value<'v>], meter: &mut Meter) -> Result<Value<'v>, EvaluateError> {
    let (list, separator) = match args {
        [list] => (list, ""),
        [list, Value::String(separator)] => (list, &**separator),
        _ => return Err(EvaluateError::no_overload()),
    };
    let elements = || list.elements().ok_or_else(EvaluateError::no_overload);
    let mut len = 0_u64;
    for element in elements()? {
        let part = element.as_str().ok_or_else(EvaluateError::no_overload)?.len() + separator.len();
        len = len.saturating_add(part as u64);
    }
    meter.pay_text(len.saturating_mul(2).saturating_add(list.size()))?;
    let mut joined = String::new();
    for (index, element) in elements()?.enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(element.as_str().unwrap_or_default());
    }
    Ok(Value::from(joined))
}

/// A text as a literal.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
