//! What a volume of the provisioner needs. Pure.

use api_model::local_path::{NODE, PROVISIONER, is_volume_name};
use api_model::storage::PROVISIONED_BY;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::super::object::{claim_uid, phase, reclaim_policy};
use super::FINALIZER;
use crate::meta;

/// What is to be done for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The action for a volume of this provisioner.
pub fn plan(volume: &PersistentVolume) -> Action {
    let is_protected = meta::has_finalizer(&volume.metadata, FINALIZER);
    let is_deleting = meta::is_deleting(&volume.metadata);
    if is_to_go(volume) {
        // Without the finalizer, a volume that is being deleted has no directory any more.
        return match meta::annotation(&volume.metadata, NODE).filter(|_| is_volume_name(meta::name(&volume.metadata))) {
            Some(node) if is_protected || !is_deleting => Action::Remove { node: node.to_owned() },
            _ => Action::Nothing,
        };
    }
    match reclaim_policy(volume) {
        "Delete" if !is_protected && !is_deleting && phase(volume) == "Bound" => Action::Protect,
        "Retain" | "Recycle" if is_protected => Action::Release,
        _ => Action::Nothing,
    }
}
