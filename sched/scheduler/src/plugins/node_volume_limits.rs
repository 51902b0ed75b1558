//! Nodes that can attach the volumes of a Pod: each CSI driver says how many volumes it attaches to a node. A volume counts once, however
//! many Pods of the node use it, and also while it is attached without a Pod.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, VolumeAttachment};
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
    /// The objects of the cycle, until its end.
    volumes: Arc<Volumes>,
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
        let limits = Self { wanted, required, volumes: Arc::clone(volumes) };
        let has_limit = |node: &Arc<CSINode>| node.spec.drivers.iter().any(|driver| limits.count(driver).is_some());
        (!limits.required.is_empty() || volumes.csi_nodes.values().any(has_limit)).then_some(limits)
    }

    /// The highest number of volumes on a node of a driver that the Pod has volumes of, if there is a limit.
    fn count(&self, driver: &CSINodeDriver) -> Option<usize> {
        let count = driver.allocatable.as_ref().and_then(|allocatable| usize::try_from(allocatable.count?).ok());
        count.filter(|_| self.wanted.iter().any(|(wanted, _)| *wanted == driver.name))
    }

    /// The volumes of the node's Pods, and those that are attached to it without a Pod. A claim that does not exist counts for nothing.
    fn used(&self, node: &NodeInfo) -> HashSet<CsiVolume> {
        let volumes = self.volumes.as_ref();
        let claims = node.pods.iter().filter(|pod| !pod.volumes.is_empty()).flat_map(|pod| pod.claim_keys());
        let of_pods = claims.filter_map(|(key, _)| csi_volume(&key, volumes.claim(&key)?, volumes));
        of_pods.chain(volumes.attachments_to(&node.name).filter_map(|one| attached(one, volumes))).collect()
    }

    fn check(&self, node: &NodeInfo) -> Status {
        let drivers = self.volumes.csi_nodes.get(&node.name).map(|node| node.spec.drivers.as_slice()).unwrap_or_default();
        let is_installed = |driver: &&String| drivers.iter().any(|installed| installed.name == **driver);
        if let Some(driver) = self.required.iter().find(|driver| !is_installed(driver)) {
            return Status::Unschedulable(vec![format!("{driver} CSI driver is not installed on the node").into()]);
        }
        let counts: Vec<(&str, usize)> = drivers.iter().filter_map(|driver| Some((driver.name.as_str(), self.count(driver)?))).collect();
        if counts.is_empty() {
            return Status::Success;
        }
        let used = self.used(node);
        for (driver, count) in counts {
            let of_driver = |volume: &&CsiVolume| volume.0 == driver;
            let in_use = used.iter().filter(of_driver).count();
            let new = self.wanted.iter().filter(of_driver).filter(|volume| !used.contains(*volume)).count();
            if new > 0 && in_use + new > count {
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
