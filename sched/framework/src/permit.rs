//! Permit: the last decision before a Pod is bound to the node that was chosen for it.

use std::time::Duration;

use crate::{NodeInfo, Plugin, PodInfo, Reason};

/// The longest time that a Pod waits at permit: upstream's `maxTimeout`.
pub const PERMIT_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// A Pod that is assumed on its node and not bound yet.
#[derive(Clone, Copy)]
pub struct PermitCandidate<'a> {
    /// The Pod.
    pub pod: &'a PodInfo,
    /// The node that was chosen, with the Pod on it.
    pub node: &'a NodeInfo,
    /// How long the Pod has been waiting at permit.
    pub waited: Duration,
}

/// The answer for a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The Pod may be bound.
    Allow,
    /// The Pod is not bound; it goes back to the scheduling queue. Users see the reason.
    Deny(Reason),
    /// The plugin failed: the attempt to schedule the Pod fails, and is repeated after its back-off.
    Error(Reason),
    /// The Pod waits on its node, at most so long since it began to wait. The plugin is called again.
    Wait(Duration),
}

/// Allows, denies or delays bindings: upstream's `PermitPlugin`. Upstream's plugins end the wait of a Pod by a handle to the waiting
/// Pods; here the scheduler calls the plugin with all candidates of the profile again, so that a plugin needs no state of its own.
pub trait PermitPlugin: Plugin {
    /// The answers for the candidates, in their order. A candidate without an answer waits.
    fn permit(&self, candidates: &[PermitCandidate<'_>]) -> Vec<Permit>;
}
