//! Namespace: the `kubernetes` finalizer, the phase, and the label with its own name.

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill, make};
use crate::{format, meta, strategy};

/// The rules of Namespaces.
pub const RULES: Rules = Rules { prepare_create, prepare_update, ..Rules::new(default, validate_create, validate_update) };

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

fn default(object: &mut Value) {
    let name = api_model::meta::name(object).to_owned();
    if let Some(labels) = api_model::meta::metadata_mut(object).filter(|_| !name.is_empty()).and_then(|m| make(m, "labels")) {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
    if let Some(status) = object.as_object_mut().and_then(|fields| make(fields, "status")) {
        fill(status, "phase", "Active");
    }
}

fn prepare_create(object: &mut Value) {
    default(object);
    if let Some(spec) = edit::spec(object) {
        let mut finalizers = spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        if !finalizers.contains(&json!(FINALIZER)) {
            finalizers.push(json!(FINALIZER));
        }
        spec.insert("finalizers".to_owned(), finalizers.into());
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), json!({"phase": "Active"}));
    }
}

/// Only `finalize` changes the finalizers.
fn prepare_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    if sub != Some("finalize") {
        strategy::keep(new, old, "spec");
    }
    if sub != Some("status") {
        strategy::keep(new, old, "status");
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    for finalizer in object.find("spec.finalizers").items() {
        let at = At::new(finalizer.value(), object.find("spec.finalizers").path);
        checks.format(&at, format::qualified_name(at.text()));
        meta::kube_finalizer(&at, checks);
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    match sub {
        Some("finalize") => {
            for finalizer in new.find("spec.finalizers").items() {
                checks.qualified_name(&finalizer);
                meta::kube_finalizer(&finalizer, checks);
            }
        }
        Some("status") => {
            let phase = new.find("status.phase");
            let path = new.get("status").path.child("Phase");
            let (wanted, words) = if new.find("metadata.deletionTimestamp").exists() {
                ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
            } else {
                ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
            };
            if phase.text() != wanted {
                checks.invalid_value(&path, phase.text(), words);
            }
        }
        _ => {}
    }
}
