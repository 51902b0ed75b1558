//! Bytes of a request body to a JSON value.
//!
//! The input is hostile until shown otherwise: nesting stops at the parsers' depth limit, a YAML
//! document may grow by its aliases only within a budget set by its length, and a field that stands
//! twice is remembered with its path, because upstream's strict field validation refuses it. The
//! last of two equal fields wins, as in upstream's decoder. The caller bounds the body's length.

mod tracked;

use serde::de::DeserializeSeed;
use serde_json::Value;
use thiserror::Error;

use tracked::{Context, Tracked};

/// Flow brackets of YAML that may be open at once; past it libyaml's own time turns quadratic.
const FLOW_DEPTH_MAX: usize = 500;

/// A body as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The body.
    pub value: Value,
    /// Paths of fields that stood twice, in order, such as `spec.containers[0].image`.
    pub duplicates: Vec<String>,
}

/// Why a body was refused. All of these are bad requests (400).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are no JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(String),
    /// The bytes are no YAML.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(String),
    /// The bytes are no text.
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
    /// Upstream's sentence around a [`DecodeError::Type`] or [`DecodeError::Strict`] of a body that
    /// names its kind, as POST and PUT answer it. `version` is the bare version, without group.
    pub fn handled_as(&self, kind: &str, version: &str) -> String {
        format!("{kind} in version {} cannot be handled as a {kind}: {self}", Value::from(version))
    }
}

/// Decodes a body: JSON, or YAML if `yaml` is set (which JSON is a part of).
pub fn decode(body: &[u8], yaml: bool) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(body).map_err(|error| DecodeError::Utf8(error.valid_up_to()))?;
    if !yaml {
        return decode_json(text);
    }
    if text.trim_start().starts_with('{')
        && let Ok(decoded) = decode_json(text)
    {
        return Ok(decoded);
    }
    decode_yaml(text)
}

fn decode_json(text: &str) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(usize::MAX, false);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let json = |error: serde_json::Error| DecodeError::Json(error.to_string());
    let value = Tracked(&mut context).deserialize(&mut deserializer).map_err(json)?;
    deserializer.end().map_err(json)?;
    Ok(Decoded { value, duplicates: context.into_duplicates() })
}

fn decode_yaml(text: &str) -> Result<Decoded, DecodeError> {
    if flow_depth(text) > FLOW_DEPTH_MAX {
        return Err(DecodeError::Yaml("yaml: exceeded max depth".to_owned()));
    }
    let mut context = Context::new(expansion_max(text.len()), true);
    let mut found: Option<Value> = None;
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Tracked(&mut context).deserialize(document).map_err(|error| DecodeError::Yaml(format!("yaml: {error}")))?;
        match found {
            None => found = Some(value),
            Some(_) if value.is_null() => {}
            Some(_) => return Err(DecodeError::ManyDocuments),
        }
    }
    Ok(Decoded { value: found.unwrap_or(Value::Null), duplicates: context.into_duplicates() })
}

/// What a YAML text may grow to: ten times its length while that is small, else its length. A text
/// without aliases never exceeds its own length.
fn expansion_max(len: usize) -> usize {
    const SMALL: usize = 1 << 20;
    len.max(len.saturating_mul(10).min(SMALL)).saturating_add(1024)
}

/// The most brackets open at once, not counting those in comments. Quoted ones count, so it is an upper bound.
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
