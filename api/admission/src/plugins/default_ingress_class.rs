//! DefaultIngressClass: sets the default class on an Ingress without a class.

use api_model::kind::GroupResource;
use api_model::view::View;

use super::default_storage_class::newest_default;
use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation for the class of an Ingress, older than the field.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// The plugin.
pub struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Create || !request.is("networking.k8s.io", "ingresses") {
            return Ok(());
        }
        let Some(ingress) = request.object.as_deref_mut() else { return Ok(()) };
        if json::has_annotation(ingress, OLD_CLASS) || ingress.get("spec").is_some_and(|spec| json::has(spec, "ingressClassName")) {
            return Ok(());
        }
        let Some(class) = newest_default(view, &GroupResource::new("networking.k8s.io", "ingressclasses"), IS_DEFAULT) else {
            return Ok(());
        };
        if let Some(spec) = json::map_mut(ingress, "spec") {
            spec.insert("ingressClassName".to_owned(), class.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects};
    use serde_json::json;

    #[test]
    fn the_default_class_is_taken() {
        let view = Objects::new([json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": { "name": "usual", "annotations": { IS_DEFAULT: "true" } },
        })]);
        let ingress = |annotations: serde_json::Value, spec: serde_json::Value| {
            let metadata = json!({ "name": "i", "namespace": "ns", "annotations": annotations });
            let ingress = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec });
            Ask::create(ingress).admit(&DefaultIngressClass, &view).expect("admitted").object["spec"].clone()
        };
        assert_eq!(ingress(json!({}), json!({})), json!({ "ingressClassName": "usual" }));
        assert_eq!(ingress(json!({}), json!({ "ingressClassName": "own" })), json!({ "ingressClassName": "own" }));
        assert_eq!(ingress(json!({ OLD_CLASS: "old" }), json!({})), json!({}));
    }
}
