//! The allocator: finds devices for the claims of a Pod on a node. It is pure, but for the random ids of shares, and it tries one device
//! after the other, for one request after the other, until all requests have theirs (upstream's `structured.Allocator`).
//!
//! The search is exhaustive, so a hostile claim could keep it busy for years. Each search has a number of steps, where upstream has a
//! time: the same claims and slices give the same result on every machine. All work that grows with claims, slices or devices takes steps.
//! The search has no recursion, because the number of a Pod's claims has no limit.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use api_cel::Budget;
use api_cel::device::{DeviceValue, MatchError, SELECTOR_COST_MAX};
use k8s_openapi::api::resource::v1::{AllocationResult, Device, DeviceTaint, ResourceClaim, ResourceSlice};
use sched_framework::{DeviceId, DeviceUse, DraManager, NodeInfo, tolerates_device_taint};

use super::capacity::{self, Demand};
use super::constraint::Constraint;
use super::cycle_cache::CycleCache;
use super::error::{AllocationError, DEVICES_MAX, RequestError};
use super::outcome;
use super::pools::{self, Pool, PoolState, SharedCounters};
use super::requests::{self, Alternatives, Request, RequestSelector, Wanted, claim_name};
use super::search::{Choice, Search};
use super::selectors::{Compiled, SelectorCache};

/// The bytes of a selector that are compared in one step.
const LOOKUP_BYTES: usize = 256;

/// What a search, or all searches of a scheduling cycle together, may still spend.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Slices, devices and counters that are read, selectors that are evaluated, devices that are tried.
    pub steps: u64,
    /// The cost of the evaluations of selectors.
    pub selectors: Budget,
}

impl Effort {
    /// The effort for one node: some ten milliseconds.
    pub fn of_node() -> Self {
        Self { steps: 100_000, selectors: Budget::new(2 * SELECTOR_COST_MAX) }
    }

    /// The effort for all nodes in one scheduling cycle: some hundred milliseconds.
    pub fn of_cycle() -> Self {
        Self { steps: 1_000_000, selectors: Budget::new(10 * SELECTOR_COST_MAX) }
    }

    /// The effort for one node that a cycle can still afford.
    pub fn for_node(&self) -> Self {
        let node = Self::of_node();
        let selectors = Budget::new(node.selectors.left().min(self.selectors.left()));
        Self { steps: node.steps.min(self.steps), selectors }
    }

    /// Takes away what `before` became `after` by.
    pub fn spend(&mut self, before: &Self, after: &Self) {
        self.steps = self.steps.saturating_sub(before.steps - after.steps.min(before.steps));
        self.selectors.pay(before.selectors.left().saturating_sub(after.selectors.left()));
    }

    /// Takes one step.
    pub fn step(&mut self) -> Result<(), AllocationError> {
        self.take(1)
    }

    /// Takes so many steps. When there are fewer, none is left.
    pub fn take(&mut self, steps: usize) -> Result<(), AllocationError> {
        let is_enough = steps as u64 <= self.steps;
        self.steps = self.steps.saturating_sub(steps as u64);
        if is_enough { Ok(()) } else { Err(AllocationError::TimedOut) }
    }

    /// Whether nothing can be searched any more.
    pub fn is_spent(&self) -> bool {
        self.steps == 0 || self.selectors.left() == 0
    }
}

/// Finds devices for these claims, on one node after the other.
pub(crate) struct Allocator<'a> {
    dra: &'a DraManager,
    selectors: &'a SelectorCache,
    claims: &'a [Arc<ResourceClaim>],
}

/// A device for the node.
#[derive(Debug)]
pub(super) struct Candidate {
    pub id: DeviceId,
    pub slice: Arc<ResourceSlice>,
    /// The index in the slice.
    index: usize,
    /// The index of the pool.
    pub pool: usize,
    /// Whether several requests may have the device at the same time, each a share of its capacities.
    pub is_shared: bool,
    /// What claims use of the device; `None` when no claim has it.
    pub in_use: Option<DeviceUse>,
    /// The amounts of counters that the device consumes.
    pub counters: Vec<((String, String), i128)>,
}

