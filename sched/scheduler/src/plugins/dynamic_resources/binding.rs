//! What [`super::DynamicResources`] writes: the allocations of claims with the Pod for which they are reserved, before the Pod is bound; and
//! the end of an allocation that is of no use, for a Pod that no node is feasible for.
//!
//! A write goes on when nobody waits for it any more. Until it is clear whether it succeeded, its devices stay in use.

use std::sync::Arc;
use std::time::Duration;

use api_client::error::chain;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use sched_framework::{AllocationWrite, BindingPlugin, CycleState, Plugin, PodInfo, PreBindPlugin, PreBinding, Refusal};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::requests::claim_name;
use super::{DYNAMIC_RESOURCES, PodClaims, ReservedClaim, claims, idle};

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a claim that others change at the same time is tried: upstream's `retry.DefaultRetry`.
const ATTEMPTS_MAX: u32 = 5;
/// The pause before the first further attempt.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(10);
/// How long a binding waits for its claims.
const WRITES_WITHIN: Duration = Duration::from_secs(60);

/// The writes of the plugin.
pub(crate) struct DynamicResourcesBinding {
    client: kube::Client,
    writes: Arc<Mutex<JoinSet<()>>>,
}

/// A claim that could not be written.
#[derive(Debug, thiserror::Error)]
enum ClaimWriteError {
    #[error("claim {0} got deleted in the meantime")]
    Deleted(String),
    #[error("claim {0} got allocated elsewhere in the meantime")]
    AllocatedElsewhere(String),
    #[error("get updated claim {claim} after conflict: {}", chain(.error))]
    Get { claim: String, error: kube::Error },
    #[error("add finalizer to claim {claim}: {}", chain(.error))]
    Finalizer { claim: String, error: kube::Error },
    #[error("add {what} to claim {claim}: {}", chain(.error))]
    Status { what: &'static str, claim: String, error: kube::Error },
}

impl ClaimWriteError {
    /// Whether somebody else changed the claim at the same time.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Finalizer { error: kube::Error::Api(status), .. } | Self::Status { error: kube::Error::Api(status), .. } => {
                status.code == 409
            }
            _ => false,
        }
    }

    /// Whether the server gave no answer, so that the write may have succeeded.
    fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Status { error, .. } if !matches!(error, kube::Error::Api(_)))
    }
}

impl DynamicResourcesBinding {
    /// The client writes as the scheduler.
    pub fn new(client: kube::Client) -> Self {
        Self { client, writes: Arc::default() }
    }

    fn api(&self, namespace: &str) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Runs the work to its end. The result waits for it.
    fn run_to_end(&self, work: impl Future<Output = Result<(), ClaimWriteError>> + Send + 'static) -> PreBinding {
        let (done, result) = oneshot::channel();
        let mut writes = self.writes.lock();
        while let Some(ended) = writes.try_join_next() {
            api_tasks::joined(ended);
        }
        writes.spawn(api_tasks::named("scheduler/resource-claims", async move {
            // Nobody may wait any more.
            let _nobody = done.send(work.await);
        }));
        Box::pin(async move {
            match tokio::time::timeout(WRITES_WITHIN, result).await {
                Ok(Ok(Ok(()))) => Ok(()),
                Ok(Ok(Err(error))) => Err(Refusal::Error(error.to_string().into())),
                Ok(Err(_panicked)) => Err(Refusal::Error("the claims were not written".into())),
                Err(_elapsed) => Err(Refusal::Error("timed out waiting for the claims to be written".into())),
            }
        })
    }
}

impl Plugin for DynamicResourcesBinding {
    fn name(&self) -> &'static str {
        DYNAMIC_RESOURCES
    }
}

impl BindingPlugin for DynamicResourcesBinding {
    fn has_part_in(&self, pod: &PodInfo) -> bool {
        !pod.resource_claims.is_empty()
    }
}

impl PreBindPlugin for DynamicResourcesBinding {
    fn pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, _node: &str) -> Option<PreBinding> {
        let of_pod = state.read::<PodClaims>(DYNAMIC_RESOURCES)?;
        let is_reserved = |claim: &ResourceClaim| claims::reserved_for(claim).iter().any(|consumer| consumer.uid == pod.uid);
        let mut writes: Vec<ClaimBinding> = Vec::new();
        for claim in of_pod.claims.iter().filter(|claim| !is_reserved(claim)) {
            let reserved = of_pod.reserved.iter().find(|reserved| Arc::ptr_eq(&reserved.claim, claim));
            writes.push(ClaimBinding {
                api: self.api(&pod.namespace),
                claim: ResourceClaim::clone(claim),
                reserved: reserved.cloned(),
                pod: Arc::clone(pod),
            });
        }
        if writes.is_empty() {
            return None;
        }
        // From now on an allocation may be in the store.
        writes.iter().filter_map(|write| write.reserved.as_ref()).for_each(|reserved| reserved.write.start());
        Some(self.run_to_end(async move {
            let mut result = Ok(());
            for write in writes {
                match (&result, &write.reserved) {
                    (Ok(()), _) => result = write.run().await,
                    // After a failure the others are not written.
                    (Err(_), Some(reserved)) => reserved.write.failed(),
                    (Err(_), None) => {}
                }
            }
            result
        }))
    }

    fn make_room(&self, state: &CycleState, pod: &Arc<PodInfo>) -> Option<PreBinding> {
        let claim = Arc::clone(idle(state.read::<PodClaims>(DYNAMIC_RESOURCES)?, pod)?);
        let api = self.api(&pod.namespace);
        Some(self.run_to_end(async move {
            let status = json!({"allocation": null, "reservedFor": null, "devices": null});
            let patch = Patch::Merge(guarded(&claim, json!({"status": status})));
            let written = api.patch_status(claim.metadata.name.as_deref().unwrap_or_default(), &PatchParams::default(), &patch).await;
            written.map(drop).map_err(|error| ClaimWriteError::Status { what: "deallocation", claim: claim_name(&claim), error })
        }))
    }
}

