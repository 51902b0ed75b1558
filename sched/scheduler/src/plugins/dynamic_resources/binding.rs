//! What [`super::DynamicResources`] writes: the allocations of claims with the Pod for which they are reserved, before the Pod is bound;
//! the end of that reservation, for a Pod that is not bound after all; and the end of an allocation that is of no use, for a Pod that no
//! node is feasible for. For extended resources that devices back, it also creates the claim, writes its name to the Pod's status, and
//! deletes the claim of a Pod that is not bound. A Pod with devices that must be prepared is bound when they are.
//!
//! A write goes on when nobody waits for it any more. Until it is clear whether it succeeded, its devices stay in use.

mod special;

use std::sync::Arc;
use std::time::Duration;

use api_client::error::chain;
use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceAllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use sched_framework::{
    AllocationWrite, BindingPlugin, CreatedClaim, CycleState, Plugin, PodInfo, PreBindPlugin, PreBinding, Refusal, allocation_of_claim,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::binding_conditions::{AwaitedClaim, DeviceWait, has_conditions, revision};
use super::requests::claim_name;
use super::{DYNAMIC_RESOURCES, PodClaims, ReservedClaim, claims};
use crate::bind::Writer;
use crate::config::DynamicResourcesArgs;
use crate::plugins::{Handle, Writes};

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a claim that others change at the same time is tried: upstream's `retry.DefaultRetry`.
const ATTEMPTS_MAX: u32 = 5;
/// The pause before the first further attempt.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(10);
/// The first and the longest pause between two questions whether a write succeeded whose answer was lost.
const DOUBT_PAUSE: Duration = Duration::from_millis(100);
const DOUBT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a binding waits for its claims.
const WRITES_WITHIN: Duration = Duration::from_secs(60);

/// The writes of the plugin.
#[derive(Clone)]
pub(crate) struct DynamicResourcesBinding {
    client: kube::Client,
    writes: Writes,
    writer: Writer,
    devices: DeviceWait,
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
    #[error("get pod {pod}: {}", chain(.error))]
    GetPod { pod: String, error: kube::Error },
    #[error("remove pod {pod} from claim {claim}: {}", chain(.error))]
    Unreserve { pod: String, claim: String, error: kube::Error },
    #[error("create claim for extended resources {pod}: {}", chain(.error))]
    Create { pod: String, error: kube::Error },
    #[error("update pod {pod} ExtendedResourceClaimStatus: {}", chain(.error))]
    PodStatus { pod: String, error: kube::Error },
    #[error("remove finalizer from claim {claim}: {}", chain(.error))]
    NoFinalizer { claim: String, error: kube::Error },
    #[error("delete claim {claim}: {}", chain(.error))]
    Delete { claim: String, error: kube::Error },
}

impl ClaimWriteError {
    /// Whether somebody else changed the claim at the same time.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Finalizer { error: kube::Error::Api(status), .. }
            | Self::NoFinalizer { error: kube::Error::Api(status), .. }
            | Self::Status { error: kube::Error::Api(status), .. } => status.code == 409,
            _ => false,
        }
    }

    /// Whether the server gave no answer, or did not know one itself: the write may have succeeded.
    fn is_in_doubt(&self) -> bool {
        match self {
            Self::Status { error: kube::Error::Api(status), .. } => status.code >= 500,
            Self::Status { .. } => true,
            _ => false,
        }
    }
}

impl DynamicResourcesBinding {
    /// The client of the handle writes as the scheduler.
    pub fn new(args: &DynamicResourcesArgs, handle: &Handle) -> Self {
        let (claims, changes) = (handle.resource_claims.clone(), handle.changes.subscribe());
        let devices = DeviceWait { claims, changes, timeout: args.binding_within };
        Self { client: handle.client.clone(), writes: handle.writes.clone(), writer: handle.writer.clone(), devices }
    }

    fn api(&self, namespace: &str) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The claims of the Pod with devices that must be prepared.
    fn awaited(of_pod: &PodClaims, pod: &PodInfo) -> Vec<AwaitedClaim> {
        let allocation = |claim: &Arc<ResourceClaim>| {
            let reserved = of_pod.reserved.iter().find(|reserved| Arc::ptr_eq(&reserved.claim, claim));
            reserved.map(|reserved| &reserved.allocation).or_else(|| allocation_of_claim(claim)).is_some_and(has_conditions)
        };
        of_pod.claims.iter().filter(|claim| allocation(claim)).map(|claim| awaited(claim, pod)).collect()
    }
}

