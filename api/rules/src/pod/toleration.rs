//! Tolerations of Pods and taints of Nodes.

use std::collections::HashSet;

use api_model::field::FieldError;

use crate::at::At;
use crate::checks::Checks;
use crate::format;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks `tolerations`.
pub fn validate(tolerations: &At<'_>, checks: &mut Checks) {
    for toleration in tolerations.items() {
        let (key, operator, effect) = (toleration.get("key"), toleration.get("operator"), toleration.get("effect"));
        let value = toleration.get("value").text();
        if !key.text().is_empty() {
            checks.qualified_name(&key);
        } else if operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            checks.invalid_value(&operator.path, operator.text(), detail);
        }
        if toleration.get("tolerationSeconds").exists() && effect.text() != "NoExecute" {
            checks.invalid_value(&effect.path, effect.text(), "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "" | "Equal" => {
                let wrong = format::label_value(value);
                if !wrong.is_empty() {
                    checks.invalid_value(&operator.path, value, wrong.join(";"));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => checks.invalid_value(&operator.path, value, "value must be empty when `operator` is 'Exists'"),
            _ => checks.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            checks.one_of(&effect, &EFFECTS);
        }
    }
}

/// Checks a Node's taints.
pub fn taints(taints: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for taint in taints.items() {
        checks.qualified_name(&taint.get("key"));
        let wrong = format::label_value(taint.get("value").text());
        if !wrong.is_empty() {
            checks.invalid_value(&taint.get("value").path, taint.get("value").text(), wrong.join(";"));
        }
        checks.one_of(&taint.get("effect"), &EFFECTS);
        if !seen.insert((taint.get("key").text(), taint.get("effect").text())) {
            let mut error = FieldError::duplicate(&taint.path, taint.value_or_null());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            checks.push(error);
        }
    }
}
