//! Admission of a Pod that was bound to the node, with upstream's reasons and words. It rejects Pods that no scheduler
//! weighed, and Pods that raced with others. Pure.

use std::collections::BTreeMap;

use api_model::huge_pages::{self, is_huge_page};
use api_model::quantity;
use k8s_openapi::api::core::v1::{Container, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use node_volumes::Allocatable;

use crate::container;
use crate::container::resources::{self, Amount};

/// Why a Pod is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// `status.reason`.
    pub(crate) reason: String,
    /// The message of the event.
    pub(crate) message: String,
}

/// What a Pod requests of a node: computed once for each state of the Pod, because each admission weighs all Pods of the node.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) amount: Amount,
    /// Extended resources and huge pages.
    scalars: BTreeMap<String, i64>,
    /// Addresses, protocols and ports.
    host_ports: Vec<(String, String, i32)>,
}

impl Demand {
    pub(crate) fn of(pod: &Pod) -> Self {
        Self { amount: resources::requests(pod), scalars: resources::scalar_requests(pod), host_ports: host_ports(pod) }
    }
}

/// Admits or rejects a Pod beside the demands of those that the node has admitted. `pages` has the bytes of the machine's huge pages by the
/// bytes of a page. `is_managed` tells of which extended resources a device plugin says how much is left.
pub(crate) fn admit(
    pod: &Pod,
    others: &[&Demand],
    node: Option<&Node>,
    allocatable: Allocatable,
    pages: &BTreeMap<u64, u64>,
    pods_max: u32,
    is_managed: &dyn Fn(&str) -> bool,
) -> Result<(), Rejection> {
    let demand = Demand::of(pod);
    enough(demand.amount, others.iter().map(|other| other.amount), allocatable, pods_max)?;
    enough_scalars(&demand, others, node, pages, is_managed)?;
    if node.is_some_and(|node| !fits_node(pod, node)) {
        return Err(predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    let clash = |(ip, protocol, port): &(String, String, i32)| {
        others.iter().flat_map(|other| &other.host_ports).any(|(other, protocol_taken, port_taken)| {
            port == port_taken && protocol == protocol_taken && (ip == other || ip == "0.0.0.0" || other == "0.0.0.0")
        })
    };
    if demand.host_ports.iter().any(clash) {
        return Err(predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
    }
    Ok(())
}

fn predicate(name: &str, message: &str) -> Rejection {
    Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {message}") }
}

/// Whether the node has room for what a Pod requests beside others.
pub(crate) fn enough(
    requested: Amount,
    others: impl ExactSizeIterator<Item = Amount>,
    node: Allocatable,
    pods_max: u32,
) -> Result<(), Rejection> {
    let count = u32::try_from(others.len()).unwrap_or(u32::MAX);
    if count >= pods_max {
        return Err(out_of("pods", 1, i64::from(count), i64::from(pods_max)));
    }
    let used = others.fold(Amount::default(), Amount::plus);
    for (name, requested, used, capacity) in [
        ("cpu", requested.cpu_milli, used.cpu_milli, node.cpu_milli),
        ("memory", requested.memory_bytes, used.memory_bytes, node.memory_bytes),
        ("ephemeral-storage", requested.storage_bytes, used.storage_bytes, node.ephemeral_storage_bytes),
    ] {
        if requested > 0 && requested > capacity.saturating_sub(used) {
            return Err(out_of(name, requested, used, capacity));
        }
    }
    Ok(())
}

/// Whether the node has enough huge pages, and of the extended resources that its status names. As upstream, other extended resources are
/// none of the node's business.
fn enough_scalars(
    demand: &Demand,
    others: &[&Demand],
    node: Option<&Node>,
    pages: &BTreeMap<u64, u64>,
    is_managed: &dyn Fn(&str) -> bool,
) -> Result<(), Rejection> {
    let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
    let capacity = |name: &str| {
        if !is_huge_page(name) {
            return quantity::value(&allocatable?.get(name)?.0).ok();
        }
        // Another text of the same size is another resource, of which no node has any.
        let bytes = pages.iter().find(|(size, _)| huge_pages::resource(**size) == name).map_or(0, |(_, bytes)| *bytes);
        Some(i64::try_from(bytes).unwrap_or(i64::MAX))
    };
    for (name, &requested) in demand.scalars.iter().filter(|(name, requested)| **requested > 0 && !is_managed(name)) {
        let Some(capacity) = capacity(name) else { continue };
        let used = others.iter().filter_map(|other| other.scalars.get(name)).copied().fold(0, i64::saturating_add);
        if requested > capacity.saturating_sub(used) {
            return Err(out_of(name, requested, used, capacity));
        }
    }
    Ok(())
}

fn out_of(resource: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    let message = format!("Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}");
    Rejection { reason: format!("OutOf{resource}"), message }
}

fn host_ports(pod: &Pod) -> Vec<(String, String, i32)> {
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    pod.spec
        .iter()
        .flat_map(container::all)
        .flat_map(|(_, container)| ports(container))
        .filter_map(|port| {
            let number = if host_network { Some(port.host_port.unwrap_or(port.container_port)) } else { port.host_port };
            let number = number.filter(|number| *number > 0)?;
            let ip = port.host_ip.filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((ip, port.protocol.unwrap_or_else(|| "TCP".to_owned()), number))
        })
        .collect()
}

/// `nodeSelector` and the required half of `nodeAffinity`.
fn fits_node(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| selects(required, node))
}

/// Whether one of the selector's terms selects the node.
pub(crate) fn selects(selector: &NodeSelector, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let term_fits = |term: &NodeSelectorTerm| {
        let (expressions, fields) =
            (term.match_expressions.as_deref().unwrap_or_default(), term.match_fields.as_deref().unwrap_or_default());
        let name = node.metadata.name.as_deref();
        let labelled = expressions.iter().all(|requirement| matches(requirement, label(&requirement.key)));
        let named = fields.iter().all(|requirement| requirement.key == "metadata.name" && matches(requirement, name));
        !(expressions.is_empty() && fields.is_empty()) && labelled && named
    };
    selector.node_selector_terms.iter().any(term_fits)
}

fn matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = number(values.first().map(String::as_str));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    fn asks(cpu: &str) -> Pod {
        pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    #[test]
    fn reasons_and_words_are_upstreams() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd", "gen": "3"}},
            "status": {"allocatable": {"example.com/thing": "3", "example.com/managed": "1"}},
        }))
        .expect("a node");
        let things = |name: &str, init: u8, main: u8| {
            let container = |number: u8| json!({"name": "c", "resources": {"requests": {name: number.to_string()}}});
            pod(json!({"initContainers": [container(init)], "containers": [container(main)]}))
        };
        let allocatable = Allocatable { cpu_milli: 2_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30 };
        let port = |ip: &str| pod(json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": ip}]}]}));
        let affinity = |key: &str, operator: &str, value: &str| {
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]});
            pod(
                json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}),
            )
        };
        let say = |pod: &Pod, others: &[&Pod]| {
            let others: Vec<Demand> = others.iter().map(|other| Demand::of(other)).collect();
            let others: Vec<&Demand> = others.iter().collect();
            let pages = BTreeMap::from([(2 << 20, 8 << 20)]);
            match admit(pod, &others, Some(&node), allocatable, &pages, 3, &|name| name == "example.com/managed") {
                Ok(()) => "ok".to_owned(),
                Err(rejection) => format!("{}: {}", rejection.reason, rejection.message),
            }
        };
        let one = asks("1");
        let cases = [
            (asks("1"), vec![&one]),
            (asks("1001m"), vec![&one]),
            (asks("0"), vec![&one, &one, &one]),
            (pod(json!({"containers": [], "nodeSelector": {"disk": "ssd"}})), vec![]),
            (pod(json!({"containers": [], "nodeSelector": {"disk": "hdd"}})), vec![]),
            (affinity("gen", "Gt", "2"), vec![]),
            (affinity("gen", "NotIn", "3"), vec![]),
        ];
        let mut lines: Vec<String> = cases.iter().map(|(pod, others)| say(pod, others)).collect();
        let (any, own, other) = (port("0.0.0.0"), port("1.2.3.4"), port("5.6.7.8"));
        lines.extend([say(&own, &[&other]), say(&own, &[&any]), say(&own, &[&own])]);
        let (thing, two) = (things("example.com/thing", 0, 1), things("example.com/thing", 2, 1));
        lines.extend([say(&two, &[&thing]), say(&two, &[&thing, &thing]), say(&things("example.com/thing", 0, 4), &[])]);
        lines.extend([say(&things("example.com/other", 0, 4), &[]), say(&things("example.com/managed", 0, 4), &[])]);
        let (none, all) = (
            things("hugepages-2Mi", 0, 0),
            pod(json!({"containers": [{"name": "c", "resources": {"requests": {"hugepages-2Mi": "8Mi"}}}]})),
        );
        let unknown = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"hugepages-2048Ki": "2Mi"}}}]}));
        lines.extend([say(&none, &[&all]), say(&all, &[]), say(&all, &[&all]), say(&unknown, &[])]);
        insta::assert_snapshot!(lines.join("\n"), @r"
        ok
        OutOfcpu: Node didn't have enough resource: cpu, requested: 1001, used: 1000, capacity: 2000
        OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3
        ok
        NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
        ok
        NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
        ok
        NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
        NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
        ok
        OutOfexample.com/thing: Node didn't have enough resource: example.com/thing, requested: 2, used: 2, capacity: 3
        OutOfexample.com/thing: Node didn't have enough resource: example.com/thing, requested: 4, used: 0, capacity: 3
        ok
        ok
        ok
        ok
        OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 8388608, used: 8388608, capacity: 8388608
        OutOfhugepages-2048Ki: Node didn't have enough resource: hugepages-2048Ki, requested: 2097152, used: 0, capacity: 0
        ");
    }
}
