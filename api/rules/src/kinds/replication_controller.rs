//! ReplicationController.

use api_model::selector::Selector;
use serde_json::Value;

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill, fill_absent};
use crate::pod::{self, defaults};

/// The rules of ReplicationControllers.
pub const RULES: Rules = Rules { warnings: workload::warnings, ..Rules::new(default, validate_create, validate_update) };

/// An absent selector and absent labels are taken from the template.
fn default(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let Some(spec) = edit::spec(object) {
        fill_absent(spec, "replicas", 1);
        if let Some(labels) = &labels {
            fill(spec, "selector", labels.clone());
        }
        if spec.get("template").is_some_and(Value::is_object) {
            defaults::template(spec);
        }
    }
    if let (Some(metadata), Some(labels)) = (api_model::meta::metadata_mut(object), labels) {
        fill(metadata, "labels", labels);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    checks.not_negative(&spec.get("minReadySeconds"));
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    if selector.len() == 0 {
        checks.required(&selector, "");
    }
    checks.not_negative(&spec.get("replicas"));
    if !template.exists() {
        return checks.required(&template, "");
    }
    if let Some(map) = selector.value().and_then(Value::as_object) {
        workload::matches(&Selector::from_map(map), &template, checks);
    }
    pod::validate_template(&template, checks);
    workload::always_restarts(&template, "ReplicationController", checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        let all = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
        return workload::status_counts(&new.get("status"), &all, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], checks);
    }
    validate_create(new, checks);
}
