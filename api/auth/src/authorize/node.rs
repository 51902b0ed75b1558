//! The node authorizer: a node may read the Secrets, ConfigMaps and claims of Pods bound to it, request tokens of their
//! ServiceAccounts, write its own Node and Lease, and report the status of its Pods.
//!
//! A node is a user `system:node:NAME` in the group `system:nodes`. The rights that all nodes have ([`rules`]) are those
//! of upstream's role `system:node`. The admission plugin NodeRestriction checks the changes to an object.

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::request::{Attributes, UserInfo};
use api_model::view::View;
use serde_json::Value;

use super::Decision;
use crate::bootstrap;
use crate::rule::Rule;

/// The group of all nodes.
pub const NODES: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The name of the node, if the user is a node.
pub fn identity(user: &UserInfo) -> Option<&str> {
    user.username.strip_prefix(USER_PREFIX).filter(|_| user.in_group(NODES))
}

/// Decides on a request of a node.
pub fn authorize(user: &UserInfo, attributes: &Attributes, view: &dyn View) -> Decision {
    let Some(node) = identity(user) else { return no("") };
    if node.is_empty() {
        return no(&format!("unknown node for user {:?}", user.username));
    }
    if !attributes.is_resource() {
        return by_rules(attributes);
    }
    match (attributes.group.as_str(), attributes.resource.as_str()) {
        ("", "secrets" | "configmaps") => read_namespaced(node, attributes, view),
        ("", "persistentvolumeclaims") if attributes.subresource == "status" => match attributes.verb.as_str() {
            "update" | "patch" => related(node, attributes, view),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes") | ("storage.k8s.io", "volumeattachments") => get(node, attributes, view),
        ("", "serviceaccounts") => create_token(node, attributes, view),
        ("coordination.k8s.io", "leases") => lease(node, attributes),
        ("storage.k8s.io", "csinodes") => csi_node(node, attributes),
        ("resource.k8s.io", "resourceclaims") => get(node, attributes, view),
        ("resource.k8s.io", "resourceslices") => slice(node, attributes, view),
        ("", "nodes") => own_node(node, attributes),
        ("", "pods") => pod(node, attributes, view),
        _ => by_rules(attributes),
    }
}

/// The rules of all nodes: those of upstream's role `system:node`.
pub fn rules() -> &'static [Rule] {
    bootstrap::node_rules()
}

fn yes() -> Decision {
    Decision::Allow(String::new())
}

fn no(reason: &str) -> Decision {
    Decision::NoOpinion(reason.to_owned())
}

fn by_rules(attributes: &Attributes) -> Decision {
    if rules().iter().any(|rule| rule.allows(attributes)) { yes() } else { no("") }
}

fn read_namespaced(node: &str, attributes: &Attributes, view: &dyn View) -> Decision {
    if !matches!(attributes.verb.as_str(), "get" | "list" | "watch") {
        return no("can only read resources of this type");
    }
    if !attributes.subresource.is_empty() {
        return no("cannot read subresource");
    }
    if attributes.namespace.is_empty() {
        return no("can only read namespaced object of this type");
    }
    related(node, attributes, view)
}

fn get(node: &str, attributes: &Attributes, view: &dyn View) -> Decision {
    if attributes.verb != "get" {
        return no("can only get individual resources of this type");
    }
    if !attributes.subresource.is_empty() {
        return no("cannot get subresource");
    }
    related(node, attributes, view)
}

fn create_token(node: &str, attributes: &Attributes, view: &dyn View) -> Decision {
    if attributes.verb != "create" || attributes.name.is_empty() {
        return no("can only create tokens for individual service accounts");
    }
    if attributes.subresource != "token" {
        return no("can only create token subresource of serviceaccount");
    }
    related(node, attributes, view)
}

