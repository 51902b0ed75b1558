//! The extension points of the scheduler. A plugin is one type in one file that implements the traits it needs.

use std::any::Any;
use std::collections::BTreeSet;

use crate::{NodeInfo, Normalization, PodInfo, Snapshot, Status};

#[cfg(doc)]
use crate::SCORE_MAX;

/// A change in the cluster that may make an unschedulable Pod fit. The names are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterEvent {
    /// A node appeared.
    NodeAdd,
    /// A node was removed.
    NodeDelete,
    /// The labels of a node changed.
    UpdateNodeLabel,
    /// The taints or `spec.unschedulable` of a node changed.
    UpdateNodeTaint,
    /// The allocatable resources of a node changed.
    UpdateNodeAllocatable,
    /// A Pod was bound to a node.
    AssignedPodAdd,
    /// The labels of a Pod on a node changed.
    UpdateAssignedPodLabel,
    /// A Pod on a node ended or was deleted, or a Pod is not nominated to its node any more.
    AssignedPodDelete,
    /// A Pod on a node requests less than before.
    UpdatePodScaleDown,
    /// A PersistentVolumeClaim appeared or changed.
    PersistentVolumeClaim,
    /// A PersistentVolume appeared.
    PersistentVolumeAdd,
    /// A PersistentVolume changed.
    PersistentVolumeUpdate,
    /// The labels of a PersistentVolume changed that say where it is.
    PersistentVolumeTopology,
    /// A StorageClass appeared.
    StorageClassAdd,
    /// The allowed topologies of a StorageClass changed.
    StorageClassTopologies,
    /// A node has a CSI driver more, or a driver allows more volumes on it.
    CsiNode,
    /// A CSI driver does not report its free storage any more.
    CsiDriver,
    /// More storage is free.
    CsiStorageCapacity,
    /// A volume was detached from a node.
    VolumeAttachmentDelete,
    /// A ResourceClaim of the Pod appeared or has another status, or a claim was deallocated.
    ResourceClaimUpdate,
    /// A DeviceClass appeared or changed.
    DeviceClassUpdate,
    /// A ResourceSlice or a DeviceTaintRule appeared or changed.
    ResourceSliceUpdate,
    /// An external plugin has another version. Upstream has no such event.
    ExternalPluginUpdate,
    /// Any change, also one of which a Pod's own fields say that it does not help: of a Pod for which something outside of the
    /// scheduler decides.
    WildCard,
}

impl ClusterEvent {
    /// The value of the label `event` in metrics: upstream's `ClusterEvent.Label`, the resource with the action. An event that is one here
    /// and several for upstream has the label of a change.
    pub fn label(self) -> &'static str {
        match self {
            Self::NodeAdd => "NodeAdd",
            Self::NodeDelete => "NodeDelete",
            Self::UpdateNodeLabel => "NodeUpdateNodeLabel",
            Self::UpdateNodeTaint => "NodeUpdateNodeTaint",
            Self::UpdateNodeAllocatable => "NodeUpdateNodeAllocatable",
            Self::AssignedPodAdd => "AssignedPodAdd",
            Self::UpdateAssignedPodLabel => "AssignedPodUpdatePodLabel",
            Self::AssignedPodDelete => "AssignedPodDelete",
            Self::UpdatePodScaleDown => "AssignedPodUpdatePodScaleDown",
            Self::PersistentVolumeClaim => "PersistentVolumeClaimUpdate",
            Self::PersistentVolumeAdd => "PersistentVolumeAdd",
            Self::PersistentVolumeUpdate | Self::PersistentVolumeTopology => "PersistentVolumeUpdate",
            Self::StorageClassAdd => "storage.k8s.io/StorageClassAdd",
            Self::StorageClassTopologies => "storage.k8s.io/StorageClassUpdate",
            Self::CsiNode => "storage.k8s.io/CSINodeUpdate",
            Self::CsiDriver => "storage.k8s.io/CSIDriverUpdate",
            Self::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacityUpdate",
            Self::VolumeAttachmentDelete => "storage.k8s.io/VolumeAttachmentDelete",
            Self::ResourceClaimUpdate => "resource.k8s.io/ResourceClaimUpdate",
            Self::DeviceClassUpdate => "resource.k8s.io/DeviceClassUpdate",
            Self::ResourceSliceUpdate => "resource.k8s.io/ResourceSliceUpdate",
            Self::ExternalPluginUpdate => "ExternalPluginUpdate",
            Self::WildCard => "*All",
        }
    }
}

/// Values that plugins compute once for one Pod, before they filter and score nodes. The key is the plugin's name with the type
/// of the value. [`FilterPlugin::pre_filter`] and [`ScorePlugin::pre_score`] write them; [`FilterPlugin::filter`] and
/// [`ScorePlugin::score`] read them.
#[derive(Default)]
pub struct CycleState {
    /// A handful: a walk is faster than a table.
    values: Vec<(&'static str, Box<dyn Any + Send + Sync>)>,
}

impl CycleState {
    /// Stores the plugin's value for the rest of the cycle.
    pub fn write<T: Any + Send + Sync>(&mut self, plugin: &'static str, value: T) {
        match self.read_mut(plugin) {
            Some(before) => *before = value,
            None => self.values.push((plugin, Box::new(value))),
        }
    }

