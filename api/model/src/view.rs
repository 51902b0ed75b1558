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

    /// A number that changes whenever any object of the resource changes: for caches of what was
    /// worked out from [`View::list`].
    fn version(&self, resource: &GroupResource) -> u64;
}
