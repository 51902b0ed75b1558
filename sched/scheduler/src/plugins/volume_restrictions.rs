//! Nodes where the volumes of a Pod are not in the way of another Pod's: a claim with the access mode ReadWriteOncePod has one Pod in the
//! cluster, and some disks without a PersistentVolume have one Pod on a node that writes.

use std::collections::BTreeSet;

use sched_framework::{
    ClusterEvent, CycleState, Disk, FilterPlugin, NodeInfo, Plugin, PodChange, PodInfo, PodVolume, Scope, Snapshot, Status,
};

use super::claim_not_found;

const NAME: &str = "VolumeRestrictions";

const DISK_CONFLICT: &str = "node(s) had no available disk";
const READ_WRITE_ONCE_POD_CONFLICT: &str = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

pub(crate) struct VolumeRestrictions;

/// The claims of the Pod that have one Pod at most.
struct OnePodClaims {
    keys: BTreeSet<String>,
    /// How many times Pods on nodes use one of them.
    uses: i64,
}

impl OnePodClaims {
    /// How many of the claims the Pod uses.
    fn used_by(&self, pod: &PodInfo) -> i64 {
        if pod.volumes.is_empty() {
            return 0;
        }
        let uses = self.keys.iter().filter(|key| pod.uses_claim(key)).count();
        i64::try_from(uses).unwrap_or(i64::MAX)
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

fn disks(pod: &PodInfo) -> impl Iterator<Item = &Disk> {
    pod.volumes.iter().filter_map(|volume| if let PodVolume::Disk(disk) = volume { Some(disk) } else { None })
}

impl FilterPlugin for VolumeRestrictions {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        let mut claims = OnePodClaims { keys: BTreeSet::new(), uses: 0 };
        // The claim of an ephemeral volume has one Pod anyway.
        for (key, _) in pod.claim_keys().filter(|(_, is_ephemeral)| !is_ephemeral) {
            let Some(claim) = snapshot.volumes.claim(&key) else {
                let name = key.rsplit('/').next().unwrap_or_default();
                return Status::UnschedulableAndUnresolvable(vec![claim_not_found(name)]);
            };
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
            if modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                claims.keys.insert(key);
            }
        }
        if !claims.keys.is_empty() {
            let pods = snapshot.nodes.iter().flat_map(|node| node.pods.iter());
            claims.uses = pods.map(|other| claims.used_by(other)).sum();
            state.write(NAME, claims);
        }
        Status::Success
    }

    fn pod_changed(&self, state: &mut CycleState, _: &PodInfo, _: &Snapshot, change: PodChange<'_>) {
        if let Some(claims) = state.read_mut::<OnePodClaims>(NAME) {
            claims.uses += claims.used_by(change.pod) * change.number;
        }
    }

    fn may_reject(&self, state: &CycleState, pod: &PodInfo) -> bool {
        !pod.volumes.is_empty() && (state.read::<OnePodClaims>(NAME).is_some() || disks(pod).next().is_some())
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let conflicts = |disk: &Disk| node.pods.iter().any(|other| disks(other).any(|used| disk.conflicts(used)));
        if disks(pod).any(conflicts) {
            return Status::Unschedulable(vec![DISK_CONFLICT.into()]);
        }
        if state.read::<OnePodClaims>(NAME).is_some_and(|claims| claims.uses > 0) {
            return Status::Unschedulable(vec![READ_WRITE_ONCE_POD_CONFLICT.into()]);
        }
        Status::Success
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::AssignedPodDelete, ClusterEvent::NodeAdd, ClusterEvent::PersistentVolumeClaim]
    }
}

#[cfg(test)]
mod tests;
