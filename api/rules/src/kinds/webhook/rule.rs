//! `RuleWithOperations`: the requests that a rule matches. Webhooks and admission policies share it.

use crate::at::At;
use crate::checks::Checks;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// Checks a rule.
pub fn validate(rule: &At<'_>, checks: &mut Checks) {
    let operations = rule.get("operations");
    words(&operations, "operations", checks);
    for operation in operations.items() {
        if !OPERATIONS.contains(&operation.text()) {
            checks.not_supported(&operation, &OPERATIONS);
        }
    }
    words(&rule.get("apiGroups"), "API groups", checks);
    let versions = rule.get("apiVersions");
    words(&versions, "API versions", checks);
    for version in versions.items().filter(|version| version.text().is_empty()) {
        checks.required(&version, "");
    }
    resources(&rule.get("resources"), checks);
    checks.one_of_if_set(&rule.get("scope"), &SCOPES);
}

/// A list of words; beside `*` no other word is allowed.
fn words(list: &At<'_>, what: &str, checks: &mut Checks) {
    if list.len() == 0 {
        checks.required(list, "");
    }
    if list.len() > 1 && list.texts().any(|word| word == "*") {
        checks.invalid(list, format!("if '*' is present, must not specify other {what}"));
    }
}

/// Resources such as `pods`, `pods/status`, `pods/*`, `*/scale`, `*` or `*/*`; none may include another one.
fn resources(list: &At<'_>, checks: &mut Checks) {
    if list.len() == 0 {
        checks.required(list, "");
    }
    let (mut every_sub, mut every_resource): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for resource in list.items() {
        let text = resource.text();
        if text.is_empty() {
            checks.required(&resource, "");
            continue;
        }
        let Some((name, sub)) = text.split_once('/') else { continue };
        if every_sub.contains(&name) {
            checks.invalid(&resource, format!("if '{name}/*' is present, must not specify {text}"));
        }
        if every_resource.contains(&sub) {
            checks.invalid(&resource, format!("if '*/{sub}' is present, must not specify {text}"));
        }
        if sub == "*" {
            every_sub.push(name);
        }
        if name == "*" {
            every_resource.push(sub);
        }
    }
    if list.len() > 1 && list.texts().any(|text| text == "*/*") {
        checks.invalid(list, "if '*/*' is present, must not specify other resources");
    }
    if list.texts().any(|text| text == "*") && list.texts().any(|text| text != "*" && !text.contains('/')) {
        checks.invalid(list, "if '*' is present, must not specify other resources without subresources");
    }
}
