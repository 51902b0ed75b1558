//! The cache as admission and authorization see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::selector::{FieldSelector, FieldTerm, Selector};
use api_model::view::{SERVICE_NAME, View};
use serde_json::{Map, Value};

use super::filter::NODE_FIELD;
use super::{Cache, Filter, Object, Resource};

impl Cache {
    fn existing(&self, name: &GroupResource) -> Option<Arc<Resource>> {
        self.resources.read().get(name).cloned()
    }

    fn selected(&self, resource: &GroupResource, filter: &Filter, value: fn(&Object) -> Arc<Value>) -> Vec<Arc<Value>> {
        let page = self.existing(resource).map(|resource| resource.list(filter, 0)).unwrap_or_default();
        page.items.iter().map(|object| value(object)).collect()
    }
}

impl View for Cache {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        Some(self.existing(resource)?.get(namespace.unwrap_or_default(), name)?.shared_value())
    }

    fn labels(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<BTreeMap<String, String>> {
        Some(self.existing(resource)?.get(namespace.unwrap_or_default(), name)?.labels())
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.selected(resource, &Filter { namespace: namespace.map(str::to_owned), ..Filter::default() }, Object::shared_value)
    }

    fn scan(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.selected(resource, &Filter { namespace: namespace.map(str::to_owned), ..Filter::default() }, Object::value)
    }

    fn pods_on(&self, node: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let node = FieldTerm { path: NODE_FIELD.to_owned(), value: node.to_owned(), negated: false };
        let fields = FieldSelector { terms: vec![node] };
        let filter = Filter { namespace: namespace.map(str::to_owned), fields, ..Filter::default() };
        self.selected(&GroupResource::new("", "pods"), &filter, Object::shared_value)
    }

    fn endpoint_slices_of(&self, service: &str, namespace: &str) -> Vec<Arc<Value>> {
        let labels = Selector::from_map(&Map::from_iter([(SERVICE_NAME.to_owned(), service.into())]));
        let filter = Filter { namespace: Some(namespace.to_owned()), labels, ..Filter::default() };
        self.selected(&GroupResource::new("discovery.k8s.io", "endpointslices"), &filter, Object::shared_value)
    }

    fn version(&self, resource: &GroupResource) -> u64 {
        self.existing(resource).map_or(0, |resource| resource.revision())
    }
}
