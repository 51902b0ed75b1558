//! The addresses and ports that a Service holds or wants, and those that a changed Service keeps.

use std::net::Ipv4Addr;

use api_model::field::Path;
use serde_json::{Map, Value, json};

use super::taken::Claims;
use api_wire::json;

/// A field for a node port.
pub(super) struct NodePort<'a> {
    pub(super) path: Path,
    /// The Service's own port with this node port; none for health checks.
    pub(super) port: Option<u16>,
    /// The number that the client set.
    pub(super) wanted: Option<u16>,
    pub(super) slot: &'a mut Value,
}

fn spec<'a>(service: &'a Value, field: &str) -> Option<&'a Value> {
    service.get("spec")?.get(field)
}

fn text<'a>(service: &'a Value, field: &str) -> &'a str {
    spec(service, field).and_then(Value::as_str).unwrap_or_default()
}

fn is_external_name(service: &Value) -> bool {
    text(service, "type") == "ExternalName"
}

/// Whether the Service has, or should get, an address of the cluster.
pub(super) fn wants_cluster_ip(service: &Value) -> bool {
    !is_external_name(service) && text(service, "clusterIP") != "None"
}

/// Whether its ports have, or should get, node ports.
pub(super) fn wants_node_ports(service: &Value) -> bool {
    match text(service, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec(service, "allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true),
        _ => false,
    }
}

fn wants_health_check_port(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

fn number(value: Option<&Value>) -> Option<u16> {
    value.and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// The addresses and ports of a Service.
pub(super) fn of(service: &Value) -> Claims {
    let addresses = spec(service, "clusterIPs").and_then(Value::as_array).into_iter().flatten();
    let ports = spec(service, "ports").and_then(Value::as_array).into_iter().flatten().filter_map(|port| number(port.get("nodePort")));
    Claims {
        addresses: addresses
            .chain(spec(service, "clusterIP"))
            .filter_map(Value::as_str)
            .filter_map(|address| address.parse::<Ipv4Addr>().ok())
            .collect(),
        ports: ports.chain(number(spec(service, "healthCheckNodePort"))).collect(),
    }
}

/// Every field for a node port. Fields with a number come first, so that none of these numbers is given to another
/// field.
pub(super) fn node_ports(service: &mut Value) -> Vec<NodePort<'_>> {
    let health = wants_health_check_port(service);
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return Vec::new() };
    let path = Path::new("spec");
    if health {
        spec.entry("healthCheckNodePort").or_insert(Value::Null);
    }
    let mut node_ports = Vec::new();
    for (field, value) in spec.iter_mut() {
        match field.as_str() {
            "healthCheckNodePort" if health => node_ports.push(node_port(path.child(field), None, value)),
            "ports" => {
                let ports = value.as_array_mut().into_iter().flatten().enumerate();
                node_ports.extend(ports.filter_map(|(at, port)| {
                    let own = number(port.get("port"));
                    let slot = port.as_object_mut()?.entry("nodePort").or_insert(Value::Null);
                    Some(node_port(path.child("ports").index(at).child("nodePort"), own, slot))
                }));
            }
            _ => {}
        }
    }
    node_ports.sort_by_key(|node_port| node_port.wanted.is_none());
    node_ports
}

fn node_port(path: Path, port: Option<u16>, slot: &mut Value) -> NodePort<'_> {
    NodePort { path, port, wanted: number(Some(slot)), slot }
}

/// Completes a changed Service before it is checked. The Service keeps allocated values that the client left out, and
/// loses fields that its new type does not have (upstream's `patchAllocatedValues` and `dropTypeDependentFields`).
pub(crate) fn carry_over(new: &mut Value, old: &Value) {
    if wants_cluster_ip(old) && !is_external_name(new) && text(new, "clusterIP").is_empty() {
        for field in ["clusterIP", "clusterIPs"] {
            copy(new, old, field);
        }
    }
    match (wants_node_ports(old), wants_node_ports(new)) {
        (true, true) => keep_node_ports(new, old),
        (true, false) => drop_node_ports(new, old),
        (false, _) => {}
    }
    match (wants_health_check_port(old), wants_health_check_port(new)) {
        (true, true) if number(spec(new, "healthCheckNodePort")).is_none() => copy(new, old, "healthCheckNodePort"),
        (true, false) if spec(new, "healthCheckNodePort") == spec(old, "healthCheckNodePort") => remove(new, "healthCheckNodePort"),
        _ => {}
    }
    drop_fields(new, old);
    sync_cluster_ips(new, old);
}

