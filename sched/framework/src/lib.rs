//! What scheduling plugins read and return: Pods and nodes reduced to what a placement depends on, a snapshot of the
//! cluster, the status of a Pod on a node, and the extension points as traits. The crate does no I/O: the same snapshot, Pod
//! and starting point give the same status.

mod host_port;
mod node;
mod node_affinity;
mod plugin;
mod pod;
mod resources;
mod status;
mod toleration;

pub use host_port::HostPort;
pub use node::{NodeInfo, Snapshot};
pub use node_affinity::{selects_node, term_matches};
pub use plugin::{ClusterEvent, CycleState, FilterPlugin, Plugin, SCORE_MAX, ScorePlugin, default_normalize_score};
pub use pod::PodInfo;
pub use resources::Resource;
pub use status::Status;
pub use toleration::tolerates;
