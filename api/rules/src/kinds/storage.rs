//! StorageClass, VolumeAttributesClass, CSIDriver, CSINode and CSIStorageCapacity: small kinds of one group.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill_absent};
use crate::{format, pod, quantity};

/// The rules of StorageClasses.
pub const CLASS: Rules = Rules::new(default_class, validate_class, update_class);
/// The rules of CSIDrivers.
pub const DRIVER: Rules = Rules::new(default_driver, validate_driver, update_driver);
/// The rules of CSINodes.
pub const NODE: Rules = Rules::new(|_| {}, validate_node, |_, new, old, checks| update_node(new, old, checks));

/// The rules of CSIStorageCapacities.
pub const CAPACITY: Rules = Rules::new(|_| {}, validate_capacity, update_capacity);
/// The rules of VolumeAttributesClasses.
pub const ATTRIBUTES_CLASS: Rules = Rules::new(|_| {}, validate_attributes_class, update_attributes_class);

/// The longest id of a node in the form of a driver.
const NODE_ID_LEN_MAX: usize = 256;
/// The shortest period in which a driver reports how many volumes a node takes.
const ALLOCATABLE_PERIOD_SECONDS_MIN: i64 = 10;
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
    provisioner(&class.get("provisioner"), checks);
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

/// The name of a provisioner.
fn provisioner(name: &At<'_>, checks: &mut Checks) {
    if name.text().is_empty() {
        checks.required(name, "");
    } else {
        checks.format(name, format::qualified_name(&name.text().to_lowercase()));
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

/// The name of a driver.
pub(super) fn driver_name(name: &At<'_>, checks: &mut Checks) {
    if name.text().is_empty() {
        checks.required(name, "");
    }
    if name.text().len() > DRIVER_NAME_LEN_MAX {
        checks.too_long(name, DRIVER_NAME_LEN_MAX);
    }
    for message in format::dns_subdomain(&name.text().to_lowercase()) {
        checks.invalid_value(&name.path, name.text(), message);
    }
}

fn validate_driver(driver: &At<'_>, checks: &mut Checks) {
    driver_name(&driver.find("metadata.name"), checks);
    let spec = driver.get("spec");
    for field in ["attachRequired", "podInfoOnMount", "storageCapacity", "seLinuxMount"] {
        if !spec.get(field).exists() {
            // Upstream's message has another name for this field.
            let name = if field == "attachRequired" { "attachedRequired" } else { field };
            checks.required(&At::new(None, spec.path.child(name)), "");
        }
    }
    checks.one_of_if_set(&spec.get("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
    token_requests(&spec.get("tokenRequests"), checks);
    for mode in spec.get("volumeLifecycleModes").items() {
        checks.one_of(&mode, &["Ephemeral", "Persistent"]);
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.exists() && period.int() < ALLOCATABLE_PERIOD_SECONDS_MIN {
        checks.invalid(&period, format!("must be greater than or equal to {ALLOCATABLE_PERIOD_SECONDS_MIN} seconds"));
    }
}

/// Audiences must be unique, and tokens must live from ten minutes to 2^32 seconds.
fn token_requests(requests: &At<'_>, checks: &mut Checks) {
    const LIFE_SECONDS_MIN: i64 = 600;
    const LIFE_SECONDS_MAX: i64 = 1 << 32;
    let mut seen = HashSet::new();
    for request in requests.items() {
        let (audience, expiration) = (request.get("audience"), request.get("expirationSeconds"));
        if !seen.insert(audience.text()) {
            checks.duplicate(&audience);
        }
        if expiration.exists() && expiration.int() < LIFE_SECONDS_MIN {
            checks.invalid(&expiration, "may not specify a duration less than 10 minutes");
        }
        if expiration.int() > LIFE_SECONDS_MAX {
            checks.invalid(&expiration, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

fn update_driver(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_driver(new, checks);
    for (field, name) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        let now = new.get("spec").get(field);
        checks.immutable(&At::new(now.value(), new.get("spec").path.child(name)), &old.get("spec").get(field));
    }
}

fn validate_node(node: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for driver in node.find("spec.drivers").items() {
        driver_name(&driver.get("name"), checks);
        let id = driver.get("nodeID");
        if id.text().is_empty() {
            checks.required(&id, "");
        }
        if id.text().len() > NODE_ID_LEN_MAX {
            checks.invalid(&id, format!("must be {NODE_ID_LEN_MAX} characters or less"));
        }
        checks.not_negative(&driver.find("allocatable.count"));
        if !seen.insert(driver.get("name").text()) {
            checks.duplicate(&driver.get("name"));
        }
        topology_keys(&driver, checks);
    }
}

/// As upstream, an error of a key has the path of the driver.
fn topology_keys(driver: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for key in driver.get("topologyKeys").items() {
        let at = At::new(key.value(), driver.path.clone());
        if key.text().is_empty() {
            checks.required(&at, "");
        }
        if !seen.insert(key.text()) {
            checks.duplicate(&at);
        }
        checks.qualified_name(&at);
    }
}

/// The id and the topology keys of a driver do not change on a node; the number of its volumes may change.
fn update_node(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_node(new, checks);
    for before in old.find("spec.drivers").items() {
        let name = before.get("name");
        for now in new.find("spec.drivers").items().filter(|driver| driver.get("name").text() == name.text()) {
            if ["nodeID", "topologyKeys"].iter().any(|field| !now.get(field).same(&before.get(field))) {
                let path = new.find("spec.drivers").path;
                checks.invalid_value(&path, now.value_or_null(), crate::checks::IMMUTABLE);
            }
        }
    }
}

fn validate_capacity(capacity: &At<'_>, checks: &mut Checks) {
    checks.label_selector(&capacity.get("nodeTopology"));
    checks.format(&capacity.get("storageClassName"), format::dns_subdomain(capacity.get("storageClassName").text()));
    for field in ["capacity", "maximumVolumeSize"] {
        let amount = capacity.get(field);
        if quantity::parse(amount.text()).is_ok_and(|parsed| parsed.nano() < 0) {
            checks.invalid(&amount, crate::checks::NOT_NEGATIVE);
        }
    }
}

fn update_capacity(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_capacity(new, checks);
    for field in ["nodeTopology", "storageClassName"] {
        checks.immutable(&new.get(field), &old.get(field));
    }
}

fn validate_attributes_class(class: &At<'_>, checks: &mut Checks) {
    provisioner(&class.get("driverName"), checks);
    let parameters = class.get("parameters");
    if parameters.len() == 0 {
        checks.required(&parameters, "must contain at least one key/value pair");
    }
    self::parameters(&parameters, checks);
}

fn update_attributes_class(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    for field in ["driverName", "parameters"] {
        if !new.get(field).same(&old.get(field)) {
            checks.forbidden(&new.get(field), format!("updates to {field} are forbidden."));
        }
    }
    validate_attributes_class(new, checks);
}
