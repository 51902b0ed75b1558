//! Objects of custom kinds against the schema of their definition: what is pruned, what is filled in, and
//! what is wrong with a value, in the words of upstream's `kube-openapi` validation.
//!
//! Metadata is every kind's business and not looked at here, but for that of objects embedded in others.

pub mod conversion;
mod defaulting;
mod embedded;
pub mod field_path;
mod formats;
mod lists;
mod numbers;
pub mod rules;
mod values;

use api_model::field::FieldError;
use api_model::kind::Kind;
use api_schema::Structural;
use serde_json::Value;

pub use defaulting::default;
pub use formats::is_known as is_known_format;
pub use rules::ValidationResult;

/// What is wrong with an object; `old` is what it was before an update. What an update leaves as it was is
/// not complained of, so that a definition may become stricter while its objects live; of its rules there are warnings.
pub fn validate(kind: &Kind, schema: &Structural, object: &Value, old: Option<&Value>) -> ValidationResult {
    let mut found = ValidationResult { errors: values::check(schema, object, old), warnings: Vec::new() };
    embedded::check(schema, object, &mut found.errors);
    if old.is_none_or(|old| lists::check(schema, old).is_empty()) {
        found.errors.extend(lists::check(schema, object));
    }
    rules::check(kind, schema, object, old, &mut found);
    found
}

/// An object that was stored before its definition became what it is: what is no longer known goes, what
/// has a default by now gets it.
pub fn read_stored(kind: &Kind, object: &mut Value) {
    prune_converted(kind, object);
    if let Some(schema) = api_schema::structural(kind) {
        default(schema, object);
    }
}

/// Takes away what a version does not know, of an object that was converted to it.
pub fn prune_converted(kind: &Kind, object: &mut Value) {
    // Metadata was checked when it was stored; of pruned fields nobody is told on reading.
    let _ = crate::fields::check_fields(kind, object, &[], crate::FieldValidation::Ignore);
}

/// What is wrong with a default that stands in a definition, below the path of the default.
pub fn validate_default(schema: &Structural, default: &Value) -> Vec<FieldError> {
    let mut errors = values::check(schema, default, None);
    errors.extend(lists::check(schema, default));
    errors
}

/// Whether pruning would take something away from a default.
pub fn is_pruned(schema: &Structural, default: &Value) -> bool {
    crate::prune::would_change(schema, default)
}

#[cfg(test)]
mod tests;
