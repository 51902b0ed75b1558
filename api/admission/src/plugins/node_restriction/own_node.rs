//! Checks what a node writes into its own Node.

use std::collections::BTreeSet;

use api_model::meta;
use serde_json::Value;

use super::{Problem, refuse};
use crate::request::{Operation, Request};

/// Labels in the cluster's own domains that a node may set on itself.
const OWN_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const OWN_LABEL_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";

pub(super) fn own_node(node: &str, request: &Request<'_>) -> Result<(), Problem> {
    let name = request.object_name();
    if name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    match (request.operation, request.object(), request.old) {
        (Operation::Create, Some(new), _) => created(node, new),
        (Operation::Update, Some(new), Some(old)) => updated(node, old, new),
        _ => Ok(()),
    }
}

fn created(node: &str, new: &Value) -> Result<(), Problem> {
    if config_source(new).is_some() {
        return refuse(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
    }
    // Stricter than upstream: with an owner that does not exist, the garbage collector deletes the Node. The node then
    // registers again, without the taints and labels that others set.
    if !owners(new).is_empty() {
        return refuse(format!("node {node:?} is not allowed to set ownerReferences"));
    }
    // Stricter than upstream, where a network plugin sets up routes. Here, the nodes route to each other by the Pod
    // ranges in the Nodes.
    if !pod_ranges(new).is_empty() {
        return refuse(format!("node {node:?} is not allowed to set podCIDRs"));
    }
    match forbidden_labels(None, new) {
        labels if labels.is_empty() => Ok(()),
        labels => refuse(format!("node {node:?} is not allowed to set the following labels: {}", labels.join(", "))),
    }
}

fn updated(node: &str, old: &Value, new: &Value) -> Result<(), Problem> {
    if config_source(new).is_some_and(|source| config_source(old) != Some(source)) {
        return refuse(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource"));
    }
    let taints = |node: &Value| list(node, "/spec/taints");
    if taints(old) != taints(new) {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if owners(old) != owners(new) {
        return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    if pod_ranges(old) != pod_ranges(new) {
        return refuse(format!("node {node:?} is not allowed to modify podCIDRs"));
    }
    match forbidden_labels(Some(old), new) {
        labels if labels.is_empty() => Ok(()),
        labels => refuse(format!("is not allowed to modify labels: {}", labels.join(", "))),
    }
}

fn config_source(node: &Value) -> Option<&Value> {
    node.pointer("/spec/configSource").filter(|source| !source.is_null())
}

fn list(node: &Value, path: &str) -> Vec<Value> {
    node.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn owners(node: &Value) -> Vec<Value> {
    list(node, "/metadata/ownerReferences")
}

/// All Pod ranges of a Node, from both fields.
fn pod_ranges(node: &Value) -> BTreeSet<String> {
    let single = node.pointer("/spec/podCIDR").cloned();
    let all = list(node, "/spec/podCIDRs").into_iter().chain(single);
    all.filter_map(|range| range.as_str().map(str::to_owned)).filter(|range| !range.is_empty()).collect()
}

/// The labels that differ and that a node may not set on itself.
fn forbidden_labels(old: Option<&Value>, new: &Value) -> Vec<String> {
    let (old, new) = (old.and_then(meta::labels).cloned().unwrap_or_default(), meta::labels(new).cloned().unwrap_or_default());
    let changed: BTreeSet<&String> = old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)).collect();
    changed.into_iter().filter(|label| !own_label(label)).cloned().collect()
}

/// Whether a node may set the label on itself. It may set no label of the restricted domain. In the cluster's own
/// domains it may set only the known labels and the labels of known subdomains.
fn own_label(label: &str) -> bool {
    let domain = label.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
    let under = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if under(RESTRICTED_DOMAIN) {
        return false;
    }
    let clusters = under("kubernetes.io") || under("k8s.io");
    !clusters || OWN_LABELS.contains(&label) || OWN_LABEL_DOMAINS.iter().any(|parent| under(parent))
}
