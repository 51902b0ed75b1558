//! PodTemplate.

use serde_json::Value;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::pod::{self, defaults};

/// The rules of PodTemplates.
pub const RULES: Rules = Rules { warnings, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        defaults::template(fields);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    pod::validate_template(&object.get("template"), checks);
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
}

fn warnings(object: &At<'_>) -> Vec<String> {
    pod::warnings::for_pod(&object.get("template"))
}
