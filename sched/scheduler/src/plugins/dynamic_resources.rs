//! Devices for the claims of Pods (upstream's `DynamicResources`): only nodes are feasible on which all claims of the Pod are allocated, or
//! can be. Reserve takes the devices of the node that was chosen. `binding.rs` writes the allocations.
//!
//! The plugin has no part in a Pod without claims.

mod allocator;
mod binding;
mod binding_conditions;
mod capacity;
mod claims;
mod constraint;
mod cycle_cache;
mod device_counts;
mod error;
mod extended;
#[cfg(test)]
pub(crate) mod fixtures;
mod outcome;
mod pools;
mod requests;
mod score;
mod search;
mod selectors;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use parking_lot::Mutex;
use sched_framework::{
    AllocationWrite, BindingPlugin, ClusterEvent, CycleState, DraManager, FilterPlugin, Filters, NodeInfo, Plugin, PodInfo,
    PostFilterPlugin, PostFilterResult, Reason, Refusal, ReservePlugin, Scope, Snapshot, Status, allocation_of_claim, selector_matches,
};
use tokio::sync::oneshot;

use self::allocator::{Allocator, Effort};
use self::binding_conditions::preparation;
use self::cycle_cache::CycleCache;
use self::error::AllocationError;
use self::extended::{ExtendedResources, SpecialClaim, SpecialClaims};
use crate::config::DynamicResourcesArgs;
pub(crate) use binding::DynamicResourcesBinding;
pub(crate) use binding_conditions::has_conditions as has_binding_conditions;
pub(crate) use claims::awaited as awaited_claim;
pub(super) use device_counts::DeviceCounts;
pub(super) use selectors::SelectorCache;

/// Upstream's name of the plugin.
pub(crate) const DYNAMIC_RESOURCES: &str = "DynamicResources";

/// The plugin, but for its writes.
pub(crate) struct DynamicResources {
    selectors: SelectorCache,
    /// The longest time from the allocation of a claim until its devices can be used.
    binding_within: Duration,
}

impl Default for DynamicResources {
    fn default() -> Self {
        Self::new(&DynamicResourcesArgs::default())
    }
}

/// What the plugin has to do for a Pod in a cycle.
#[derive(Default)]
struct PodClaims {
    /// All claims of the Pod.
    claims: Vec<Arc<ResourceClaim>>,
    /// Those that are not allocated.
    unallocated: Vec<Arc<ResourceClaim>>,
    /// The indexes of claims whose devices were not prepared for use: no node is feasible with their allocations.
    unprepared: Vec<usize>,
    /// The extended resources of the Pod that devices back.
    extended: Option<ExtendedResources>,
    /// The objects of the cycle, until its end.
    dra: Option<Arc<DraManager>>,
    progress: Mutex<Progress>,
    /// The allocations for the node that was chosen.
    reserved: Vec<ReservedClaim>,
    /// The write of the claim that is created for the extended resources, once it is reserved.
    new_claim: Option<AllocationWrite>,
    /// Resolves when the writes of PreBind have ended, once they have begun.
    writes_ended: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
    /// The claim whose allocation is removed, because no node is feasible with it.
    to_deallocate: Option<Arc<ResourceClaim>>,
    /// The claim for extended resources of an earlier attempt, which is deleted.
    to_delete: Option<Arc<ResourceClaim>>,
}

/// The extended resources of the Pod that devices back, with the class of each; `None` if there are none.
pub(super) fn resources_of_devices(state: &CycleState) -> Option<&BTreeMap<String, String>> {
    Some(&state.read::<PodClaims>(DYNAMIC_RESOURCES)?.extended.as_ref()?.classes)
}

impl PodClaims {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_none()
    }
}

/// A claim whose allocation was decided.
#[derive(Clone)]
struct ReservedClaim {
    claim: Arc<ResourceClaim>,
    allocation: AllocationResult,
    write: AllocationWrite,
    /// The claim, if it is to be created for extended resources.
    special: Option<Arc<SpecialClaim>>,
}

/// What the Pod gets on a node.
#[derive(Default)]
struct NodeAllocation {
    /// For the claims that are not allocated, then for the special one.
    allocations: Vec<AllocationResult>,
    /// The claim for the extended resources that the node lacks.
    special: Option<Arc<SpecialClaim>>,
}

/// What the filter found on nodes.
struct Progress {
    /// By the name of the node. A cycle may filter a node several times.
    nodes: HashMap<String, Result<NodeAllocation, Status>>,
    special: SpecialClaims,
    effort: Effort,
    cache: CycleCache,
    /// Something is wrong with a claim, a class or a slice: no node is feasible.
    failure: Option<Reason>,
    /// The indexes of claims that are allocated for other nodes than one that was filtered, or whose devices cannot be used.
    unavailable: BTreeSet<usize>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            special: SpecialClaims::new(),
            effort: Effort::of_cycle(),
            cache: CycleCache::default(),
            failure: None,
            unavailable: BTreeSet::new(),
        }
    }
}

