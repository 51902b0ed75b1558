//! The claim that the scheduler creates for the extended resources of a Pod: its name in the Pod's status, and its end.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use sched_framework::PodInfo;
use serde_json::{Value, json};

use super::{ATTEMPT_PAUSE, ATTEMPTS_MAX, ClaimWriteError, FINALIZER, guarded};

/// Sets `status.extendedResourceClaimStatus` of a Pod, unless the Pod is gone.
pub(super) async fn set_in_pod(pods: &Api<Pod>, pod: &PodInfo, status: Value) -> Result<(), ClaimWriteError> {
    let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}));
    match pods.patch_status(&pod.name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(ClaimWriteError::PodStatus { pod: pod.key(), error }),
    }
}

/// Deletes a claim that the scheduler created, with its devices.
pub(super) async fn delete(api: &Api<ResourceClaim>, name: &str, uid: &str) -> Result<(), ClaimWriteError> {
    let mut attempt = 1;
    loop {
        match delete_once(api, name, uid).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(ATTEMPT_PAUSE * attempt).await;
                attempt += 1;
            }
            result => return result,
        }
    }
}

async fn delete_once(api: &Api<ResourceClaim>, name: &str, uid: &str) -> Result<(), ClaimWriteError> {
    let claim = name.to_owned();
    let present = api.get_opt(name).await.map_err(|error| ClaimWriteError::Get { claim: claim.clone(), error })?;
    let Some(present) = present.filter(|present| present.metadata.uid.as_deref() == Some(uid)) else { return Ok(()) };
    let finalizers = present.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        let rest: Vec<_> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let patch = Patch::Merge(guarded(&present, json!({"metadata": {"finalizers": rest}})));
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(ClaimWriteError::NoFinalizer { claim, error }),
        }
    }
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    match api.delete(name, &DeleteParams::default().preconditions(only)).await {
        Ok(_) => Ok(()),
        // The claim is gone, or another one has its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(ClaimWriteError::Delete { claim, error }),
    }
}
