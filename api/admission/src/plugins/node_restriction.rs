//! NodeRestriction: a node writes only its own Node, Lease and CSINode and its own Pods, and only the fields that a
//! node may write. Before admission, the node authorizer decides which requests a node may make at all.

mod own_node;
mod token;

use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::plugin::{Allows, Plugin};
use crate::plugins::certificates::Subject;
use crate::pods;
use crate::request::{Operation, Request};

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Signers of certificates whose subject is a node.
const NODE_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
/// The plugin.
pub struct NodeRestriction {
    /// The authorizer, which knows the audiences that administrators allow for tokens of nodes.
    pub allows: Allows,
    /// Whether nodes may create mirror Pods of their static Pods.
    pub mirror_pods: bool,
}

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let Some(node) = request.user.username.strip_prefix(USER_PREFIX).filter(|_| request.user.in_group(GROUP)) else { return Ok(()) };
        if request.operation == Operation::Connect {
            return Ok(());
        }
        if node.is_empty() {
            let message = format!("could not determine node from user {:?}", request.user.username);
            return Err(Denied::forbidden(request, message));
        }
        let node = node.to_owned();
        let verdict = match (request.kind.group.as_str(), request.kind.plural.as_str()) {
            ("", "pods") => pod(&node, self.mirror_pods, request, view),
            ("", "nodes") => own_node::own_node(&node, request),
            ("", "persistentvolumeclaims") => claim(&node, request),
            ("", "serviceaccounts") => token::token(&node, request, view, &self.allows),
            ("certificates.k8s.io", "certificatesigningrequests") => certificate(request),
            ("coordination.k8s.io", "leases") => lease(&node, request),
            ("resource.k8s.io", "resourceslices") => slice(&node, request),
            ("storage.k8s.io", "csinodes") if request.object_name() != node => {
                refuse("can only access CSINode with the same name as the requesting node")
            }
            _ => Ok(()),
        };
        verdict.map_err(|problem| match problem {
            Problem::Refused(message) => Denied::forbidden(request, message),
            Problem::NotFound(resource, name) => Denied::NotFound { resource, name },
        })
    }
}

enum Problem {
    Refused(String),
    NotFound(GroupResource, String),
}

fn refuse(message: impl Into<String>) -> Result<(), Problem> {
    Err(Problem::Refused(message.into()))
}

