//! NetworkPolicy.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, each, fill, is_list_empty};
use crate::{format, pod};

/// The rules of NetworkPolicies.
pub const RULES: Rules = Rules::new(default, validate_create, |_, new, _, checks| validate_create(new, checks));

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    edit::make(spec, "podSelector");
    for direction in ["ingress", "egress"] {
        for rule in each(spec, direction) {
            for port in each(rule, "ports") {
                fill(port, "protocol", "TCP");
            }
        }
    }
    if is_list_empty(spec, "policyTypes") {
        let types = if is_list_empty(spec, "egress") { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    checks.label_selector(&spec.get("podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            for port in rule.get("ports").items() {
                self::port(&port, checks);
            }
            for peer in rule.get(peers).items() {
                self::peer(&peer, checks);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        return checks.invalid(&types, "may not specify more than two policyTypes");
    }
    for kind in types.items() {
        if !["Ingress", "Egress"].contains(&kind.text()) {
            checks.not_supported(&kind, &["Ingress", "Egress"]);
        }
    }
}

fn port(rule: &At<'_>, checks: &mut Checks) {
    checks.one_of_if_set(&rule.get("protocol"), &["TCP", "UDP", "SCTP"]);
    let (port, end) = (rule.get("port"), rule.get("endPort"));
    if port.exists() {
        pod::validate_port(&port, checks);
    }
    if !end.exists() {
        return;
    }
    match port.value() {
        None => checks.invalid(&end, "may not be specified when `port` is not specified"),
        Some(Value::String(_)) => checks.invalid(&end, "may not be specified when `port` is non-numeric"),
        Some(_) => {
            if end.int() < port.int() {
                checks.invalid(&end, "must be greater than or equal to `port`");
            }
            checks.port(&end);
        }
    }
}

fn peer(peer: &At<'_>, checks: &mut Checks) {
    let (pods, namespaces, block) = (peer.get("podSelector"), peer.get("namespaceSelector"), peer.get("ipBlock"));
    checks.label_selector(&pods);
    checks.label_selector(&namespaces);
    if block.exists() {
        self::block(&block, checks);
        if pods.exists() || namespaces.exists() {
            checks.forbidden(peer, "may not specify both ipBlock and another peer");
        }
    } else if !pods.exists() && !namespaces.exists() {
        checks.required(peer, "must specify a peer");
    }
}

fn block(block: &At<'_>, checks: &mut Checks) {
    let cidr = block.get("cidr");
    if cidr.text().is_empty() {
        return checks.required(&cidr, "");
    }
    checks.format(&cidr, format::cidr(cidr.text()));
    let Ok(whole) = cidr.text().parse::<IpNet>() else {
        return;
    };
    for except in block.get("except").items() {
        checks.format(&except, format::cidr(except.text()));
        if let Ok(part) = except.text().parse::<IpNet>()
            && (!whole.contains(&part.network()) || whole.prefix_len() >= part.prefix_len())
        {
            checks.invalid(&except, "must be a strict subset of `cidr`");
        }
    }
}
