//! Resets the fields that only the server writes: the part of upstream's registry strategies that all kinds share.

use api_model::kind::Kind;
use api_model::meta;
use api_model::zero::{same, same_field};
use serde_json::{Map, Value, json};

use crate::at::At;

/// Built-in kinds whose `metadata.generation` counts changes of the desired state.
fn has_generation(kind: &Kind) -> bool {
    match kind.group.as_str() {
        "apps" => kind.kind != "ControllerRevision",
        "apiextensions.k8s.io" | "autoscaling" | "batch" | "policy" | "discovery.k8s.io" => true,
        "networking.k8s.io" => !matches!(kind.kind.as_str(), "IPAddress" | "ServiceCIDR"),
        "resource.k8s.io" => matches!(kind.kind.as_str(), "DeviceClass" | "DeviceTaintRule" | "ResourceSlice"),
        "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io" => true,
        "scheduling.k8s.io" => kind.kind == "PriorityClass",
        "storage.k8s.io" => kind.kind == "CSIDriver",
        "" => matches!(kind.kind.as_str(), "Pod" | "ReplicationController"),
        _ => is_custom(kind),
    }
}

/// Whether a kind is not built in.
pub fn is_custom(kind: &Kind) -> bool {
    kind.custom.is_some()
}

/// Whether an update without `resourceVersion` may overwrite the stored object.
pub fn allows_unconditional_update(kind: &Kind) -> bool {
    let strict = match kind.group.as_str() {
        "apiextensions.k8s.io" | "apiregistration.k8s.io" | "coordination.k8s.io" | "node.k8s.io" | "policy" => true,
        "admissionregistration.k8s.io" => kind.kind.contains("AdmissionPolicy"),
        "certificates.k8s.io" => kind.kind != "CertificateSigningRequest",
        "storage.k8s.io" => !matches!(kind.kind.as_str(), "StorageClass" | "VolumeAttributesClass"),
        "storagemigration.k8s.io" => true,
        _ => is_custom(kind),
    };
    !strict
}

/// Whether an update of a missing object creates it.
pub fn allows_create_on_update(kind: &Kind) -> bool {
    match kind.group.as_str() {
        "rbac.authorization.k8s.io" | "coordination.k8s.io" | "events.k8s.io" => true,
        "" => matches!(kind.kind.as_str(), "Service" | "Endpoints" | "Event" | "LimitRange"),
        _ => false,
    }
}

/// Prepares a new object: resets the fields that only the server writes.
pub fn create(kind: &Kind, object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        meta::unset(object, field);
    }
    if has_generation(kind) {
        meta::set(object, "generation", 1);
    }
    // As upstream, a Node keeps the status with which its kubelet registers it.
    let is_node = kind.group.is_empty() && kind.kind == "Node";
    if let Some(map) = object.as_object_mut()
        && kind.has_status()
    {
        if is_custom(kind) {
            map.remove("status");
        } else if !is_node {
            map.insert("status".to_owned(), initial_status(kind));
        }
    }
}

/// Adds the counts that upstream always writes to the status of a new object.
fn initial_status(kind: &Kind) -> Value {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"availableReplicas": 0, "replicas": 0}),
        ("apps", "DaemonSet") => {
            json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
        }
        ("autoscaling", _) => json!({"desiredReplicas": 0}),
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        ("policy", "PodDisruptionBudget") => json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
        _ => json!({}),
    }
}

/// Prepares a changed object: the main resource and each subresource change their own part.
pub fn update(kind: &Kind, sub: Option<&str>, new: &mut Value, old: &Value) {
    metadata(new, old);
    if !kind.has_status() {
        return;
    }
    match sub {
        Some("status" | "approval") => keep_all_but(new, old, &["metadata", "status"]),
        _ => keep(new, old, "status"),
    }
    if sub == Some("status") && is_custom(kind) {
        let managed = new.get("metadata").and_then(|m| m.get("managedFields")).cloned();
        let version = meta::resource_version(new).to_owned();
        keep(new, old, "metadata");
        meta::set(new, "resourceVersion", version);
        if let Some(managed) = managed {
            meta::set(new, "managedFields", managed);
        }
    }
}

/// Copies omitted metadata from the stored object; a deletion cannot be undone.
fn metadata(new: &mut Value, old: &Value) {
    let Some(old) = old.get("metadata").and_then(Value::as_object) else {
        return;
    };
    let Some(new) = meta::metadata_mut(new) else {
        return;
    };
    new.remove("selfLink");
    put(new, "generation", old.get("generation"));
    for field in ["uid", "creationTimestamp", "deletionGracePeriodSeconds", "name", "namespace"] {
        if new.get(field).is_none_or(api_model::zero::is_zero) && old.contains_key(field) {
            put(new, field, old.get(field));
        }
    }
    if old.contains_key("deletionTimestamp") {
        put(new, "deletionTimestamp", old.get("deletionTimestamp"));
    }
}

fn put(map: &mut Map<String, Value>, field: &str, value: Option<&Value>) {
    // Most often nothing differs, and to compare costs less than to copy.
    if map.get(field) == value {
        return;
    }
    match value {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Copies a top-level field from the old object.
pub fn keep(new: &mut Value, old: &Value, field: &str) {
    if let Some(map) = new.as_object_mut() {
        put(map, field, old.get(field));
    }
}

/// Copies every top-level field from the old object, except the named ones.
fn keep_all_but(new: &mut Value, old: &Value, changed: &[&str]) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else {
        return;
    };
    let fixed = |field: &str| !changed.contains(&field) && field != "apiVersion" && field != "kind";
    new.retain(|field, _| !fixed(field));
    new.extend(old.iter().filter(|(field, _)| fixed(field)).map(|(field, value)| (field.clone(), value.clone())));
}

/// Increments the generation for a change of the desired state.
pub fn bump_generation(kind: &Kind, sub: Option<&str>, new: &mut Value, old: &Value) {
    if !has_generation(kind) || matches!(sub, Some("status" | "approval")) || !desired_state_differs(kind, new, old) {
        return;
    }
    let generation = At::root(old).find("metadata.generation").int();
    meta::set(new, "generation", generation + 1);
}

fn desired_state_differs(kind: &Kind, new: &Value, old: &Value) -> bool {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment") => {
            let annotations = |object| At::root(object).find("metadata.annotations").value();
            !same(new.get("spec"), old.get("spec")) || !same_field("annotations", annotations(new), annotations(old))
        }
        ("scheduling.k8s.io", _) => false,
        ("discovery.k8s.io" | "admissionregistration.k8s.io", _) => rest_differs(new, old),
        _ if is_custom(kind) => custom_differs(new, old),
        _ => !same(new.get("spec"), old.get("spec")),
    }
}

/// Whether anything but metadata and status differs.
fn rest_differs(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    let counts = |field: &&String| field.as_str() != "metadata" && field.as_str() != "status";
    new.keys().chain(old.keys()).filter(counts).any(|field| !same_field(field, new.get(field), old.get(field)))
}

/// Whether anything but metadata differs in a custom resource, where an empty field differs from an absent one. The
/// status is already the old one, unless the kind has no status subresource.
fn custom_differs(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    new.keys().chain(old.keys()).filter(|field| *field != "metadata").any(|field| new.get(field) != old.get(field))
}

#[cfg(test)]
mod tests;
