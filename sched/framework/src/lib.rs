//! What scheduling plugins read and return: Pods and nodes reduced to what a placement depends on, a snapshot of the
//! cluster, the status of a Pod on a node, and the extension points as traits. The crate does no I/O: the same snapshot, Pod
//! and progress give the same status.

mod binding;
mod changes;
mod container;
mod device_taint;
mod disruption_budget;
mod dra_manager;
mod extended_resource;
mod external;
mod filters;
mod host_port;
mod images;
mod namespace_labels;
mod node;
mod node_affinity;
mod node_results;
mod nominated;
mod permit;
mod plugin;
mod pod;
mod pod_affinity;
mod pod_group;
mod pod_set;
mod pod_volume;
mod post_filter;
mod resource_claim;
mod resources;
mod score;
mod status;
mod toleration;
mod topology_spread;
mod volumes;
mod weighted;
mod zones;

pub use binding::{BindingPlugin, PostBindPlugin, PreBindPlugin, PreBinding, Refusal, ReservePlugin};
pub use changes::{Changes, NumberedChange};
pub use container::is_sidecar;
pub use device_taint::{selects_device, tolerates_device_taint};
pub use disruption_budget::DisruptionBudget;
pub use dra_manager::{
    AllocationPending, AllocationWrite, ClaimChange, CreatedClaim, DeviceId, DeviceUse, DraManager, EXTENDED_RESOURCE_CLAIM, PoolId,
    allocation_of_claim, capacity_full_name,
};
pub use extended_resource::{DEVICE_CLASS_PREFIX, DeviceResources, is_device_resource};
pub use external::{
    ExternalPlugin, ExternalPluginSet, ExternalPluginSpec, ExternalPlugins, ExternalPoints, FailurePolicy, ImagePullPolicy, Pending,
};
pub use filters::{Filters, FiltersInScope, Rejection};
pub use host_port::HostPort;
pub use images::{ImageId, ImageStates, image_names};
pub use namespace_labels::NamespaceLabels;
pub use node::{NodeInfo, Snapshot};
pub use node_affinity::{selector_matches, selects_names, selects_node, term_matches};
pub use node_results::NodeResults;
pub use nominated::NominatedPods;
pub use permit::{PERMIT_WAIT_MAX, Permit, PermitCandidate, PermitPlugin};
pub use plugin::{ClusterEvent, CycleState, FilterPlugin, Plugin, PodChange, Scope, ScorePlugin};
pub use pod::{PodController, PodInfo};
pub use pod_affinity::{PodAffinityTerm, PodAffinityTerms};
pub use pod_group::{POD_GROUP_INITIALLY_SCHEDULED, PodGroupInfo};
pub use pod_set::PodSet;
pub use pod_volume::{Disk, PodVolume};
pub use post_filter::{PostFilterPlugin, PostFilterResult, Preemption};
pub use resource_claim::{ClaimSource, PodResourceClaim};
pub use resources::{Resource, is_extended_resource};
pub use score::{Normalization, SCORE_MAX, ScoreRange};
pub use status::{Reason, Status};
pub use toleration::tolerates;
pub use topology_spread::TopologySpread;
pub use volumes::{BIND_COMPLETED, SELECTED_NODE, Volumes, annotation, class_of_claim, class_of_volume, is_fully_bound, volume_of_claim};
pub use weighted::Weighted;
pub use zones::{interleaved, zone_of};
