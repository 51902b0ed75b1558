//! The claims of a Pod: which are bound, which wait for their first consumer, and which keep the Pod from being scheduled.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use sched_framework::{PodInfo, Reason, Volumes, class_of_claim, is_fully_bound, volume_of_claim};

use super::matching::DelayedClaim;
use crate::plugins::claim_not_found;

const UNBOUND_IMMEDIATE: &str = "pod has unbound immediate PersistentVolumeClaims";

/// The claims of a Pod that may be scheduled.
pub(super) struct PodClaims {
    /// The volumes of the bound claims; `None` for one that does not exist.
    pub bound: Vec<Option<Arc<PersistentVolume>>>,
    /// The claims that wait for their first consumer, the smallest first.
    pub delayed: Vec<DelayedClaim>,
}

impl PodClaims {
    /// The claims of the Pod, or why the Pod cannot be scheduled yet.
    pub fn of_pod(pod: &PodInfo, volumes: &Volumes) -> Result<Self, Reason> {
        let claims = pod.claim_keys().map(|(key, is_ephemeral)| usable_claim(pod, &key, is_ephemeral, volumes));
        let claims: Vec<Arc<PersistentVolumeClaim>> = claims.collect::<Result<_, _>>()?;
        let (mut bound, mut delayed) = (Vec::new(), Vec::new());
        for claim in claims {
            let volume = volume_of_claim(&claim);
            let class = volumes.classes.get(class_of_claim(&claim));
            match (volume, class) {
                (Some(name), _) if is_fully_bound(&claim) => bound.push(volumes.volume(name).cloned()),
                (None, Some(class)) if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") => {
                    delayed.push(DelayedClaim::new(claim, class, volumes));
                }
                // Its volume is on its way without the scheduler.
                _ => return Err(UNBOUND_IMMEDIATE.into()),
            }
        }
        delayed.sort_by_key(DelayedClaim::requested);
        Ok(Self { bound, delayed })
    }
}

/// The claim of that key, if a Pod may use it.
fn usable_claim(pod: &PodInfo, key: &str, is_ephemeral: bool, volumes: &Volumes) -> Result<Arc<PersistentVolumeClaim>, Reason> {
    let name = key.rsplit('/').next().unwrap_or_default();
    let Some(claim) = volumes.claim(key) else {
        return Err(match is_ephemeral {
            true => format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}").into(),
            false => claim_not_found(name),
        });
    };
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        let volume = volume_of_claim(claim).unwrap_or_default();
        return Err(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}").into());
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted").into());
    }
    let owners = claim.metadata.owner_references.iter().flatten();
    let is_own = |uid: &str| owners.clone().any(|owner| owner.controller == Some(true) && owner.uid == uid);
    if is_ephemeral && !is_own(&pod.uid) {
        return Err(format!("PVC {key} was not created for pod {} (pod is not owner)", pod.key()).into());
    }
    Ok(Arc::clone(claim))
}
