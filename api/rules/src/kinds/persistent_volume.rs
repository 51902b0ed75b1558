//! PersistentVolume.

use api_model::zero::same;
use serde_json::{Map, Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill, fill_absent};
use crate::pod::claim_spec::{VOLUME_MODES, access_modes};
use crate::pod::{self, defaults, resources};
use crate::{difference, quantity};

/// The rules of PersistentVolumes.
pub const RULES: Rules = Rules { prepare_create, ..Rules::new(default, validate_create, validate_update) };

/// Fields of the spec that are not volume sources.
const OTHER_FIELDS: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

fn default(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        fill(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill_absent(spec, "volumeMode", "Filesystem");
        defaults::persistent_source(spec);
    }
    if let Some(status) = object.as_object_mut().and_then(|fields| edit::make(fields, "status")) {
        fill(status, "phase", "Pending");
    }
}

fn prepare_create(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), json!({"phase": "Pending"}));
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    access_modes(&spec.get("accessModes"), "", checks);
    capacity(&spec.get("capacity"), checks);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !policy.text().is_empty() {
        checks.one_of(&policy, &["Delete", "Recycle", "Retain"]);
    }
    let affinity = spec.get("nodeAffinity");
    if affinity.exists() {
        if affinity.get("required").exists() {
            pod::node_selector(&affinity.get("required"), checks);
        } else {
            checks.required(&affinity.get("required"), "must specify required node constraints");
        }
    }
    if pod::persistent_source(&spec, checks) == 0 {
        checks.required(&spec, "must specify a volume type");
    }
    if spec.get("local").exists() && !affinity.exists() {
        checks.required(&affinity, "Local volume requires node affinity");
    }
    if spec.find("hostPath.path").text() == "/" && policy.text() == "Recycle" {
        checks.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
    }
    if !spec.get("storageClassName").text().is_empty() {
        checks.dns_subdomain(&spec.get("storageClassName"));
    }
    checks.one_of_if_set(&spec.get("volumeMode"), &VOLUME_MODES);
}

fn capacity(capacity: &At<'_>, checks: &mut Checks) {
    if capacity.len() == 0 {
        checks.required(capacity, "");
    } else if !capacity.key("storage").exists() || capacity.len() > 1 {
        checks.not_supported(capacity, &["storage"]);
    }
    for (name, amount) in capacity.entries() {
        if quantity::parse(amount.text()).is_ok_and(|parsed| parsed.nano() <= 0) {
            checks.invalid(&amount, "must be greater than zero");
        }
        resources::validate_quantity(name, &amount, checks);
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        return;
    }
    validate_create(new, checks);
    let source = |object: &At<'_>| -> Value {
        let fields: Map<String, Value> = object.get("spec").value().and_then(Value::as_object).cloned().unwrap_or_default();
        Value::Object(fields.into_iter().filter(|(name, _)| !OTHER_FIELDS.contains(&name.as_str())).collect())
    };
    let (now, before) = (source(new), source(old));
    if !same(Some(&now), Some(&before)) {
        let changes = difference::describe(Some(&before), Some(&now));
        let path = new.get("spec").get("persistentvolumesource");
        checks.forbidden(&path, format!("spec.persistentvolumesource is immutable after creation\n{changes}"));
    }
    // Upstream reports these two fields without `spec`.
    let top = |at: At<'_>, name: &str| (at.value_or_null(), api_model::field::Path::new(name));
    let mode = new.find("spec.volumeMode");
    if !mode.same(&old.find("spec.volumeMode")) {
        let (value, path) = top(mode, "volumeMode");
        checks.invalid_value(&path, value, crate::checks::IMMUTABLE);
    }
    let (affinity, before) = (new.find("spec.nodeAffinity"), old.find("spec.nodeAffinity"));
    if before.exists() && !affinity.same(&before) {
        let (value, path) = top(affinity, "nodeAffinity");
        checks.invalid_value(&path, value, "field is immutable, except for updating from beta label to GA");
    }
}
