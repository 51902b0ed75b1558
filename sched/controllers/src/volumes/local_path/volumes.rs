//! What a volume of the provisioner needs. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::local_path::{NODE, PROVISIONER, is_volume_name};
use api_model::storage::PROVISIONED_BY;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::super::matching;
use super::super::object::{claim_uid, phase, reclaim_policy};
use super::FINALIZER;
use crate::meta;

/// What is to be done for a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Add the finalizer.
    Protect,
    /// Remove the finalizer: the directory stays.
    Release,
    /// Remove the directory, then the volume.
    Remove {
        /// The node that has the directory.
        node: String,
    },
    /// The volume has this capacity, and the status of its claim says less: have the node enforce it, then write the status.
    Grow {
        /// The node that has the directory.
        node: String,
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// The capacity.
        capacity: Quantity,
    },
}

/// Whether this provisioner made the volume.
pub fn is_ours(volume: &PersistentVolume) -> bool {
    meta::annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER)
}

/// Whether its claim is gone and its policy is `Delete`. A volume without a reference to a claim was offered to others: the phase follows
/// later.
pub fn is_to_go(volume: &PersistentVolume) -> bool {
    phase(volume) == "Released" && claim_uid(volume).is_some() && reclaim_policy(volume) == "Delete"
}

/// The action for a volume of this provisioner, with the claim that it refers to.
pub fn plan(volume: &PersistentVolume, claim: Option<&Arc<PersistentVolumeClaim>>) -> Action {
    let is_protected = meta::has_finalizer(&volume.metadata, FINALIZER);
    let is_deleting = meta::is_deleting(&volume.metadata);
    if is_to_go(volume) {
        // Without the finalizer, a volume that is being deleted has no directory any more.
        return match node(volume) {
            Some(node) if is_protected || !is_deleting => Action::Remove { node },
            _ => Action::Nothing,
        };
    }
    match reclaim_policy(volume) {
        "Delete" if !is_protected && !is_deleting && phase(volume) == "Bound" => Action::Protect,
        "Retain" | "Recycle" if is_protected => Action::Release,
        _ => claim.and_then(|claim| grow(volume, claim)).unwrap_or(Action::Nothing),
    }
}

/// The node that has the directory, if the name of the volume is that of a directory.
fn node(volume: &PersistentVolume) -> Option<String> {
    meta::annotation(&volume.metadata, NODE).filter(|_| is_volume_name(meta::name(&volume.metadata))).map(str::to_owned)
}

fn grow(volume: &PersistentVolume, claim: &Arc<PersistentVolumeClaim>) -> Option<Action> {
    let status = claim.status.as_ref().filter(|status| status.phase.as_deref() == Some("Bound"))?;
    let (capacity, in_status) = (storage(volume.spec.as_ref()?.capacity.as_ref())?, storage(status.capacity.as_ref())?);
    (matching::is_reserved_for(volume, claim) && is_less(in_status, capacity)).then_some(Action::Grow {
        node: node(volume)?,
        claim: Arc::clone(claim),
        capacity: capacity.clone(),
    })
}

/// The storage in a list of resources.
pub fn storage(resources: Option<&BTreeMap<String, Quantity>>) -> Option<&Quantity> {
    resources?.get("storage")
}

/// Whether both are amounts and the first one is less.
pub fn is_less(a: &Quantity, b: &Quantity) -> bool {
    match (api_model::quantity::nano(&a.0), api_model::quantity::nano(&b.0)) {
        (Ok(a), Ok(b)) => a < b,
        _ => false,
    }
}
