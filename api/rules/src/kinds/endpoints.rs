//! Endpoints.

use std::net::IpAddr;

use serde_json::Value;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{each, fill};
use crate::format;

/// The rules of Endpoints.
pub const RULES: Rules = Rules { warnings, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        for subset in each(fields, "subsets") {
            for port in each(subset, "ports") {
                fill(port, "protocol", "TCP");
            }
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    for subset in object.get("subsets").items() {
        let (ready, unready, ports) = (subset.get("addresses"), subset.get("notReadyAddresses"), subset.get("ports"));
        if ready.len() == 0 && unready.len() == 0 {
            checks.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(unready.items()) {
            self::address(&address, checks);
        }
        for port in ports.items() {
            let name = port.get("name");
            if !name.text().is_empty() {
                checks.dns_label(&name);
            } else if ports.len() > 1 {
                checks.required(&name, "");
            }
            checks.port(&port.get("port"));
            checks.one_of(&port.get("protocol"), &["SCTP", "TCP", "UDP"]);
            if port.get("appProtocol").exists() {
                checks.qualified_name(&port.get("appProtocol"));
            }
        }
    }
}

fn address(address: &At<'_>, checks: &mut Checks) {
    let ip = address.get("ip");
    checks.format(&ip, format::ip(ip.text()));
    if !address.get("hostname").text().is_empty() {
        checks.dns_label(&address.get("hostname"));
    }
    if address.get("nodeName").exists() {
        checks.dns_subdomain(&address.get("nodeName"));
    }
    not_special_ip(&ip, checks);
}

/// Unspecified, loopback and link-local addresses cannot be endpoints.
pub fn not_special_ip(at: &At<'_>, checks: &mut Checks) {
    let Ok(ip) = at.text().parse::<IpAddr>() else {
        return checks.invalid_value(&at.path, at.text(), "must be a valid IP address");
    };
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), matches!(v4.octets(), [224, 0, 0, _])),
        IpAddr::V6(v6) => {
            (v6.is_unicast_link_local(), v6.octets().first() == Some(&0xff) && v6.octets().get(1).is_some_and(|b| b & 0x0f == 2))
        }
    };
    if ip.is_unspecified() {
        checks.invalid(at, format!("may not be unspecified ({})", at.text()));
    }
    if ip.is_loopback() {
        checks.invalid(at, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        checks.invalid(at, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_multicast {
        checks.invalid(at, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
}

fn warnings(_object: &At<'_>) -> Vec<String> {
    vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()]
}
