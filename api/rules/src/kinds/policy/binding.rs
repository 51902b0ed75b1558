//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding: the requests to which a policy applies, its
//! parameters, and the actions on requests that the policy rejects.

use serde_json::Value;

use super::matching;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{inner, spec};
use crate::format;
use crate::kinds::Rules;

/// The rules of bindings of validating policies.
pub const VALIDATING: Rules = Rules::new(default, validate_validating, |_, new, _, checks| validate_validating(new, checks));
/// The rules of bindings of mutating policies, which have no actions.
pub const MUTATING: Rules = Rules::new(default, validate_mutating, |_, new, _, checks| validate_mutating(new, checks));

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const BOTH: &str = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
const EXCLUSIVE: &str = "name and selector are mutually exclusive";

fn default(object: &mut Value) {
    if let Some(matched) = spec(object).and_then(|spec| inner(spec, "matchResources")) {
        matching::default(matched);
    }
}

fn validate_validating(object: &At<'_>, checks: &mut Checks) {
    validate_mutating(object, checks);
    actions(&object.find("spec.validationActions"), checks);
}

fn validate_mutating(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let policy = spec.get("policyName");
    if policy.text().is_empty() {
        checks.required(&policy, "");
    } else {
        checks.dns_subdomain(&policy);
    }
    if spec.get("paramRef").exists() {
        param_ref(&spec.get("paramRef"), checks);
    }
    let matched = spec.get("matchResources");
    if matched.exists() {
        // Upstream's spelling of the path.
        matching::validate(&At::new(matched.value(), spec.path.child("matchResouces")), checks);
    }
}

fn param_ref(at: &At<'_>, checks: &mut Checks) {
    let (name, selector, action) = (at.get("name"), at.get("selector"), at.get("parameterNotFoundAction"));
    let is_named = !name.text().is_empty();
    if is_named {
        checks.format(&name, format::path_segment(name.text()));
        if selector.exists() {
            checks.forbidden(&name, EXCLUSIVE);
        }
    }
    if selector.exists() {
        checks.label_selector(&selector);
        if is_named {
            checks.forbidden(&selector, EXCLUSIVE);
        }
    } else if !is_named {
        checks.required(at, "one of name or selector must be specified");
    }
    checks.one_of(&action, &["Deny", "Allow"]);
}

fn actions(list: &At<'_>, checks: &mut Checks) {
    let mut seen: Vec<&str> = Vec::new();
    for action in list.items() {
        if !ACTIONS.contains(&action.text()) {
            checks.not_supported(&action, &ACTIONS);
        }
        if seen.contains(&action.text()) {
            checks.duplicate(&action);
        } else {
            seen.push(action.text());
        }
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        checks.invalid(list, BOTH);
    }
    if seen.is_empty() {
        checks.required(list, "at least one validation action is required");
    }
}
