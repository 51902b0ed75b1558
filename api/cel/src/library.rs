//! The functions of CEL and of Kubernetes' libraries, one file per library.
//!
//! A function accepts the values of its overloads in the table. Other values, which can come from `dyn` expressions,
//! cause the error "no such overload". A call pays its cost, by the sizes of its input and output, before it does the
//! work.

mod access;
mod convert;
mod format;
mod lists;
mod net;
mod optional;
mod printf;
mod quantity;
pub(crate) mod regex;
mod strings;
mod times;
mod url;
mod version;

use ::regex::Regex;
use api_schema::regexp::compile;

use self::regex::Patterns;
use crate::error::EvaluateError;
use crate::meter::Meter;
use crate::time::{duration, timestamp};
use crate::value::Value;

type Outcome<'v> = Result<Value<'v>, EvaluateError>;
/// The result of a call; `None` if the library has no such function for these values.
type CallResult<'v> = Result<Option<Value<'v>>, EvaluateError>;

/// Calls a function that is no operator. The last argument has the compiled pattern of a call with a literal pattern,
/// and the patterns that the evaluation has compiled.
pub(crate) fn call<'v>(
    function: &str,
    args: &[Value<'v>],
    meter: &mut Meter,
    (pattern, patterns): (Option<&Regex>, &mut Patterns),
) -> Outcome<'v> {
    if let Some(value) = strings::call(function, args, meter)? {
        return Ok(value);
    }
    if let Some(value) = regex::call(function, args, meter, (pattern, patterns))? {
        return Ok(value);
    }
    for library in
        [lists::call, convert::call, optional::call, times::call, quantity::call, net::call, url::call, version::call, format::call]
    {
        if let Some(value) = library(function, args, meter)? {
            return Ok(value);
        }
    }
    access::call(function, args, meter)?.ok_or_else(EvaluateError::no_overload)
}

/// The issue with a string literal as an argument of a function; `None` if the function accepts it.
pub(crate) fn literal_issue(function: &str, text: &str) -> Option<String> {
    let is_good = match function {
        "matches" => compile(text, regex::WRITTEN_BYTES_MAX).is_ok(),
        "duration" => duration(text).is_some(),
        "timestamp" => timestamp(text).is_some(),
        _ => true,
    };
    (!is_good).then(|| format!("invalid {function} argument"))
}
