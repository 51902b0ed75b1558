//! Service: the values that a user may request, and the allowed changes. The server allocates addresses between
//! defaulting and validation.

mod allocated;

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, each, fill, fill_absent, is_list_empty, text};
use crate::{format, pod};

use allocated::{families, mirror_cluster_ips, prepare_update};

/// The rules of Services.
pub const RULES: Rules = Rules { prepare_create, prepare_update, warnings, ..Rules::new(default, validate_create, validate_update) };

const AFFINITY_SECONDS: i64 = 10_800;
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameNode", "PreferSameZone"];

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    fill(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if spec.get("sessionAffinityConfig").and_then(|c| c.get("clientIP")).and_then(|c| c.get("timeoutSeconds")).is_none() => {
            spec.insert("sessionAffinityConfig".to_owned(), json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}));
        }
        _ => {}
    }
    fill(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        fill(port, "protocol", "TCP");
        let own = port.get("port").cloned().unwrap_or_default();
        fill(port, "targetPort", own);
    }
    let kind = text(spec, "type").to_owned();
    if is_external(&kind, !is_list_empty(spec, "externalIPs")) {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        fill_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    if let Some(status) = object.pointer_mut("/status/loadBalancer").and_then(Value::as_object_mut) {
        for ingress in each(status, "ingress") {
            if !text(ingress, "ip").is_empty() {
                fill_absent(ingress, "ipMode", "VIP");
            }
        }
    }
}

/// Whether traffic may come from outside the cluster.
fn is_external(kind: &str, has_external_ips: bool) -> bool {
    kind == "LoadBalancer" || kind == "NodePort" || (kind == "ClusterIP" && has_external_ips)
}

fn prepare_create(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
    if let Some(spec) = edit::spec(object) {
        mirror_cluster_ips(spec);
        families(spec);
    }
}

fn is_headless(spec: &At<'_>) -> bool {
    spec.get("clusterIPs").len() == 1 && spec.get("clusterIPs").index(0).text() == "None"
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let (kind, ports) = (spec.get("type"), spec.get("ports"));
    if ports.len() == 0 && !is_headless(&spec) && kind.text() != "ExternalName" {
        checks.required(&ports, "");
    }
    match kind.text() {
        "LoadBalancer" | "NodePort" if is_headless(&spec) => {
            let detail = format!("may not be set to 'None' for {} services", kind.text());
            checks.invalid(&spec.get("clusterIPs").index(0), detail);
        }
        "ExternalName" => external_name(&spec, checks),
        _ => {}
    }
    self::ports(&ports, checks);
    checks.labels(&spec.get("selector"));
    affinity(&spec, checks);
    if kind.text() != "ExternalName" {
        cluster_ips(&spec, checks);
    }
    for ip in spec.get("externalIPs").items() {
        let wrong = format::ip(ip.text());
        if wrong.is_empty() {
            super::endpoints::not_special_ip(&ip, checks);
        }
        checks.format(&ip, wrong);
    }
    checks.one_of(&kind, &TYPES);
    port_conflicts(&spec, checks);
    load_balancer(&spec, checks);
    traffic(&spec, checks);
}

fn external_name(spec: &At<'_>, checks: &mut Checks) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec.get(field).is_zero() {
            checks.forbidden(&spec.get(field), "may not be set for ExternalName services");
        }
    }
    let at = spec.get("externalName");
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    if name.is_empty() {
        checks.required(&at, "");
    }
    for message in format::dns_subdomain(name).into_iter().filter(|_| !name.is_empty()) {
        checks.invalid_value(&at.path, name, message);
    }
}

fn ports(ports: &At<'_>, checks: &mut Checks) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if ports.len() > 1 && name.text().is_empty() {
            checks.required(&name, "");
        } else if !name.text().is_empty() {
            checks.dns_label(&name);
            if !names.insert(name.text()) {
                checks.duplicate(&name);
            }
        }
        checks.port(&port.get("port"));
        checks.one_of(&port.get("protocol"), &PROTOCOLS);
        pod::validate_port(&port.get("targetPort"), checks);
        let protocol = port.get("appProtocol");
        if protocol.exists() {
            checks.qualified_name(&protocol);
        }
    }
}

