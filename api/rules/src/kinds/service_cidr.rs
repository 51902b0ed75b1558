//! ServiceCIDR and IPAddress: the ranges of Service addresses, and the owners of addresses.

use ipnet::IpNet;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// The rules of ServiceCIDRs.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);
/// The rules of IPAddresses.
pub const ADDRESS: Rules = Rules::new(|_| {}, validate_address, update_address);

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let (spec, ranges) = (object.get("spec"), object.find("spec.cidrs"));
    match ranges.len() {
        0 => return checks.required(&ranges, "at least one CIDR required"),
        1 => {}
        2 => {
            let families: Vec<bool> =
                ranges.texts().filter_map(|range| range.parse::<IpNet>().ok()).map(|range| range.addr().is_ipv4()).collect();
            if !matches!(families.as_slice(), [a, b] if a != b) {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                return checks.invalid_value(&ranges.path, spec.value_or_null(), detail);
            }
        }
        _ => return checks.invalid_value(&ranges.path, spec.value_or_null(), "may only hold up to 2 values"),
    }
    for range in ranges.items() {
        checks.format(&range, format::cidr(range.text()));
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        checks.immutable(&new.find("spec.cidrs"), &old.find("spec.cidrs"));
    }
}

fn validate_address(object: &At<'_>, checks: &mut Checks) {
    let parent = object.find("spec.parentRef");
    if !parent.exists() {
        return checks.required(&parent, "");
    }
    // The core group is the empty text, so an absent group is valid.
    if !parent.get("group").text().is_empty() {
        checks.dns_subdomain(&parent.get("group"));
    }
    for field in ["resource", "name"] {
        let at = parent.get(field);
        if at.text().is_empty() {
            checks.required(&at, "");
        } else {
            checks.format(&at, format::path_segment(at.text()));
        }
    }
    let namespace = parent.get("namespace");
    if !namespace.text().is_empty() {
        checks.format(&namespace, format::path_segment(namespace.text()));
    }
}

fn update_address(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    checks.immutable(&new.find("spec.parentRef"), &old.find("spec.parentRef"));
}
