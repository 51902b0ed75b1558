//! What controllers read from a Node.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// The field selector of the Nodes' Leases.
pub const LEASES: &str = "metadata.namespace=kube-node-lease";

/// Whether the Node reports that it is ready.
pub fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}

/// A condition of the Node.
pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}