fn affinity(spec: &At<'_>, checks: &mut Checks) {
    let (affinity, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    checks.one_of(&affinity, &["ClientIP", "None"]);
    match affinity.text() {
        "ClientIP" => {
            let seconds = config.get("clientIP").get("timeoutSeconds");
            let missing = [config.clone(), config.get("clientIP"), seconds.clone()].into_iter().find(|at| !at.exists());
            if let Some(missing) = missing {
                checks.required(&missing, "when session affinity type is ClientIP");
            } else if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds.int()) {
                checks.invalid(&seconds, format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}"));
            }
        }
        "None" if config.exists() => checks.forbidden(&config, "must not be set when session affinity is None"),
        _ => {}
    }
}

fn cluster_ips(spec: &At<'_>, checks: &mut Checks) {
    let (single, list, families) = (spec.get("clusterIP"), spec.get("clusterIPs"), spec.get("ipFamilies"));
    match (single.text(), list.len()) {
        ("", 0) => {}
        ("", _) => checks.invalid(&list, "must be empty when `clusterIP` is not specified"),
        (_, 0) => checks.required(&list, ""),
        (ip, _) if list.index(0).text() != ip => checks.invalid(&list, "first value must match `clusterIP`"),
        _ => {}
    }
    let mut seen = HashSet::new();
    for family in families.items() {
        checks.one_of(&family, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            checks.duplicate(&family);
        }
    }
    checks.one_of_if_set(&spec.get("ipFamilyPolicy"), &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    if list.index(0).text() == "None" && list.len() > 1 {
        checks.invalid(&list, "'None' must be the first and only value");
    }
    for (index, ip) in list.items().enumerate().filter(|(index, ip)| *index > 0 || ip.text() != "None") {
        checks.format(&ip, format::ip(ip.text()));
        let (family, is_v6) = (families.index(index), ip.text().contains(':'));
        if family.exists() && is_v6 != (family.text() == "IPv6") {
            checks.invalid(&ip, format!("expected an {} value as indicated by `ipFamilies[{index}]`", family.text()));
        }
    }
    if list.len() > 2 {
        checks.invalid(&list, "may only hold up to 2 values");
    }
    let sixes = list.texts().filter(|ip| ip.contains(':')).count();
    if list.len() > 1 && (sixes > 1 || list.len() - sixes > 1) {
        checks.invalid(&list, "may specify no more than one IP for each IP family");
    }
}

fn port_conflicts(spec: &At<'_>, checks: &mut Checks) {
    let (mut node_ports, mut ports) = (HashSet::new(), HashSet::new());
    for port in spec.get("ports").items() {
        let (node, protocol) = (port.get("nodePort"), port.get("protocol").text());
        if node.int() != 0 {
            if spec.get("type").text() == "ClusterIP" {
                checks.forbidden(&node, "may not be used when `type` is 'ClusterIP'");
            }
            if !node_ports.insert((protocol, node.int())) {
                checks.duplicate(&node);
            }
        }
        if !ports.insert((protocol, port.get("port").int())) {
            let value = json!({"protocol": protocol, "port": port.get("port").int()});
            checks.push(api_model::field::FieldError::duplicate(&port.path, value));
        }
    }
}

fn load_balancer(spec: &At<'_>, checks: &mut Checks) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let is_balancer = spec.get("type").text() == "LoadBalancer";
    let ranges = At::new(spec.get("loadBalancerSourceRanges").value(), spec.path.child("LoadBalancerSourceRanges"));
    if ranges.len() > 0 && !is_balancer {
        checks.forbidden(&ranges, ONLY);
    }
    for range in ranges.items() {
        for message in format::cidr(range.text().trim()) {
            checks.invalid_value(&range.path, range.text().trim(), message);
        }
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if spec.get(field).exists() && !is_balancer {
            checks.forbidden(&spec.get(field), ONLY);
        }
    }
    let class = spec.get("loadBalancerClass");
    if class.exists() && is_balancer {
        checks.qualified_name(&class);
    }
}

fn traffic(spec: &At<'_>, checks: &mut Checks) {
    let (kind, external, internal) = (spec.get("type").text(), spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy"));
    if is_external(kind, spec.get("externalIPs").len() > 0) {
        checks.one_of(&external, &["Cluster", "Local"]);
    } else if !external.text().is_empty() {
        checks.invalid(&external, "may only be set for externally-accessible services");
    }
    let health = spec.get("healthCheckNodePort");
    if health.int() != 0 {
        if kind == "LoadBalancer" && external.text() == "Local" {
            checks.port(&health);
        } else {
            checks.invalid(&health, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'");
        }
    }
    if internal.exists() {
        checks.one_of_if_set(&internal, &["Cluster", "Local"]);
    } else if kind != "ExternalName" {
        checks.required(&internal, "");
    }
    checks.one_of_if_set(&spec.get("trafficDistribution"), &DISTRIBUTIONS);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        return status(&new.find("status.loadBalancer"), checks);
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    if spec.get("type").text() != "ExternalName" && before.get("type").text() != "ExternalName" {
        cluster_ip_changes(&spec, &before, checks);
    }
    let (class, old_class) = (spec.get("loadBalancerClass"), before.get("loadBalancerClass"));
    let balancers = [&spec, &before].iter().all(|spec| spec.get("type").text() == "LoadBalancer");
    if balancers && !class.same(&old_class) {
        checks.invalid(&class, "may not change once set");
    }
    validate_create(new, checks);
}

fn cluster_ip_changes(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let (ips, before) = (new.get("clusterIPs"), old.get("clusterIPs"));
    if before.len() > 0 && ips.len() == 0 {
        checks.invalid_value(&ips.path.index(0), ips.value_or_null(), "primary clusterIP can not be unset");
    }
    for (index, (now, was)) in ips.texts().zip(before.texts()).enumerate() {
        if now != was {
            checks.invalid_value(&ips.path.index(index), ips.value_or_null(), "may not change once set");
        }
    }
    if before.len() > 1 && ips.len() == 1 && new.get("ipFamilyPolicy").text() != "SingleStack" {
        checks.invalid(&new.get("ipFamilyPolicy"), "must be set to 'SingleStack' when releasing the secondary clusterIP");
    }
    let (families, old_families) = (new.get("ipFamilies"), old.get("ipFamilies"));
    if is_headless(new) == is_headless(old) && families.texts().zip(old_families.texts()).any(|(now, was)| now != was) {
        checks.invalid_value(&families.path.index(0), families.value_or_null(), "may not change once set");
    }
}

fn status(balancer: &At<'_>, checks: &mut Checks) {
    for ingress in balancer.get("ingress").items() {
        let (ip, mode, name) = (ingress.get("ip"), ingress.get("ipMode"), ingress.get("hostname"));
        if !ip.text().is_empty() {
            checks.format(&ip, format::ip(ip.text()));
        }
        match (mode.exists(), ip.text().is_empty()) {
            (false, false) => checks.required(&mode, "must be specified when `ip` is set"),
            (true, true) => checks.forbidden(&mode, "may not be specified when `ip` is not set"),
            _ => checks.one_of_if_set(&mode, &["Proxy", "VIP"]),
        }
        if !name.text().is_empty() {
            checks.dns_subdomain(&name);
            if name.text().parse::<IpAddr>().is_ok() {
                checks.invalid(&name, "must be a DNS name, not an IP address");
            }
        }
    }
}

fn warnings(object: &At<'_>) -> Vec<String> {
    let spec = object.get("spec");
    let mut warnings = Vec::new();
    let old = object.find("metadata.annotations").get("service.kubernetes.io/topology-aware-hints");
    if old.exists() {
        warnings.push(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
                .to_owned(),
        );
    }
    let kind = spec.get("type").text();
    let headless = kind == "ClusterIP" && spec.get("clusterIP").text() == "None";
    let has_external_ips = spec.get("externalIPs").len() > 0;
    let checks = [
        (headless && !spec.get("loadBalancerIP").text().is_empty(), "spec.loadBalancerIP is ignored for headless services"),
        (headless && has_external_ips, "spec.externalIPs is ignored for headless services"),
        (headless && spec.get("sessionAffinity").text() != "None", "spec.SessionAffinity is ignored for headless services"),
        (
            has_external_ips && !headless && kind != "ExternalName",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (kind == "ExternalName" && has_external_ips, "spec.externalIPs is ignored when spec.type is \"ExternalName\""),
        (
            kind != "ExternalName" && !spec.get("externalName").text().is_empty(),
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ),
        (
            spec.get("trafficDistribution").text() == "PreferClose",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ),
    ];
    warnings.extend(checks.iter().filter(|(holds, _)| *holds).map(|(_, words)| (*words).to_owned()));
    warnings
}
