//! The search of the allocator: which device each request gets. A frame of its stack is a decision, the latest one last; when a decision
//! leads nowhere, the search takes it back and tries the next one.

use std::collections::HashMap;
use std::rc::Rc;

use sched_framework::DeviceUse;

use super::allocator::{Candidate, ClaimPlan, Eligible, RequestPlan, taint_prevents_allocation};
use super::capacity::Demand;
use super::constraint::Constraint;
use super::error::{AllocationError, DEVICES_MAX, RequestError};
use super::pools::{Counters, SharedCounters};
use super::requests::claim_name;

/// What is decided next: the device of that number, for an alternative of a request of a claim.
#[derive(Clone, Copy, Debug)]
struct Position {
    claim: usize,
    request: usize,
    /// The alternative of the request, once one is chosen.
    alternative: Option<usize>,
    device: usize,
    /// The devices before this one were tried. Devices of a request have an order: other orders of them are the same.
    start: usize,
}

/// A decision.
#[derive(Debug)]
enum Frame {
    /// The alternative of a request. `is_exceeded`: the claim had too many devices with each alternative before it.
    Alternative { at: Position, chosen: usize, is_exceeded: bool },
    /// The device of a request, with what the request takes of it.
    Device { at: Position, chosen: usize, demand: Rc<Demand> },
}

/// The device of a request, in the result.
#[derive(Debug)]
pub(super) struct Choice {
    pub request: usize,
    pub alternative: usize,
    pub device: usize,
    pub demand: Rc<Demand>,
}

/// Why a decision is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// There is no device.
    NoDevice,
    /// The claim of that index has too many devices: no other devices for its requests help, but fewer do.
    TooManyDevices(usize),
}

/// The state of a search.
pub(super) struct Search<'s, 'a, 'c> {
    plans: &'s [ClaimPlan<'a>],
    candidates: &'s [Candidate],
    /// The counters of each pool.
    counters: Vec<&'s SharedCounters>,
    /// What the devices of this search consume of the counters of each pool.
    consumed: Vec<Counters>,
    /// The constraints of each claim.
    constraints: &'c mut [Vec<Constraint<'s>>],
    /// The claims that have each device in this search.
    users: Vec<Vec<usize>>,
    /// The numbers of devices of each claim.
    devices: Vec<usize>,
    /// What the shares of each device in this search take of its capacities.
    taken: Vec<Vec<i128>>,
    /// What a request takes of a device if it may have it, by the indexes of claim, request, alternative and device.
    demands: HashMap<(usize, usize, usize, usize), Option<Rc<Demand>>>,
    stack: Vec<Frame>,
}

