use api_model::kind::builtin;

use super::super::ListForm;
use super::*;

#[test]
fn every_message_has_its_parts() {
    for (id, message) in &MESSAGES.by_id {
        assert_eq!(message.fields().len(), message.text.split_whitespace().count(), "{id}");
    }
}

#[test]
fn no_name_and_no_number_stands_twice() {
    for (id, message) in &MESSAGES.by_id {
        let fields = message.fields();
        for (at, field) in fields.iter().enumerate() {
            let others = || fields.iter().skip(at + 1);
            assert!(others().all(|other| other.name != field.name || field.name.is_empty()), "{id} {}", field.name);
            assert!(others().all(|other| other.tag != field.tag), "{id} {}", field.tag);
        }
    }
}

/// What the whole of Skiff takes for pointers are pointers wherever they occur.
#[test]
fn pointers_keep_their_zeros() {
    let numbers = MESSAGES.by_id.values().flat_map(|message| message.fields()).filter(|field| field.shape == Shape::One);
    let numbers: Vec<_> = numbers.filter(|field| matches!(field.kind, Kind::Integer | Kind::Truth)).collect();
    for name in api_model::zero::POINTERS {
        let mut named = numbers.iter().filter(|field| field.name == *name).peekable();
        assert!(named.peek().is_some(), "{name} is nowhere");
        assert!(named.all(|field| field.keeps_zero), "{name} is not always a pointer");
    }
}

/// What JSON writes in a way of its own, and what has no fields upstream either.
#[test]
fn messages_without_fields() {
    let mut without: Vec<&str> = MESSAGES.by_id.values().filter(|message| message.fields().is_empty()).map(|message| message.id).collect();
    without.sort_unstable();
    insta::assert_snapshot!(without.join("\n"), @r"
    api.scheduling.v1alpha3.WorkloadPodGroupAllDisruptionMode
    api.scheduling.v1alpha3.WorkloadPodGroupBasicSchedulingPolicy
    api.scheduling.v1alpha3.WorkloadPodGroupSingleDisruptionMode
    api.scheduling.v1beta1.AllCompositeDisruptionMode
    api.scheduling.v1beta1.AllDisruptionMode
    api.scheduling.v1beta1.BasicSchedulingPolicy
    api.scheduling.v1beta1.CompositeBasicSchedulingPolicy
    api.scheduling.v1beta1.SingleCompositeDisruptionMode
    api.scheduling.v1beta1.SingleDisruptionMode
    apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus
    apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON
    apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray
    apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool
    apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray
    apimachinery.pkg.api.resource.Quantity
    apimachinery.pkg.apis.meta.v1.Duration
    apimachinery.pkg.apis.meta.v1.FieldsV1
    apimachinery.pkg.apis.meta.v1.MicroTime
    apimachinery.pkg.apis.meta.v1.Time
    apimachinery.pkg.runtime.RawExtension
    apimachinery.pkg.util.intstr.IntOrString
    ");
}

#[test]
fn every_kind_has_a_form() {
    for kind in builtin() {
        assert!(root(&kind.api_version(), &kind.kind).is_some(), "{kind:?}");
    }
}

#[test]
fn every_kind_that_is_listed_has_a_form_of_lists() {
    for kind in builtin().iter().filter(|kind| kind.allows("list")) {
        assert!(ListForm::of(&kind.api_version(), &kind.list_kind()).is_ok(), "{kind:?}");
    }
}

/// A wrong mark in the table loses zeros, or makes some up, and no other test could tell. A zero is kept where upstream
/// has a pointer or writes the field whatever it is.
#[test]
fn fields_that_keep_a_zero() {
    let mut lines: Vec<String> = MESSAGES.by_id.values().filter_map(keeping).collect();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"));
}

fn keeping(message: &'static Message) -> Option<String> {
    let names: Vec<&str> = message.fields().iter().filter(|field| field.keeps_zero).map(|field| field.name).collect();
    (!names.is_empty()).then(|| format!("{}: {}", message.id, names.join(" ")))
}
