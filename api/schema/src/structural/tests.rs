//! The trees of custom kinds are like those of built-in kinds.

use std::sync::Arc;

use api_model::kind::{Custom, Kind, find};
use serde_json::json;

use crate::{ListType, MapType, Shape, of_kind, structural};

fn widgets() -> Kind {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "format": "int32", "default": 1},
            "port": {"x-kubernetes-int-or-string": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
        }},
    }});
    let base = find("", "configmaps").expect("served");
    let custom = Custom { list_kind: "WidgetList".to_owned(), schema, ..Custom::default() };
    Kind { group: "example.com".to_owned(), kind: "Widget".to_owned(), custom: Some(Arc::new(custom)), ..(**base).clone() }
}

#[test]
fn the_tree_of_a_custom_kind_is_walked_like_any_other() {
    let kind = widgets();
    let root = of_kind(&kind).expect("a schema");
    assert_eq!(root.property("metadata").and_then(|m| m.definition()), Some("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    let spec = root.property("spec").expect("spec");
    assert!(spec.is_required("size"));
    assert_eq!(spec.property("size").and_then(|size| size.default_json()), Some("1"));
    assert!(matches!(spec.property("port").map(|port| port.shape()), Some(Shape::IntOrString)));
    assert!(matches!(spec.property("labels").map(|labels| labels.shape()), Some(Shape::Map(_))));
    let parts = spec.property("parts").expect("parts");
    assert_eq!((parts.list_type(), parts.list_map_keys().collect::<Vec<_>>()), (ListType::Map, vec!["name"]));
    assert_eq!(spec.property("whole").map(|whole| whole.map_type()), Some(MapType::Atomic));
    assert!(matches!(spec.property("free").map(|free| free.shape()), Some(Shape::Any)));
    assert!(structural(&kind).is_some_and(|schema| schema.properties.contains_key("spec")));
}

#[test]
fn built_in_kinds_have_no_structural_schema() {
    assert!(structural(find("", "pods").expect("served")).is_none());
}