fn unschedulable(reason: impl Into<Reason>) -> Status {
    Status::UnschedulableAndUnresolvable(vec![reason.into()])
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        DYNAMIC_RESOURCES
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

impl FilterPlugin for DynamicResources {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        let extended = ExtendedResources::of_pod(pod, &snapshot.dra);
        if pod.resource_claims.is_empty() && extended.is_none() {
            return Status::Success;
        }
        state.write(DYNAMIC_RESOURCES, PodClaims::default());
        let claims = match claims::of_pod(pod, &snapshot.dra) {
            Ok(claims) => claims,
            Err(error) => return unschedulable(error.to_string()),
        };
        if let Err(error) = claims::check(&claims, &snapshot.dra) {
            return unschedulable(error.to_string());
        }
        let unallocated: Vec<_> = claims.iter().filter(|claim| allocation_of_claim(claim).is_none()).cloned().collect();
        let dra = (!unallocated.is_empty() || extended.is_some()).then(|| Arc::clone(&snapshot.dra));
        let unprepared = self.unprepared(&claims);
        state.write(DYNAMIC_RESOURCES, PodClaims { claims, unallocated, unprepared, extended, dra, ..PodClaims::default() });
        Status::Success
    }

    fn may_reject(&self, state: &CycleState, _pod: &PodInfo) -> bool {
        state.read::<PodClaims>(DYNAMIC_RESOURCES).is_some()
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.read::<PodClaims>(DYNAMIC_RESOURCES) else { return Status::Success };
        let mut progress = claims.progress.lock();
        if let Some(failure) = &progress.failure {
            return unschedulable(failure.clone());
        }
        if !progress.nodes.contains_key(&node.name) {
            let result = self.filter_node(pod, claims, node, &mut progress);
            progress.nodes.insert(node.name.clone(), result);
        }
        match progress.nodes.get(&node.name) {
            Some(Err(status)) => status.clone(),
            Some(Ok(_)) | None => Status::Success,
        }
    }

    fn events_to_register(&self) -> &'static [ClusterEvent] {
        &[
            ClusterEvent::NodeAdd,
            ClusterEvent::UpdateNodeLabel,
            ClusterEvent::ResourceClaimUpdate,
            ClusterEvent::DeviceClassUpdate,
            ClusterEvent::ResourceSliceUpdate,
        ]
    }
}

impl DynamicResources {
    pub fn new(args: &DynamicResourcesArgs) -> Self {
        Self { selectors: SelectorCache::default(), binding_within: args.binding_within }
    }

    /// The indexes of allocated claims whose devices failed to be prepared, or were not in time.
    fn unprepared(&self, claims: &[Arc<ResourceClaim>]) -> Vec<usize> {
        let now = api_clock::now();
        let is_unprepared = |claim: &ResourceClaim| preparation(claim, self.binding_within, now).is_err();
        claims.iter().enumerate().filter(|(_, claim)| is_unprepared(claim)).map(|(index, _)| index).collect()
    }

    /// The allocations on the node, or why there are none.
    fn filter_node(&self, pod: &PodInfo, claims: &PodClaims, node: &NodeInfo, progress: &mut Progress) -> Result<NodeAllocation, Status> {
        let special = match &claims.extended {
            Some(extended) if extended.stale.is_some() => return Err(unschedulable("cannot schedule extended resource claim")),
            Some(extended) => extended.on_node(pod, node, &mut progress.special).map_err(unschedulable)?,
            None => None,
        };
        let to_allocate: Vec<_> = claims.unallocated.iter().chain(special.as_ref().map(|special| &special.claim)).map(Arc::clone).collect();
        let allocations = match &claims.dra {
            Some(dra) if !to_allocate.is_empty() => self.allocate(dra, &to_allocate, node, progress)?,
            _ => Vec::new(),
        };
        let is_elsewhere = |claim: &ResourceClaim| {
            let selector = allocation_of_claim(claim).and_then(|allocation| allocation.node_selector.as_ref());
            selector.is_some_and(|selector| !selector_matches(selector, &node.name, &node.labels))
        };
        let is_of_no_use = |(index, claim): &(usize, &Arc<ResourceClaim>)| is_elsewhere(claim) || claims.unprepared.contains(index);
        let elsewhere: Vec<usize> = claims.claims.iter().enumerate().filter(is_of_no_use).map(|(index, _)| index).collect();
        if elsewhere.is_empty() {
            return Ok(NodeAllocation { allocations, special });
        }
        progress.unavailable.extend(elsewhere);
        Err(unschedulable("resourceclaim not available on the node"))
    }

