//! The nodes for which a volume can be provisioned: those of the class's topologies, with enough free storage if the driver reports it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::selector::Selector;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use sched_framework::{NodeInfo, Volumes};

use super::matching::{bytes, requested};
use super::{BIND_CONFLICT, NOT_ENOUGH_SPACE};

/// The provisioner of classes whose volumes are all made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Where a volume can be provisioned for a claim.
pub(super) struct Provisioning {
    has_provisioner: bool,
    topologies: Vec<TopologySelectorTerm>,
    /// The labels of the nodes with enough free storage; `None` when nobody reports it.
    storage: Option<Vec<Selector>>,
}

impl Provisioning {
    pub fn new(claim: &PersistentVolumeClaim, class: &StorageClass, volumes: &Volumes) -> Self {
        let provisioner = class.provisioner.as_str();
        let topologies = class.allowed_topologies.clone().unwrap_or_default();
        Self {
            has_provisioner: !provisioner.is_empty() && provisioner != NO_PROVISIONER,
            topologies,
            storage: storage(claim, class, volumes),
        }
    }

    /// Whether a volume can be provisioned for the node.
    pub fn check(&self, node: &NodeInfo) -> Result<(), &'static str> {
        if !self.has_provisioner || !allows(&self.topologies, &node.labels) {
            return Err(BIND_CONFLICT);
        }
        let has_storage = |selectors: &Vec<Selector>| selectors.iter().any(|selector| selector.matches_map(&node.labels));
        if self.storage.as_ref().is_none_or(has_storage) { Ok(()) } else { Err(NOT_ENOUGH_SPACE) }
    }
}

/// Whether one of the terms allows a node with these labels; without terms, any node.
fn allows(terms: &[TopologySelectorTerm], labels: &BTreeMap<String, String>) -> bool {
    let meets = |term: &TopologySelectorTerm| {
        let mut all = term.match_label_expressions.iter().flatten();
        let is_empty = term.match_label_expressions.as_ref().is_none_or(Vec::is_empty);
        !is_empty && all.all(|requirement| labels.get(&requirement.key).is_some_and(|value| requirement.values.contains(value)))
    };
    terms.is_empty() || terms.iter().any(meets)
}

/// The nodes with enough free storage, if the driver of the class says that it reports it (upstream's `hasEnoughCapacity`).
fn storage(claim: &PersistentVolumeClaim, class: &StorageClass, volumes: &Volumes) -> Option<Vec<Selector>> {
    let size = requested(claim)?;
    let driver = volumes.csi_drivers.get(&class.provisioner)?;
    if driver.spec.storage_capacity != Some(true) {
        return None;
    }
    let of_class = |capacity: &&Arc<CSIStorageCapacity>| Some(&capacity.storage_class_name) == class.metadata.name.as_ref();
    let enough = volumes.capacities.values().filter(of_class).filter(|capacity| limit(capacity).is_some_and(|limit| limit >= size));
    // Storage without a topology is not available to any node.
    Some(enough.filter_map(|capacity| Some(Selector::typed(Some(capacity.node_topology.as_ref()?)))).collect())
}

/// The bytes of the largest volume.
pub(crate) fn limit(capacity: &CSIStorageCapacity) -> Option<i64> {
    bytes(capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref())?)
}