fn lease(node: &str, attributes: &Attributes) -> Decision {
    let verb = attributes.verb.as_str();
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != LEASE_NAMESPACE {
        return no(&format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"));
    }
    // NodeRestriction checks the name of a created object.
    if verb != "create" && attributes.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    yes()
}

fn csi_node(node: &str, attributes: &Attributes) -> Decision {
    let verb = attributes.verb.as_str();
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if !attributes.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if verb != "create" && attributes.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    yes()
}

/// ResourceSlices: the devices of a node.
fn slice(node: &str, attributes: &Attributes, view: &dyn View) -> Decision {
    if !attributes.subresource.is_empty() {
        return no("cannot authorize ResourceSlice subresources");
    }
    match attributes.verb.as_str() {
        // NodeRestriction checks the node name of a created slice.
        "create" => yes(),
        "get" | "update" | "patch" | "delete" => related(node, attributes, view),
        "list" | "watch" | "deletecollection" if selects(attributes, "spec.nodeName", node) => yes(),
        "list" | "watch" | "deletecollection" => no("can only list/watch/deletecollection resourceslices with nodeName field selector"),
        _ => no(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

fn own_node(node: &str, attributes: &Attributes) -> Decision {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => yes(),
        ("", "get" | "list" | "watch") => match attributes.name.as_str() {
            name if name == node => yes(),
            "" if selects(attributes, "metadata.name", node) => yes(),
            "" => no(&format!("node '{node}' cannot read all nodes, only its own Node object")),
            other => no(&format!("node '{node}' cannot read '{other}', only its own Node object")),
        },
        _ => no(""),
    }
}

fn pod(node: &str, attributes: &Attributes, view: &dyn View) -> Decision {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        ("", "get") => related(node, attributes, view),
        ("", "list" | "watch") if selects(attributes, "spec.nodeName", node) => yes(),
        ("", "list" | "watch") if !attributes.name.is_empty() => related(node, attributes, view),
        ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => yes(),
        _ => no(""),
    }
}

fn selects(attributes: &Attributes, path: &str, value: &str) -> bool {
    attributes.field_selector.as_ref().and_then(|s| s.exact(path)) == Some(value)
}

/// Whether a Pod that is bound to the node refers to the object.
fn related(node: &str, attributes: &Attributes, view: &dyn View) -> Decision {
    if attributes.name.is_empty() {
        return no("No Object name found");
    }
    let (resource, namespace, name) = (attributes.resource.as_str(), attributes.namespace.as_str(), attributes.name.as_str());
    let found = match resource {
        "persistentvolumes" => volume_used(node, name, view),
        "volumeattachments" => view
            .get(&GroupResource::new("storage.k8s.io", "volumeattachments"), None, name)
            .is_some_and(|a| a.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node)),
        "resourceslices" => view
            .get(&GroupResource::new("resource.k8s.io", "resourceslices"), None, name)
            .is_some_and(|slice| slice.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node)),
        "pods" => view.get(&pods(), Some(namespace), name).is_some_and(|p| bound_to(&p, node)),
        // The name of a claim from a template is only in the Pod's status.
        "resourceclaims" => view.pods_on(node, Some(namespace)).iter().any(|pod| {
            let claims = |path: &str| pod.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
            let all = [claims("/spec/resourceClaims"), claims("/status/resourceClaimStatuses")].concat();
            let special = pod.pointer("/status/extendedResourceClaimStatus").map(|status| text(status, "resourceClaimName"));
            all.iter().any(|claim| text(claim, "resourceClaimName") == name) || special.is_some_and(|special| special == name)
        }),
        _ => view.pods_on(node, Some(namespace)).iter().any(|pod| refers(pod, resource, name)),
    };
    if found { yes() } else { no(&format!("no relationship found between node '{node}' and this object")) }
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn bound_to(pod: &Value, node: &str) -> bool {
    pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node)
}

/// A node may read a volume while one of its Pods uses the bound claim.
fn volume_used(node: &str, volume: &str, view: &dyn View) -> bool {
    let Some(volume) = view.get(&GroupResource::new("", "persistentvolumes"), None, volume) else { return false };
    let claim = |field: &str| volume.pointer(&format!("/spec/claimRef/{field}")).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (claim("namespace"), claim("name"));
    !name.is_empty() && view.pods_on(node, Some(namespace)).iter().any(|pod| refers(pod, "persistentvolumeclaims", name))
}

/// Whether the spec of a Pod names the given object in its namespace.
fn refers(pod: &Value, resource: &str, name: &str) -> bool {
    let Some(spec) = pod.get("spec") else { return false };
    let is = |value: Option<&Value>| value.and_then(Value::as_str) == Some(name);
    let volumes = items(spec, "volumes");
    match resource {
        "serviceaccounts" => is(spec.get("serviceAccountName")),
        "persistentvolumeclaims" => volumes.iter().any(|v| {
            is(v.pointer("/persistentVolumeClaim/claimName"))
                || v.get("ephemeral").is_some_and(|e| !e.is_null()) && name == format!("{}-{}", meta::name(pod), text(v, "name"))
        }),
        "secrets" => {
            items(spec, "imagePullSecrets").iter().any(|s| is(s.get("name")))
                || volumes.iter().any(|v| volume_secret(v, name))
                || environment(spec, "secretRef", "secretKeyRef", name)
        }
        "configmaps" => {
            volumes.iter().any(|v| is(v.pointer("/configMap/name")) || sources(v).iter().any(|s| is(s.pointer("/configMap/name"))))
                || environment(spec, "configMapRef", "configMapKeyRef", name)
        }
        _ => false,
    }
}

/// For each volume kind, the field with the name of a Secret.
const VOLUME_SECRETS: [&str; 10] = [
    "/secret/secretName",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
];

fn volume_secret(volume: &Value, name: &str) -> bool {
    let is = |value: Option<&Value>| value.and_then(Value::as_str) == Some(name);
    VOLUME_SECRETS.iter().any(|path| is(volume.pointer(path))) || sources(volume).iter().any(|s| is(s.pointer("/secret/name")))
}

fn sources(volume: &Value) -> &[Value] {
    volume.pointer("/projected/sources").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether the environment of a container refers to the given object.
fn environment(spec: &Value, whole: &str, key: &str, name: &str) -> bool {
    let is = |value: Option<&Value>| value.and_then(|v| v.get("name")).and_then(Value::as_str) == Some(name);
    ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|field| items(spec, field)).any(|container| {
        items(container, "envFrom").iter().any(|e| is(e.get(whole)))
            || items(container, "env").iter().any(|e| is(e.get("valueFrom").and_then(|v| v.get(key))))
    })
}

fn text<'a>(from: &'a Value, field: &str) -> &'a str {
    from.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(from: &'a Value, field: &str) -> &'a [Value] {
    from.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