fn awaited(claim: &ResourceClaim, pod: &PodInfo) -> AwaitedClaim {
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    AwaitedClaim { key: ObjectKey::from(&claim.metadata), uid, revision: revision(claim), pod_uid: pod.uid.clone() }
}

/// Does work that begins when this is polled, and then runs to its end. The result waits for it.
async fn run_to_end<T: Send + 'static>(
    writes: Writes,
    work: impl Future<Output = Result<T, ClaimWriteError>> + Send + 'static,
) -> Result<T, Refusal> {
    let (done, result) = oneshot::channel();
    writes.spawn(async move {
        // Nobody may wait any more.
        let _nobody = done.send(work.await);
    });
    match result.await {
        Ok(result) => result.map_err(|error| Refusal::Error(error.to_string().into())),
        Err(_panicked) => Err(Refusal::Error("the claims were not written".into())),
    }
}

impl Plugin for DynamicResourcesBinding {
    fn name(&self) -> &'static str {
        DYNAMIC_RESOURCES
    }
}

impl BindingPlugin for DynamicResourcesBinding {
    fn has_part_in(&self, pod: &PodInfo) -> bool {
        pod.may_use_devices()
    }
}

impl PreBindPlugin for DynamicResourcesBinding {
    fn pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, node: &str) -> Option<PreBinding> {
        let of_pod = state.read::<PodClaims>(DYNAMIC_RESOURCES)?;
        let of_claim = |claim: &ResourceClaim, reserved: Option<&ReservedClaim>| ClaimBinding {
            api: self.api(&pod.namespace),
            pods: self.pods(&pod.namespace),
            claim: claim.clone(),
            reserved: reserved.cloned(),
            pod: Arc::clone(pod),
        };
        let mut writes: Vec<ClaimBinding> = Vec::new();
        for claim in of_pod.claims.iter().filter(|claim| !claims::is_reserved_for(claim, &pod.uid)) {
            writes.push(of_claim(claim, of_pod.reserved.iter().find(|reserved| Arc::ptr_eq(&reserved.claim, claim))));
        }
        // The one that is created comes last.
        let special = of_pod.reserved.iter().find(|reserved| reserved.special.is_some());
        writes.extend(special.map(|reserved| of_claim(&reserved.claim, Some(reserved))));
        let awaits_special = special.is_some_and(|reserved| has_conditions(&reserved.allocation));
        let mut awaited_claims = Self::awaited(of_pod, pod);
        if writes.is_empty() && awaited_claims.is_empty() {
            return None;
        }
        let (writes_ended, plugin, pod, node) = (Arc::clone(&of_pod.writes_ended), self.clone(), Arc::clone(pod), node.to_owned());
        Some(Box::pin(async move {
            let (ended, has_ended) = oneshot::channel();
            *writes_ended.lock() = Some(has_ended);
            // From now on an allocation may be in the store.
            writes.iter().filter_map(|write| write.reserved.as_ref()).for_each(|reserved| reserved.write.start());
            let work = async move {
                let result = write_all(writes).await;
                drop(ended);
                result
            };
            let written = in_time(run_to_end(plugin.writes.clone(), work)).await?;
            awaited_claims.extend(written.last().filter(|_| awaits_special).map(|created| awaited(created, &pod)));
            if awaited_claims.is_empty() {
                return Ok(());
            }
            for claim in &mut awaited_claims {
                let written = written.iter().find(|written| written.metadata.uid.as_ref() == Some(&claim.uid));
                claim.revision = written.map_or(claim.revision, revision);
            }
            plugin.writer.awaits_devices(&pod, &node);
            plugin.devices.prepared(&awaited_claims).await.map_err(|error| Refusal::Error(error.to_string().into()))
        }))
    }

    fn take_back(&self, state: &CycleState, pod: &Arc<PodInfo>) -> Option<PreBinding> {
        let of_pod = state.read::<PodClaims>(DYNAMIC_RESOURCES)?;
        let writes_ended = of_pod.writes_ended.lock().take();
        let is_reserved = |claim: &&Arc<ResourceClaim>| claims::is_reserved_for(claim, &pod.uid);
        // After PreBind, any of them may be reserved.
        let claims: Vec<_> = of_pod.claims.iter().filter(|claim| writes_ended.is_some() || is_reserved(claim)).cloned().collect();
        let new_claim = of_pod.new_claim.clone().filter(|_| writes_ended.is_some());
        if claims.is_empty() && new_claim.is_none() {
            return None;
        }
        let unreserving = Unreserving { api: self.api(&pod.namespace), pods: self.pods(&pod.namespace), claims, new_claim };
        let pod = Arc::clone(pod);
        Some(Box::pin(run_to_end(self.writes.clone(), async move {
            if let Some(ended) = writes_ended {
                // Without an answer the writes have ended, too.
                let _no_answer = ended.await;
            }
            unreserving.run(&pod).await
        })))
    }

    fn make_room(&self, state: &CycleState, pod: &Arc<PodInfo>) -> Option<PreBinding> {
        let (of_pod, api) = (state.read::<PodClaims>(DYNAMIC_RESOURCES)?, self.api(&pod.namespace));
        if let Some(claim) = of_pod.to_delete.clone() {
            let (name, uid) = (claim.metadata.name.clone().unwrap_or_default(), claim.metadata.uid.clone().unwrap_or_default());
            let deletion = async move { special::delete(&api, &name, &uid).await };
            return Some(Box::pin(in_time(run_to_end(self.writes.clone(), deletion))));
        }
        let claim = Arc::clone(of_pod.to_deallocate.as_ref()?);
        Some(Box::pin(in_time(run_to_end(self.writes.clone(), async move {
            let status = json!({"allocation": null, "reservedFor": null, "devices": null});
            let patch = Patch::Merge(guarded(&claim, json!({"status": status})));
            let written = api.patch_status(claim.metadata.name.as_deref().unwrap_or_default(), &PatchParams::default(), &patch).await;
            let claim = claim_name(&claim);
            written.map(drop).map_err(|error| ClaimWriteError::Status { what: "deallocation", claim, error })
        }))))
    }
}

