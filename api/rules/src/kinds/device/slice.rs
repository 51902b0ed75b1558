//! ResourceSlice: the devices that a driver offers, on which nodes, and counters that devices share.

use api_model::huge_pages::is_huge_page;
use serde_json::Value;

use super::{
    attribute, binding_conditions, capacity, fully_qualified_name, list, pool_name, qualified_name, set, skipped_operations, taint,
};
use crate::at::At;
use crate::checks::Checks;
use crate::kinds::storage::driver_name;
use crate::{edit, format, pod, quantity};

/// Most devices of a slice; the second limit applies where a device has taints, counters or lists.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;
const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
const ATTRIBUTE_VALUES_MAX: usize = 48;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMPTIONS_MAX: usize = 2;
const GROUPS_MAX: usize = 2;

pub(super) fn default(slice: &mut Value) {
    let Some(spec) = slice.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for device in edit::each(spec, "devices") {
        edit::each(device, "taints").for_each(taint::default);
    }
}

pub(super) fn validate_create(slice: &At<'_>, checks: &mut Checks) {
    validate(&slice.get("spec"), checks);
}

pub(super) fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate(&new.get("spec"), checks);
    for field in ["pool.name", "driver", "nodeName"] {
        checks.immutable(&new.get("spec").find(field), &old.get("spec").find(field));
    }
}

fn validate(spec: &At<'_>, checks: &mut Checks) {
    driver_name(&spec.get("driver"), checks);
    let pool = spec.get("pool");
    pool_name(&pool.get("name"), checks);
    checks.positive(&pool.get("resourceSliceCount"));
    if pool.get("generation").int() < 0 {
        checks.invalid(&pool.get("generation"), "must be greater than or equal to zero");
    }
    let node_fields = node_fields(spec, checks);
    let each = spec.get("perDeviceNodeSelection");
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match node_fields.len() + usize::from(each.flag()) {
        0 => checks.required(spec, one),
        1 => {}
        _ => {
            let all: Vec<&str> = node_fields.into_iter().chain(each.flag().then_some("`perDeviceNodeSelection`")).collect();
            checks.invalid_value(&spec.path, format!("{{{}}}", all.join(", ")), format!("{one}, but multiple fields are set"));
        }
    }
    if each.exists() && !each.flag() {
        checks.invalid(&each, "must be either unset or set to true");
    }
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    if devices.exists() && counters.exists() {
        checks.invalid_value(&spec.path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let max = if devices.items().any(|device| is_advanced(&device)) { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
    set(&devices, max, "name", checks, |device, checks| self::device(device, each.flag(), checks));
    set(&counters, COUNTER_SETS_MAX, "name", checks, |counters, checks| counter_set(counters, "name", checks));
    if spec.get("partitionTypeAttribute").exists() {
        partition_type(spec, checks);
    }
    skipped_operations(&spec.get("skipNodeOperations"), checks);
}

fn is_advanced(device: &At<'_>) -> bool {
    let lists = device.get("attributes").entries().any(|(_, value)| attribute::is_list(&value));
    lists || device.get("taints").len() > 0 || device.get("consumesCounters").len() > 0
}

/// The fields of a slice or device that select its nodes.
fn node_fields(owner: &At<'_>, checks: &mut Checks) -> Vec<&'static str> {
    let (name, selector, all) = (owner.get("nodeName"), owner.get("nodeSelector"), owner.get("allNodes"));
    let mut fields = Vec::new();
    if name.exists() && name.text().is_empty() {
        checks.invalid(&name, "must be either unset or set to a non-empty string");
    } else if name.exists() {
        fields.push("`nodeName`");
        checks.dns_subdomain(&name);
    }
    if selector.exists() {
        fields.push("`nodeSelector`");
        pod::node_selector(&selector, checks);
        if selector.get("nodeSelectorTerms").len() != 1 {
            checks.invalid(&selector.get("nodeSelectorTerms"), "must have exactly one node selector term");
        }
    }
    if all.flag() {
        fields.push("`allNodes`");
    } else if all.exists() {
        checks.invalid(&all, "must be either unset or set to true");
    }
    fields
}

fn device(device: &At<'_>, by_device: bool, checks: &mut Checks) {
    checks.dns_label(&device.get("name"));
    let (attributes, capacities) = (device.get("attributes"), device.get("capacity"));
    let count = attributes.len() + capacities.len();
    if count > ATTRIBUTES_AND_CAPACITIES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}");
        checks.invalid_value(&device.path, count, detail);
    }
    let values: usize = attributes.entries().map(|(_, value)| attribute::values(&value)).sum();
    if values > ATTRIBUTE_VALUES_MAX {
        let detail = format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}");
        checks.invalid_value(&device.path, values, detail);
    }
    for (name, value) in attributes.entries() {
        qualified_name(&attributes, name, checks);
        attribute::validate(&value, checks);
    }
    for (name, value) in capacities.entries() {
        qualified_name(&capacities, name, checks);
        capacity::validate(&value, device.get("allowMultipleAllocations").flag(), checks);
    }
    list(&device.get("taints"), TAINTS_MAX, checks, taint::validate);
    set(&device.get("consumesCounters"), CONSUMPTIONS_MAX, "counterSet", checks, |counters, checks| {
        counter_set(counters, "counterSet", checks);
        set(&counters.get("compatibilityGroups"), GROUPS_MAX, "", checks, |group, checks| checks.dns_label(group));
    });
    device_node_fields(device, by_device, checks);
    binding_conditions(device, checks);
    node_resources(&device.get("nodeAllocatableResources"), &capacities, checks);
}

fn device_node_fields(device: &At<'_>, by_device: bool, checks: &mut Checks) {
    if !by_device {
        if ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| device.get(field).exists()) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            checks.invalid_value(&device.path, Value::Null, detail);
        }
        return;
    }
    let node_fields = node_fields(device, checks);
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match node_fields.len() {
        0 => checks.required(device, detail),
        1 => {}
        _ => checks.invalid_value(&device.path, format!("{{{}}}", node_fields.join(", ")), detail),
    }
}

