//! A read-only view of what is stored, answered from memory. Admission plugins and the authorizer
//! are pure functions over it; the server's watch cache implements it.

use std::sync::Arc;

use serde_json::Value;

use crate::kind::GroupResource;
use crate::meta;

/// The label by which an EndpointSlice names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Current objects, as of some recent revision. Never blocks on I/O.
pub trait View: Send + Sync {
    /// The object of that name; `namespace` is `None` for cluster-scoped kinds.
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>>;

    /// All objects of a resource in name order, in one namespace or in all of them.
    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>>;

    /// The Pods bound to a node, of one namespace or of all: a node asks for its own, and there may be many others.
    fn pods_on(&self, node: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let is_there = |pod: &Arc<Value>| pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
        self.list(&GroupResource::new("", "pods"), namespace).into_iter().filter(is_there).collect()
    }

    /// The EndpointSlices of a Service, whose namespace may have many others.
    fn endpoint_slices_of(&self, service: &str, namespace: &str) -> Vec<Arc<Value>> {
        let names = |slice: &Arc<Value>| meta::labels(slice).and_then(|labels| labels.get(SERVICE_NAME)?.as_str()) == Some(service);
        self.list(&GroupResource::new("discovery.k8s.io", "endpointslices"), Some(namespace)).into_iter().filter(names).collect()
    }

    /// A number that changes whenever any object of the resource changes: for caches of what was
    /// worked out from [`View::list`].
    fn version(&self, resource: &GroupResource) -> u64;
}
