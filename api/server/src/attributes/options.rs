//! The options of a request, as an AdmissionReview contains them.

use api_admission::Operation;
use serde_json::{Value, json};

use super::AdmissionAttributes;
use crate::call::Call;
use api_wire::json;
use api_wire::options::{DeleteOptions, Propagation};

/// `CreateOptions`, `UpdateOptions` or `DeleteOptions`; a connection has none.
pub(crate) fn of(call: &Call, attributes: AdmissionAttributes<'_>) -> Option<Value> {
    let kind = match (attributes.step.operation, attributes.delete) {
        (Operation::Create, _) => "CreateOptions",
        (Operation::Update, _) => "UpdateOptions",
        (Operation::Delete, Some(options)) => return Some(deletion(options)),
        (Operation::Delete, None) => "DeleteOptions",
        (Operation::Connect, _) => return None,
    };
    let mut options = new(kind, attributes.step.dry_run);
    for name in ["fieldManager", "fieldValidation"] {
        if let Some(value) = call.query.filled(name) {
            json::set(&mut options, &[name], value);
        }
    }
    Some(options)
}

fn new(kind: &str, dry_run: bool) -> Value {
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if dry_run {
        json::set(&mut options, &["dryRun"], json!(["All"]));
    }
    options
}

fn deletion(from: &DeleteOptions) -> Value {
    let mut options = new("DeleteOptions", from.dry_run);
    let mut set = |path: &[&str], value: Option<Value>| {
        if let Some(value) = value {
            json::set(&mut options, path, value);
        }
    };
    set(&["gracePeriodSeconds"], from.grace_period_seconds.map(Value::from));
    let policy = from.propagation.map(|propagation| match propagation {
        Propagation::Orphan => "Orphan",
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
    });
    set(&["propagationPolicy"], policy.map(Value::from));
    set(&["preconditions", "uid"], from.uid.as_deref().map(Value::from));
    set(&["preconditions", "resourceVersion"], from.resource_version.as_deref().map(Value::from));
    options
}
