//! PersistentVolumeClaim.

use std::cmp::Ordering;

use api_model::zero::same;
use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, Fields, fill, fill_absent, inner};
use crate::pod::claim_spec;
use crate::{difference, quantity};

/// The rules of PersistentVolumeClaims.
pub const RULES: Rules = Rules { prepare_create, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        fill_absent(spec, "volumeMode", "Filesystem");
        mirror_data_source(spec);
    }
    if let Some(status) = object.as_object_mut().and_then(|fields| edit::make(fields, "status")) {
        fill(status, "phase", "Pending");
    }
}

/// Fills `dataSource` or `dataSourceRef` from the other one, unless `dataSourceRef` has a namespace.
fn mirror_data_source(spec: &mut Fields) {
    let (old, new) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (old, new) {
        (Some(old), None) => spec.insert("dataSourceRef".to_owned(), old),
        (None, Some(new)) if new.get("namespace").is_none() => spec.insert("dataSource".to_owned(), new),
        _ => None,
    };
}

fn prepare_create(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), json!({"phase": "Pending"}));
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    claim_spec::validate(&object.get("spec"), checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        let modes = At::new(new.find("spec.accessModes").value(), api_model::field::Path::new("Spec").child("accessModes"));
        if modes.len() == 0 {
            checks.required(&modes, "");
        }
        return;
    }
    validate_create(new, checks);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let mut munged = spec.value().and_then(Value::as_object).cloned().unwrap_or_default();
    let mut put = |name: &str, value: Option<&Value>| {
        match value {
            Some(value) => munged.insert(name.to_owned(), value.clone()),
            None => munged.remove(name),
        };
    };
    if before.get("volumeName").text().is_empty() {
        put("volumeName", before.get("volumeName").value());
    }
    if !before.get("storageClassName").exists() {
        put("storageClassName", None);
    }
    if new.find("status.phase").text() == "Bound" {
        if spec.get("volumeAttributesClassName").exists() {
            put("volumeAttributesClassName", before.get("volumeAttributesClassName").value());
        }
        if let (Some(requests), Some(storage)) = (
            inner(&mut munged, "resources").and_then(|resources| inner(resources, "requests")),
            before.find("resources.requests.storage").value(),
        ) {
            requests.insert("storage".to_owned(), storage.clone());
        }
    }
    let munged = Value::Object(munged);
    if !same(Some(&munged), before.value()) {
        let changes = difference::describe(before.value(), Some(&munged));
        let words = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        checks.forbidden(&spec, format!("{words}\n{changes}"));
    }
    let size = "resources.requests.storage";
    let (now, was) = (spec.find(size), before.find(size));
    if quantity::compare(now.text(), was.text()) == Ordering::Less
        && quantity::compare(now.text(), old.find("status.capacity.storage").text()) != Ordering::Greater
    {
        checks.forbidden(&now, "field can not be less than status.capacity");
    }
}
