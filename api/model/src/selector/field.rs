//! Field selectors: values that fields must or must not have.

use std::fmt;

use serde_json::Value;

use super::SelectorError;

/// The maximum of terms in a selector. A selector with more is rejected.
const TERMS_MAX: usize = 10_000;
/// Longer operators come first. The first operator in the text counts; of several at the same position the longest one.
const OPERATORS: [(&str, bool); 3] = [("!=", true), ("==", false), ("=", false)];

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// Field path, for example `spec.nodeName`.
    pub path: String,
    /// Value to compare with.
    pub value: String,
    /// Whether the field must have another value.
    pub negated: bool,
}

/// A field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The terms.
    pub terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// Parses `metadata.name=x,status.phase!=Running`. A backslash escapes `\`, `,` and `=` in a value.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_unescaped(text).into_iter().filter(|part| !part.is_empty()) {
            if terms.len() == TERMS_MAX {
                return Err(SelectorError::TooMany);
            }
            let Some((path, value, negated)) = split_term(part) else {
                return Err(SelectorError::Field(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            terms.push(FieldTerm { path: path.to_owned(), value: unescape(value)?, negated });
        }
        Ok(Self { terms })
    }

    /// The value that a path must equal, if a term requires one. `metadata.name`, `spec.nodeName` and similar paths
    /// select an index.
    pub fn exact(&self, path: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.path == path && !t.negated).map(|t| t.value.as_str())
    }

    /// Whether an object's fields match; an absent field counts as empty.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field_text(object, &term.path) == term.value) != term.negated)
    }
}

/// The text of a dotted field path; empty when absent.
pub fn field_text(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |at, name| at.get(name));
    match found {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Bool(b)) => b.to_string(),
        Some(Value::Number(n)) => n.to_string(),
        _ => String::new(),
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

fn split_term(part: &str) -> Option<(&str, &str, bool)> {
    part.char_indices().find_map(|(at, _)| {
        let (path, rest) = part.split_at_checked(at)?;
        OPERATORS.iter().find_map(|(operator, negated)| Some((path, rest.strip_prefix(operator)?, *negated)))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError::Field(format!("invalid field selector: invalid escape sequence: {sequence}")));
                }
            },
            ',' | '=' => {
                return Err(SelectorError::Field(format!("invalid field selector: unescaped character in value: {}", u32::from(c))));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.negated { "!=" } else { "=" })?;
        for c in self.value.chars() {
            if matches!(c, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

/// The query-string form, which parses to the same selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
