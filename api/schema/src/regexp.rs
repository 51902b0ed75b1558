//! Go's regular expressions (RE2's syntax), for the patterns of schemas and of CEL.
//!
//! The crate rejects every pattern that Go rejects, and gives every other pattern its meaning in Go. The size of a
//! compiled pattern depends on its repetitions, so it has a limit. The run time of a match is linear in the text, as in
//! Go.

mod translate;

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// A pattern that does not compile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("error parsing regexp: {0}")]
pub struct PatternError(String);

/// The maximum nesting of groups.
const NESTING_MAX: u32 = 100;
/// The bytes of the cache of a match. A smaller cache makes matches slower.
const CACHE_BYTES_MAX: usize = 1 << 20;
/// The maximum of bytes of a compiled `pattern` of a schema. A repetition of a thousand letters fits, but not a
/// repetition of hundreds of characters of all scripts, which Go accepts: a definition may have many patterns.
pub const SCHEMA_BYTES_MAX: usize = 10 << 20;

/// Compiles a pattern with its meaning in Go, into at most `bytes_max` bytes.
///
/// # Errors
/// Go rejects the pattern, or the compiled pattern is too large.
pub fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, PatternError> {
    let wrong = || PatternError(pattern.to_owned());
    let translated = translate::from_go(pattern).ok_or_else(wrong)?;
    let mut builder = RegexBuilder::new(&translated);
    builder.size_limit(bytes_max).dfa_size_limit(CACHE_BYTES_MAX).nest_limit(NESTING_MAX);
    builder.build().map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