impl Candidate {
    pub fn device(&self) -> Option<&Device> {
        self.slice.spec.devices.as_ref()?.get(self.index)
    }

    /// The first device of the slice, which nobody uses.
    #[cfg(test)]
    pub fn of_first_device(slice: ResourceSlice, is_shared: bool) -> Self {
        let id = pools::device_id(&slice, slice.spec.devices.as_ref().and_then(|devices| devices.first()).expect("a device"));
        Self { id, slice: Arc::new(slice), index: 0, pool: 0, is_shared, in_use: None, counters: Vec::new() }
    }
}

/// A device for a request.
#[derive(Debug)]
pub(super) struct Chosen<'s> {
    pub request: &'s Request<'s>,
    pub candidate: &'s Candidate,
    pub demand: &'s Demand,
}

/// A claim to be allocated.
pub(super) struct ClaimPlan<'a> {
    pub claim: &'a ResourceClaim,
    /// Each request of the claim with its alternatives.
    pub requests: Vec<Vec<RequestPlan<'a>>>,
}

/// An alternative of a request, with the devices that are eligible for it.
pub(super) struct RequestPlan<'a> {
    pub request: Request<'a>,
    pub devices: usize,
    /// All devices that match, for a request for all, with what it takes of them.
    pub all: Option<Vec<(usize, Rc<Demand>)>>,
}

impl<'a> Allocator<'a> {
    pub fn new(dra: &'a DraManager, selectors: &'a SelectorCache, claims: &'a [Arc<ResourceClaim>]) -> Self {
        Self { dra, selectors, claims }
    }

    /// An allocation for each claim, or `None` when the node does not have the devices.
    pub fn allocate(
        &self,
        node: &NodeInfo,
        cache: &mut CycleCache,
        effort: &mut Effort,
    ) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
        let pools = pools::gather(self.dra, node, cache, effort)?;
        let candidates = self.candidates(&pools, effort)?;
        let values = candidates.iter().map(|_| None).collect();
        let mut eligible = Eligible { selectors: self.selectors, node, candidates: &candidates, values, cache, effort };
        let plans = self.claims.iter().map(|claim| self.plan(claim, &pools, &mut eligible)).collect::<Result<Vec<_>, _>>()?;
        let counters: Vec<&SharedCounters> = pools.iter().map(|pool| pool.counters.as_ref()).collect();
        let mut constraints = self.claims.iter().map(|claim| constraints(claim)).collect::<Result<Vec<_>, _>>()?;
        let mut search = Search::new(&plans, &candidates, counters, &mut constraints);
        if !search.run(&mut eligible)? {
            let is_invalid = pools.iter().any(|pool| pool.state == PoolState::Invalid);
            return if is_invalid { Err(AllocationError::InvalidPools) } else { Ok(None) };
        }
        let result = search.chosen();
        let allocation = |(plan, chosen): (&ClaimPlan<'_>, Vec<Choice>)| {
            let alternative =
                |request: usize| chosen.iter().find(|choice| choice.request == request).map_or(0, |choice| choice.alternative);
            let requests: Vec<&Request<'_>> = plan
                .requests
                .iter()
                .enumerate()
                .filter_map(|(index, alternatives)| Some(&alternatives.get(alternative(index))?.request))
                .collect();
            let chosen: Vec<Chosen<'_>> = chosen
                .iter()
                .filter_map(|Choice { request, alternative, device, demand }| {
                    let request = &plan.requests.get(*request)?.get(*alternative)?.request;
                    Some(Chosen { request, candidate: candidates.get(*device)?, demand })
                })
                .collect();
            outcome::allocation(plan.claim, &requests, &chosen, &node.name)
        };
        plans.iter().zip(result).map(allocation).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// The devices that may be allocated on the node.
    fn candidates(&self, pools: &[Pool], effort: &mut Effort) -> Result<Vec<Candidate>, AllocationError> {
        let mut candidates = Vec::new();
        for (pool, slice) in pools.iter().enumerate().flat_map(|(index, pool)| pool.slices.iter().map(move |slice| (index, slice))) {
            for (index, device) in slice.spec.devices.iter().flatten().enumerate() {
                effort.step()?;
                let Some(counters) = pools::consumed(device).filter(|_| pools::is_supported(slice, device)) else { continue };
                effort.take(counters.len())?;
                let id = pools::device_id(slice, device);
                let (is_shared, in_use) = (device.allow_multiple_allocations == Some(true), self.dra.use_of(&id));
                effort.take(in_use.map_or(0, DeviceUse::capacities))?;
                candidates.push(Candidate { id, slice: Arc::clone(slice), index, pool, is_shared, in_use: in_use.cloned(), counters });
            }
        }
        Ok(candidates)
    }

