//! What a deletion does to a CustomResourceDefinition beside what it does to every object: the definition stays until its
//! objects are gone.

use api_model::meta;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};

/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Adds the finalizer, and the condition that says that the objects are about to be deleted.
pub(super) fn hold_for_cleanup(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
        meta::set(definition, "finalizers", finalizers);
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(definition, &Condition::new("Terminating", true, "InstanceDeletionPending", message), now);
}

/// Sets a condition of a definition's status.
fn set_condition(definition: &mut Value, wanted: &Condition, now: Timestamp) {
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    if condition::set(&mut status, wanted, now) {
        api_wire::json::set(definition, &["status"], status);
    }
}
