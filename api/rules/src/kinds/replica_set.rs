//! ReplicaSet.

use serde_json::Value;

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill_absent};
use crate::pod::{self, defaults};

/// The rules of ReplicaSets.
pub const RULES: Rules = Rules { warnings: workload::warnings, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        fill_absent(spec, "replicas", 1);
        defaults::template(spec);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    checks.not_negative(&spec.get("replicas"));
    checks.not_negative(&spec.get("minReadySeconds"));
    workload::selector(&spec.get("selector"), "deployment", checks);
    let template = spec.get("template");
    workload::selector_matches(&spec.get("selector"), &template, checks);
    pod::validate_template(&template, checks);
    workload::always_restarts(&template, "ReplicaSet", checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        let all = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration", "terminatingReplicas"];
        return workload::status_counts(&new.get("status"), &all, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], checks);
    }
    validate_create(new, checks);
    checks.immutable(&new.find("spec.selector"), &old.find("spec.selector"));
}
