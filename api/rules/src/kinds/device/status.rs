//! The status of a ResourceClaim: allocated devices, users of the claim, and the state of the devices.

use std::collections::HashSet;

use ipnet::IpNet;

use super::claim::RequestNames;
use super::{LIST_LEN_MAX, binding_conditions, configuration, list, pool_name, raw, set, skipped_operations, taint, uid};
use crate::at::At;
use crate::checks::Checks;
use crate::kinds::storage::driver_name;
use crate::{conditions, pod};

/// Most users of a claim at the same time.
const RESERVED_MAX: usize = 256;
/// Most allocated devices of a claim.
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const DATA_LEN_MAX: usize = 10 * 1024;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_NAME_LEN_MAX: usize = 256;
const HARDWARE_ADDRESS_LEN_MAX: usize = 128;

pub(super) fn validate(new: &At<'_>, old: &At<'_>, names: &RequestNames<'_>, checks: &mut Checks) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (allocation, reserved) = (status.get("allocation"), status.get("reservedFor"));
    set(&reserved, RESERVED_MAX, "uid", checks, |user, checks| {
        for field in ["resource", "name", "uid"] {
            if user.get(field).text().is_empty() {
                checks.required(&user.get(field), "");
            }
        }
    });
    devices(&status.get("devices"), &allocation, checks);
    if reserved.len() > 0 && !allocation.exists() {
        checks.forbidden(&reserved, "may not be specified when `allocated` is not set");
    } else if new.find("metadata.deletionTimestamp").exists() {
        let previous_uids: HashSet<&str> = before.get("reservedFor").items().map(|user| user.get("uid").text()).collect();
        if reserved.items().any(|user| !previous_uids.contains(user.get("uid").text())) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            checks.forbidden(&reserved, detail);
        }
    }
    match (before.get("allocation").exists(), allocation.exists()) {
        (true, true) => checks.immutable(&allocation, &before.get("allocation")),
        (false, true) => self::allocation(&allocation, names, checks),
        (_, false) => {}
    }
}

fn allocation(allocation: &At<'_>, names: &RequestNames<'_>, checks: &mut Checks) {
    let devices = allocation.get("devices");
    list(&devices.get("results"), RESULTS_MAX, checks, |result, checks| self::result(result, names, checks));
    // Configurations of the classes and of the claim.
    list(&devices.get("config"), 2 * LIST_LEN_MAX, checks, |config, checks| {
        checks.one_of(&config.get("source"), &["FromClaim", "FromClass"]);
        names.validate_all(&config.get("requests"), checks);
        configuration(config, checks);
    });
    if allocation.get("nodeSelector").exists() {
        pod::node_selector(&allocation.get("nodeSelector"), checks);
    }
}

fn result(result: &At<'_>, names: &RequestNames<'_>, checks: &mut Checks) {
    names.validate(&result.get("request"), checks);
    identity(result, checks);
    binding_conditions(result, checks);
    result.get("tolerations").items().for_each(|toleration| taint::toleration(&toleration, checks));
    skipped_operations(&result.get("skipNodeOperations"), checks);
}

/// Driver, pool and device identify a device; a share of a device also has an id.
fn identity(device: &At<'_>, checks: &mut Checks) {
    driver_name(&device.get("driver"), checks);
    pool_name(&device.get("pool"), checks);
    checks.dns_label(&device.get("device"));
    if device.get("shareID").exists() {
        uid(&device.get("shareID"), checks);
    }
}

fn id(device: &At<'_>) -> String {
    let part = |field: &str| device.get(field).text().to_owned();
    let shared = part("shareID");
    let id = format!("{}/{}/{}", part("driver"), part("pool"), part("device"));
    if shared.is_empty() { id } else { format!("{id}/{shared}") }
}

fn devices(devices: &At<'_>, allocation: &At<'_>, checks: &mut Checks) {
    let allocated: HashSet<String> = allocation.find("devices.results").items().map(|result| id(&result)).collect();
    let mut seen = HashSet::new();
    for device in devices.items() {
        identity(&device, checks);
        if !allocated.contains(&id(&device)) {
            checks.invalid_value(&device.path, id(&device), "must be an allocated device in the claim");
        }
        let conditions = device.get("conditions");
        if conditions.len() > CONDITIONS_MAX {
            checks.too_many(&conditions, CONDITIONS_MAX);
        }
        conditions::validate(&conditions, checks);
        if device.get("data").exists() {
            raw(&device.get("data"), DATA_LEN_MAX, checks);
        }
        network(&device.get("networkData"), checks);
        if !seen.insert(id(&device)) {
            checks.push(api_model::field::FieldError::duplicate(&device.path, id(&device)));
        }
    }
}

fn network(data: &At<'_>, checks: &mut Checks) {
    for (field, max) in [("interfaceName", INTERFACE_NAME_LEN_MAX), ("hardwareAddress", HARDWARE_ADDRESS_LEN_MAX)] {
        if data.get(field).text().len() > max {
            checks.too_long(&data.get(field), max);
        }
    }
    set(&data.get("ips"), ADDRESSES_MAX, "", checks, |address, checks| match address.text().parse::<IpNet>() {
        Err(_) => checks.invalid(address, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"),
        Ok(net) if net.to_string() != address.text() => {
            checks.invalid(address, format!("must be in canonical form (\"{net}\")"));
        }
        Ok(_) => {}
    });
}
