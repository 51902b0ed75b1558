//! Nodes in the zones and regions of the volumes that a Pod's claims are bound to: volumes may say so by labels, without a node affinity.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolume;
use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Reason, Scope, Snapshot, Status, Volumes, class_of_claim,
    volume_of_claim,
};

use super::claim_not_found;

const NAME: &str = "VolumeZone";

const CONFLICT: &str = "node(s) had no available volume zone";

/// The labels, each with the one that replaced it.
const TOPOLOGY_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// Between the zones of a label: a volume may be in several.
const ZONES_SEPARATOR: &str = "__";

pub(crate) struct VolumeZone;

/// A label of a volume: its key, the newer key, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeTopology {
    key: &'static str,
    newer: &'static str,
    values: BTreeSet<String>,
}

/// The labels of all volumes of the Pod; not empty.
struct Topologies(Vec<VolumeTopology>);

/// What the labels of a volume say of where it is.
pub(crate) fn topologies(volume: &PersistentVolume) -> Vec<VolumeTopology> {
    let labels = volume.metadata.labels.as_ref();
    let of_label = |(key, newer): (&'static str, &'static str)| {
        let values: BTreeSet<String> = labels?.get(key)?.split(ZONES_SEPARATOR).map(|value| value.trim().to_owned()).collect();
        // A label with an empty zone in it says nothing.
        (!values.contains("")).then_some(VolumeTopology { key, newer, values })
    };
    TOPOLOGY_LABELS.into_iter().filter_map(of_label).collect()
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

/// The topologies of the volumes of the Pod's claims. Claims that wait for their first consumer have none yet.
fn of_pod(pod: &PodInfo, volumes: &Volumes) -> Result<Vec<VolumeTopology>, Reason> {
    let mut all = Vec::new();
    for (key, _) in pod.claim_keys().filter(|(_, is_ephemeral)| !is_ephemeral) {
        let name = key.rsplit('/').next().unwrap_or_default();
        let claim = volumes.claim(&key).ok_or_else(|| claim_not_found(name))?;
        if let Some(volume) = volume_of_claim(claim) {
            let volume = volumes.volume(volume).ok_or_else(|| Reason::from(format!("persistentvolume {volume:?} not found")))?;
            all.extend(topologies(volume));
            continue;
        }
        let class = match class_of_claim(claim) {
            "" => return Err("PersistentVolumeClaim had no pv name and storageClass name".into()),
            class => class,
        };
        let found = volumes.classes.get(class);
        let class = found.ok_or_else(|| Reason::from(format!("storageclass.storage.k8s.io {class:?} not found")))?;
        if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
            return Err("PersistentVolume had no name".into());
        }
    }
    Ok(all)
}

impl FilterPlugin for VolumeZone {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        if pod.volumes.is_empty() {
            return Status::Success;
        }
        match of_pod(pod, &snapshot.volumes) {
            Ok(topologies) => {
                if !topologies.is_empty() {
                    state.write(NAME, Topologies(topologies));
                }
                Status::Success
            }
            Err(reason) => Status::UnschedulableAndUnresolvable(vec![reason]),
        }
    }

    fn may_reject(&self, state: &CycleState, pod: &PodInfo) -> bool {
        !pod.volumes.is_empty() && state.read::<Topologies>(NAME).is_some()
    }

    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(Topologies(topologies)) = state.read::<Topologies>(NAME) else { return Status::Success };
        // A node without zone and region is in a cluster that has none.
        if !TOPOLOGY_LABELS.iter().any(|(key, _)| node.labels.contains_key(*key)) {
            return Status::Success;
        }
        let is_there = |topology: &VolumeTopology| {
            let label = node.labels.get(topology.key).or_else(|| node.labels.get(topology.newer));
            label.is_some_and(|value| topology.values.contains(value))
        };
        Status::unless(topologies.iter().all(is_there), CONFLICT)
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::StorageClassAdd,
            ClusterEvent::NodeAdd,
            ClusterEvent::UpdateNodeLabel,
            ClusterEvent::PersistentVolumeClaim,
            ClusterEvent::PersistentVolumeAdd,
            ClusterEvent::PersistentVolumeTopology,
        ]
    }
}

#[cfg(test)]
mod tests;
