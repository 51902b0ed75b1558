//! The list of errors that rules append to, with the checks that many kinds share.

use api_model::field::{FieldError, FieldErrorKind, Path};
use serde_json::Value;

use crate::at::At;
use crate::format;

/// Upstream's words for a field that may never change.
pub const IMMUTABLE: &str = "field is immutable";
/// Upstream's words for a number below zero.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Errors found so far.
#[derive(Debug, Default)]
pub struct Checks {
    errors: Vec<FieldError>,
}

impl Checks {
    /// The errors.
    pub fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// The number of errors, to find out whether a check added some.
    pub fn count(&self) -> usize {
        self.errors.len()
    }

    /// Adds an error.
    pub fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// The field must be set.
    pub fn required(&mut self, at: &At<'_>, detail: &str) {
        self.push(FieldError::required(&at.path, detail));
    }

    /// The value is malformed or out of range.
    pub fn invalid(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.push(FieldError::invalid(&at.path, at.value_or_null(), detail));
    }

    /// As [`Checks::invalid`], with another value in the message.
    pub fn invalid_value(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(path, value, detail));
    }

    /// The field may not be set or not be changed.
    pub fn forbidden(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.push(FieldError::forbidden(&at.path, detail));
    }

    /// The value is a duplicate in a set.
    pub fn duplicate(&mut self, at: &At<'_>) {
        self.push(FieldError::duplicate(&at.path, at.value_or_null()));
    }

    /// The value refers to an object that does not exist.
    pub fn not_found(&mut self, at: &At<'_>) {
        self.push(FieldError::not_found(&at.path, at.value_or_null()));
    }

    /// The value is not supported.
    pub fn not_supported(&mut self, at: &At<'_>, supported: &[&str]) {
        let value = if at.exists() { at.value_or_null() } else { Value::from("") };
        self.push(FieldError::not_supported(&at.path, value, supported));
    }

    /// The text is longer than `max` bytes.
    pub fn too_long(&mut self, at: &At<'_>, max: usize) {
        self.push(FieldError::too_long(&at.path, max));
    }

    /// A list or map has more than `max` entries.
    pub fn too_many(&mut self, at: &At<'_>, max: usize) {
        let detail = format!("must have at most {max} {}", if max == 1 { "item" } else { "items" });
        self.push(FieldError { kind: FieldErrorKind::TooMany, path: at.path.clone(), value: Some(at.len().into()), detail });
    }

    /// The text must be set and one of those supported.
    pub fn one_of(&mut self, at: &At<'_>, supported: &[&str]) {
        if at.text().is_empty() {
            self.required(at, "");
        } else if !supported.contains(&at.text()) {
            self.not_supported(at, supported);
        }
    }

    /// The text, where set, must be one of those supported.
    pub fn one_of_if_set(&mut self, at: &At<'_>, supported: &[&str]) {
        if at.exists() && !supported.contains(&at.text()) {
            self.not_supported(at, supported);
        }
    }

    /// A number must not be below zero.
    pub fn not_negative(&mut self, at: &At<'_>) {
        if at.int() < 0 {
            self.push(FieldError::invalid(&at.path, at.int(), NOT_NEGATIVE));
        }
    }

    /// A number must be above zero.
    pub fn positive(&mut self, at: &At<'_>) {
        if at.int() <= 0 {
            self.push(FieldError::invalid(&at.path, at.int(), "must be greater than zero"));
        }
    }

    /// A number must lie within both bounds.
    pub fn in_range(&mut self, at: &At<'_>, min: i64, max: i64) {
        if !(min..=max).contains(&at.int()) {
            self.push(FieldError::invalid(&at.path, at.int(), format!("must be between {min} and {max}, inclusive")));
        }
    }

    /// A number must be a port.
    pub fn port(&mut self, at: &At<'_>) {
        self.in_range(at, 1, 65535);
    }

    /// Adds each message of a format check as an error of this field.
    pub fn format(&mut self, at: &At<'_>, messages: Vec<String>) {
        for message in messages {
            self.push(FieldError::invalid(&at.path, at.text(), message));
        }
    }

    /// A DNS label (RFC 1123).
    pub fn dns_label(&mut self, at: &At<'_>) {
        self.format(at, format::dns_label(at.text()));
    }

    /// A DNS subdomain (RFC 1123).
    pub fn dns_subdomain(&mut self, at: &At<'_>) {
        self.format(at, format::dns_subdomain(at.text()));
    }

    /// A qualified name such as `example.com/name`.
    pub fn qualified_name(&mut self, at: &At<'_>) {
        self.format(at, format::qualified_name(at.text()));
    }

    /// The field must not change.
    pub fn immutable(&mut self, new: &At<'_>, old: &At<'_>) {
        if !new.same(old) {
            self.invalid(new, IMMUTABLE);
        }
    }

    /// A map of labels or of match labels.
    pub fn labels(&mut self, at: &At<'_>) {
        for (key, value) in at.entries() {
            for message in format::qualified_name(key) {
                self.invalid_value(&at.path, key, message);
            }
            for message in format::label_value(value.text()) {
                self.invalid_value(&at.path, value.text(), message);
            }
        }
    }

    /// A `LabelSelector`.
    pub fn label_selector(&mut self, at: &At<'_>) {
        self.labels(&at.get("matchLabels"));
        for expression in at.get("matchExpressions").items() {
            let values = expression.get("values");
            match expression.get("operator").text() {
                "In" | "NotIn" => {
                    if values.len() == 0 {
                        self.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                    }
                }
                "Exists" | "DoesNotExist" => {
                    if values.len() > 0 {
                        self.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                    }
                }
                _ => self.invalid(&expression.get("operator"), "not a valid selector operator"),
            }
            let key = expression.get("key");
            for message in format::qualified_name(key.text()) {
                self.invalid_value(&key.path, key.text(), message);
            }
            for value in values.items() {
                self.format(&value, format::label_value(value.text()));
            }
        }
    }
}
