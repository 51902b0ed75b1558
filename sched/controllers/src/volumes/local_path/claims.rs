//! What a claim of the provisioner needs. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::events::reference;
use api_model::local_path::{self, DIRECTORY, NODE, PROVISIONER};
use api_model::storage::{PROVISIONED_BY, SELECTED_NODE};
use k8s_openapi::api::core::v1::{
    LocalVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::{class, matching};
use super::{FINALIZER, volumes};
use crate::meta;
use crate::note::{Note, warning};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// What the plan reads.
pub struct Cluster {
    /// The class of the claim.
    pub class: Option<Arc<StorageClass>>,
    /// The node that the scheduler chose.
    pub node: Option<Arc<Node>>,
    /// The volume of the claim.
    pub volume: Option<Arc<PersistentVolume>>,
}

/// What is to be done for a claim.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// No volume can be made.
    Refuse {
        /// The event.
        why: Note,
        /// Whether the scheduler waits for the volume: it is to stop waiting, and may choose another node.
        reschedule: bool,
    },
    /// Make this volume.
    Create(Box<PersistentVolume>),
    /// Set the volume's capacity to what the claim requests now.
    Grow {
        /// The volume.
        volume: Arc<PersistentVolume>,
        /// Its new capacity.
        capacity: Quantity,
    },
}

/// The name of the volume of a claim: the one that it names, or the one that is made for it.
pub fn volume_name(claim: &PersistentVolumeClaim) -> String {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| local_path::volume_name(meta::uid(&claim.metadata)))
}

/// The action for a claim of this provisioner.
pub fn plan(claim: &PersistentVolumeClaim, cluster: &Cluster) -> Action {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if !named.is_empty() {
        return grow(claim, cluster.volume.as_ref());
    }
    let Some(class) = cluster.class.as_deref().filter(|class| class.provisioner == PROVISIONER) else { return Action::Nothing };
    let selected = meta::annotation(&claim.metadata, SELECTED_NODE);
    if meta::is_deleting(&claim.metadata) || cluster.volume.is_some() || (selected.is_none() && class::waits_for_consumer(class)) {
        return Action::Nothing;
    }
    if let Some(why) = unsupported(claim, class) {
        // The scheduler is not to hold a place for a volume that never comes.
        return refuse(class, &why, selected.is_some());
    }
    let Some(selected) = selected else {
        return refuse(class, "configuration error, no node was specified: the class needs volumeBindingMode WaitForFirstConsumer", false);
    };
    let Some(node) = &cluster.node else { return refuse(class, &format!("node {selected:?} not found"), true) };
    let Some(directory) = meta::annotation(&node.metadata, DIRECTORY).filter(|path| is_plain(path)) else {
        return refuse(class, &format!("node {selected:?} has no annotation {DIRECTORY} and so no directory for volumes"), true);
    };
    match volume(claim, class, node, directory) {
        Some(volume) => Action::Create(Box::new(volume)),
        None => refuse(class, "the claim requests no storage", true),
    }
}

fn refuse(class: &StorageClass, why: &str, reschedule: bool) -> Action {
    let class = meta::name(&class.metadata);
    let why = warning("ProvisioningFailed", format!("failed to provision volume with StorageClass {class:?}: {why}"));
    Action::Refuse { why, reschedule }
}

/// Whether a path is absolute and has no steps back, as the rules of volumes require.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && !path.split('/').any(|part| part == "..")
}

/// What the claim or its class wants and a directory does not have.
fn unsupported(claim: &PersistentVolumeClaim, class: &StorageClass) -> Option<String> {
    let spec = claim.spec.as_ref()?;
    let is_for_one_node = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
    if spec.volume_mode.as_deref() == Some("Block") {
        return Some(format!("{PROVISIONER} does not support block volume provisioning"));
    }
    if spec.selector.is_some() {
        return Some("claim.Spec.Selector is not supported".to_owned());
    }
    if !spec.access_modes.iter().flatten().all(is_for_one_node) {
        return Some("NodePath only supports ReadWriteOnce and ReadWriteOncePod (1.22+) access modes".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Some("claims with a data source are not supported".to_owned());
    }
    if spec.volume_attributes_class_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return Some("volume attributes classes are not supported".to_owned());
    }
    if class.mount_options.as_ref().is_some_and(|options| !options.is_empty()) {
        return Some("mount options are not supported by the provisioner".to_owned());
    }
    let parameter = class.parameters.as_ref()?.keys().next()?;
    Some(format!("invalid parameter {parameter:?}: the provisioner has none"))
}

/// The volume for a claim.
fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, node: &Node, directory: &str) -> Option<PersistentVolume> {
    let spec = claim.spec.as_ref()?;
    let (name, node_name) = (volume_name(claim), meta::name(&node.metadata));
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let annotations = [(PROVISIONED_BY, PROVISIONER), (NODE, node_name)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(BTreeMap::from(annotations)),
            finalizers: (policy == "Delete").then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes.clone(),
            capacity: Some(BTreeMap::from([("storage".to_owned(), requested(claim)?.clone())])),
            claim_ref: Some(reference(claim)),
            local: Some(LocalVolumeSource { path: format!("{}/{name}", directory.trim_end_matches('/')), fs_type: None }),
            node_affinity: Some(affinity(node)),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: Some(meta::name(&class.metadata).to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    volumes::storage(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref())
}

/// Only the node that has the directory. A node may set its own label to that of another one, but not its name; the label is what
/// upstream's local volumes have.
fn affinity(node: &Node) -> VolumeNodeAffinity {
    let name = meta::name(&node.metadata);
    let only = |key: &str, value: &str| {
        Some(vec![NodeSelectorRequirement { key: key.to_owned(), operator: "In".to_owned(), values: Some(vec![value.to_owned()]) }])
    };
    let host = meta::label(&node.metadata, HOSTNAME).unwrap_or(name);
    let term = NodeSelectorTerm { match_expressions: only(HOSTNAME, host), match_fields: only("metadata.name", name) };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// The volume has its new capacity first; the node and the status of the claim follow. Admission has checked that the class allows it.
fn grow(claim: &PersistentVolumeClaim, volume: Option<&Arc<PersistentVolume>>) -> Action {
    let is_bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
    let ours = volume.filter(|volume| is_bound && volumes::is_ours(volume) && matching::is_reserved_for(volume, claim));
    let (Some(volume), Some(requested)) = (ours, requested(claim)) else { return Action::Nothing };
    let capacity = volumes::storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
    if capacity.is_some_and(|capacity| volumes::is_less(capacity, requested)) {
        return Action::Grow { volume: Arc::clone(volume), capacity: requested.clone() };
    }
    Action::Nothing
}
