//! Regular expressions: `matches`, `find`, `findAll`.
//!
//! They are Go's (RE2), which take time linear in the text; so do those of the `regex` crate. Compiling one
//! takes time and room by what it repeats, so its program has a limit, and each pattern that is new to an
//! evaluation has a price.

mod translate;

use regex::{Regex, RegexBuilder};

use super::Found;
use crate::error::EvaluateError;
use crate::estimate::matching;
use crate::evaluate::Meter;
use crate::value::Value;

/// Octets of a compiled pattern.
const PROGRAM_BYTES_MAX: usize = 1 << 20;
/// Groups within groups.
const NESTING_MAX: u32 = 100;
/// Patterns that one evaluation keeps compiled.
const KEPT_MAX: usize = 16;
/// What the first patterns cost beyond upstream's price: nothing, since nearly every expression has one or
/// two that are written out.
const COMPILE_FREE: usize = 16;
/// What each further one costs: about as much as a large one takes time.
const COMPILE_COST: u64 = 10_000;

/// Patterns that an evaluation has compiled.
#[derive(Default)]
pub(crate) struct Patterns {
    kept: Vec<(String, Regex)>,
    compiled: usize,
}

impl Patterns {
    fn get(&mut self, pattern: &str, meter: &mut Meter) -> Result<&Regex, EvaluateError> {
        let place = self.kept.iter().position(|(kept, _)| kept == pattern);
        let place = match place {
            Some(place) => place,
            None => {
                self.compiled += 1;
                if self.compiled > COMPILE_FREE {
                    meter.pay(COMPILE_COST)?;
                }
                let regex = compile(pattern).map_err(EvaluateError::failed)?;
                if self.kept.len() >= KEPT_MAX {
                    self.kept.remove(0);
                }
                self.kept.push((pattern.to_owned(), regex));
                self.kept.len() - 1
            }
        };
        self.kept.get(place).map(|(_, regex)| regex).ok_or_else(EvaluateError::no_overload)
    }
}

/// Compiles a pattern as Go understands it.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate::from_go(pattern);
    let mut builder = RegexBuilder::new(&translated);
    builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(PROGRAM_BYTES_MAX).nest_limit(NESTING_MAX);
    builder.build().map_err(|_| format!("error parsing regexp: {pattern}"))
}

/// Calls a function of patterns.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter, patterns: &mut Patterns) -> Found<'v> {
    let [Value::String(text), Value::String(pattern), rest @ ..] = args else { return Ok(None) };
    if !matches!(function, "matches" | "find" | "findAll") {
        return Ok(None);
    }
    meter.pay(matching(text.len() as u64, pattern.len() as u64))?;
    let regex = patterns.get(pattern, meter)?;
    Ok(Some(match (function, rest) {
        ("matches", []) => Value::Bool(regex.is_match(text)),
        ("find", []) => Value::from(regex.find(text).map(|found| found.as_str()).unwrap_or_default()),
        ("findAll", []) => all(regex, text, usize::MAX, meter)?,
        ("findAll", [Value::Int(limit)]) => all(regex, text, usize::try_from(*limit).unwrap_or(usize::MAX), meter)?,
        _ => return Err(EvaluateError::no_overload()),
    }))
}

fn all<'v>(regex: &Regex, text: &str, limit: usize, meter: &mut Meter) -> Result<Value<'v>, EvaluateError> {
    let mut found = Vec::new();
    for one in regex.find_iter(text).take(limit) {
        meter.pay(1)?;
        found.push(Value::from(one.as_str()));
    }
    Ok(Value::list(found))
}
