//! MutatingAdmissionPolicy: expressions that change the object of a request.

use api_cel::admission::Wanted;
use serde_json::Value;

use super::expressions::{Expressions, conditions_are_old};
use super::{constraints, default_spec};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::spec;
use crate::kinds::Rules;

/// The rules of the kind.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

/// The operations of a rule; DELETE is not among them.
const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// The patch types, each with the field that holds its expression.
const PATCH_TYPES: [(&str, &str, Wanted); 2] =
    [("ApplyConfiguration", "applyConfiguration", Wanted::Object), ("JSONPatch", "jsonPatch", Wanted::Patches)];

fn default(object: &mut Value) {
    if let Some(spec) = spec(object) {
        default_spec(spec);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate(&object.get("spec"), None, checks);
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate(&new.get("spec"), Some(&old.get("spec")), checks);
}

fn validate(spec: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    constraints(spec, checks);
    let operations = spec.find("matchConstraints.resourceRules.operations").path;
    for operation in spec.find("matchConstraints.resourceRules").items().flat_map(|rule| rule.get("operations").items()) {
        if !OPERATIONS.contains(&operation.text()) {
            checks.not_supported(&At::new(operation.value(), operations.clone()), &OPERATIONS);
        }
    }
    let mut expressions = Expressions::new(spec, true);
    if !old.is_some_and(|old| conditions_are_old(spec, old)) {
        expressions.conditions(&spec.get("matchConditions"), checks);
    }
    expressions.declare(&spec.get("variables"), checks);
    let mutations = spec.get("mutations");
    if mutations.len() == 0 {
        checks.required(&mutations, "mutations must contain at least one item");
    }
    for item in mutations.items() {
        mutation(&item, &expressions, checks);
    }
    checks.one_of(&spec.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
}

fn mutation(at: &At<'_>, expressions: &Expressions, checks: &mut Checks) {
    let kind = at.get("patchType");
    if !PATCH_TYPES.iter().any(|(name, ..)| *name == kind.text()) {
        return checks.one_of(&kind, &PATCH_TYPES.map(|(name, ..)| name));
    }
    for (name, field, wanted) in PATCH_TYPES {
        let change = at.get(field);
        match (name == kind.text(), change.exists()) {
            (true, true) => {
                let expression = change.get("expression");
                match expression.text().trim() {
                    "" => checks.required(&expression, ""),
                    text => expressions.check(&expression, text, wanted, checks),
                }
            }
            (true, false) => checks.required(&change, &format!("must be specified when patchType is {name}")),
            (false, true) => {
                checks.invalid_value(
                    &change.path,
                    format!("{{{field}}}"),
                    format!("must not be specified when patchType is {}", kind.text()),
                );
            }
            (false, false) => {}
        }
    }
}
