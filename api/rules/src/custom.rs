//! Custom resources against the schema of their definition: pruning, defaulting and validation, with the messages of
//! upstream's `kube-openapi` validation.
//!
//! The metadata is checked as for every kind, elsewhere. Only the metadata of embedded objects is checked here.

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

/// Validates an object; `old` is the object before an update. An error in a value that the update does not change is
/// ignored (a failed rule is a warning), so that a definition can become stricter while its objects exist.
pub fn validate(kind: &Kind, schema: &Structural, object: &Value, old: Option<&Value>) -> ValidationResult {
    let mut result = ValidationResult { errors: values::check(schema, object, old), warnings: Vec::new() };
    embedded::check(schema, object, &mut result.errors);
    if old.is_none_or(|old| lists::check(schema, old).is_empty()) {
        result.errors.extend(lists::check(schema, object));
    }
    rules::check(kind, schema, object, old, &mut result);
    result
}

/// Adapts a stored object to the current definition: prunes fields that the schema no longer knows, and adds new defaults.
pub fn read_stored(kind: &Kind, object: &mut Value) {
    prune_converted(kind, object);
    if let Some(schema) = api_schema::structural(kind) {
        default(schema, object);
    }
}

/// Prunes an object that was converted to another version.
pub fn prune_converted(kind: &Kind, object: &mut Value) {
    // The metadata was checked when the object was stored. Reading returns no warnings about pruned fields.
    let _ = crate::fields::check_fields(kind, object, &[], crate::FieldValidation::Ignore);
}

/// The errors of a default in a definition, with paths relative to the default.
pub fn validate_default(schema: &Structural, default: &Value) -> Vec<FieldError> {
    let mut errors = values::check(schema, default, None);
    errors.extend(lists::check(schema, default));
    errors
}

/// Whether pruning would remove something from a default.
pub fn is_pruned(schema: &Structural, default: &Value) -> bool {
    crate::prune::would_change(schema, default)
}

#[cfg(test)]
mod tests;
