//! Decodes a request body to a JSON value.
//!
//! The API server reads what clients send with it, and the controllers what other servers answer. The input may be hostile.
//! The parsers limit the nesting. Aliases of a YAML document may expand only within a budget that
//! depends on its length. Duplicate fields are recorded with their paths, because upstream's strict field validation
//! rejects them; the last one wins, as in upstream's decoder. The caller limits the length of the body.

mod go_syntax;
mod repair;
mod tracked;
mod yaml11;

use std::fmt;

use serde::de::DeserializeSeed;
use serde_json::Value;
use thiserror::Error;

use tracked::{Context, Tracked};

/// Most bytes of YAML that are read again to find the lines of duplicate fields.
const LINES_BYTES_MAX: usize = 4 << 20;

/// Most open flow brackets of YAML; with more, libyaml's run time becomes quadratic.
const FLOW_DEPTH_MAX: usize = 500;

/// A body as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The body.
    pub value: Value,
    /// Duplicate fields, in order.
    pub duplicates: Vec<Duplicate>,
}

/// A duplicate field. As upstream, JSON reports its path and YAML its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// A path such as `spec.containers[0].image`.
    Path(String),
    /// The line of the second one, and the name.
    Line(usize, String),
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "duplicate field {}", Value::from(path.as_str())),
            Self::Line(line, key) => write!(f, "line {line}: key {} already set in map", Value::from(key.as_str())),
        }
    }
}

/// Upstream's message about all duplicate fields of a YAML text.
pub fn yaml_complaint(duplicates: &[Duplicate]) -> String {
    let lines: Vec<String> = duplicates.iter().map(|duplicate| format!("\n  {duplicate}")).collect();
    format!("yaml: unmarshal errors:{}", lines.concat())
}

/// A body does not decode. All errors are bad requests (400).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The body is not JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(String),
    /// The body is not YAML.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(String),
    /// The body is not UTF-8.
    #[error("body is not valid UTF-8 from byte {0} on")]
    Utf8(usize),
    /// There is more than one YAML document.
    #[error("the body holds more than one YAML document; send one object a request")]
    ManyDocuments,
    /// A value does not fit its field.
    #[error("{0}")]
    Type(String),
    /// Strict field validation found unknown or duplicate fields.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

impl DecodeError {
    /// Upstream's message for a [`DecodeError::Type`] or [`DecodeError::Strict`] of a POST or PUT, which names the
    /// kind. `version` is the bare version, without group.
    pub fn handled_as(&self, kind: &str, version: &str) -> String {
        format!("{kind} in version {} cannot be handled as a {kind}: {self}", Value::from(version))
    }
}

/// Decodes a body: JSON, or YAML (which includes JSON) if `yaml` is set.
pub fn decode(body: &[u8], yaml: bool) -> Result<Decoded, DecodeError> {
    if !yaml {
        return decode_json_bytes(body, false);
    }
    let text = text_of(body)?;
    if text.trim_start().starts_with(['{', '['])
        && let Ok(decoded) = decode_json(text, true)
    {
        return Ok(decoded);
    }
    decode_yaml(text)
}

/// [`decode`] for a strategic merge patch in JSON. Upstream converts the patch to types instead of decoding it, which
/// accepts `3.0` as a whole number (`FromUnstructured`).
pub fn decode_strategic(body: &[u8]) -> Result<Decoded, DecodeError> {
    decode_json_bytes(body, true)
}

fn text_of(body: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(body).map_err(|error| DecodeError::Utf8(error.valid_up_to()))
}

/// Decodes JSON and repairs the flaws that Go's decoder repairs.
fn decode_json_bytes(body: &[u8], whole_floats: bool) -> Result<Decoded, DecodeError> {
    let decoded = text_of(body).and_then(|text| decode_json(text, whole_floats));
    if decoded.is_err()
        && let Some(text) = repair::repaired(body)
    {
        return decode_json(&text, whole_floats);
    }
    decoded
}

fn decode_json(text: &str, whole_floats: bool) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(usize::MAX);
    if whole_floats {
        context = context.whole_floats();
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let json = |error: serde_json::Error| {
        // Go would accept the text; it exceeds a limit of this decoder, such as the nesting.
        DecodeError::Json(go_syntax::complaint(text.as_bytes()).unwrap_or_else(|| error.to_string()))
    };
    let value = Tracked(&mut context).deserialize(&mut deserializer).map_err(json)?;
    deserializer.end().map_err(json)?;
    let duplicates = context.into_duplicates().into_iter().map(Duplicate::Path).collect();
    Ok(Decoded { value, duplicates })
}

fn decode_yaml(text: &str) -> Result<Decoded, DecodeError> {
    if flow_depth(text) > FLOW_DEPTH_MAX {
        return Err(DecodeError::Yaml("yaml: exceeded max depth".to_owned()));
    }
    let mut context = Context::new(expansion_max(text.len())).yaml(text);
    let mut first: Option<Value> = None;
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Tracked(&mut context).deserialize(document).map_err(|error| DecodeError::Yaml(format!("yaml: {error}")))?;
        match first {
            None => first = Some(value),
            Some(_) if value.is_null() => {}
            Some(_) => return Err(DecodeError::ManyDocuments),
        }
    }
    let duplicates = lines_of(text, context.into_duplicates().len());
    Ok(Decoded { value: first.unwrap_or(Value::Null), duplicates })
}

/// The lines of the duplicate fields of a YAML text. The parser reports lines only in errors, so the text is read again up
/// to each duplicate, at most [`LINES_BYTES_MAX`] in total.
fn lines_of(text: &str, count: usize) -> Vec<Duplicate> {
    let passes = LINES_BYTES_MAX.checked_div(text.len()).unwrap_or(0).max(1);
    (0..count.min(passes)).filter_map(|skipped| line_of(text, skipped)).collect()
}

fn line_of(text: &str, skipped: usize) -> Option<Duplicate> {
    let mut context = Context::new(usize::MAX).yaml(text).stop_after(skipped);
    let failed = serde_yaml::Deserializer::from_str(text).find_map(|document| Tracked(&mut context).deserialize(document).err())?;
    Some(Duplicate::Line(failed.location()?.line(), context.stopped_at()?))
}

/// [`decode`] for an applied configuration. Upstream reads it as YAML, so duplicate fields have lines in JSON too.
pub fn decode_applied(body: &[u8]) -> Result<Decoded, DecodeError> {
    let decoded = decode(body, true)?;
    let by_path = decoded.duplicates.iter().any(|duplicate| matches!(duplicate, Duplicate::Path(_)));
    match std::str::from_utf8(body) {
        Ok(text) if by_path => Ok(Decoded { duplicates: lines_of(text, decoded.duplicates.len()), ..decoded }),
        _ => Ok(decoded),
    }
}

/// The budget for the expansion of a YAML text: ten times its length for a short text, else its length. A text without
/// aliases never exceeds its own length.
fn expansion_max(len: usize) -> usize {
    const SMALL: usize = 1 << 20;
    len.max(len.saturating_mul(10).min(SMALL)).saturating_add(1024)
}

/// An upper bound of the open brackets: brackets in comments do not count, quoted ones do.
fn flow_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    for line in text.lines() {
        let code = if line.trim_start().starts_with('#') { "" } else { line };
        for b in code.bytes() {
            match b {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
