//! Node.

use api_model::zero::is_zero;
use std::collections::HashSet;

use serde_json::Value;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::fill;
use crate::format;
use crate::pod::{self, resources};

/// The rules of Nodes.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

fn default(object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        && let Some(capacity) = status.get("capacity").cloned()
    {
        fill(status, "allocatable", capacity);
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        mirror_cidrs(spec);
    }
}

/// `podCIDR` equals the first of `podCIDRs`.
fn mirror_cidrs(spec: &mut crate::edit::Fields) {
    let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
    match (spec.get("podCIDR").filter(|cidr| !is_zero(cidr)).cloned(), first) {
        (None, Some(first)) => {
            spec.insert("podCIDR".to_owned(), first);
        }
        (Some(single), first) if first.as_ref() != Some(&single) => {
            spec.insert("podCIDRs".to_owned(), Value::Array(vec![single]));
        }
        _ => {}
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    taints(object, checks);
    amounts(object, checks);
    let cidrs = object.find("spec.podCIDRs");
    let mut seen = HashSet::new();
    for cidr in cidrs.items() {
        checks.format(&cidr, format::cidr(cidr.text()));
        if !seen.insert(cidr.text()) {
            checks.duplicate(&cidr);
        }
    }
    let sixes = cidrs.texts().filter(|cidr| cidr.contains(':')).count();
    if sixes > 1 || cidrs.len() - sixes > 1 {
        checks.invalid(&cidrs, "may specify no more than one CIDR for each IP family");
    }
}

/// Upstream reports taints below `metadata`.
fn taints(object: &At<'_>, checks: &mut Checks) {
    let path = object.get("metadata").path.child("taints");
    pod::taints(&At::new(object.find("spec.taints").value(), path), checks);
}

fn amounts(object: &At<'_>, checks: &mut Checks) {
    for list in ["capacity", "allocatable"] {
        let list = object.get("status").get(list);
        for (name, amount) in list.entries() {
            resources::validate_quantity(name, &At::new(amount.value(), list.path.child(name)), checks);
        }
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    amounts(new, checks);
    let mut seen = Vec::new();
    for address in new.find("status.addresses").items() {
        if seen.contains(&address.value()) {
            checks.duplicate(&address);
        }
        seen.push(address.value());
    }
    let (cidrs, before) = (new.find("spec.podCIDRs"), old.find("spec.podCIDRs"));
    if before.len() > 0 && !cidrs.same(&before) {
        checks.forbidden(&cidrs, "node updates may not change podCIDR except from \"\" to valid");
    }
    let (provider, before) = (new.find("spec.providerID"), old.find("spec.providerID"));
    if !before.text().is_empty() && provider.text() != before.text() {
        checks.forbidden(&provider, "node updates may not change providerID except from \"\" to valid");
    }
    taints(new, checks);
}
