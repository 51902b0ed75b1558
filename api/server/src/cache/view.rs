//! The cache as admission and authorization see it.

use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::Value;

use super::{Cache, Filter, Resource};

impl Cache {
    fn existing(&self, name: &GroupResource) -> Option<Arc<Resource>> {
        self.resources.read().get(name).cloned()
    }
}

impl View for Cache {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        Some(self.existing(resource)?.get(namespace.unwrap_or_default(), name)?.value())
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let filter = Filter { namespace: namespace.map(str::to_owned), ..Filter::default() };
        let page = self.existing(resource).map(|resource| resource.list(&filter, 0)).unwrap_or_default();
        page.items.iter().map(|object| object.value()).collect()
    }

    fn version(&self, resource: &GroupResource) -> u64 {
        self.existing(resource).map_or(0, |resource| resource.revision())
    }
}
