//! Eviction: what the node does when memory, disk or process ids run short, and when a Pod uses more local storage
//! than it may. In come observations of the machine and measurements of Pods; out go the node's pressure conditions
//! and at most one Pod a round, which its worker ends as `Failed` with reason `Evicted`.
//!
//! The decisions are pure and follow the kubelet: [`state`] (which threshold is met, which condition holds), [`rank`]
//! (whose turn it is), [`limits`] (what exceeds its own limit), [`message`] (the words), [`admission`] (who is still
//! taken in). [`manager`] and [`local_storage`] are the two loops that perform them.

mod admission;
mod limits;
pub(crate) mod local_storage;
pub(crate) mod manager;
mod measure;
mod message;
mod observe;
mod rank;
mod signal;
mod state;
mod threshold;
mod usage;
mod walk;

use k8s_openapi::api::core::v1::Pod;

pub use threshold::{MinimumReclaim, ThresholdError, Thresholds};

pub(crate) use admission::refusal;
pub(crate) use signal::Pressure;

use crate::config::Config;
use crate::node::Entry;
use crate::parts::Parts;

/// `status.reason` of an evicted Pod, and of one that is not taken in under pressure.
pub(crate) const REASON: &str = "Evicted";

/// The least priority of what the system needs: upstream's `SystemCriticalPriority`.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// An order to end a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// Of the Pod.
    pub(crate) uid: String,
    /// `status.message`.
    pub(crate) message: String,
    /// The node's need, not the Pod's own limit, is the cause: the Pod gets the condition `DisruptionTarget`.
    pub(crate) disruption: bool,
}

/// The conditions at the start, before the first round.
pub(crate) fn pressure(config: &Config, parts: &Parts) -> Pressure {
    let observed = observe::observe(&config.data_dir, parts.images.dir().as_deref());
    state::State::default().look(&config.eviction_hard, &observed.signals, std::time::Duration::MAX, std::time::Instant::now()).pressure
}

/// Whether a Pod is never evicted and always taken in. As upstream, its priority says so. Upstream also spares static
/// Pods and their mirrors; this node has no static Pods, and an annotation that anybody may write spares nobody.
fn is_critical(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}

/// Whether a Pod may still use anything.
fn is_active(entry: &Entry) -> bool {
    let over = matches!(entry.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    !over || entry.containers.values().any(|instance| instance.running.is_some())
}