    /// Checks the claim, and how many devices each of its requests is for.
    fn plan(&self, claim: &'a Arc<ResourceClaim>, pools: &[Pool], eligible: &mut Eligible<'_>) -> Result<ClaimPlan<'a>, AllocationError> {
        let name = || claim_name(claim);
        let mut plans: Vec<Vec<RequestPlan<'a>>> = Vec::new();
        for alternatives in requests::of_claim(claim, self.dra)? {
            let mut of_request = Vec::new();
            for request in Alternatives::into_iter(alternatives) {
                eligible.effort.take(1 + request.selectors.len() + request.capacity.len())?;
                of_request.push(self.plan_request(claim, request, pools, eligible)?);
            }
            plans.push(of_request);
        }
        let fewest = plans.iter().map(|alternatives| alternatives.iter().map(|plan| plan.devices).min().unwrap_or_default());
        let devices = fewest.fold(0, usize::saturating_add);
        if devices > DEVICES_MAX {
            return Err(AllocationError::TooManyDevices { claim: name(), devices });
        }
        Ok(ClaimPlan { claim, requests: plans })
    }

    fn plan_request(
        &self,
        claim: &ResourceClaim,
        request: Request<'a>,
        pools: &[Pool],
        eligible: &mut Eligible<'_>,
    ) -> Result<RequestPlan<'a>, AllocationError> {
        let devices = match request.wanted {
            Wanted::Exactly(devices) => return Ok(RequestPlan { request, devices, all: None }),
            Wanted::All => eligible.candidates.len(),
        };
        // "All" is unknown as long as the driver replaces slices.
        for pool in pools {
            let reason = match pool.state {
                PoolState::Usable => continue,
                PoolState::Incomplete => RequestError::Incomplete(pool.name()),
                PoolState::Invalid => RequestError::Invalid(pool.name()),
            };
            return Err(AllocationError::Request { claim: claim_name(claim), request: request.full_name, reason });
        }
        let mut all = Vec::new();
        for index in 0..devices {
            if let Some(demand) = eligible.demand(claim, &request, index)? {
                all.push((index, demand));
            }
        }
        Ok(RequestPlan { request, devices: all.len(), all: Some(all) })
    }
}

fn constraints(claim: &ResourceClaim) -> Result<Vec<Constraint<'_>>, AllocationError> {
    let constraints = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()?.constraints.as_ref());
    let built = constraints.into_iter().flatten().enumerate().map(|(index, constraint)| {
        Constraint::new(constraint).ok_or_else(|| AllocationError::Constraint { claim: claim_name(claim), index })
    });
    built.collect()
}

/// Which devices a request may have, whatever other requests have.
pub(super) struct Eligible<'e> {
    selectors: &'e SelectorCache,
    node: &'e NodeInfo,
    candidates: &'e [Candidate],
    /// The candidates as selectors read them, once one has.
    values: Vec<Option<Result<DeviceValue<'e>, MatchError>>>,
    cache: &'e mut CycleCache,
    pub effort: &'e mut Effort,
}