/// The result of the work within [`WRITES_WITHIN`]. The work goes on after that.
async fn in_time<T>(work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = || Refusal::Error("timed out waiting for the claims to be written".into());
    tokio::time::timeout(WRITES_WITHIN, work).await.unwrap_or_else(|_elapsed| Err(late()))
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

/// Writes the claims of a Pod, one after the other. After a failure the others are not written. Returns the claims as they were written.
async fn write_all(writes: Vec<ClaimBinding>) -> Result<Vec<ResourceClaim>, ClaimWriteError> {
    let mut result = Ok(Vec::new());
    for write in writes {
        match (&mut result, &write.reserved) {
            (Ok(written), _) => match write.run().await {
                Ok(claim) => written.push(claim),
                Err(error) => result = Err(error),
            },
            (Err(_), Some(reserved)) => reserved.write.failed(),
            (Err(_), None) => {}
        }
    }
    result
}

/// The end of the reservation of claims for a Pod that is not bound after all: other Pods may need them elsewhere, and no claim is
/// deallocated that is reserved.
struct Unreserving {
    api: Api<ResourceClaim>,
    pods: Api<Pod>,
    claims: Vec<Arc<ResourceClaim>>,
    /// The write of the claim that may have been created for the Pod.
    new_claim: Option<AllocationWrite>,
}

impl Unreserving {
    /// Removes the Pod from its claims, unless somebody has bound it meanwhile.
    async fn run(self, pod: &PodInfo) -> Result<(), ClaimWriteError> {
        let present = self.pods.get_opt(&pod.name).await.map_err(|error| ClaimWriteError::GetPod { pod: pod.key(), error })?;
        let is_bound = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty());
        if present.as_ref().filter(|present| present.metadata.uid.as_ref() == Some(&pod.uid)).is_some_and(is_bound) {
            return Ok(());
        }
        for claim in &self.claims {
            let status = json!({"reservedFor": [{"$patch": "delete", "uid": pod.uid}]});
            let patch = Patch::Strategic(json!({"metadata": {"uid": claim.metadata.uid}, "status": status}));
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            match self.api.patch_status(name, &PatchParams::default(), &patch).await {
                Ok(_) => {}
                // The claim is gone, or another one has its name.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    return Err(ClaimWriteError::Unreserve { pod: pod.key(), claim: claim_name(claim), error });
                }
            }
        }
        match self.new_claim.as_ref().and_then(|write| Some((write, write.created_claim()?))) {
            Some((write, created)) => self.delete_new(pod, write, created).await,
            None => Ok(()),
        }
    }

    /// Deletes the claim that was created for the Pod, and removes its name from the Pod's status.
    async fn delete_new(&self, pod: &PodInfo, write: &AllocationWrite, created: &CreatedClaim) -> Result<(), ClaimWriteError> {
        special::delete(&self.api, &created.name, &created.uid).await?;
        write.failed();
        special::set_in_pod(&self.pods, pod, Value::Null).await
    }
}