    /// The value that the plugin stored.
    pub fn read<T: Any>(&self, plugin: &str) -> Option<&T> {
        self.values.iter().find_map(|(of, value)| value.downcast_ref().filter(|_| *of == plugin))
    }

    /// Drops the values of other plugins than these.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.values.retain(|(plugin, _)| keeps(plugin));
    }

    /// The value that the plugin stored, to change it.
    pub fn read_mut<T: Any>(&mut self, plugin: &str) -> Option<&mut T> {
        self.values.iter_mut().find_map(|(of, value)| value.downcast_mut().filter(|_| *of == plugin))
    }
}

/// What the results of a plugin for a Pod on a node depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The node, its Pods, and what [`PodInfo::asks_the_same`] compares. The scheduler calls the plugin again only when the node
    /// changes, and uses the result for all Pods that ask the same of a node.
    Node,
    /// Also other nodes, or other fields of the Pod. The scheduler calls the plugin in each cycle, for fewer nodes.
    Cluster,
}

/// What all plugins have in common.
pub trait Plugin: Send + Sync {
    /// Upstream's name of the plugin, for example `NodeResourcesFit`. It is the plugin's key in [`CycleState`].
    fn name(&self) -> &'static str;

    /// What the plugin's results depend on.
    fn scope(&self) -> Scope {
        Scope::Node
    }
}

/// Decides which nodes a Pod may run on.
pub trait FilterPlugin: Plugin {
    /// The names of the only nodes that the Pod may run on; `None` for any node. The others are not filtered (upstream's
    /// `PreFilterResult`).
    fn node_names(&self, _pod: &PodInfo) -> Option<BTreeSet<String>> {
        None
    }

    /// Computes once for Pods that are alike what [`FilterPlugin::filter`] needs for every node, such as the Pods that match a
    /// Pod's anti-affinity, and writes it to the state. Any status but `Success` rules out every node.
    fn pre_filter(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        Status::Success
    }

    /// Corrects what [`FilterPlugin::pre_filter`] computed, as if a Pod came to a node or left it (upstream's
    /// `PreFilterExtensions`). The removal of a Pod that was added takes the addition back, and the other way round.
    fn pod_changed(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot, _change: PodChange<'_>) {}

    /// Whether [`FilterPlugin::filter`] may rule out a node, after [`FilterPlugin::pre_filter`]. The cycle does not call a plugin that
    /// has no say in the Pod (upstream's `Skip`).
    fn may_reject(&self, _state: &CycleState, _pod: &PodInfo) -> bool {
        true
    }

    /// Whether the Pod may run on the node.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status;

    /// The changes that may make a Pod fit which this plugin ruled out. Only these events move the Pod out of the
    /// unschedulable Pods.
    fn events_to_register(&self) -> &'static [ClusterEvent];
}

/// A Pod that is thought to come to a node or to leave it.
#[derive(Clone, Copy)]
pub struct PodChange<'a> {
    /// The Pod.
    pub pod: &'a PodInfo,
    /// The node.
    pub node: &'a NodeInfo,
    /// How many Pods there are more: 1 or -1.
    pub number: i64,
}

impl<'a> PodChange<'a> {
    /// The Pod comes to the node.
    pub fn added(pod: &'a PodInfo, node: &'a NodeInfo) -> Self {
        Self { pod, node, number: 1 }
    }

    /// The Pod leaves the node.
    pub fn removed(pod: &'a PodInfo, node: &'a NodeInfo) -> Self {
        Self { pod, node, number: -1 }
    }
}

/// Ranks the nodes that all filters allow. A weighted plugin passes each method on.
pub trait ScorePlugin: Plugin {
    /// The factor of this plugin's score in the sum over all plugins. A profile sets it.
    fn weight(&self) -> i64 {
        1
    }

    /// Computes once for Pods that are alike the sums over the Pods of the cluster that [`ScorePlugin::score`] needs.
    fn count_pods(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) {}

    /// What the plugin's scores for this Pod depend on, after [`ScorePlugin::read_snapshot`]. The answer is the same for all Pods
    /// that ask the same of a node, as long as the classes of devices stay as they are.
    fn scope_for(&self, _state: &CycleState, _pod: &PodInfo) -> Scope {
        self.scope()
    }

    /// Corrects what [`ScorePlugin::count_pods`] computed, like [`FilterPlugin::pod_changed`].
    fn pod_changed(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot, _change: PodChange<'_>) {}

    /// Computes in each cycle, before [`ScorePlugin::pre_score`], what the plugin needs of the snapshot beside sums over Pods.
    fn read_snapshot(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) {}

    /// Computes once a cycle what depends on the feasible nodes. Returns whether the plugin has a preference for this Pod. The
    /// cycle skips the plugin when it has none. A plugin of [`Scope::Node`] gets no nodes.
    fn pre_score(&self, _state: &mut CycleState, _pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        true
    }

    /// The raw score of a node; `None` for a node that the plugin has nothing to say of, which is scored 0.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64>;

    /// How the raw scores become numbers from 0 to [`SCORE_MAX`].
    fn normalization(&self) -> Normalization {
        Normalization::None
    }
}
