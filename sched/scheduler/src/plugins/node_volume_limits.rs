//! Nodes that can attach the volumes of a Pod: each CSI driver says how many volumes it attaches to a node. A volume counts once, however
//! many Pods of the node use it, and also while it is attached without a Pod.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use sched_framework::{
    ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, Scope, Snapshot, Status, Volumes, class_of_claim, volume_of_claim,
};

const NAME: &str = "NodeVolumeLimits";

const LIMIT_EXCEEDED: &str = "node(s) exceed max volume count";

pub(crate) struct NodeVolumeLimits;

/// A volume of a driver: the driver's name and the driver's name of the volume.
type CsiVolume = (String, String);

/// What the Pod's volumes need of nodes.
struct Limits {
    /// The volumes of the Pod.
    wanted: HashSet<CsiVolume>,
    /// The drivers of these volumes that must be installed on the node.
    required: Vec<String>,
    /// The nodes by name.
    nodes: HashMap<String, NodeLimits>,
    /// The volumes of claims of Pods on those nodes.
    by_claim: HashMap<String, CsiVolume>,
}

/// The drivers of a node.
#[derive(Default)]
struct NodeLimits {
    /// The installed drivers.
    drivers: Vec<String>,
    /// The highest number of volumes of each driver of the Pod.
    counts: BTreeMap<String, usize>,
    /// The volumes that are attached to the node.
    attached: Vec<CsiVolume>,
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

/// The CSI volume of a claim, of a driver of the class if the claim has no volume yet.
fn csi_volume(key: &str, claim: &PersistentVolumeClaim, volumes: &Volumes) -> Option<CsiVolume> {
    if let Some(name) = volume_of_claim(claim)
        && let Some(volume) = volumes.volume(name)
    {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        return Some((csi.driver.clone(), csi.volume_handle.clone()));
    }
    let class = volumes.classes.get(class_of_claim(claim))?;
    // No driver has a volume of such a name yet.
    Some((class.provisioner.clone(), format!("claim {key}")))
}

/// The attached volume of an attachment.
fn attached(attachment: &VolumeAttachment, volumes: &Volumes) -> Option<CsiVolume> {
    let volume = volumes.volume(attachment.spec.source.persistent_volume_name.as_deref()?)?;
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    Some((attachment.spec.attacher.clone(), csi.volume_handle.clone()))
}

impl Limits {
    /// The volumes of the Pod; `None` when no node can have a limit for them.
    fn new(pod: &PodInfo, snapshot: &Snapshot) -> Option<Self> {
        let volumes = &snapshot.volumes;
        if volumes.csi_nodes.is_empty() && volumes.csi_drivers.is_empty() {
            return None;
        }
        let wanted = pod.claim_keys().filter_map(|(key, _)| csi_volume(&key, volumes.claim(&key)?, volumes));
        let wanted: HashSet<CsiVolume> = wanted.collect();
        let is_required = |driver: &&String| {
            let driver = volumes.csi_drivers.get(driver.as_str());
            driver.is_some_and(|driver| driver.spec.prevent_pod_scheduling_if_missing == Some(true))
        };
        let required: Vec<String> = wanted.iter().map(|(driver, _)| driver).filter(is_required).cloned().collect();
        let mut limits = Self { wanted, required, nodes: HashMap::new(), by_claim: HashMap::new() };
        volumes.csi_nodes.keys().for_each(|node| limits.add_node(node, snapshot));
        let has_limit = |node: &NodeLimits| !node.counts.is_empty();
        (!limits.required.is_empty() || limits.nodes.values().any(has_limit)).then_some(limits)
    }

    fn add_node(&mut self, name: &str, snapshot: &Snapshot) {
        let volumes = &snapshot.volumes;
        let Some(csi_node) = volumes.csi_nodes.get(name) else { return };
        let mut node = NodeLimits::default();
        for driver in &csi_node.spec.drivers {
            node.drivers.push(driver.name.clone());
            let count = driver.allocatable.as_ref().and_then(|allocatable| usize::try_from(allocatable.count?).ok());
            if let Some(count) = count.filter(|_| self.wanted.iter().any(|(wanted, _)| *wanted == driver.name)) {
                node.counts.insert(driver.name.clone(), count);
            }
        }
        if !node.counts.is_empty() {
            let of_node = |attachment: &&Arc<VolumeAttachment>| attachment.spec.node_name == name;
            node.attached = volumes.attachments.values().filter(of_node).filter_map(|one| attached(one, volumes)).collect();
            let pods = snapshot.node(name).into_iter().flat_map(|node| node.pods.iter());
            pods.chain(snapshot.nominated.to_node(name)).for_each(|pod| self.add_claims(pod, volumes));
        }
        self.nodes.insert(name.to_owned(), node);
    }

    /// A claim that does not exist counts for nothing.
    fn add_claims(&mut self, pod: &PodInfo, volumes: &Volumes) {
        for (key, _) in pod.claim_keys() {
            if let Some(volume) = volumes.claim(&key).and_then(|claim| csi_volume(&key, claim, volumes)) {
                self.by_claim.insert(key, volume);
            }
        }
    }

    fn check(&self, node: &NodeInfo) -> Status {
        let limits = self.nodes.get(&node.name);
        let is_installed = |driver: &&String| limits.is_some_and(|limits| limits.drivers.contains(driver));
        if let Some(driver) = self.required.iter().find(|driver| !is_installed(driver)) {
            return Status::Unschedulable(vec![format!("{driver} CSI driver is not installed on the node").into()]);
        }
        let Some(limits) = limits.filter(|limits| !limits.counts.is_empty()) else { return Status::Success };
        let claims = node.pods.iter().filter(|pod| !pod.volumes.is_empty()).flat_map(|pod| pod.claim_keys());
        let of_pods: Vec<CsiVolume> = claims.filter_map(|(key, _)| self.by_claim.get(&key).cloned()).collect();
        let used: HashSet<&CsiVolume> = of_pods.iter().chain(&limits.attached).collect();
        for (driver, count) in &limits.counts {
            let of_driver = |volume: &&CsiVolume| volume.0 == *driver;
            let in_use = used.iter().copied().filter(of_driver).count();
            let new = self.wanted.iter().filter(of_driver).filter(|volume| !used.contains(*volume)).count();
            if new > 0 && in_use + new > *count {
                return Status::Unschedulable(vec![LIMIT_EXCEEDED.into()]);
            }
        }
        Status::Success
    }
}

impl FilterPlugin for NodeVolumeLimits {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        if let Some(limits) = Some(pod).filter(|pod| !pod.volumes.is_empty()).and_then(|pod| Limits::new(pod, snapshot)) {
            state.write(NAME, limits);
        }
        Status::Success
    }

    fn may_reject(&self, state: &CycleState, pod: &PodInfo) -> bool {
        !pod.volumes.is_empty() && state.read::<Limits>(NAME).is_some()
    }

    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        state.read::<Limits>(NAME).map_or(Status::Success, |limits| limits.check(node))
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::CsiNode,
            ClusterEvent::AssignedPodDelete,
            ClusterEvent::PersistentVolumeClaim,
            ClusterEvent::VolumeAttachmentDelete,
            ClusterEvent::CsiDriver,
        ]
    }
}

#[cfg(test)]
mod tests;
