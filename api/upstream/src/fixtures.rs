//! Test doubles for the tests of this crate and of other crates.

use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

/// A view that has only these Services and EndpointSlices.
pub struct FixedView(pub Vec<Arc<Value>>);

impl View for FixedView {
    fn get(&self, resource: &GroupResource, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        self.list(resource, namespace).into_iter().find(|object| meta::name(object) == name)
    }

    fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let kind = if resource.resource == "services" { "Service" } else { "EndpointSlice" };
        let is_wanted = |object: &&Arc<Value>| {
            object.get("kind").and_then(Value::as_str) == Some(kind) && namespace.is_none_or(|wanted| meta::namespace(object) == wanted)
        };
        self.0.iter().filter(is_wanted).cloned().collect()
    }

    fn version(&self, _: &GroupResource) -> u64 {
        0
    }
}