/// The writes for one claim of a Pod.
struct ClaimBinding {
    api: Api<ResourceClaim>,
    pods: Api<Pod>,
    /// As it was read last.
    claim: ResourceClaim,
    /// The allocation of a claim that has none.
    reserved: Option<ReservedClaim>,
    pod: Arc<PodInfo>,
}

impl ClaimBinding {
    /// Writes the claim, and reports what became of its allocation.
    async fn run(mut self) -> Result<ResourceClaim, ClaimWriteError> {
        let Some(ReservedClaim { write, allocation, special, .. }) = self.reserved.clone() else {
            return self.retry().await.map(|()| self.claim);
        };
        if special.is_some() {
            self.create(&write).await.inspect_err(|_error| write.failed())?;
        }
        let result = self.retry().await;
        match result {
            Err(error) if !error.is_in_doubt() || !self.has_allocation(&allocation).await => {
                write.failed();
                Err(error)
            }
            Ok(()) | Err(_) => {
                written(&write, &self.claim);
                if let Some(special) = special {
                    let status = json!({"requestMappings": special.mappings, "resourceClaimName": self.claim.metadata.name});
                    special::set_in_pod(&self.pods, &self.pod, status).await?;
                }
                Ok(self.claim)
            }
        }
    }

    /// Creates a claim that there is not yet. If no answer comes, the next attempt to schedule the Pod deletes the claim.
    async fn create(&mut self, write: &AllocationWrite) -> Result<(), ClaimWriteError> {
        let mut claim = self.claim.clone();
        (claim.metadata.name, claim.metadata.uid) = (None, None);
        let created = self.api.create(&PostParams::default(), &claim).await;
        self.claim = created.map_err(|error| ClaimWriteError::Create { pod: self.pod.key(), error })?;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let metadata = &self.claim.metadata;
        let (name, uid) = (text(&metadata.name), text(&metadata.uid));
        write.created(CreatedClaim { namespace: self.pod.namespace.clone(), name, uid });
        Ok(())
    }

    /// Whether the store has the allocation after all. It asks until there is an answer: the devices stay in use as long as that.
    async fn has_allocation(&mut self, allocation: &AllocationResult) -> bool {
        let mut pause = DOUBT_PAUSE;
        loop {
            match self.refresh().await {
                Ok(()) => {
                    let stored = allocation_of_claim(&self.claim).and_then(|stored| stored.devices.as_ref());
                    return claims::is_reserved_for(&self.claim, &self.pod.uid)
                        && stored.map(without_amounts) == allocation.devices.as_ref().map(without_amounts);
                }
                Err(ClaimWriteError::Get { .. }) => {}
                // The claim is gone.
                Err(_) => return false,
            }
            tokio::time::sleep(pause).await;
            pause = DOUBT_PAUSE_MAX.min(pause * 2);
        }
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
            if allocation_of_claim(&self.claim).is_some() {
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
        if !claims::is_reserved_for(&self.claim, &self.pod.uid) {
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

/// The devices without the amounts of shares, which the server may write in another way. Each share has an id.
fn without_amounts(devices: &DeviceAllocationResult) -> DeviceAllocationResult {
    let mut devices = devices.clone();
    devices.results.iter_mut().flatten().for_each(|result| result.consumed_capacity = None);
    devices
}

/// A claim that is gone got deleted.
fn gone_or(claim: &str, error: kube::Error, other: impl FnOnce(String, kube::Error) -> ClaimWriteError) -> ClaimWriteError {
    match error {
        kube::Error::Api(status) if status.code == 404 => ClaimWriteError::Deleted(claim.to_owned()),
        error => other(claim.to_owned(), error),
    }
}

fn written(write: &AllocationWrite, claim: &ResourceClaim) {
    // Without a revision the informer cannot lag behind it.
    write.written(revision(claim).max(1));
}

#[cfg(test)]
mod tests;
