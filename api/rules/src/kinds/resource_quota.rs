//! ResourceQuota.

use std::collections::HashSet;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::pod::resources;

/// The rules of ResourceQuotas.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

const SCOPES: [&str; 7] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating", "VolumeAttributesClass"];
const EXISTS_ONLY: [&str; 5] = ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];
const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate_spec(&object.get("spec"), checks);
    validate_status(&object.get("status"), checks);
}

fn amounts(list: &At<'_>, checks: &mut Checks) {
    for (name, amount) in list.entries() {
        resources::validate_quota_name(&amount.path, name, checks);
        resources::validate_quantity(name, &amount, checks);
    }
}

fn validate_status(status: &At<'_>, checks: &mut Checks) {
    amounts(&status.get("hard"), checks);
    amounts(&status.get("used"), checks);
}

fn validate_spec(spec: &At<'_>, checks: &mut Checks) {
    let hard = spec.get("hard");
    amounts(&hard, checks);
    let scopes = spec.get("scopes");
    for scope in scopes.texts() {
        if !SCOPES.contains(&scope) {
            checks.invalid(&scopes, "unsupported scope");
        }
        if hard.fields().any(|name| resources::is_standard_quota(name) && !scope_fits(scope, name)) {
            checks.invalid(&scopes, "unsupported scope applied to resource");
        }
    }
    conflicts(&scopes, &scopes.texts().collect(), checks);
    selector(spec, &hard, checks);
}

fn conflicts(at: &At<'_>, scopes: &HashSet<&str>, checks: &mut Checks) {
    for (one, other) in CONFLICTS {
        if scopes.contains(one) && scopes.contains(other) {
            checks.invalid(at, "conflicting scopes");
        }
    }
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    let compute = matches!(resource, "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory");
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || compute || resource.contains("ephemeral-storage") || resource.contains("hugepages-")
        }
        "BestEffort" => resource == "pods",
        _ => true,
    }
}

fn selector(spec: &At<'_>, hard: &At<'_>, checks: &mut Checks) {
    let selector = spec.get("scopeSelector");
    let expressions = selector.get("matchExpressions");
    let mut scopes = HashSet::new();
    // As upstream, the path does not contain the index of the element.
    let named = |at: At<'_>, field: &str| (at.value_or_null(), expressions.path.child(field));
    for expression in expressions.items() {
        let scope = expression.get("scopeName").text();
        let (operator, values) = (expression.get("operator").text(), expression.get("values"));
        if !SCOPES.contains(&scope) {
            let (value, path) = named(expression.get("scopeName"), "scopeName");
            checks.invalid_value(&path, value, "unsupported scope");
        }
        if hard.fields().any(|name| resources::is_standard_quota(name) && !scope_fits(scope, name)) {
            checks.invalid_value(&expressions.path, selector.value_or_null(), "unsupported scope applied to resource");
        }
        let (value, path) = named(expression.get("operator"), "operator");
        if EXISTS_ONLY.contains(&scope) && operator != "Exists" {
            checks.invalid_value(&path, value.clone(), "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
        }
        let at = At::new(values.value(), expressions.path.child("values"));
        match operator {
            "In" | "NotIn" if values.len() == 0 => {
                checks.required(&at, "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
            }
            "Exists" | "DoesNotExist" if values.len() > 0 => {
                checks.invalid(&at, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => checks.invalid_value(&path, value, "not a valid selector operator"),
        }
        scopes.insert(scope);
    }
    conflicts(&spec.get("scopes"), &scopes, checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        return validate_status(&new.get("status"), checks);
    }
    validate_spec(&new.get("spec"), checks);
    let scopes = |object: &At<'_>| -> HashSet<String> { object.find("spec.scopes").texts().map(str::to_owned).collect() };
    if scopes(new) != scopes(old) {
        checks.invalid(&new.find("spec.scopes"), crate::checks::IMMUTABLE);
    }
}
