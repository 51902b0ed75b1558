//! Nodes: what they are, their conditions, taints and roles, and how much of each resource they have.

use api_model::k8s_openapi::api::core::v1::Node;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, named};
use crate::quantity::{Resources, amount, sanitized, unit};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

impl Kind for Node {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        named("node", self)
    }
}

const FAMILIES: &[Family<Node>] = &[
    gauge("kube_node_created", "When the Node was created, in Unix seconds.", created),
    gauge("kube_node_deletion_timestamp", "When the deletion of the Node began, in Unix seconds.", deleted),
    gauge("kube_node_info", "A node with its versions, its provider's id, its Pod range and its internal address.", info),
    gauge("kube_node_role", "A role of the node.", |node, series| {
        for role in node.metadata.labels.iter().flatten().filter_map(|(key, _)| key.strip_prefix(ROLE_PREFIX)) {
            series.info(&[("role", role)]);
        }
    }),
    gauge("kube_node_spec_taint", "A taint of the node.", |node, series| {
        for taint in list(&or_empty(&node.spec).taints) {
            series.info(&[("key", &taint.key), ("value", text(&taint.value)), ("effect", &taint.effect)]);
        }
    }),
    gauge("kube_node_spec_unschedulable", "Whether the node takes no new Pods.", |node, series| {
        series.flag(or_empty(&node.spec).unschedulable == Some(true));
    }),
    gauge("kube_node_status_allocatable", "How much of a resource Pods can have on the node.", |node, series| {
        resources(&or_empty(&node.status).allocatable, series);
    }),
    gauge("kube_node_status_capacity", "How much of a resource the node has.", |node, series| {
        resources(&or_empty(&node.status).capacity, series);
    }),
    gauge("kube_node_status_condition", "1 for the status of a condition of the node.", |node, series| {
        for condition in list(&or_empty(&node.status).conditions) {
            series.condition(&[("condition", &condition.type_)], "status", &condition.status);
        }
    }),
    gauge("kube_node_status_addresses", "An address of the node.", |node, series| {
        for address in list(&or_empty(&node.status).addresses) {
            series.info(&[("type", &address.type_), ("address", &address.address)]);
        }
    }),
];

fn info(node: &Node, series: &mut Series<'_>) {
    let (spec, status) = (or_empty(&node.spec), or_empty(&node.status));
    let system = or_empty(&status.node_info);
    let internal = list(&status.addresses).iter().rev().find(|address| address.type_ == "InternalIP");
    series.info(&[
        ("kernel_version", &system.kernel_version),
        ("os_image", &system.os_image),
        ("container_runtime_version", &system.container_runtime_version),
        ("kubelet_version", &system.kubelet_version),
        // The field of the node is deprecated; kube-state-metrics writes this text instead of it.
        ("kubeproxy_version", "deprecated"),
        ("provider_id", text(&spec.provider_id)),
        ("pod_cidr", text(&spec.pod_cidr)),
        ("system_uuid", &system.system_uuid),
        ("internal_ip", internal.map_or("", |address| &address.address)),
    ]);
}

fn resources(resources: &Option<Resources>, series: &mut Series<'_>) {
    for (name, quantity) in resources.iter().flatten() {
        let unit = if name == "pods" { Some("integer") } else { unit(name) };
        if let (Some(unit), Some(value)) = (unit, amount(quantity)) {
            series.sample(&[("resource", &sanitized(name)), ("unit", unit)], value);
        }
    }
}

#[cfg(test)]
mod tests;
