//! Nodes where the claims of a Pod are bound, or can be: the volume of a bound claim says which nodes reach it; a claim that waits for its
//! first consumer gets a free volume that the node reaches, or one that is provisioned for the node. What was chosen is reserved with the
//! node, and written before the Pod is bound. Upstream's score by the capacity of volumes is off by default, and absent here.

mod bind;
mod claims;
mod matching;
mod provision;

use std::sync::Arc;

use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use sched_framework::{
    BindingPlugin, ClusterEvent, CycleState, FilterPlugin, NodeInfo, Plugin, PodInfo, PodVolume, PreBindPlugin, PreBinding, Reason,
    Refusal, ReservePlugin, SELECTED_NODE, Scope, Snapshot, Status, annotation, selector_matches,
};

use self::bind::Binder;
use self::claims::PodClaims;
use self::matching::DelayedClaim;
pub(crate) use self::provision::limit as storage_limit;
use super::Handle;
use crate::config::VolumeBindingArgs;

pub(super) const NAME: &str = "VolumeBinding";

/// The annotation of a volume that was bound to its claim, and not reserved by its maker.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The plugin of Filter and Reserve.
pub(crate) struct VolumeBinding;

/// The plugin of PreBind.
pub(crate) struct VolumePreBinding(Arc<Binder>);

/// What the claims of a Pod get on a node: upstream's `PodVolumes`.
#[derive(Clone, Debug, Default, PartialEq)]
struct PodVolumes {
    /// Claims with the volumes that they are bound to.
    bindings: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// Claims whose volumes are provisioned.
    provisions: Vec<Arc<PersistentVolumeClaim>>,
}

/// What was reserved for a Pod.
struct Reserved(PodVolumes);

impl VolumePreBinding {
    pub(super) fn new(args: &VolumeBindingArgs, handle: &Handle) -> Self {
        Self(Arc::new(Binder::new(args.bind_timeout(), handle)))
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

impl Plugin for VolumePreBinding {
    fn name(&self) -> &'static str {
        NAME
    }
}

impl FilterPlugin for VolumeBinding {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        if !has_claims(pod) {
            return Status::Success;
        }
        match PodClaims::of_pod(pod, &snapshot.volumes) {
            Ok(claims) => {
                state.write(NAME, claims);
                Status::Success
            }
            Err(reason) => Status::UnschedulableAndUnresolvable(vec![reason]),
        }
    }

    fn may_reject(&self, _: &CycleState, pod: &PodInfo) -> bool {
        has_claims(pod)
    }

    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        // Without claims there is no state.
        let Some(claims) = state.read::<PodClaims>(NAME) else { return Status::Success };
        match find(claims, node) {
            Ok(_) => Status::Success,
            Err(reasons) => Status::UnschedulableAndUnresolvable(reasons),
        }
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::StorageClassAdd,
            ClusterEvent::StorageClassTopologies,
            ClusterEvent::PersistentVolumeClaim,
            ClusterEvent::PersistentVolumeAdd,
            ClusterEvent::PersistentVolumeUpdate,
            ClusterEvent::NodeAdd,
            ClusterEvent::UpdateNodeLabel,
            ClusterEvent::CsiDriver,
            ClusterEvent::CsiStorageCapacity,
        ]
    }
}

fn has_claims(pod: &PodInfo) -> bool {
    pod.volumes.iter().any(|volume| matches!(volume, PodVolume::Claim { .. }))
}

/// What the claims get on the node, or why the Pod cannot run there (upstream's `FindPodVolumes`).
fn find(claims: &PodClaims, node: &NodeInfo) -> Result<PodVolumes, Vec<Reason>> {
    let mut reasons: Vec<Reason> = Vec::new();
    let missing = claims.bound.iter().position(Option::is_none);
    // Of several bound claims the first one decides that is not reached, or has no volume.
    let unreached = claims.bound.iter().flatten().take(missing.unwrap_or(usize::MAX)).any(|volume| !reaches(volume, node));
    if unreached {
        reasons.push(NODE_CONFLICT.into());
    }
    let found = find_unbound(&claims.delayed, node);
    if let Err(reason) = &found {
        reasons.push((*reason).into());
    }
    if missing.is_some() && !unreached {
        reasons.push(NO_VOLUME.into());
    }
    found.ok().filter(|_| reasons.is_empty()).ok_or(reasons)
}

