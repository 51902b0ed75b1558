//! What a StatefulSet needs next: which Pods and claims to create, change or delete, and its status.
//!
//! With `OrderedReady` a pass does one thing at most: it goes through the ordinals from the first one, and stops at the first
//! Pod that is missing, ending or not available. Then it deletes what was scaled away, the last ordinal first, and then what
//! the update replaces. With `Parallel` nothing waits but the update.

mod members;
pub mod update;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::status;
use crate::{meta, pods};

/// The two revisions of which Pods are created.
pub struct Revisions {
    /// The revision before the update.
    pub current: Arc<ControllerRevision>,
    /// Its template.
    pub current_template: PodTemplateSpec,
    /// The revision of the present template.
    pub update: Arc<ControllerRevision>,
    /// The collision count for the status.
    pub collisions: i32,
}

/// What a plan is made from.
pub struct Snapshot<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// Its revisions.
    pub revisions: &'a Revisions,
    /// Its Pods, also ended ones and those that are being deleted.
    pub pods: &'a [Arc<Pod>],
    /// The claims of the namespace, by name.
    pub claim: &'a dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
    /// The time.
    pub now: Timestamp,
}

/// One write.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Create the missing claims, then the Pod.
    Create {
        /// The Pod.
        pod: Box<Pod>,
        /// The claims that the cache does not show.
        claims: Vec<PersistentVolumeClaim>,
    },
    /// Create claims that a pending Pod waits for.
    Claims {
        /// The Pod.
        pod: Arc<Pod>,
        /// Its missing claims.
        claims: Vec<PersistentVolumeClaim>,
    },
    /// Give a Pod its identity back, by a strategic merge patch.
    Change {
        /// The Pod.
        pod: Arc<Pod>,
        /// The change.
        patch: Value,
    },
    /// Change the owners of a claim.
    Own {
        /// The claim.
        claim: Arc<PersistentVolumeClaim>,
        /// All its owners.
        owners: Vec<OwnerReference>,
    },
    /// Delete the Pod.
    Delete(Arc<Pod>),
    /// A claim is being deleted, so the Pod waits: an event says so.
    ClaimDeleted {
        /// The Pod's name.
        pod: String,
        /// The claim's name.
        claim: String,
    },
}

/// The next writes.
pub struct Plan {
    /// Writes that may be tried at the same time; a failure ends the phase and the plan.
    pub phases: Vec<Vec<Action>>,
    /// The status after the writes.
    pub status: StatefulSetStatus,
    /// When a ready Pod becomes available.
    pub look_again: Option<Duration>,
}

/// The next writes and the status.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let set = snapshot.set;
    let mut status = status::status(snapshot);
    let min_ready = set.spec.min_ready_seconds.unwrap_or(0);
    let look_again = snapshot.pods.iter().filter_map(|pod| pods::available_in(pod, min_ready, snapshot.now)).min();
    let mut phases = Vec::new();
    if !meta::is_deleting(&set.metadata) {
        let deleted = members::Members::of(snapshot).phases(&mut phases);
        status::without(&mut status, &deleted, &snapshot.revisions.current);
    }
    status::complete(set, &mut status);
    Plan { phases, status, look_again }
}

#[cfg(test)]
mod tests;
