//! Go's regular expressions (RE2's syntax): those of schemas and of CEL are written for them.
//!
//! What Go refuses is refused, and what both know means what it means in Go. A compiled pattern takes room by what
//! it repeats, so its program has a limit; matching takes time linear in the text, as in Go.

mod translate;

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// A pattern that does not compile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("error parsing regexp: {0}")]
pub struct PatternError(String);

/// Groups within groups.
const NESTING_MAX: u32 = 100;
/// Octets that a match may keep of what it has worked out; with fewer it is slower.
const CACHE_BYTES_MAX: usize = 1 << 20;
/// Octets of a compiled `pattern` of a schema. A thousand letters fit in, but not hundreds out of all scripts, which Go
/// takes: a definition may have many patterns.
pub const SCHEMA_BYTES_MAX: usize = 10 << 20;

/// Compiles a pattern as Go understands it, into at most so many octets.
///
/// # Errors
/// When Go would not compile it, or when the compiled pattern is too large.
pub fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, PatternError> {
    let wrong = || PatternError(pattern.to_owned());
    let translated = translate::from_go(pattern).ok_or_else(wrong)?;
    let mut builder = RegexBuilder::new(&translated);
    builder.size_limit(bytes_max).dfa_size_limit(CACHE_BYTES_MAX).nest_limit(NESTING_MAX);
    builder.build().map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
