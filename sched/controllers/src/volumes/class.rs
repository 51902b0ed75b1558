//! The class of a claim or a volume, and the default class.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::meta;

/// The annotation for the class, older than the field.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The class that the claim requests; empty without one.
pub fn of_claim(claim: &PersistentVolumeClaim) -> &str {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    meta::annotation(&claim.metadata, OLD_CLASS).or_else(field).unwrap_or_default()
}

/// Whether the claim says something about its class; an empty class counts.
pub fn is_requested(claim: &PersistentVolumeClaim) -> bool {
    meta::annotation(&claim.metadata, OLD_CLASS).is_some() || claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

/// The class of the volume; empty without one.
pub fn of_volume(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    meta::annotation(&volume.metadata, OLD_CLASS).or_else(field).unwrap_or_default()
}

/// Whether claims of the class are bound only when a Pod uses them.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The default class: of several, the newest one, then the first by name, as upstream.
pub fn default(classes: Vec<Arc<StorageClass>>) -> Option<Arc<StorageClass>> {
    let marked = classes.into_iter().filter(|class| meta::annotation(&class.metadata, IS_DEFAULT) == Some("true"));
    marked.min_by_key(|class| (Reverse(meta::instant(class.metadata.creation_timestamp.as_ref())), meta::name(&class.metadata).to_owned()))
}