/// The patch of a claim as it was read.
fn guarded(claim: &ResourceClaim, mut patch: Value) -> Value {
    for (field, value) in [("resourceVersion", &claim.metadata.resource_version), ("uid", &claim.metadata.uid)] {
        if let Some(value) = value {
            api_model::meta::set(&mut patch, field, value.clone());
        }
    }
    patch
}

/// The writes for one claim of a Pod.
struct ClaimBinding {
    api: Api<ResourceClaim>,
    /// As it was read last.
    claim: ResourceClaim,
    /// The allocation of a claim that has none.
    reserved: Option<ReservedClaim>,
    pod: Arc<PodInfo>,
}

impl ClaimBinding {
    /// Writes the claim, and reports what became of its allocation.
    async fn run(mut self) -> Result<(), ClaimWriteError> {
        let result = self.retry().await;
        if let Some(ReservedClaim { write, allocation, .. }) = self.reserved.clone() {
            match &result {
                Ok(()) => written(&write, &self.claim),
                Err(error) if error.is_in_doubt() && self.has_allocation(&allocation).await => {
                    written(&write, &self.claim);
                    return Ok(());
                }
                Err(_) => write.failed(),
            }
        }
        result
    }

    /// Whether the store has the allocation after all.
    async fn has_allocation(&mut self, allocation: &AllocationResult) -> bool {
        for attempt in 1..=ATTEMPTS_MAX {
            if self.refresh().await.is_ok() {
                let stored = claims::allocation(&self.claim).and_then(|stored| stored.devices.as_ref());
                let is_reserved = claims::reserved_for(&self.claim).iter().any(|consumer| consumer.uid == self.pod.uid);
                return is_reserved && stored == allocation.devices.as_ref();
            }
            tokio::time::sleep(ATTEMPT_PAUSE * attempt * attempt * 10).await;
        }
        false
    }

    /// Writes the claim; reads it again when somebody else changed it at the same time.
    async fn retry(&mut self) -> Result<(), ClaimWriteError> {
        let mut attempt = 1;
        loop {
            match self.write().await {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                    tokio::time::sleep(ATTEMPT_PAUSE * attempt).await;
                    self.refresh().await?;
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn refresh(&mut self) -> Result<(), ClaimWriteError> {
        let name = self.claim.metadata.name.clone().unwrap_or_default();
        match self.api.get_opt(&name).await {
            Ok(Some(claim)) if claim.metadata.uid == self.claim.metadata.uid => {
                self.claim = claim;
                Ok(())
            }
            Ok(_) => Err(ClaimWriteError::Deleted(claim_name(&self.claim))),
            Err(error) => Err(ClaimWriteError::Get { claim: claim_name(&self.claim), error }),
        }
    }

    async fn write(&mut self) -> Result<(), ClaimWriteError> {
        let claim = claim_name(&self.claim);
        if self.claim.metadata.deletion_timestamp.is_some() {
            return Err(ClaimWriteError::Deleted(claim));
        }
        let name = self.claim.metadata.name.clone().unwrap_or_default();
        let mut status = json!({});
        if let Some(reserved) = &self.reserved {
            if claims::allocation(&self.claim).is_some() {
                return Err(ClaimWriteError::AllocatedElsewhere(claim));
            }
            let finalizers = self.claim.metadata.finalizers.clone().unwrap_or_default();
            if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                let all: Vec<_> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
                let patch = Patch::Merge(guarded(&self.claim, json!({"metadata": {"finalizers": all}})));
                let patched = self.api.patch(&name, &PatchParams::default(), &patch).await;
                self.claim = patched.map_err(|error| gone_or(&claim, error, |claim, error| ClaimWriteError::Finalizer { claim, error }))?;
            }
            let allocation = AllocationResult {
                allocation_timestamp: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(api_clock::now())),
                ..reserved.allocation.clone()
            };
            status = json!({"allocation": allocation});
        }
        let mut consumers = claims::reserved_for(&self.claim).to_vec();
        if !consumers.iter().any(|consumer| consumer.uid == self.pod.uid) {
            consumers.push(ResourceClaimConsumerReference {
                api_group: None,
                resource: "pods".to_owned(),
                name: self.pod.name.clone(),
                uid: self.pod.uid.clone(),
            });
        }
        if let Some(status) = status.as_object_mut() {
            status.insert("reservedFor".to_owned(), json!(consumers));
        }
        let what = if self.reserved.is_some() { "allocation and reservation" } else { "reservation" };
        let patch = Patch::Merge(guarded(&self.claim, json!({"status": status})));
        let patched = self.api.patch_status(&name, &PatchParams::default(), &patch).await;
        self.claim = patched.map_err(|error| gone_or(&claim, error, |claim, error| ClaimWriteError::Status { what, claim, error }))?;
        Ok(())
    }
}

/// A claim that is gone got deleted.
fn gone_or(claim: &str, error: kube::Error, other: impl FnOnce(String, kube::Error) -> ClaimWriteError) -> ClaimWriteError {
    match error {
        kube::Error::Api(status) if status.code == 404 => ClaimWriteError::Deleted(claim.to_owned()),
        error => other(claim.to_owned(), error),
    }
}

fn written(write: &AllocationWrite, claim: &ResourceClaim) {
    let revision = claim.metadata.resource_version.as_ref().and_then(|revision| revision.parse().ok());
    // Without a revision the informer cannot lag behind it.
    write.written(revision.unwrap_or(1));
}

#[cfg(test)]
mod tests;
