//! A view over a few objects, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::kind::{self, GroupResource};
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

type Key = (String, String);

/// Objects by resource, then by namespace and name.
#[derive(Default)]
pub struct Objects {
    stored: BTreeMap<GroupResource, BTreeMap<Key, Arc<Value>>>,
    version: u64,
}

impl Objects {
    /// A view with these objects. Each needs `apiVersion` and `kind`.
    pub fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut view = Self::default();
        for object in objects {
            view.put(object);
        }
        view
    }

    /// Stores an object.
    pub fn put(&mut self, object: Value) {
        let (version, name) = (object["apiVersion"].as_str().expect("apiVersion"), object["kind"].as_str().expect("kind"));
        // Tests may store objects of kinds that are not served.
        let other = || GroupResource::new(version.split_once('/').map_or("", |(group, _)| group), format!("{}s", name.to_lowercase()));
        let resource = kind::find_by_kind(version, name).map_or_else(other, |kind| kind.group_resource());
        let key = (meta::namespace(&object).to_owned(), meta::name(&object).to_owned());
        self.stored.entry(resource).or_default().insert(key, Arc::new(object));
        self.version += 1;
    }

    /// Removes an object.
    pub fn remove(&mut self, resource: &GroupResource, namespace: &str, name: &str) {
        if let Some(objects) = self.stored.get_mut(resource) {
            objects.remove(&(namespace.to_owned(), name.to_owned()));
        }
        self.version += 1;
    }
}

impl View for Objects {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        self.stored.get(resource)?.get(&(namespace.unwrap_or_default().to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let objects = self.stored.get(resource).into_iter().flatten();
        objects.filter(|((ns, _), _)| namespace.is_none_or(|wanted| ns == wanted)).map(|(_, object)| object.clone()).collect()
    }

    fn version(&self, _resource: &GroupResource) -> u64 {
        self.version
    }
}