impl Eligible<'_> {
    /// What the request takes of the device; `None` when it cannot have the device, whatever else the search allocates.
    pub fn demand(&mut self, claim: &ResourceClaim, request: &Request<'_>, index: usize) -> Result<Option<Rc<Demand>>, AllocationError> {
        if !self.selects(claim, request, index)? {
            return Ok(None);
        }
        let Some(candidate) = self.candidates.get(index) else { return Ok(None) };
        if candidate.is_shared || !request.capacity.is_empty() {
            let capacities = candidate.device().and_then(|device| device.capacity.as_ref()).map_or(0, BTreeMap::len);
            self.effort.take(capacities + request.capacity.len())?;
        }
        let failed = |reason| AllocationError::Request { claim: claim_name(claim), request: request.full_name.clone(), reason };
        Ok(capacity::demand(candidate, &request.capacity).map_err(failed)?.map(Rc::new))
    }

    /// Whether class and request select the device, and the node can use it.
    fn selects(&mut self, claim: &ResourceClaim, request: &Request<'_>, index: usize) -> Result<bool, AllocationError> {
        self.effort.step()?;
        let Some(candidate) = self.candidates.get(index) else { return Ok(false) };
        let Some(device) = candidate.device() else { return Ok(false) };
        if candidate.slice.spec.per_device_node_selection == Some(true) && !pools::device_matches(device, self.node) {
            return Ok(false);
        }
        for selector in &request.selectors {
            let owner = || match selector.is_of_class {
                true => format!("class {}", request.class.metadata.name.as_deref().unwrap_or_default()),
                false => format!("claim {}", claim_name(claim)),
            };
            let compiled = self.compiled(selector)?.map_err(|error| AllocationError::Compile {
                owner: owner(),
                index: selector.index,
                error: Box::new(error),
            })?;
            self.read(index)?;
            let result = match self.values.get(index) {
                Some(Some(Ok(value))) => compiled.matches(value, &mut self.effort.selectors),
                Some(Some(Err(error))) => Err(error.clone()),
                Some(None) | None => return Ok(false),
            };
            match result {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if error.is_out_of_budget() => return Err(AllocationError::TimedOut),
                Err(error) => {
                    let (device, error) = (candidate.id.clone(), Box::new(error));
                    return Err(AllocationError::Runtime { owner: owner(), index: selector.index, device, error });
                }
            }
        }
        Ok(true)
    }

    /// The selector for one more evaluation.
    fn compiled(&mut self, selector: &RequestSelector<'_>) -> Result<Compiled, AllocationError> {
        self.effort.step()?;
        if let Some(compiled) = selector.compiled.get() {
            return Ok(compiled.clone());
        }
        // The cache is asked once a node.
        self.effort.take(selector.expression.len() / LOOKUP_BYTES)?;
        let compiled = self.cache.selector(self.selectors, selector.expression)?;
        Ok(selector.compiled.get_or_init(|| compiled).clone())
    }

    /// Makes the device one that selectors can read.
    fn read(&mut self, index: usize) -> Result<(), AllocationError> {
        if let Some(value) = self.values.get_mut(index).filter(|value| value.is_none())
            && let Some(candidate) = self.candidates.get(index)
            && let Some(device) = candidate.device()
        {
            self.effort.take(device.attributes.as_ref().map_or(0, BTreeMap::len) + device.capacity.as_ref().map_or(0, BTreeMap::len))?;
            *value = Some(DeviceValue::new(&candidate.id.driver, device));
        }
        Ok(())
    }
}

/// Whether a taint of the device keeps the request from it.
pub(super) fn taint_prevents_allocation(device: &Device, request: &Request<'_>) -> bool {
    // Other effects, also those of later versions, have no say here.
    let prevents = |taint: &&DeviceTaint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let tolerated = |taint: &DeviceTaint| request.tolerations.iter().any(|toleration| tolerates_device_taint(toleration, taint));
    device.taints.iter().flatten().filter(prevents).any(|taint| !tolerated(taint))
}

#[cfg(test)]
mod tests;
