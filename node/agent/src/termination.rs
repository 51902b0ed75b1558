//! Orders to end a Pod for a reason that is not its own, from the eviction manager and the node shutdown to its worker.

use jiff::Timestamp;

/// The grace period of a Pod that is evicted at once; upstream's `immediateEvictionGracePeriodSeconds`.
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
        /// The longest grace period of the Pod.
        grace_seconds_max: i64,
    },
    /// The node shuts down.
    NodeShutdown {
        /// When its containers must be gone, by the steady clock.
        until: Timestamp,
    },
}

impl Termination {
    /// What a worker is ordered that may not have read the earlier order. A Pod that ends with its node is not evicted. Of two evictions
    /// the first has the reason, and the shorter grace period counts.
    pub(crate) fn after(self, earlier: Option<Self>) -> Self {
        let Some(mut earlier) = earlier else { return self };
        match (&mut earlier.cause, self.cause) {
            (TerminationCause::NodeShutdown { .. }, _) => earlier,
            (TerminationCause::Eviction { grace_seconds_max, .. }, TerminationCause::Eviction { grace_seconds_max: of_later, .. }) => {
                *grace_seconds_max = of_later.min(*grace_seconds_max);
                earlier
            }
            (TerminationCause::Eviction { .. }, TerminationCause::NodeShutdown { .. }) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_was_not_read_yet_is_not_lost() {
        let eviction = |message: &str, grace_seconds_max| Termination {
            uid: "u".to_owned(),
            message: message.to_owned(),
            cause: TerminationCause::Eviction { signal: "memory.available", disruption: true, grace_seconds_max },
        };
        let shutdown = |second| Termination {
            uid: "u".to_owned(),
            message: "shutdown".to_owned(),
            cause: TerminationCause::NodeShutdown { until: Timestamp::from_second(second).expect("in range") },
        };
        assert_eq!(eviction("b", 1).after(None), eviction("b", 1));
        assert_eq!(eviction("b", 1).after(Some(eviction("a", 60))), eviction("a", 1));
        assert_eq!(eviction("b", 60).after(Some(eviction("a", 1))), eviction("a", 1));
        assert_eq!(eviction("b", 1).after(Some(shutdown(5))), shutdown(5));
        assert_eq!(shutdown(5).after(Some(eviction("a", 1))), shutdown(5));
        assert_eq!(shutdown(9).after(Some(shutdown(5))), shutdown(5));
    }
}
