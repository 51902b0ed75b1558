//! What becomes of a claim when Pods end.

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use serde_json::{Value, json};

use crate::meta;

/// The scheduler adds it to an allocated claim, so that its devices are not lost sight of.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Whether a Pod needs its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// It runs, or may run.
    Active,
    /// It has ended, or another Pod has its name.
    Done,
    /// The cache does not have it.
    Unknown,
}

/// A write. Each goes on from the claim that the one before left.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Merges this into the status.
    SetStatus(Value),
    RemoveFinalizer,
    Delete,
}

/// The consumers for which the claim is reserved.
pub fn reserved_for(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// What to do with a claim that is reserved for these Pods. `owner` is the Pod for which the claim was made.
pub fn plan(claim: &ResourceClaim, consumers: &[(ResourceClaimConsumerReference, PodState)], owner: Option<PodState>) -> Vec<Action> {
    let valid: Vec<&ResourceClaimConsumerReference> =
        consumers.iter().filter(|(_, state)| *state != PodState::Done).map(|(consumer, _)| consumer).collect();
    let has_finalizer = meta::has_finalizer(&claim.metadata, FINALIZER);
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    let mut actions = Vec::new();
    if valid.len() < consumers.len() {
        let deallocates = valid.is_empty() && has_finalizer;
        actions.push(Action::SetStatus(match (valid.is_empty(), deallocates) {
            (_, true) => json!({"reservedFor": null, "allocation": null, "devices": null}),
            (true, false) => json!({"reservedFor": null}),
            (false, false) => json!({"reservedFor": valid}),
        }));
        if has_finalizer && (deallocates || !is_allocated) {
            actions.push(Action::RemoveFinalizer);
        }
    } else if has_finalizer && meta::is_deleting(&claim.metadata) && valid.is_empty() {
        if is_allocated {
            actions.push(Action::SetStatus(json!({"allocation": null, "devices": null})));
        }
        actions.push(Action::RemoveFinalizer);
    }
    // The garbage collector deletes the claim of a Pod that is gone.
    if valid.is_empty() && owner == Some(PodState::Done) && !meta::is_deleting(&claim.metadata) {
        actions.push(Action::Delete);
    }
    actions
}