    fn allocate(
        &self,
        dra: &DraManager,
        claims: &[Arc<ResourceClaim>],
        node: &NodeInfo,
        progress: &mut Progress,
    ) -> Result<Vec<AllocationResult>, Status> {
        if progress.effort.is_spent() {
            return Err(unschedulable(AllocationError::TimedOut.to_string()));
        }
        let before = progress.effort.for_node();
        let mut effort = before.clone();
        let result = Allocator::new(dra, &self.selectors, claims).allocate(node, &mut progress.cache, &mut effort);
        progress.effort.spend(&before, &effort);
        let steps = progress.cache.take_steps();
        // If they were the last ones, the next node learns it.
        let _is_enough = progress.effort.take(steps);
        match result {
            Ok(Some(allocations)) => Ok(allocations),
            Ok(None) => Err(unschedulable("cannot allocate all claims")),
            Err(error) if error.concerns_node() => Err(unschedulable(error.to_string())),
            Err(error) => {
                let reason = Reason::from(error.to_string());
                progress.failure = Some(reason.clone());
                Err(unschedulable(reason))
            }
        }
    }
}

impl PostFilterPlugin for DynamicResources {
    /// Finds a claim that is allocated for nodes that do not fit and that nobody uses. [`DynamicResourcesBinding`] deallocates it, unless
    /// Pods are preempted for the Pod: that their node is feasible with the allocations as they are was the reason.
    fn post_filter(
        &self,
        _filters: &Filters,
        state: &mut CycleState,
        pod: &PodInfo,
        _snapshot: &Snapshot,
        _resolvable: &[usize],
        _offset: usize,
    ) -> PostFilterResult {
        let message = match state.read_mut::<PodClaims>(DYNAMIC_RESOURCES) {
            None if pod.resource_claims.is_empty() => "",
            Some(claims) if !claims.is_empty() => {
                claims.to_deallocate = idle(claims, pod);
                if claims.to_deallocate.is_none() {
                    claims.to_delete = claims.extended.as_ref().and_then(|extended| extended.stale.clone());
                }
                // Upstream has written it by now.
                match (&claims.to_deallocate, &claims.to_delete) {
                    (Some(_), _) => "deallocation of ResourceClaim started",
                    (None, Some(_)) => "deletion of ResourceClaim started",
                    (None, None) => "still not schedulable",
                }
            }
            _ => "no new claims to deallocate",
        };
        PostFilterResult::Unschedulable { message: message.to_owned(), stays_nominated: true }
    }
}

/// A claim of the Pod whose allocation is of no use to anybody.
fn idle(claims: &PodClaims, pod: &PodInfo) -> Option<Arc<ResourceClaim>> {
    let progress = claims.progress.lock();
    let mut unavailable = progress.unavailable.iter().filter_map(|index| claims.claims.get(*index));
    unavailable.find(|claim| claims::reserved_for(claim).iter().all(|consumer| consumer.uid == pod.uid)).cloned()
}

impl BindingPlugin for DynamicResources {
    fn has_part_in(&self, pod: &PodInfo) -> bool {
        pod.may_use_devices()
    }
}

impl ReservePlugin for DynamicResources {
    fn reserve(&self, state: &mut CycleState, _pod: &PodInfo, node: &str, snapshot: &mut Snapshot) -> Result<(), Refusal> {
        let Some(claims) = state.read_mut::<PodClaims>(DYNAMIC_RESOURCES) else { return Ok(()) };
        // The objects are changed below: nobody else may have them then.
        claims.dra = None;
        let mut progress = std::mem::take(claims.progress.get_mut());
        if claims.unallocated.is_empty() && claims.extended.is_none() {
            return Ok(());
        }
        let Some(Ok(NodeAllocation { allocations, special })) = progress.nodes.remove(node) else {
            return Err(Refusal::Error("claim allocation not found for node".into()));
        };
        let dra = Arc::make_mut(&mut snapshot.dra);
        let of_pod = claims.unallocated.iter().map(|claim| (claim, None));
        let all = of_pod.chain(special.iter().map(|special| (&special.claim, Some(special))));
        for ((claim, special), allocation) in all.zip(allocations) {
            let write =
                dra.signal_claim_pending_allocation(claim, &allocation).map_err(|error| Refusal::Error(error.to_string().into()))?;
            if special.is_some() {
                claims.new_claim = Some(write.clone());
            }
            claims.reserved.push(ReservedClaim { claim: Arc::clone(claim), allocation, write, special: special.cloned() });
        }
        Ok(())
    }

    fn unreserve(&self, state: &mut CycleState, _pod: &PodInfo, _node: &str, snapshot: &mut Snapshot) -> Vec<ClusterEvent> {
        let Some(claims) = state.read_mut::<PodClaims>(DYNAMIC_RESOURCES) else { return Vec::new() };
        claims.dra = None;
        if claims.reserved.is_empty() {
            return Vec::new();
        }
        let dra = Arc::make_mut(&mut snapshot.dra);
        let mut is_freed = false;
        for reserved in claims.reserved.drain(..) {
            let uid = reserved.claim.metadata.uid.as_deref().unwrap_or_default();
            is_freed |= dra.remove_claim_pending_allocation(uid, &reserved.write);
        }
        is_freed.then_some(ClusterEvent::ResourceClaimUpdate).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
