//! ControllerRevision.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;

/// The rules of ControllerRevisions.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    if !object.get("data").exists() {
        checks.required(&object.get("data"), "data is mandatory");
    }
    checks.not_negative(&object.get("revision"));
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
    checks.immutable(&new.get("data"), &old.get("data"));
}