/// The operation in upstream's messages.
fn operation(request: &Request<'_>) -> &'static str {
    match request.operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

fn pod(node: &str, mirror_pods: bool, request: &Request<'_>, view: &dyn View) -> Result<(), Problem> {
    match (request.subresource, request.operation) {
        ("", Operation::Create) if mirror_pods => mirror_pod(node, request, view),
        // Stricter than upstream: a mirror Pod whose labels match a Service's selector becomes an endpoint of that Service,
        // in any namespace.
        ("", Operation::Create) => {
            refuse(format!("node {node:?} cannot create pods: no node here runs static pods (--allow-mirror-pods of the server)"))
        }
        ("", Operation::Delete) => {
            let pod = stored_pod(request.namespace, request.name, view)?;
            if bound_to(&pod, node) {
                Ok(())
            } else {
                refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
        }
        ("", _) => refuse(format!("unexpected operation {:?}, node {node:?} can only delete pods", operation(request))),
        ("status", Operation::Update) => pod_status(node, request),
        ("eviction", Operation::Create) => {
            let pod = stored_pod(request.namespace, request.object_name(), view)?;
            if bound_to(&pod, node) { Ok(()) } else { refuse(format!("node {node} can only evict pods with spec.nodeName set to itself")) }
        }
        ("status" | "eviction", _) => refuse(format!("unexpected operation {:?}", operation(request))),
        (other, _) => refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed")),
    }
}

/// A node makes copies of its own static Pods, which name no other object and are owned by its Node; upstream's rules and words.
fn mirror_pod(node: &str, request: &Request<'_>, view: &dyn View) -> Result<(), Problem> {
    let Some(pod) = request.object() else { return Ok(()) };
    if !pods::is_mirror(pod) {
        return refuse(format!("pod does not have {:?} annotation, node {node:?} can only create mirror pods", pods::MIRROR));
    }
    if !bound_to(pod, node) {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    owned_by_node(node, pod, view)?;
    match pods::api_object_reference(pods::spec(pod)) {
        Some(resource) => refuse(format!("node {node:?} can not create pods that reference {resource}")),
        None => Ok(()),
    }
}

fn owned_by_node(node: &str, pod: &Value, view: &dyn View) -> Result<(), Problem> {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let owner = match owners {
        [owner] => owner,
        [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
        _ => return refuse(format!("node {node:?} can only create pods with a single owner reference set to itself")),
    };
    let is = |field: &str, value: &str| json::text(owner, field) == value;
    if !is("apiVersion", "v1") || !is("kind", "Node") || !is("name", node) {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner.get("controller").and_then(Value::as_bool) != Some(true) {
        return refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let nodes = GroupResource::new("", "nodes");
    let object = view.get(&nodes, None, node).ok_or_else(|| Problem::NotFound(nodes, node.to_owned()))?;
    let (wanted, given) = (meta::uid(&object), json::text(owner, "uid"));
    if wanted != given {
        return refuse(format!("node {node} UID mismatch: expected {wanted} got {given}"));
    }
    Ok(())
}

fn stored_pod(namespace: &str, name: &str, view: &dyn View) -> Result<Arc<Value>, Problem> {
    view.get(&pods::resource(), Some(namespace), name).ok_or_else(|| Problem::NotFound(pods::resource(), name.to_owned()))
}

fn bound_to(pod: &Value, node: &str) -> bool {
    json::text_at(pod, "/spec/nodeName") == node
}

fn pod_status(node: &str, request: &Request<'_>) -> Result<(), Problem> {
    let (Some(old), Some(new)) = (request.old, request.object()) else { return Ok(()) };
    if !bound_to(old, node) {
        return refuse(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    let labels = |pod| meta::labels(pod).cloned().unwrap_or_default();
    if labels(old) != labels(new) {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    let claims = |pod: &Value| pod.pointer("/status/resourceClaimStatuses").cloned();
    if claims(old) != claims(new) {
        return refuse(format!("node {node:?} cannot update resource claim statues"));
    }
    let extended = |pod: &Value| pod.pointer("/status/extendedResourceClaimStatus").filter(|status| !status.is_null()).cloned();
    if extended(old) != extended(new) {
        return refuse(format!("node {node:?} cannot update extended resource claim status"));
    }
    Ok(())
}

fn claim(node: &str, request: &Request<'_>) -> Result<(), Problem> {
    if request.subresource != "status" {
        return refuse("may only update PVC status");
    }
    if request.operation != Operation::Update {
        return refuse(format!("unexpected operation {:?}", operation(request)));
    }
    let rest = |claim: Option<&Value>| {
        let mut claim = claim.cloned().unwrap_or_default();
        for field in ["resourceVersion", "managedFields"] {
            meta::unset(&mut claim, field);
        }
        if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
            for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                status.remove(field);
            }
        }
        claim
    };
    if rest(request.old) != rest(request.object()) {
        return refuse(format!("node {node:?} is not allowed to update fields other than status.capacity and status.conditions"));
    }
    Ok(())
}

/// A node creates and deletes only its own ResourceSlices. The node authorizer checks updates.
fn slice(node: &str, request: &Request<'_>) -> Result<(), Problem> {
    let (slice, verb) = match request.operation {
        Operation::Create => (request.object(), "create"),
        Operation::Delete => (request.old, "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    match slice.is_some_and(|slice| json::text_at(slice, "/spec/nodeName") == node) {
        true => Ok(()),
        false => refuse(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node")),
    }
}

/// A node requests certificates only for its own name. The signer checks names and usages.
fn certificate(request: &Request<'_>) -> Result<(), Problem> {
    let Some(csr) = request.object().filter(|_| request.operation == Operation::Create) else { return Ok(()) };
    if !NODE_SIGNERS.contains(&json::text_at(csr, "/spec/signerName")) {
        return Ok(());
    }
    let subject = Subject::from_request(json::text_at(csr, "/spec/request"));
    let subject = subject.map_err(|problem| Problem::Refused(format!("unable to parse csr: {problem}")))?;
    let user = &request.user.username;
    match subject.common_names.as_slice() {
        [one] if one == user => Ok(()),
        _ => refuse(format!("can only create a node CSR with CN={user}")),
    }
}

fn lease(node: &str, request: &Request<'_>) -> Result<(), Problem> {
    if request.namespace != LEASE_NAMESPACE {
        return refuse(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"));
    }
    if request.object_name() != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
