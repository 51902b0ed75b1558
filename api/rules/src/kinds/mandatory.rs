//! The FlowSchemas and PriorityLevelConfigurations that every server needs: every request matches one of them, whatever
//! else is stored. They apply even while they are not stored. Their specs cannot change, except
//! `spec.exempt` of the exempt level.

use api_model::meta;
use api_model::zero::same;
use serde_json::{Value, json};

use crate::at::At;
use crate::checks::Checks;

/// The mandatory objects.
pub fn flow_control() -> Vec<Value> {
    let api_version = "flowcontrol.apiserver.k8s.io/v1";
    let object =
        |kind: &str, name: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let (schema, level) = ("FlowSchema", "PriorityLevelConfiguration");
    vec![
        object(level, "exempt", json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        object(
            level,
            "catch-all",
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}}),
        ),
        object(
            schema,
            "exempt",
            json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "exempt"}, "rules": everything(&["system:masters"])}),
        ),
        object(
            schema,
            "catch-all",
            json!({
                "matchingPrecedence": 10_000, "priorityLevelConfiguration": {"name": "catch-all"}, "distinguisherMethod": {"type": "ByUser"},
                "rules": everything(&["system:unauthenticated", "system:authenticated"]),
            }),
        ),
    ]
}

/// Rules for every request of these groups.
fn everything(groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect();
    json!([{
        "subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}

/// An object with a mandatory name must have the mandatory spec.
pub fn validate(kind: &str, object: &At<'_>, checks: &mut Checks) {
    let (name, spec) = (object.find("metadata.name").text(), object.get("spec"));
    let is_it = |fixed: &Value| fixed.get("kind").is_some_and(|value| value == kind) && meta::name(fixed) == name;
    let fixed = flow_control().into_iter().find(is_it);
    if fixed.is_some_and(|fixed| !same(fixed.get("spec"), spec.value())) {
        checks.invalid(&spec, format!("spec of '{name}' must equal the fixed value"));
    }
}
