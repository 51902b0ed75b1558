//! Admission policies and their bindings: ValidatingAdmissionPolicy, MutatingAdmissionPolicy,
//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding. Each kind has a file below. This file checks
//! the parts that they share: matched requests, conditions, variables and parameters.

mod binding;
pub mod expressions;
mod matching;
mod mutating;
mod validating;

pub use binding::{MUTATING as MUTATING_BINDING, VALIDATING as VALIDATING_BINDING};
pub use mutating::RULES as MUTATING;
pub use validating::RULES as VALIDATING;

use crate::at::At;
use crate::checks::Checks;
use crate::edit::{Fields, fill_absent, inner};
use crate::format;

/// Most match conditions, which are evaluated before all other expressions.
const MATCH_CONDITIONS_MAX: usize = 64;

/// The defaults of a policy's spec.
fn default_spec(spec: &mut Fields) {
    fill_absent(spec, "failurePolicy", "Fail");
    if let Some(constraints) = inner(spec, "matchConstraints") {
        matching::default(constraints);
    }
}

/// Checks the failure policy, the parameters and the matched requests of both kinds of policies.
fn constraints(spec: &At<'_>, checks: &mut Checks) {
    let failure_policy = spec.get("failurePolicy");
    if failure_policy.exists() {
        checks.one_of_if_set(&failure_policy, &["Fail", "Ignore"]);
    } else {
        checks.required(&failure_policy, "");
    }
    if spec.get("paramKind").exists() {
        param_kind(&spec.get("paramKind"), checks);
    }
    let matched = spec.get("matchConstraints");
    if !matched.exists() {
        return checks.required(&matched, "");
    }
    matching::validate(&matched, checks);
    if matched.get("resourceRules").len() == 0 {
        checks.required(&matched.get("resourceRules"), "");
    }
}

fn param_kind(kind: &At<'_>, checks: &mut Checks) {
    let (api_version, name) = (kind.get("apiVersion"), kind.get("kind"));
    let parts: Vec<&str> = api_version.text().split('/').collect();
    match parts.as_slice() {
        [""] => checks.required(&api_version, ""),
        [version] => version_label(&api_version, version, checks),
        [group, version] => {
            let complaints = if group.is_empty() { Vec::new() } else { format::dns_subdomain(group) };
            if !complaints.is_empty() {
                checks.invalid_value(&api_version.path, *group, complaints.join(","));
            }
            version_label(&api_version, version, checks);
        }
        _ => checks.invalid(&api_version, format!("unexpected GroupVersion string: {}", api_version.text())),
    }
    if name.text().is_empty() {
        return checks.required(&name, "");
    }
    let complaints = format::dns_1035_label(&name.text().to_lowercase());
    if !complaints.is_empty() {
        checks.invalid(&name, format!("may have mixed case, but should otherwise match: {}", complaints.join(",")));
    }
}

fn version_label(at: &At<'_>, version: &str, checks: &mut Checks) {
    if version.is_empty() {
        return checks.invalid(at, "version must be specified");
    }
    let complaints = format::dns_1035_label(version);
    if !complaints.is_empty() {
        checks.invalid_value(&at.path, version, complaints.join(","));
    }
}

#[cfg(test)]
mod tests;
