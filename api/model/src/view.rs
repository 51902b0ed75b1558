//! A read-only view of what is stored, answered from memory. Admission plugins and the authorizer
//! are pure functions over it; the server's watch cache implements it.

use std::sync::Arc;

use serde_json::Value;

use crate::kind::GroupResource;

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

    /// A number that changes whenever any object of the resource changes: for caches of what was
    /// worked out from [`View::list`].
    fn version(&self, resource: &GroupResource) -> u64;
}
