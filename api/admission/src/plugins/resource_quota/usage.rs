//! The usage of one object, by the names of quotas.

use api_model::huge_pages::is_huge_page;
use api_model::kind::GroupResource;
use serde_json::Value;

use crate::amount::{self, Amounts};
use crate::json;
use crate::pods;

/// The count of one object, in thousandths.
const ONE: i128 = 1000;
const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
/// The highest number of devices of one claim: what a request for all devices counts as.
const DEVICES_MAX: i128 = 32;
/// Kinds that a quota may count by the name of the resource alone.
const PLAIN: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// The resource whose objects make up the usage of a name.
pub fn source(name: &str) -> Option<GroupResource> {
    if let Some(counted) = name.strip_prefix("count/") {
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        return Some(GroupResource::new(group, resource));
    }
    if name.ends_with(DEVICE_CLASS_SUFFIX) {
        return Some(resource_claims());
    }
    let resource = match name {
        name if PLAIN.contains(&name) => name,
        name if name.starts_with("services.") => "services",
        "requests.storage" => "persistentvolumeclaims",
        name if name.contains(CLASS_SUFFIX) => "persistentvolumeclaims",
        "cpu" | "memory" | "ephemeral-storage" => "pods",
        name if name.starts_with("requests.") || name.starts_with("limits.") || is_huge_page(name) => "pods",
        _ => return None,
    };
    Some(GroupResource::new("", resource))
}

fn resource_claims() -> GroupResource {
    GroupResource::new("resource.k8s.io", "resourceclaims")
}

/// Whether the usage of an object depends on its content.
pub fn looks_into(resource: &GroupResource) -> bool {
    *resource == resource_claims()
        || resource.group.is_empty() && matches!(resource.resource.as_str(), "pods" | "services" | "persistentvolumeclaims")
}

/// The usage of an object.
pub fn amounts(resource: &GroupResource, object: &Value) -> Amounts {
    let mut used = Amounts::from([(format!("count/{resource}"), ONE)]);
    if *resource == resource_claims() {
        used.extend(devices(object));
    }
    if !resource.group.is_empty() {
        return used;
    }
    let name = resource.resource.as_str();
    let gone = name == "pods" && matches!(json::text_at(object, "/status/phase"), "Succeeded" | "Failed");
    if gone {
        return used;
    }
    if PLAIN.contains(&name) {
        used.insert(name.to_owned(), ONE);
    }
    match name {
        "pods" => used.extend(named(pods::requests_in_use(object), pods::limits_in_use(object))),
        "services" => used.extend(service(object)),
        "persistentvolumeclaims" => used.extend(claim(object)),
        _ => {}
    }
    used
}

/// Requests and limits by the names of quotas.
pub fn named(requests: Amounts, limits: Amounts) -> Amounts {
    let mut used = Amounts::new();
    for (name, amount) in requests {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_huge_page(&name) {
            used.insert(name.clone(), amount);
        }
        used.insert(format!("requests.{name}"), amount);
    }
    used.extend(limits.into_iter().map(|(name, amount)| (format!("limits.{name}"), amount)));
    used
}

fn service(object: &Value) -> Amounts {
    let kind = json::text_at(object, "/spec/type");
    let ports = object.pointer("/spec/ports").and_then(Value::as_array).map_or(0, Vec::len);
    // A Service of type LoadBalancer may have no node ports; only existing ones count.
    let with_node_port =
        object.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten().filter(|p| json::has(p, "nodePort")).count();
    let allocates = object.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool) != Some(false);
    let node_ports = match kind {
        "NodePort" => ports,
        "LoadBalancer" if allocates => ports,
        "LoadBalancer" => with_node_port,
        _ => 0,
    };
    let balancers = i128::from(kind == "LoadBalancer") * ONE;
    let node_ports = i128::try_from(node_ports).unwrap_or(i128::MAX / ONE) * ONE;
    Amounts::from([("services.loadbalancers".to_owned(), balancers), ("services.nodeports".to_owned(), node_ports)])
}

fn claim(object: &Value) -> Amounts {
    let storage = amount::list(object.pointer("/spec/resources/requests")).get("storage").copied();
    let mut used = Amounts::new();
    if let Some(storage) = storage {
        used.insert("requests.storage".to_owned(), storage);
    }
    let class = json::text_at(object, "/spec/storageClassName");
    if !class.is_empty() {
        used.insert(format!("{class}{CLASS_SUFFIX}persistentvolumeclaims"), ONE);
        if let Some(storage) = storage {
            used.insert(format!("{class}{CLASS_SUFFIX}requests.storage"), storage);
        }
    }
    used
}

/// The devices of a ResourceClaim by their class. Of the alternatives of a request, the largest number of each class counts.
fn devices(object: &Value) -> Amounts {
    let mut used = Amounts::new();
    for request in object.pointer("/spec/devices").map(|devices| json::list(devices, "requests")).into_iter().flatten() {
        let mut of_request = Amounts::new();
        for exact in request.get("exactly").into_iter().chain(json::list(request, "firstAvailable")) {
            let number = match json::text_at(exact, "/allocationMode") {
                "All" => DEVICES_MAX,
                _ => exact.get("count").and_then(Value::as_i64).unwrap_or(1).into(),
            };
            let class = of_request.entry(format!("{}{DEVICE_CLASS_SUFFIX}", json::text_at(exact, "/deviceClassName"))).or_default();
            *class = (*class).max(number.saturating_mul(ONE));
        }
        amount::add(&mut used, &of_request);
    }
    used
}