/// Whether a Service like this has a field.
type HasField = fn(&Value) -> bool;

/// Fields that only some types have, or only Services with external addresses, each with its test. A field that the
/// client did not change is dropped with the type; one that the client changed is rejected by validation.
fn drop_fields(new: &mut Value, old: &Value) {
    let is_cluster: HasField = |service| !is_external_name(service);
    let is_external: HasField = |service| match text(service, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" | "" => spec(service, "externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty()),
        _ => false,
    };
    let is_balancer: HasField = |service| text(service, "type") == "LoadBalancer";
    let fields: [(&str, HasField); 8] = [
        ("clusterIP", is_cluster),
        ("clusterIPs", is_cluster),
        ("ipFamilies", is_cluster),
        ("ipFamilyPolicy", is_cluster),
        ("internalTrafficPolicy", is_cluster),
        ("externalTrafficPolicy", is_external),
        ("allocateLoadBalancerNodePorts", is_balancer),
        ("loadBalancerClass", is_balancer),
    ];
    for (field, has) in fields {
        if has(old) && !has(new) && spec(new, field) == spec(old, field) {
            remove(new, field);
        }
    }
}

fn map(service: &mut Value) -> Option<&mut Map<String, Value>> {
    service.get_mut("spec")?.as_object_mut()
}

fn copy(new: &mut Value, old: &Value, field: &str) {
    if let (Some(value), Some(map)) = (spec(old, field).cloned(), map(new)) {
        map.insert(field.to_owned(), value);
    }
}

fn remove(new: &mut Value, field: &str) {
    if let Some(map) = map(new) {
        map.remove(field);
    }
}

/// `clusterIPs` follows `clusterIP` where only the latter was changed (`NormalizeClusterIPs`).
fn sync_cluster_ips(new: &mut Value, old: &Value) {
    let cluster_ip = text(new, "clusterIP").to_owned();
    let changed = cluster_ip != text(old, "clusterIP");
    let untouched = spec(new, "clusterIPs").is_none_or(|ips| ips.is_null() || Some(ips) == spec(old, "clusterIPs"));
    match (changed, untouched, cluster_ip.as_str()) {
        (true, true, "") => remove(new, "clusterIPs"),
        (true, true, _) => {
            if let Some(map) = map(new) {
                map.insert("clusterIPs".to_owned(), json!([cluster_ip]));
            }
        }
        (false, _, "") | (true, false, _) | (false, false, _) => {}
        (false, true, _) => copy(new, old, "clusterIPs"),
    }
}

type PortKey = (String, Option<u64>);

fn port_key(port: &Value) -> PortKey {
    (port.get("protocol").and_then(Value::as_str).unwrap_or("TCP").to_owned(), port.get("port").and_then(Value::as_u64))
}

fn keep_node_ports(new: &mut Value, old: &Value) {
    let previous: Vec<(PortKey, u16)> = spec(old, "ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|port| Some((port_key(port), number(port.get("nodePort"))?)))
        .collect();
    let requested: Vec<u16> = of(new).ports.into_iter().collect();
    for port in ports_mut(new).filter(|port| number(port.get("nodePort")).is_none()) {
        let key = port_key(port);
        if let Some((_, number)) = previous.iter().find(|(previous, number)| *previous == key && !requested.contains(number)) {
            json::set(port, &["nodePort"], *number);
        }
    }
}

fn drop_node_ports(new: &mut Value, old: &Value) {
    let previous = of(old).ports;
    for port in ports_mut(new) {
        if number(port.get("nodePort")).is_none_or(|number| previous.contains(&number))
            && let Some(port) = port.as_object_mut()
        {
            port.remove("nodePort");
        }
    }
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    map(service).and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut).into_iter().flatten()
}
