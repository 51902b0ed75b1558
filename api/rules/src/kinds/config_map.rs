//! ConfigMap.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// The rules of ConfigMaps.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

/// Upstream's limit for the content of a Secret or ConfigMap.
pub const CONTENT_BYTES_MAX: usize = 1024 * 1024;

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let (data, binary) = (object.get("data"), object.get("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        for message in format::config_key(key) {
            checks.invalid_value(&value.path, key, message);
        }
        if binary.key(key).exists() {
            checks.invalid_value(&value.path, key, "duplicate of key present in binaryData");
        }
        bytes += value.text().len();
    }
    for (key, value) in binary.entries() {
        for message in format::config_key(key) {
            checks.invalid_value(&value.path, key, message);
        }
        bytes += decoded_len(value.text());
    }
    if bytes > CONTENT_BYTES_MAX {
        checks.too_long(&At::new(None, api_model::field::Path::default()), CONTENT_BYTES_MAX);
    }
}

/// The number of bytes that a well-formed base64 text decodes to.
pub fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// An immutable object stays immutable, and so do these fields.
pub fn immutable(new: &At<'_>, old: &At<'_>, fields: &[&str], checks: &mut Checks) {
    const WORDS: &str = "field is immutable when `immutable` is set";
    if !old.get("immutable").flag() {
        return;
    }
    if !new.get("immutable").flag() {
        checks.forbidden(&new.get("immutable"), WORDS);
    }
    for field in fields {
        if !new.get(field).same(&old.get(field)) {
            checks.forbidden(&new.get(field), WORDS);
        }
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    immutable(new, old, &["data", "binaryData"], checks);
    validate_create(new, checks);
}
