use api_model::kind;

use super::*;
use crate::of_kind;
use crate::schema::Shape;

fn at<'a>(schema: &'a Schema, path: &str) -> &'a Schema {
    path.split('.').fold(schema, |schema, step| match step {
        "[]" => schema.items().unwrap_or_else(|| panic!("{path}: not a list")),
        "*" => schema.additional().unwrap_or_else(|| panic!("{path}: not a map")),
        name => schema.property(name).unwrap_or_else(|| panic!("{path}: no {name}")),
    })
}

#[test]
fn every_builtin_kind_has_a_schema() {
    for kind in kind::builtin() {
        let schema = of_kind(kind).unwrap_or_else(|| panic!("{kind:?}"));
        assert!(matches!(schema.shape(), Shape::Object), "{kind:?}");
        assert!(schema.property("kind").is_some() && schema.property("metadata").is_some(), "{kind:?}");
    }
}

#[test]
fn bodies_of_subresources_have_schemas() {
    for kind in kind::builtin() {
        for (group, version, body) in
            kind.subresources.iter().filter_map(|sub| sub.kind.as_ref()).filter(|(_, _, body)| !body.ends_with("Options"))
        {
            assert!(of_gvk(group, version, body).is_some(), "{group}/{version} {body}");
        }
    }
}

#[test]
fn custom_kinds_are_free_form() {
    assert!(of_gvk("example.com", "v1", "Pod").is_none());
}

#[test]
fn shapes_follow_the_types() {
    let pod = of_gvk("", "v1", "Pod").expect("built in");
    let cases = [
        ("metadata.creationTimestamp", "String(Time)"),
        ("metadata.labels.*", "String(None)"),
        ("metadata.managedFields.[].fieldsV1", "Any"),
        ("spec.containers.[].resources.limits.*", "Quantity"),
        ("spec.containers.[].livenessProbe.httpGet.port", "IntOrString"),
        ("spec.containers.[].ports.[].containerPort", "Integer(Int32)"),
        ("spec.terminationGracePeriodSeconds", "Integer(Int64)"),
        ("spec.hostNetwork", "Boolean"),
    ];
    for (path, shape) in cases {
        assert_eq!(format!("{:?}", at(pod, path).shape()), shape, "{path}");
    }
    let lease = of_gvk("coordination.k8s.io", "v1", "Lease").expect("built in");
    assert_eq!(format!("{:?}", at(lease, "spec.renewTime").shape()), "String(MicroTime)");
    let secret = of_gvk("", "v1", "Secret").expect("built in");
    assert_eq!(format!("{:?}", at(secret, "data.*").shape()), "String(Byte)");
}

#[test]
fn types_that_contain_themselves_can_be_walked() {
    let crd = of_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("built in");
    let schema = at(crd, "spec.versions.[].schema.openAPIV3Schema");
    let deep = at(schema, "properties.*.properties.*.properties.*.not");
    assert_eq!(schema.definition(), deep.definition());
    assert!(deep.property("maxLength").is_some());
}

#[test]
fn metadata_may_be_left_out_and_containers_may_not() {
    let pod = of_gvk("", "v1", "Pod").expect("built in");
    assert!(!pod.is_required("metadata"));
    assert!(at(pod, "spec").is_required("containers"));
}
