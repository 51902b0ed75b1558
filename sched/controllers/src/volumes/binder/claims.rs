//! What a claim needs. Pure: a view of the caches goes in, one action comes out.

use std::sync::Arc;

use api_model::storage::{BIND_COMPLETED, SELECTED_NODE};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::super::{class, matching};
use crate::meta;
use crate::note::{Note, normal, warning};

/// What the plan reads.
pub trait View {
    /// A volume by its name.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// A fitting volume that is reserved for the claim.
    fn reserved(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>>;
    /// The smallest free volume that satisfies the claim.
    fn best(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>>;
    /// A class by its name.
    fn class(&self, name: &str) -> Option<Arc<StorageClass>>;
    /// The default class.
    fn default_class(&self) -> Option<Arc<StorageClass>>;
    /// The names of the Pods without a node that use the claim.
    fn unscheduled_pods(&self, claim: &PersistentVolumeClaim) -> Vec<String>;
}

/// What is to be done for a claim.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Bind it to the volume, or complete its binding.
    Bind(Arc<PersistentVolume>),
    /// It waits; the event says why.
    Wait(Option<Note>),
    /// Its volume is lost. The event is recorded when the phase changes.
    Lose(Note),
    /// Give it the default class.
    AssignClass(String),
    /// Tell this provisioner to make a volume.
    Provision(String),
}

/// The action for a claim.
pub fn plan(claim: &PersistentVolumeClaim, view: &impl View) -> Action {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    match (meta::annotation(&claim.metadata, BIND_COMPLETED).is_some(), named) {
        (true, None) => {
            Action::Lose(warning("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"))
        }
        (true, Some(name)) => bound(claim, view.volume(name)),
        (false, Some(name)) => requested(claim, view.volume(name)),
        (false, None) => unbound(claim, view),
    }
}

/// A claim whose binding was complete.
fn bound(claim: &PersistentVolumeClaim, volume: Option<Arc<PersistentVolume>>) -> Action {
    let Some(volume) = volume else {
        return Action::Lose(warning("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"));
    };
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if reference.is_none_or(|reference| reference.uid == claim.metadata.uid) {
        return Action::Bind(volume);
    }
    Action::Lose(warning("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"))
}

/// A claim that names its volume, before it is bound.
fn requested(claim: &PersistentVolumeClaim, volume: Option<Arc<PersistentVolume>>) -> Action {
    let Some(volume) = volume else { return Action::Wait(None) };
    let name = meta::name(&volume.metadata);
    if volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none()) {
        return match matching::mismatch(&volume, claim) {
            None => Action::Bind(volume),
            Some(why) => Action::Wait(Some(warning("VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}")))),
        };
    }
    if matching::is_reserved_for(&volume, claim) {
        return Action::Bind(volume);
    }
    Action::Wait(Some(warning("FailedBinding", format!("volume {name:?} already bound to a different claim."))))
}

/// A claim that takes any volume.
fn unbound(claim: &PersistentVolumeClaim, view: &impl View) -> Action {
    let name = class::of_claim(claim);
    let storage_class = Some(name).filter(|name| !name.is_empty()).and_then(|name| view.class(name));
    let is_delayed = storage_class.as_deref().is_some_and(class::waits_for_consumer);
    // For delayed claims the scheduler chooses among the free volumes.
    if let Some(volume) = view.reserved(claim).or_else(|| if is_delayed { None } else { view.best(claim) }) {
        return Action::Bind(volume);
    }
    if !class::is_requested(claim)
        && let Some(default) = view.default_class()
    {
        return Action::AssignClass(meta::name(&default.metadata).to_owned());
    }
    if is_delayed && meta::annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return Action::Wait(Some(consumer(&view.unscheduled_pods(claim))));
    }
    match storage_class {
        _ if name.is_empty() => {
            Action::Wait(Some(normal("FailedBinding", "no persistent volumes available for this claim and no storage class is set")))
        }
        None => Action::Wait(Some(warning("ProvisioningFailed", format!("storageclass.storage.k8s.io {name:?} not found")))),
        Some(class) if class.provisioner.starts_with("kubernetes.io/") => {
            Action::Wait(Some(warning("ProvisioningFailed", format!("no volume plugin matched name: {}", class.provisioner))))
        }
        Some(class) => Action::Provision(class.provisioner.clone()),
    }
}

/// The event of a claim that waits for its first Pod.
fn consumer(pods: &[String]) -> Note {
    match pods {
        [] => normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        [pod] => normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => normal("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
    }
}
