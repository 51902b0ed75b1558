//! The scheduler: binds each Pod without a node to the best node that fits.
//!
//! It watches Pods, Nodes, Namespaces, Services, the controllers of Pods, PodDisruptionBudgets, PodGroups, PersistentVolumes with their
//! claims and classes, what CSI drivers report, ResourceClaims, DeviceClasses, ResourceSlices and DeviceTaintRules; it writes Pod bindings,
//! nominations, the conditions of Pods and PodGroups and events, which claim a volume is for and which node a volume is provisioned for, the
//! allocations and the consumers in the status of ResourceClaims and their finalizer, and deletes the Pods that are preempted for more
//! important ones. One task owns the cache and the scheduling queue and runs one cycle after the other; a cycle works on memory alone. Other
//! tasks write the decisions, while the cache assumes them, and call the extenders of the configuration.

mod bind;
mod cache;
mod config;
mod cycle;
mod default_spread;
mod diagnosis;
mod extender;
mod gang_preemption;
mod metrics;
mod node_images;
mod plugins;
mod pod_groups;
mod queue;
mod run;
mod waiting;

pub use config::{ConfigurationError, KubeSchedulerConfiguration};
pub use run::{Config, run};
