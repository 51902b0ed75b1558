//! StorageClass, CSIDriver and CSINode: small kinds of one group.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill_absent};
use crate::{format, pod};

/// The rules of StorageClasses.
pub const CLASS: Rules = Rules::new(default_class, validate_class, update_class);
/// The rules of CSIDrivers.
pub const DRIVER: Rules = Rules::new(default_driver, validate_driver, update_driver);
/// The rules of CSINodes.
pub const NODE: Rules = Rules::new(|_| {}, validate_node, |_, new, _, checks| validate_node(new, checks));

const PARAMETERS_BYTES_MAX: usize = 256 * 1024;
const PARAMETERS_MAX: usize = 512;
const DRIVER_NAME_LEN_MAX: usize = 63;

fn default_class(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fill_absent(fields, "reclaimPolicy", "Delete");
        fill_absent(fields, "volumeBindingMode", "Immediate");
    }
}

fn validate_class(class: &At<'_>, checks: &mut Checks) {
    let provisioner = class.get("provisioner");
    if provisioner.text().is_empty() {
        checks.required(&provisioner, "");
    } else {
        checks.format(&provisioner, format::qualified_name(&provisioner.text().to_lowercase()));
    }
    parameters(&class.get("parameters"), checks);
    let reclaim = class.get("reclaimPolicy");
    if !reclaim.text().is_empty() {
        checks.one_of(&reclaim, &["Delete", "Retain"]);
    }
    let mode = class.get("volumeBindingMode");
    if mode.exists() {
        checks.one_of_if_set(&mode, &["Immediate", "WaitForFirstConsumer"]);
    } else {
        checks.required(&mode, "");
    }
    for term in class.get("allowedTopologies").items() {
        pod::topology_term(&term, checks);
    }
}

fn parameters(parameters: &At<'_>, checks: &mut Checks) {
    if parameters.len() > PARAMETERS_MAX {
        let detail = format!("must have at most {PARAMETERS_MAX} entries");
        checks.push(api_model::field::FieldError { detail, ..api_model::field::FieldError::too_long(&parameters.path, PARAMETERS_MAX) });
        return;
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            checks.invalid_value(&parameters.path, key, "field can not be empty.");
        }
        bytes += key.len() + value.text().len();
    }
    if bytes > PARAMETERS_BYTES_MAX {
        checks.too_long(parameters, PARAMETERS_BYTES_MAX);
    }
}

fn update_class(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        if !new.get(field).same(&old.get(field)) {
            checks.forbidden(&new.get(field), format!("updates to {field} are forbidden."));
        }
    }
    checks.immutable(&new.get("volumeBindingMode"), &old.get("volumeBindingMode"));
    for term in new.get("allowedTopologies").items() {
        pod::topology_term(&term, checks);
    }
}

fn default_driver(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        fill_absent(spec, "attachRequired", true);
        fill_absent(spec, "podInfoOnMount", false);
        fill_absent(spec, "storageCapacity", false);
        fill_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        fill_absent(spec, "requiresRepublish", false);
        fill_absent(spec, "seLinuxMount", false);
        if edit::is_list_empty(spec, "volumeLifecycleModes") {
            spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
        }
    }
}

fn driver_name(name: &At<'_>, checks: &mut Checks) {
    if name.text().is_empty() {
        checks.required(name, "");
    }
    if name.text().len() > DRIVER_NAME_LEN_MAX {
        checks.too_long(name, DRIVER_NAME_LEN_MAX);
    }
    for message in format::dns_subdomain(&name.text().to_lowercase()) {
        checks.invalid(name, message);
    }
}

fn validate_driver(driver: &At<'_>, checks: &mut Checks) {
    driver_name(&driver.find("metadata.name"), checks);
    let spec = driver.get("spec");
    for field in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if !spec.get(field).exists() {
            checks.required(&spec.get(field), "");
        }
    }
    checks.one_of_if_set(&spec.get("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
    for mode in spec.get("volumeLifecycleModes").items() {
        checks.one_of(&mode, &["Ephemeral", "Persistent"]);
    }
}

fn update_driver(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_driver(new, checks);
    for field in ["attachRequired", "volumeLifecycleModes"] {
        checks.immutable(&new.get("spec").get(field), &old.get("spec").get(field));
    }
}

fn validate_node(node: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for driver in node.find("spec.drivers").items() {
        driver_name(&driver.get("name"), checks);
        if driver.get("nodeID").text().is_empty() {
            checks.required(&driver.get("nodeID"), "");
        }
        if !seen.insert(driver.get("name").text()) {
            checks.duplicate(&driver.get("name"));
        }
    }
}
