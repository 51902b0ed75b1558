//! Families and labels that come from the metadata of objects, for all kinds.

use api_model::k8s_openapi::Metadata;
use api_model::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::read::{list, text};
use crate::series::{Label, Series};

/// The labels of a kind without namespaces: the name under the label `label`.
pub(crate) fn named<'a>(label: &'static str, object: &'a impl Metadata<Ty = ObjectMeta>) -> Vec<Label<'a>> {
    vec![(label, text(&object.metadata().name))]
}

/// The labels of a kind with namespaces.
pub(crate) fn namespaced<'a>(label: &'static str, object: &'a impl Metadata<Ty = ObjectMeta>) -> Vec<Label<'a>> {
    let metadata = object.metadata();
    vec![("namespace", text(&metadata.namespace)), (label, text(&metadata.name))]
}

/// The labels of a kind with namespaces whose samples also have the uid.
pub(crate) fn with_uid<'a>(label: &'static str, object: &'a impl Metadata<Ty = ObjectMeta>) -> Vec<Label<'a>> {
    let mut labels = namespaced(label, object);
    labels.push(("uid", text(&object.metadata().uid)));
    labels
}

/// When the object was created.
pub(crate) fn created(object: &impl Metadata<Ty = ObjectMeta>, series: &mut Series<'_>) {
    series.time(object.metadata().creation_timestamp.as_ref());
}

/// When the object is to be deleted, or was to be deleted while finalizers remain.
pub(crate) fn deleted(object: &impl Metadata<Ty = ObjectMeta>, series: &mut Series<'_>) {
    series.time(object.metadata().deletion_timestamp.as_ref());
}

/// The generation; 0 when there is none.
pub(crate) fn generation(object: &impl Metadata<Ty = ObjectMeta>, series: &mut Series<'_>) {
    series.count(object.metadata().generation);
}

/// The resource version; no sample when it is absent or not a number.
pub(crate) fn resource_version(object: &impl Metadata<Ty = ObjectMeta>, series: &mut Series<'_>) {
    if let Ok(version) = text(&object.metadata().resource_version).parse::<u64>() {
        series.value(version as f64);
    }
}

/// The owners, one sample each. An object without owners has one sample with empty labels.
pub(crate) fn owners(object: &impl Metadata<Ty = ObjectMeta>, series: &mut Series<'_>) {
    let owners = list(&object.metadata().owner_references);
    for owner in owners {
        let controller = if owner.controller == Some(true) { "true" } else { "false" };
        series.info(&[("owner_kind", &owner.kind), ("owner_name", &owner.name), ("owner_is_controller", controller)]);
    }
    if owners.is_empty() {
        series.info(&[("owner_kind", ""), ("owner_name", ""), ("owner_is_controller", "")]);
    }
}

/// That the object exists: 1.
pub(crate) fn exists(_: &impl Metadata<Ty = ObjectMeta>, series: &mut Series<'_>) {
    series.value(1.0);
}
