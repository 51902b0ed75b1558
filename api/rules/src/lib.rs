//! Decoding, defaulting and validation of objects before they are stored.
//!
//! The API server passes every body through these pure functions, in this order: [`decode`] parses bytes into a JSON
//! value. [`check_fields`] prunes it and checks its types against the kind's schema. [`default`] adds defaults.
//! [`prepare_create`] or [`prepare_update`] resets the fields that the user may not write. [`validate_create`] or
//! [`validate_update`] returns the errors. [`patch`] has the three patch kinds, [`apply`] server-side apply and field
//! ownership, [`scale`] the scale subresource. The messages are upstream's. There is no I/O and no clock; the server sets
//! unique ids and times.

pub mod apply;
mod at;
mod checks;
mod conditions;
mod custom;
mod difference;
mod edit;
mod empty;
mod fields;
mod format;
mod kinds;
mod meta;
pub mod patch;
mod pod;
mod prune;
mod quantity;
pub mod scale;
mod strategy;
#[cfg(test)]
mod testing;
mod unacted;

use api_model::field::FieldError;
use api_model::kind::Kind;
use serde_json::Value;

pub use custom::{conversion, prune_converted, read_stored};
pub use empty::drop_empty;
pub use fields::{FieldValidation, check_body, check_fields, conversion_fault};
pub use format::{is_dns_label, is_dns_subdomain};
pub use kinds::{mandatory_flow_control, validate_admin_access};
pub use strategy::{allows_create_on_update, allows_unconditional_update};
pub use unacted::unacted;

/// Adds upstream's defaults. Defaulting an object twice changes nothing.
pub fn default(kind: &Kind, object: &mut Value) {
    meta::default(object);
    if let Some(schema) = api_schema::structural(kind) {
        custom::default(schema, object);
    } else if let Some(rules) = kinds::rules(kind) {
        (rules.default)(object);
    }
}

/// Prepares a new object for validation: removes the status where a status subresource owns it, and sets the first phase
/// and generation 1. The server must have set name, namespace, uid and creation time: a Job selects its Pods by its uid.
/// A Service's addresses and node ports are allocated after this and before validation.
pub fn prepare_create(kind: &Kind, object: &mut Value) {
    strategy::create(kind, object);
    if let Some(rules) = kinds::rules(kind) {
        (rules.prepare_create)(object);
    }
}

/// Prepares a changed object for validation: the main resource keeps the old status, a status update keeps everything
/// else, immutable metadata is copied from the old object, and the generation increases when the desired state changed.
pub fn prepare_update(kind: &Kind, sub: Option<&str>, new: &mut Value, old: &Value) {
    strategy::update(kind, sub, new, old);
    if let Some(rules) = kinds::rules(kind) {
        (rules.prepare_update)(sub, new, old);
    }
    strategy::bump_generation(kind, sub, new, old);
}

/// The errors of a new object; empty when it may be stored.
pub fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut checks = checks::Checks::default();
    meta::validate(kind, object, &mut checks);
    if let Some(schema) = api_schema::structural(kind) {
        custom::validate(kind, schema, object, None).errors.into_iter().for_each(|error| checks.push(error));
        scale::validate_custom(kind, object, &mut checks);
    } else if let Some(rules) = kinds::rules(kind) {
        (rules.validate_create)(&at::At::root(object), &mut checks);
    }
    checks.into_errors()
}

/// The errors of a changed object; empty when it may be stored. `sub` is the subresource of the request. An error that
/// the old object has too may be a warning instead.
pub fn validate_update(kind: &Kind, sub: Option<&str>, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Vec<FieldError> {
    let mut checks = checks::Checks::default();
    meta::validate_update(kind, new, old, &mut checks);
    if let Some(schema) = api_schema::structural(kind) {
        let result = custom::validate(kind, schema, new, Some(old));
        result.errors.into_iter().for_each(|error| checks.push(error));
        warnings.extend(result.warnings);
        scale::validate_custom(kind, new, &mut checks);
    } else if let Some(rules) = kinds::rules(kind) {
        (rules.validate_update)(sub, &at::At::root(new), &at::At::root(old), &mut checks);
    }
    checks.into_errors()
}

/// Field selectors that lists and watches of a kind accept beside `metadata.name` and
/// `metadata.namespace`, which are part of the list.
pub fn field_selectors(kind: &Kind) -> Vec<&str> {
    let own = kind.custom.iter().flat_map(|custom| &custom.selectable_fields).map(String::as_str);
    kinds::field_selectors(kind).iter().copied().chain(own).collect()
}

/// The value that a field selector compares with: upstream's names are not always paths.
pub fn field_value(kind: &Kind, object: &Value, path: &str) -> String {
    kinds::field_value(kind, object, path)
}

/// Upstream's warnings about a valid object.
pub fn warnings(kind: &Kind, object: &Value) -> Vec<String> {
    kinds::rules(kind).map(|rules| (rules.warnings)(&at::At::root(object))).unwrap_or_default()
}