impl<'s, 'a, 'c> Search<'s, 'a, 'c> {
    pub fn new(
        plans: &'s [ClaimPlan<'a>],
        candidates: &'s [Candidate],
        counters: Vec<&'s SharedCounters>,
        constraints: &'c mut [Vec<Constraint<'s>>],
    ) -> Self {
        Self {
            plans,
            candidates,
            consumed: counters.iter().map(|_| Counters::new()).collect(),
            counters,
            constraints,
            users: candidates.iter().map(|_| Vec::new()).collect(),
            devices: plans.iter().map(|_| 0).collect(),
            taken: candidates.iter().map(|_| Vec::new()).collect(),
            demands: HashMap::new(),
            stack: Vec::new(),
        }
    }

    /// Whether all requests get their devices.
    pub fn run(&mut self, eligible: &mut Eligible<'_>) -> Result<bool, AllocationError> {
        let mut next = Ok(Position { claim: 0, request: 0, alternative: None, device: 0, start: 0 });
        loop {
            eligible.effort.step()?;
            next = match next {
                Ok(at) if at.claim >= self.plans.len() => return Ok(true),
                Ok(at) => self.forward(at, eligible)?,
                Err(cause) => match self.stack.pop() {
                    Some(frame) => self.take_back(frame, cause, eligible)?,
                    None => return Ok(false),
                },
            };
        }
    }

    /// The devices of each claim.
    pub fn chosen(&self) -> Vec<Vec<Choice>> {
        let mut chosen: Vec<Vec<_>> = self.plans.iter().map(|_| Vec::new()).collect();
        for frame in &self.stack {
            if let Frame::Device { at, chosen: device, demand } = frame
                && let Some(claim) = chosen.get_mut(at.claim)
            {
                let (alternative, demand) = (at.alternative.unwrap_or_default(), Rc::clone(demand));
                claim.push(Choice { request: at.request, alternative, device: *device, demand });
            }
        }
        chosen
    }

    /// Makes the next decision. Returns what is decided after it, or why the decision before it must be taken back.
    fn forward(&mut self, at: Position, eligible: &mut Eligible<'_>) -> Result<Result<Position, Cause>, AllocationError> {
        let Some(alternatives) = self.plans.get(at.claim).and_then(|plan| plan.requests.get(at.request)) else {
            return Ok(Ok(Position { claim: at.claim + 1, request: 0, alternative: None, device: 0, start: 0 }));
        };
        let Some(alternative) = at.alternative else {
            if alternatives.len() > 1 {
                self.stack.push(Frame::Alternative { at, chosen: 0, is_exceeded: true });
            }
            return Ok(Ok(Position { alternative: Some(0), ..at }));
        };
        let Some(plan) = alternatives.get(alternative) else { return Ok(Err(Cause::NoDevice)) };
        if plan.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Err(Cause::NoDevice));
        }
        if at.device >= plan.devices {
            return Ok(Ok(Position { claim: at.claim, request: at.request + 1, alternative: None, device: 0, start: 0 }));
        }
        let devices = self.devices.get(at.claim).copied().unwrap_or_default();
        if devices.saturating_add(plan.devices).saturating_sub(at.device) > DEVICES_MAX {
            return Ok(Err(Cause::TooManyDevices(at.claim)));
        }
        self.choose(at, plan, eligible)
    }

    /// Takes a decision back and makes the next one in its stead.
    fn take_back(&mut self, frame: Frame, cause: Cause, eligible: &mut Eligible<'_>) -> Result<Result<Position, Cause>, AllocationError> {
        match frame {
            Frame::Alternative { at, chosen, is_exceeded } => {
                let is_exceeded = is_exceeded && cause == Cause::TooManyDevices(at.claim);
                let next = chosen + 1;
                let alternatives = self.plans.get(at.claim).and_then(|plan| plan.requests.get(at.request)).map_or(0, Vec::len);
                if next < alternatives {
                    self.stack.push(Frame::Alternative { at, chosen: next, is_exceeded });
                    return Ok(Ok(Position { alternative: Some(next), ..at }));
                }
                Ok(Err(if is_exceeded { Cause::TooManyDevices(at.claim) } else { Cause::NoDevice }))
            }
            Frame::Device { at, chosen, demand } => {
                let plan = self.plans.get(at.claim).and_then(|plan| plan.requests.get(at.request)?.get(at.alternative?));
                let Some(plan) = plan else { return Ok(Err(cause)) };
                self.deallocate(at, plan, chosen, &demand);
                match cause {
                    Cause::TooManyDevices(claim) if claim == at.claim => Ok(Err(cause)),
                    // All devices have to be had: another order of them does not help.
                    _ if plan.all.is_some() => Ok(Err(Cause::NoDevice)),
                    _ => self.choose(Position { start: chosen + 1, ..at }, plan, eligible),
                }
            }
        }
    }

    /// Chooses the next device for the request.
    fn choose(
        &mut self,
        at: Position,
        plan: &'s RequestPlan<'a>,
        eligible: &mut Eligible<'_>,
    ) -> Result<Result<Position, Cause>, AllocationError> {
        if let Some(all) = &plan.all {
            let Some((device, demand)) = all.get(at.device) else { return Ok(Err(Cause::NoDevice)) };
            eligible.effort.take(demand.shares.len())?;
            let is_allocated = self.allocate(at, plan, *device, demand, true)?;
            return Ok(if is_allocated { Ok(self.after(at, *device, Rc::clone(demand), 0)) } else { Err(Cause::NoDevice) });
        }
        for device in at.start..self.candidates.len() {
            eligible.effort.step()?;
            if self.is_in_use(at, plan, device) {
                continue;
            }
            let Some(demand) = self.demand(at, plan, device, eligible)? else { continue };
            eligible.effort.take(self.constraints.get(at.claim).map_or(0, Vec::len) + demand.shares.len())?;
            if self.allocate(at, plan, device, &demand, false)? {
                return Ok(Ok(self.after(at, device, demand, device + 1)));
            }
        }
        Ok(Err(Cause::NoDevice))
    }

    /// Remembers the choice. Returns the position of the next device.
    fn after(&mut self, at: Position, chosen: usize, demand: Rc<Demand>, start: usize) -> Position {
        self.stack.push(Frame::Device { at, chosen, demand });
        Position { device: at.device + 1, start, ..at }
    }

    /// Whether the device is out of reach: allocated, or of another request. Administrators share devices with others, but not within a
    /// claim. A device that allows several allocations is out of reach while a claim has it as a whole, from a time when it did not.
    fn is_in_use(&self, at: Position, plan: &RequestPlan<'a>, device: usize) -> bool {
        let Some(candidate) = self.candidates.get(device) else { return true };
        match (plan.request.admin_access, candidate.is_shared) {
            (true, true) => false,
            (true, false) => self.users_of(device).contains(&at.claim),
            (false, true) => candidate.in_use.as_ref().is_some_and(DeviceUse::is_whole),
            (false, false) => candidate.in_use.is_some() || !self.users_of(device).is_empty(),
        }
    }

    fn users_of(&self, device: usize) -> &[usize] {
        self.users.get(device).map(Vec::as_slice).unwrap_or_default()
    }

    /// What the request takes of the device; `None` when it may not have it.
    fn demand(
        &mut self,
        at: Position,
        plan: &RequestPlan<'a>,
        device: usize,
        eligible: &mut Eligible<'_>,
    ) -> Result<Option<Rc<Demand>>, AllocationError> {
        let key = (at.claim, at.request, at.alternative.unwrap_or_default(), device);
        if let Some(demand) = self.demands.get(&key) {
            return Ok(demand.clone());
        }
        let Some(claim) = self.plans.get(at.claim) else { return Ok(None) };
        let demand = eligible.demand(claim.claim, &plan.request, device)?;
        self.demands.insert(key, demand.clone());
        Ok(demand)
    }

    /// Gives the device to the request, if nothing speaks against it. `must`: a constraint that speaks against it is an error.
    fn allocate(
        &mut self,
        at: Position,
        plan: &'s RequestPlan<'a>,
        device: usize,
        demand: &Demand,
        must: bool,
    ) -> Result<bool, AllocationError> {
        let Some(candidate) = self.candidates.get(device) else { return Ok(false) };
        let Some(object) = candidate.device() else { return Ok(false) };
        if self.is_in_use(at, plan, device) || !self.has_left(device, demand) || taint_prevents_allocation(object, &plan.request) {
            return Ok(false);
        }
        let consumes_counters = self.consumes_counters(candidate, device);
        if consumes_counters && !self.consume(candidate) {
            return Ok(false);
        }
        let names = plan.request.names();
        let constraints = self.constraints.get_mut(at.claim).map(Vec::as_mut_slice).unwrap_or_default();
        let refusing = constraints.iter_mut().position(|constraint| !constraint.add(names, &candidate.id.driver, object));
        if let Some(refusing) = refusing {
            constraints.iter_mut().take(refusing).for_each(|constraint| constraint.remove(names));
            if consumes_counters {
                self.give_back(candidate);
            }
            if must && let Some(claim) = self.plans.get(at.claim) {
                return Err(AllocationError::Request {
                    claim: claim_name(claim.claim),
                    request: plan.request.full_name.clone(),
                    reason: RequestError::Unconstrained(candidate.id.clone()),
                });
            }
            return Ok(false);
        }
        self.users.get_mut(device).into_iter().for_each(|users| users.push(at.claim));
        self.devices.get_mut(at.claim).into_iter().for_each(|devices| *devices += 1);
        if let Some(taken) = self.taken.get_mut(device) {
            taken.resize(demand.shares.len(), 0);
            taken.iter_mut().zip(&demand.shares).for_each(|(taken, share)| *taken += share.nano);
        }
        Ok(true)
    }

    fn deallocate(&mut self, at: Position, plan: &RequestPlan<'a>, device: usize, demand: &Demand) {
        let names = plan.request.names();
        self.constraints.get_mut(at.claim).into_iter().flatten().for_each(|constraint| constraint.remove(names));
        self.users.get_mut(device).into_iter().for_each(|users| users.truncate(users.len().saturating_sub(1)));
        self.devices.get_mut(at.claim).into_iter().for_each(|devices| *devices -= 1);
        if let Some(taken) = self.taken.get_mut(device) {
            taken.iter_mut().zip(&demand.shares).for_each(|(taken, share)| *taken -= share.nano);
        }
        if let Some(candidate) = self.candidates.get(device).filter(|candidate| self.consumes_counters(candidate, device)) {
            self.give_back(candidate);
        }
    }

    /// Whether the shares of the device that this search took leave as much as the request takes.
    fn has_left(&self, device: usize, demand: &Demand) -> bool {
        let taken = self.taken.get(device).map(Vec::as_slice).unwrap_or_default();
        let taken = taken.iter().copied().chain(std::iter::repeat(0));
        demand.shares.iter().zip(taken).all(|(share, taken)| taken.saturating_add(share.nano) <= share.left)
    }

    /// Whether one more request for the device consumes its counters. All shares of a device consume them once.
    fn consumes_counters(&self, candidate: &Candidate, device: usize) -> bool {
        !candidate.is_shared || candidate.in_use.is_none() && self.users_of(device).is_empty()
    }

    /// Consumes the counters of the device, if they suffice.
    fn consume(&mut self, candidate: &Candidate) -> bool {
        let (Some(shared), Some(consumed)) = (self.counters.get(candidate.pool), self.consumed.get_mut(candidate.pool)) else {
            return false;
        };
        if candidate.counters.is_empty() {
            return true;
        }
        if shared.is_overdrawn {
            return false;
        }
        for (counter, amount) in &candidate.counters {
            *consumed.entry(counter.clone()).or_default() += amount;
        }
        // Of the other counters, no more is consumed than before.
        let suffices = candidate.counters.iter().all(|(counter, _)| {
            let consumed = consumed.get(counter).copied().unwrap_or_default();
            shared.left.get(counter).is_some_and(|left| consumed <= *left)
        });
        if !suffices {
            self.give_back(candidate);
        }
        suffices
    }

    fn give_back(&mut self, candidate: &Candidate) {
        let Some(consumed) = self.consumed.get_mut(candidate.pool) else { return };
        for (counter, amount) in &candidate.counters {
            *consumed.entry(counter.clone()).or_default() -= amount;
        }
    }
}
