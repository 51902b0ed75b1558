//! The binding conditions of devices (KEP-5007, upstream's `DRADeviceBindingConditions`): a device that must be attached or configured
//! first is allocated, its driver reports in the status of the claim how that goes, and the Pod is bound when all conditions are true. A
//! failure, or conditions that are not true in time, make the allocation unusable: the claim is deallocated, and the Pod is tried again.

use std::time::Duration;

use api_client::informer::{Informer, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sched_framework::allocation_of_claim;
use tokio::sync::watch;

use super::claims;
use super::requests::claim_name;

/// What the wait for a deadline lasts longer, so that the deadline has passed then.
const AFTER_DEADLINE: Duration = Duration::from_millis(1);

/// Why a Pod cannot have the devices of a claim, with upstream's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DeviceBindingError {
    #[error("device binding failed: claim={claim}, reason={reason}, message={message:?}")]
    Failed { claim: String, reason: String, message: String },
    #[error("device binding timeout: claim={0}")]
    TimedOut(String),
    #[error("device binding timeout")]
    AllTimedOut,
    #[error("claim {0} got deleted in the meantime")]
    Deleted(String),
    #[error("claim {0} got deallocated elsewhere in the meantime")]
    Deallocated(String),
    #[error("the scheduler ended")]
    Ended,
}

/// How far the devices of a claim are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preparation {
    /// All conditions are true, or there are none.
    Complete,
    /// A condition is not true yet. After that time it is too late.
    Awaited { until: Option<Timestamp> },
}

/// Whether a device of the allocation has binding conditions.
pub(crate) fn has_conditions(allocation: &AllocationResult) -> bool {
    conditional(allocation).next().is_some()
}

fn conditional(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.filter(|result| result.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty()))
}

/// How far the devices of an allocated claim are at that time, which they may take so long for.
///
/// # Errors
/// A failure condition is true, or it is too late.
pub(super) fn preparation(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> Result<Preparation, DeviceBindingError> {
    let Some(allocation) = allocation_of_claim(claim) else { return Ok(Preparation::Awaited { until: None }) };
    let name = || claim.metadata.name.clone().unwrap_or_default();
    let is_true = |condition: &&Condition, type_: &str| condition.type_ == type_ && condition.status == "True";
    let mut is_complete = true;
    for result in conditional(allocation) {
        let conditions = conditions_of(claim, result);
        for failure in result.binding_failure_conditions.iter().flatten() {
            if let Some(Condition { reason, message, .. }) = conditions.iter().find(|condition| is_true(condition, failure)) {
                return Err(DeviceBindingError::Failed { claim: name(), reason: reason.clone(), message: message.clone() });
            }
        }
        let mut wanted = result.binding_conditions.iter().flatten();
        is_complete &= wanted.all(|wanted| conditions.iter().any(|condition| is_true(&condition, wanted)));
    }
    if is_complete {
        return Ok(Preparation::Complete);
    }
    let since = allocation.allocation_timestamp.as_ref().map(|time| time.0);
    let until = since.and_then(|since| since.checked_add(SignedDuration::try_from(timeout).ok()?).ok());
    if until.is_some_and(|until| until < now) {
        return Err(DeviceBindingError::TimedOut(name()));
    }
    Ok(Preparation::Awaited { until })
}

/// What the driver reports of the device, or of the share of it.
fn conditions_of<'c>(claim: &'c ResourceClaim, result: &DeviceRequestAllocationResult) -> &'c [Condition] {
    let mut devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    let device = devices.find(|device| {
        device.driver == result.driver && device.pool == result.pool && device.device == result.device && device.share_id == result.share_id
    });
    device.and_then(|device| device.conditions.as_deref()).unwrap_or_default()
}

/// A claim whose devices a Pod waits for.
#[derive(Clone, Debug)]
pub(super) struct AwaitedClaim {
    pub key: ObjectKey,
    pub uid: String,
    /// The claim has its allocation at this revision, and is reserved for the Pod.
    pub revision: u64,
    pub pod_uid: String,
}

/// Waits for devices, without a limit of its own to the number of Pods that wait.
#[derive(Clone)]
pub(super) struct DeviceWait {
    pub claims: Informer<ResourceClaim>,
    /// Changes after each change of a claim with binding conditions.
    pub changes: watch::Receiver<u64>,
    pub timeout: Duration,
}

impl DeviceWait {
    /// Waits until the devices of all these claims can be used.
    pub async fn prepared(&self, awaited: &[AwaitedClaim]) -> Result<(), DeviceBindingError> {
        let timed_out = |_elapsed| Err(DeviceBindingError::AllTimedOut);
        tokio::time::timeout(self.timeout, self.all_complete(awaited)).await.unwrap_or_else(timed_out)
    }

    async fn all_complete(&self, awaited: &[AwaitedClaim]) -> Result<(), DeviceBindingError> {
        let mut changes = self.changes.clone();
        loop {
            // Before the claims are read: a change after that ends the wait.
            changes.borrow_and_update();
            let now = api_clock::now();
            let Some(until) = self.earliest(awaited, now)? else { return Ok(()) };
            let left = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok());
            // Without a time the whole wait ends it.
            let left = left.unwrap_or(self.timeout).saturating_add(AFTER_DEADLINE);
            tokio::select! {
                changed = changes.changed() => changed.map_err(|_| DeviceBindingError::Ended)?,
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// The time when it is too late for the first of the claims; `None` when no claim is awaited any more.
    fn earliest(&self, awaited: &[AwaitedClaim], now: Timestamp) -> Result<Option<Option<Timestamp>>, DeviceBindingError> {
        let mut earliest: Option<Option<Timestamp>> = None;
        for claim in awaited {
            if let Preparation::Awaited { until } = self.state_of(claim, now)? {
                let others = earliest.flatten();
                earliest = Some(others.into_iter().chain(until).min());
            }
        }
        Ok(earliest)
    }

    fn state_of(&self, awaited: &AwaitedClaim, now: Timestamp) -> Result<Preparation, DeviceBindingError> {
        let claim = self.claims.get(&awaited.key).filter(|claim| claim.metadata.uid.as_ref() == Some(&awaited.uid));
        let claim = claim.ok_or_else(|| DeviceBindingError::Deleted(awaited.key.to_string()))?;
        if revision(&claim) < awaited.revision {
            // The informer does not have the allocation yet.
            return Ok(Preparation::Awaited { until: None });
        }
        if allocation_of_claim(&claim).is_none() || !claims::is_reserved_for(&claim, &awaited.pod_uid) {
            return Err(DeviceBindingError::Deallocated(claim_name(&claim)));
        }
        preparation(&claim, self.timeout, now)
    }
}

/// The revision of the claim. Without one, nothing can be older.
pub(super) fn revision(claim: &ResourceClaim) -> u64 {
    claim.metadata.resource_version.as_deref().and_then(|revision| revision.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