/// Checks the counters of the set with this name.
fn counter_set(counters: &At<'_>, name: &str, checks: &mut Checks) {
    let (name, counters) = (counters.get(name), counters.get("counters"));
    if name.text().is_empty() {
        checks.required(&name, "");
    } else {
        checks.dns_label(&name);
    }
    match counters.len() {
        0 => checks.required(&counters, ""),
        1..=COUNTERS_MAX => {
            for (counter, _) in counters.entries() {
                for message in format::dns_label(counter) {
                    checks.invalid_value(&counters.path, counter, message);
                }
            }
        }
        _ => checks.too_many(&counters, COUNTERS_MAX),
    }
}

/// The attribute that distinguishes partitions of a device: every device that consumes counters must have it as a text.
fn partition_type(spec: &At<'_>, checks: &mut Checks) {
    let at = spec.get("partitionTypeAttribute");
    let consumes = |device: &At<'_>| device.get("consumesCounters").len() > 0;
    let before = checks.count();
    fully_qualified_name(&at, checks);
    if !spec.get("devices").items().any(|device| consumes(&device)) {
        return checks.invalid(&at, "may only be set on a slice which declares devices that consume counters");
    }
    if checks.count() > before {
        return;
    }
    let bare = at.text().strip_prefix(spec.get("driver").text()).and_then(|rest| rest.strip_prefix('/')).unwrap_or(at.text());
    for device in spec.get("devices").items().filter(consumes) {
        let attributes = device.get("attributes");
        let attribute = Some(attributes.key(at.text())).filter(At::exists).unwrap_or_else(|| attributes.key(bare));
        let path = attributes.path.key(at.text());
        if !attribute.exists() {
            let detail = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set";
            checks.required(&At::new(None, path), detail);
        } else if !attribute.get("string").exists() {
            checks.invalid_value(
                &path,
                attribute.value_or_null(),
                "must be a string value because `partitionTypeAttribute` names this attribute",
            );
        }
    }
}

/// The amounts of the node's own resources that a use of the device takes.
fn node_resources(resources: &At<'_>, capacities: &At<'_>, checks: &mut Checks) {
    let sign = |at: &At<'_>| quantity::parse(at.text()).map_or(1, |parsed| parsed.nano().signum());
    for (name, resource) in resources.entries() {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_page(name) {
            checks.invalid_value(&resource.path, name, "must be a node allocatable resource name");
        }
        let (mapping, overhead) = (resource.get("mapping"), resource.get("overhead"));
        if !mapping.exists() && !overhead.exists() {
            checks.required(&resource, "at least one of mapping or overhead must be set");
        }
        let (key, by, of_device) = (mapping.get("capacityKey"), mapping.get("capacityMultiplier"), mapping.get("deviceMultiplier"));
        if key.exists() {
            if key.text().is_empty() {
                checks.invalid(&key, "capacityKey must not be an empty string");
            } else if !capacities.key(key.text()).exists() {
                checks.not_found(&key);
            }
            if !by.exists() {
                checks.required(&by, "capacityMultiplier is required when capacityKey is set");
            }
        } else if by.exists() {
            checks.required(&key, "capacityKey is required when capacityMultiplier is set");
        }
        for multiplier in [&by, &of_device] {
            if multiplier.exists() && sign(multiplier) <= 0 {
                checks.invalid(multiplier, "must be positive");
            }
        }
        let (pod, container) = (overhead.get("perPod"), overhead.get("perContainer"));
        if overhead.exists() && !pod.exists() && !container.exists() {
            checks.invalid_value(&overhead.path, "", "at least one of perPod or perContainer must be set");
        }
        for amount in [&pod, &container] {
            if amount.exists() && sign(amount) < 0 {
                checks.invalid(amount, "must be non-negative");
            }
        }
    }
}
