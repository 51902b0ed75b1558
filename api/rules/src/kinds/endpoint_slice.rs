//! EndpointSlice.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::{Rules, endpoints};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{each, fill, fill_absent};
use crate::format;

/// The rules of EndpointSlices.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const ZONE_HINTS_MAX: usize = 8;

fn default(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        for port in each(fields, "ports") {
            fill_absent(port, "name", "");
            fill(port, "protocol", "TCP");
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let kind = object.get("addressType");
    checks.one_of(&kind, &["FQDN", "IPv4", "IPv6"]);
    let endpoints = object.get("endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        checks.too_many(&endpoints, ENDPOINTS_MAX);
    } else {
        for endpoint in endpoints.items() {
            self::endpoint(&endpoint, kind.text(), checks);
        }
    }
    ports(&object.get("ports"), checks);
}

fn endpoint(endpoint: &At<'_>, kind: &str, checks: &mut Checks) {
    let addresses = endpoint.get("addresses");
    if addresses.len() == 0 {
        checks.required(&addresses, "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        checks.too_many(&addresses, ADDRESSES_MAX);
    }
    for address in addresses.items() {
        match kind {
            "IPv4" if address.text().parse::<Ipv4Addr>().is_err() => checks.invalid(&address, "must be a valid IPv4 address"),
            "IPv6" if address.text().parse::<Ipv6Addr>().is_err() => checks.invalid(&address, "must be a valid IPv6 address"),
            "IPv4" | "IPv6" => endpoints::not_special_ip(&address, checks),
            "FQDN" => domain_name(&address, checks),
            _ => {}
        }
    }
    if endpoint.get("nodeName").exists() {
        checks.dns_subdomain(&endpoint.get("nodeName"));
    }
    checks.labels(&endpoint.get("deprecatedTopology"));
    if endpoint.get("hostname").exists() {
        checks.dns_label(&endpoint.get("hostname"));
    }
    let zones = endpoint.get("hints").get("forZones");
    if zones.len() > ZONE_HINTS_MAX {
        checks.too_many(&zones, ZONE_HINTS_MAX);
    }
    for zone in zones.items() {
        checks.format(&zone.get("name"), format::label_value(zone.get("name").text()));
    }
}

fn domain_name(address: &At<'_>, checks: &mut Checks) {
    let name = address.text().strip_suffix('.').unwrap_or(address.text());
    let wrong = format::dns_subdomain(name);
    if name.is_empty() {
        checks.required(address, "");
    } else if !wrong.is_empty() {
        checks.invalid_value(&address.path, name, wrong.join(","));
    } else if !name.contains('.') {
        checks.invalid_value(&address.path, name, "should be a domain with at least two segments separated by dots");
    }
}

fn ports(ports: &At<'_>, checks: &mut Checks) {
    if ports.len() > PORTS_MAX {
        return checks.too_many(ports, PORTS_MAX);
    }
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            checks.dns_label(&name);
        }
        if !names.insert(name.text()) {
            checks.duplicate(&name);
        }
        checks.one_of(&port.get("protocol"), &["SCTP", "TCP", "UDP"]);
        if port.get("appProtocol").exists() {
            checks.qualified_name(&port.get("appProtocol"));
        }
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
    checks.immutable(&new.get("addressType"), &old.get("addressType"));
}
