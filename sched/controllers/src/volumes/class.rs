//! The class of a claim or a volume, and the default class.

use std::cmp::Reverse;
use std::sync::Arc;

use api_model::storage::{IS_DEFAULT_CLASS, OLD_CLASS};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
pub use sched_framework::{class_of_claim as of_claim, class_of_volume as of_volume};

use crate::meta;

/// Whether the claim says something about its class; an empty class counts.
pub fn is_requested(claim: &PersistentVolumeClaim) -> bool {
    meta::annotation(&claim.metadata, OLD_CLASS).is_some() || claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

/// Whether claims of the class are bound only when a Pod uses them.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The default class: of several, the newest one, then the first by name, as upstream.
pub fn default(classes: Vec<Arc<StorageClass>>) -> Option<Arc<StorageClass>> {
    let marked = classes.into_iter().filter(|class| meta::annotation(&class.metadata, IS_DEFAULT_CLASS) == Some("true"));
    marked.min_by_key(|class| (Reverse(meta::instant(class.metadata.creation_timestamp.as_ref())), meta::name(&class.metadata).to_owned()))
}
