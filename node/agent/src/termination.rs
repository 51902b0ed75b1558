//! Orders to end a Pod for a reason that is not its own, from the eviction manager and the node shutdown to its worker.

use jiff::Timestamp;

/// How long a Pod has to end that is evicted at once; upstream's `immediateEvictionGracePeriodSeconds`.
pub(crate) const IMMEDIATE_SECONDS: i64 = 1;
/// `status.reason` of an evicted Pod, and of a Pod that is rejected under pressure.
pub(crate) const EVICTED: &str = "Evicted";
/// `status.reason` of a Pod that is rejected while the node shuts down.
pub(crate) const NODE_SHUTDOWN_REJECTED: &str = "NodeShutdown";
/// `status.reason` and `status.message` of a Pod that ends with its node.
pub(crate) const NODE_SHUTDOWN: &str = "Terminated";
pub(crate) const NODE_SHUTDOWN_MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// An order to end a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Termination {
    /// Of the Pod.
    pub(crate) uid: String,
    /// `status.message`.
    pub(crate) message: String,
    pub(crate) cause: TerminationCause,
}

/// Why a Pod is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminationCause {
    /// It is evicted.
    Eviction {
        /// The signal that caused it.
        signal: &'static str,
        /// The cause is the node's shortage, not the Pod's own limit: the Pod gets the condition `DisruptionTarget`.
        disruption: bool,
        /// How long the Pod has to end.
        grace_seconds: i64,
    },
    /// The node shuts down.
    NodeShutdown {
        /// When its containers must be gone.
        until: Timestamp,
    },
}

impl Termination {
    /// Whether the Pod ends with its node.
    pub(crate) fn is_by_node_shutdown(&self) -> bool {
        matches!(self.cause, TerminationCause::NodeShutdown { .. })
    }
}
