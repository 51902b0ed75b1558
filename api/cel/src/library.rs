//! The functions of CEL and of Kubernetes' libraries, a file a library.
//!
//! Each takes values that its forms in the table allow; what else comes, from parts that are `dyn`, is no
//! such overload. What a function costs is paid before it is done, by the sizes of what it looks at and of
//! what it makes.

mod access;
mod convert;
pub(crate) mod format;
mod lists;
mod net;
mod optional;
mod printf;
mod quantity;
pub(crate) mod regex;
mod strings;
mod times;
pub(crate) mod url;
mod version;

use ::regex::Regex;
use api_schema::regexp::compile;

use crate::error::EvaluateError;
use crate::evaluate::Run;
use crate::value::{self, Value};

type Outcome<'v> = Result<Value<'v>, EvaluateError>;
/// What a library makes of a call; none where it has no such function for such values.
type Found<'v> = Result<Option<Value<'v>>, EvaluateError>;

/// Calls a function that is no operator; with its pattern, where that is written out.
pub(crate) fn call<'v>(function: &str, args: &[Value<'v>], pattern: Option<&Regex>, run: &mut Run<'_, 'v>) -> Outcome<'v> {
    let meter = &mut run.meter;
    if let Some(value) = strings::call(function, args, meter)? {
        return Ok(value);
    }
    if let Some(value) = regex::call(function, args, meter, (pattern, &mut run.patterns))? {
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

/// What is wrong with a text that is written out as an argument.
pub(crate) fn check_text(function: &str, text: &str) -> Result<(), String> {
    let is_good = match function {
        "matches" => compile(text, regex::WRITTEN_BYTES_MAX).is_ok(),
        "duration" => value::duration(text).is_some(),
        "timestamp" => value::timestamp(text).is_some(),
        _ => true,
    };
    if is_good { Ok(()) } else { Err(format!("invalid {function} argument")) }
}
