//! A read-only view of the stored objects, in memory. Admission plugins and the authorizer are pure functions of it.
//! The server's watch cache implements it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::kind::GroupResource;
use crate::meta;

/// The label of an EndpointSlice with the name of its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Current objects, as of some recent revision. Never blocks on I/O.
pub trait View: Send + Sync {
    /// The object of the given name; `namespace` is `None` for cluster-scoped kinds.
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>>;

    /// The labels of the object of the given name.
    fn labels(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<BTreeMap<String, String>> {
        let object = self.get(resource, namespace, name)?;
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Some(meta::labels(&object).into_iter().flatten().filter_map(text).collect())
    }

    /// All objects of a resource in name order, in one namespace or in all of them.
    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>>;

    /// As [`View::list`], for a caller that stores what it needs of the objects in a form of its own: a cache of parsed objects does not
    /// keep these.
    fn scan(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.list(resource, namespace)
    }

    /// The Pods that are bound to a node, in one namespace or in all. The cache has an index for this method.
    fn pods_on(&self, node: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let is_there = |pod: &Arc<Value>| pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
        self.list(&GroupResource::new("", "pods"), namespace).into_iter().filter(is_there).collect()
    }

    /// The EndpointSlices of a Service. The cache has an index for this method.
    fn endpoint_slices_of(&self, service: &str, namespace: &str) -> Vec<Arc<Value>> {
        let names = |slice: &Arc<Value>| meta::labels(slice).and_then(|labels| labels.get(SERVICE_NAME)?.as_str()) == Some(service);
        self.list(&GroupResource::new("discovery.k8s.io", "endpointslices"), Some(namespace)).into_iter().filter(names).collect()
    }

    /// A number that changes whenever an object of the resource changes. Callers use it to cache results of
    /// [`View::list`].
    fn version(&self, resource: &GroupResource) -> u64;
}
