//! What scheduling plugins see and answer: the Pod and the nodes reduced to what placement depends
//! on, a snapshot of the cluster, verdicts, and the extension points as traits. No I/O: the same
//! snapshot, Pod and seed give the same verdict.

mod node;
mod plugin;
mod pod;
mod port;
mod resources;
mod verdict;

pub use node::{NodeInfo, Snapshot};
pub use plugin::{ClusterEvent, CycleState, FilterPlugin, Plugin, SCORE_MAX, ScorePlugin, normalize_default};
pub use pod::PodInfo;
pub use port::PortUse;
pub use resources::ResourceList;
pub use verdict::Verdict;