/// What the claims without a volume get on the node.
fn find_unbound(delayed: &[DelayedClaim], node: &NodeInfo) -> Result<PodVolumes, &'static str> {
    let selected = |claim: &DelayedClaim| annotation(&claim.claim.metadata, SELECTED_NODE).map(str::to_owned);
    if delayed.iter().filter_map(selected).any(|selected| selected != node.name) {
        return Err(BIND_CONFLICT);
    }
    let mut volumes = PodVolumes::default();
    let mut to_provision = Vec::new();
    for claim in delayed {
        let taken = |volume: &PersistentVolume| volumes.bindings.iter().any(|(_, other)| other.metadata.name == volume.metadata.name);
        // What is being provisioned for the node is not bound to another volume.
        match selected(claim).is_none().then(|| claim.matching(node, taken)).flatten() {
            Some(volume) => volumes.bindings.push((Arc::clone(&claim.claim), volume)),
            None => to_provision.push(claim),
        }
    }
    for claim in to_provision {
        claim.provisioning.check(node)?;
        volumes.provisions.push(Arc::clone(&claim.claim));
    }
    Ok(volumes)
}

/// Whether the node affinity of the volume allows the node.
fn reaches(volume: &PersistentVolume, node: &NodeInfo) -> bool {
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    required.is_none_or(|selector| selector_matches(selector, &node.name, &node.labels))
}

impl BindingPlugin for VolumeBinding {
    fn has_part_in(&self, pod: &PodInfo) -> bool {
        has_claims(pod)
    }
}

impl BindingPlugin for VolumePreBinding {
    fn has_part_in(&self, pod: &PodInfo) -> bool {
        has_claims(pod)
    }
}

impl ReservePlugin for VolumeBinding {
    fn reserve(&self, state: &mut CycleState, _: &PodInfo, node: &str, snapshot: &mut Snapshot) -> Result<(), Refusal> {
        let Some(claims) = state.read::<PodClaims>(NAME) else {
            return Err(Refusal::Error("the claims of the Pod were not read".into()));
        };
        let Some(node) = snapshot.node(node) else { return Err(Refusal::Error(format!("node {node:?} not found").into())) };
        let mut volumes = find(claims, node).map_err(|reasons| Refusal::Unschedulable(reasons.join(", ").into()))?;
        let node = node.name.clone();
        for (claim, volume) in &mut volumes.bindings {
            if let Some(bound) = bound_to_claim(volume, claim).map(Arc::new) {
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                Arc::make_mut(&mut snapshot.volumes).assume_volume(name, Arc::clone(&bound));
                *volume = bound;
            }
        }
        for claim in &mut volumes.provisions {
            let mut selected = PersistentVolumeClaim::clone(claim);
            selected.metadata.annotations.get_or_insert_default().insert(SELECTED_NODE.to_owned(), node.clone());
            *claim = Arc::new(selected);
            Arc::make_mut(&mut snapshot.volumes).assume_claim(&ObjectKey::from(&claim.metadata).to_string(), Arc::clone(claim));
        }
        state.write(NAME, Reserved(volumes));
        Ok(())
    }

    fn unreserve(&self, state: &mut CycleState, _: &PodInfo, _: &str, snapshot: &mut Snapshot) -> Vec<ClusterEvent> {
        let Some(Reserved(PodVolumes { bindings, provisions })) = state.read::<Reserved>(NAME) else { return Vec::new() };
        let all = Arc::make_mut(&mut snapshot.volumes);
        let mut events = Vec::new();
        for (_, volume) in bindings {
            let is_restored = all.restore_volume(volume.metadata.name.as_deref().unwrap_or_default(), volume);
            events.extend(is_restored.then_some(ClusterEvent::PersistentVolumeUpdate));
        }
        for claim in provisions {
            let is_restored = all.restore_claim(&ObjectKey::from(&claim.metadata).to_string(), claim);
            events.extend(is_restored.then_some(ClusterEvent::PersistentVolumeClaim));
        }
        events.dedup();
        events
    }
}

/// The volume as it is when it is bound to the claim; `None` when it is already.
fn bound_to_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let is_reserved = reference.is_some_and(|reference| matching::is_for_claim(reference, claim));
    if is_reserved && reference.is_some_and(|reference| reference.uid == claim.metadata.uid) {
        return None;
    }
    let mut bound = volume.clone();
    bound.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: claim.metadata.name.clone(),
        namespace: claim.metadata.namespace.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    });
    if !is_reserved {
        bound.metadata.annotations.get_or_insert_default().insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(bound)
}

impl PreBindPlugin for VolumePreBinding {
    fn pre_bind(&self, state: &CycleState, _: &Arc<PodInfo>, node: &str) -> Option<PreBinding> {
        let Reserved(volumes) = state.read::<Reserved>(NAME)?;
        let (is_bound, binder) = (volumes.bindings.is_empty() && volumes.provisions.is_empty(), Arc::clone(&self.0));
        let (volumes, node) = (volumes.clone(), node.to_owned());
        (!is_bound).then(|| -> PreBinding { Box::pin(async move { binder.bind(volumes, &node).await }) })
    }
}

#[cfg(test)]
mod tests;
