//! Regular expressions: `matches`, `find`, `findAll`.
//!
//! The syntax is Go's (RE2). As in Go, the run time of the `regex` crate is linear in the text. The compile time and
//! size of a pattern depend on its repetitions, so its program has a limit. A literal pattern is compiled with its
//! expression. Each pattern that an evaluation computes has a cost.

use api_schema::regexp::compile;
use regex::Regex;

use super::CallResult;
use crate::error::EvaluateError;
use crate::estimate::matching;
use crate::meter::Meter;
use crate::node::{Kind, Literal, Node};
use crate::value::Value;

/// The maximum of bytes of a compiled literal pattern, which is compiled once for all evaluations.
pub(super) const WRITTEN_BYTES_MAX: usize = 1 << 20;
/// The maximum of bytes of a compiled pattern from an evaluation. The compilation takes about a millisecond.
const MADE_BYTES_MAX: usize = 128 << 10;
/// The maximum of compiled patterns that one evaluation caches.
const COMPILED_MAX: usize = 16;
/// The cost of compiling a pattern besides upstream's cost, in proportion to its time.
const COMPILE_COST: u64 = 5_000;

/// The patterns that an evaluation has compiled.
#[derive(Default)]
pub(crate) struct Patterns {
    compiled: Vec<(String, Regex)>,
}

impl Patterns {
    fn get(&mut self, pattern: &str, meter: &mut Meter) -> Result<&Regex, EvaluateError> {
        let position = match self.compiled.iter().position(|(text, _)| text == pattern) {
            Some(position) => position,
            None => {
                meter.pay(COMPILE_COST)?;
                let regex = compile(pattern, MADE_BYTES_MAX).map_err(|error| EvaluateError::failed(error.to_string()))?;
                if self.compiled.len() >= COMPILED_MAX {
                    self.compiled.remove(0);
                }
                self.compiled.push((pattern.to_owned(), regex));
                self.compiled.len() - 1
            }
        };
        self.compiled.get(position).map(|(_, regex)| regex).ok_or_else(EvaluateError::no_overload)
    }
}

/// The compiled pattern of a call with a literal pattern.
pub(crate) fn written_out(function: &str, args: &[Node]) -> Option<Regex> {
    match args {
        [_, Node { kind: Kind::Literal(Literal::String(pattern)), .. }, ..] if is_known(function) => {
            compile(pattern, WRITTEN_BYTES_MAX).ok()
        }
        _ => None,
    }
}

fn is_known(function: &str) -> bool {
    matches!(function, "matches" | "find" | "findAll")
}

/// Calls a function of patterns.
pub(super) fn call<'v>(
    function: &str,
    args: &[Value<'v>],
    meter: &mut Meter,
    (written, patterns): (Option<&Regex>, &mut Patterns),
) -> CallResult<'v> {
    let [Value::String(text), Value::String(pattern), rest @ ..] = args else { return Ok(None) };
    if !is_known(function) {
        return Ok(None);
    }
    meter.pay(matching(text.len() as u64, pattern.len() as u64))?;
    let regex = match written {
        Some(regex) => regex,
        None => patterns.get(pattern, meter)?,
    };
    Ok(Some(match (function, rest) {
        ("matches", []) => Value::Bool(regex.is_match(text)),
        ("find", []) => Value::from(regex.find(text).map(|found| found.as_str()).unwrap_or_default()),
        ("findAll", []) => all(regex, text, usize::MAX, meter)?,
        ("findAll", [Value::Int(limit)]) => all(regex, text, usize::try_from(*limit).unwrap_or(usize::MAX), meter)?,
        _ => return Err(EvaluateError::no_overload()),
    }))
}

/// The number of bytes that one unit pays for in the search after a match.
const SEARCHED_FREE: u64 = 1_000;

fn all<'v>(regex: &Regex, text: &str, limit: usize, meter: &mut Meter) -> Result<Value<'v>, EvaluateError> {
    let mut found = Vec::new();
    for one in regex.find_iter(text).take(limit) {
        // The search for the next match may read all of the rest.
        meter.pay(1 + (text.len() - one.end()) as u64 / SEARCHED_FREE)?;
        found.push(Value::from(one.as_str()));
    }
    Ok(Value::list(found))
}
