//! Addresses and node ports of a Service across updates: an update keeps allocated values unless it
//! sets others, so that a manifest without them can be applied repeatedly.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::edit::{self, Fields, each, fill, fill_absent, is_list_empty, text};
use crate::strategy;

/// `clusterIP` equals the first of `clusterIPs`.
pub fn mirror_cluster_ips(spec: &mut Fields) {
    let single = text(spec, "clusterIP").to_owned();
    if !single.is_empty() && is_list_empty(spec, "clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([single]));
    }
}

/// Upstream's defaults of IP families on a cluster with IPv4 only. The families of a Service with an IPv6 address stay
/// absent; the allocator rejects that address.
pub fn families(spec: &mut Fields) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let headless = text(spec, "clusterIP") == "None";
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty());
    if headless && !selects {
        fill_absent(spec, "ipFamilyPolicy", "RequireDualStack");
        if is_list_empty(spec, "ipFamilies") {
            let single = text(spec, "ipFamilyPolicy") == "SingleStack";
            spec.insert("ipFamilies".to_owned(), if single { json!(["IPv4"]) } else { json!(["IPv4", "IPv6"]) });
        }
        return;
    }
    fill_absent(spec, "ipFamilyPolicy", "SingleStack");
    let is_v6 = matches!(text(spec, "clusterIP").parse(), Ok(IpAddr::V6(_)));
    if is_list_empty(spec, "ipFamilies") && !is_v6 {
        spec.insert("ipFamilies".to_owned(), json!(["IPv4"]));
    }
}

/// Keeps allocated values unless the update sets others.
pub fn prepare_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    if sub == Some("status") {
        return;
    }
    strategy::keep(new, old, "status");
    let before = old.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = edit::spec(new) else {
        return;
    };
    let (kind, old_kind) = (text(spec, "type").to_owned(), text(&before, "type").to_owned());
    if kind == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
            if spec.get(field) == before.get(field) {
                spec.remove(field);
            }
        }
        return;
    }
    if old_kind != "ExternalName" {
        carry_cluster_ips(spec, &before);
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if let (None, Some(value)) = (spec.get(field), before.get(field)) {
                spec.insert(field.to_owned(), value.clone());
            }
        }
        carry_node_ports(spec, &before, &kind, &old_kind);
    }
    mirror_cluster_ips(spec);
    families(spec);
}

fn carry_cluster_ips(spec: &mut Fields, before: &Fields) {
    let (single, list) = (text(spec, "clusterIP").to_owned(), is_list_empty(spec, "clusterIPs"));
    if single.is_empty() && list {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = before.get(field) {
                spec.insert(field.to_owned(), value.clone());
            }
        }
    } else if single != text(before, "clusterIP") && spec.get("clusterIPs") == before.get("clusterIPs") {
        // Only `clusterIP` was changed, so `clusterIPs` follows.
        spec.insert("clusterIPs".to_owned(), if single.is_empty() { json!([]) } else { json!([single]) });
    } else if single.is_empty()
        && let Some(first) = spec.get("clusterIPs").and_then(|list| list.get(0)).cloned()
    {
        spec.insert("clusterIP".to_owned(), first);
    }
}

fn carry_node_ports(spec: &mut Fields, before: &Fields, kind: &str, old_kind: &str) {
    let needs = |kind: &str| kind == "NodePort" || kind == "LoadBalancer";
    if !needs(old_kind) {
        return;
    }
    let key = |port: &Fields| (text(port, "protocol").to_owned(), port.get("port").and_then(Value::as_i64));
    let old: Vec<Fields> =
        before.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).cloned().collect();
    let taken: HashSet<i64> = spec
        .get("ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|port| port.get("nodePort").and_then(Value::as_i64))
        .collect();
    for port in each(spec, "ports") {
        let stored = old.iter().find(|old| key(old) == key(port)).and_then(|old| old.get("nodePort").cloned());
        match stored {
            // A change back to ClusterIP releases the node port.
            Some(stored) if !needs(kind) && port.get("nodePort") == Some(&stored) => {
                port.remove("nodePort");
            }
            Some(stored) if needs(kind) && !stored.as_i64().is_some_and(|port| taken.contains(&port)) => fill(port, "nodePort", stored),
            _ => {}
        }
    }
}
