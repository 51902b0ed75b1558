//! The search of the allocator: which device each request gets. A frame of its stack is a decision, the latest one last; when a decision
//! leads nowhere, the search takes it back and tries the next one.

use std::collections::HashMap;

use super::allocator::{Candidate, ClaimPlan, Eligible, RequestPlan, taint_prevents_allocation};
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
#[derive(Clone, Copy, Debug)]
enum Frame {
    /// The alternative of a request. `is_exceeded`: the claim had too many devices with each alternative before it.
    Alternative { at: Position, chosen: usize, is_exceeded: bool },
    /// The device of a request.
    Device { at: Position, chosen: usize },
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
    /// Whether a request may have a device, by the indexes of claim, request, alternative and device.
    selectable: HashMap<(usize, usize, usize, usize), bool>,
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
            selectable: HashMap::new(),
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

    /// The devices of each claim: the indexes of request, alternative and device.
    pub fn chosen(&self) -> Vec<Vec<(usize, usize, usize)>> {
        let mut chosen: Vec<Vec<_>> = self.plans.iter().map(|_| Vec::new()).collect();
        for frame in &self.stack {
            if let Frame::Device { at, chosen: device } = frame
                && let Some(claim) = chosen.get_mut(at.claim)
            {
                claim.push((at.request, at.alternative.unwrap_or_default(), *device));
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
            Frame::Device { at, chosen } => {
                let plan = self.plans.get(at.claim).and_then(|plan| plan.requests.get(at.request)?.get(at.alternative?));
                let Some(plan) = plan else { return Ok(Err(cause)) };
                self.deallocate(at, plan, chosen);
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
            let device = all.get(at.device).copied();
            return match device {
                Some(device) if self.allocate(at, plan, device, true)? => Ok(Ok(self.after(at, device, 0))),
                _ => Ok(Err(Cause::NoDevice)),
            };
        }
        for device in at.start..self.candidates.len() {
            eligible.effort.step()?;
            if self.is_in_use(at, plan, device) || !self.is_selectable(at, plan, device, eligible)? {
                continue;
            }
            eligible.effort.take(self.constraints.get(at.claim).map_or(0, Vec::len))?;
            if self.allocate(at, plan, device, false)? {
                return Ok(Ok(self.after(at, device, device + 1)));
            }
        }
        Ok(Err(Cause::NoDevice))
    }

    /// Remembers the choice. Returns the position of the next device.
    fn after(&mut self, at: Position, chosen: usize, start: usize) -> Position {
        self.stack.push(Frame::Device { at, chosen });
        Position { device: at.device + 1, start, ..at }
    }

    /// Whether the device is out of reach: allocated, or of another request. Administrators share devices with others, but not within a
    /// claim.
    fn is_in_use(&self, at: Position, plan: &RequestPlan<'a>, device: usize) -> bool {
        let users = self.users.get(device).map(Vec::as_slice).unwrap_or_default();
        if plan.request.admin_access {
            return users.contains(&at.claim);
        }
        !users.is_empty() || self.candidates.get(device).is_none_or(|candidate| candidate.is_allocated)
    }

    fn is_selectable(
        &mut self,
        at: Position,
        plan: &RequestPlan<'a>,
        device: usize,
        eligible: &mut Eligible<'_>,
    ) -> Result<bool, AllocationError> {
        let key = (at.claim, at.request, at.alternative.unwrap_or_default(), device);
        if let Some(is_selectable) = self.selectable.get(&key) {
            return Ok(*is_selectable);
        }
        let Some(claim) = self.plans.get(at.claim) else { return Ok(false) };
        let is_selectable = eligible.selects(claim.claim, &plan.request, device)?;
        self.selectable.insert(key, is_selectable);
        Ok(is_selectable)
    }

    /// Gives the device to the request, if nothing speaks against it. `must`: a constraint that speaks against it is an error.
    fn allocate(&mut self, at: Position, plan: &'s RequestPlan<'a>, device: usize, must: bool) -> Result<bool, AllocationError> {
        let Some(candidate) = self.candidates.get(device) else { return Ok(false) };
        let Some(object) = candidate.device() else { return Ok(false) };
        if self.is_in_use(at, plan, device) || taint_prevents_allocation(object, &plan.request) {
            return Ok(false);
        }
        if !self.consume(candidate) {
            return Ok(false);
        }
        let names = plan.request.names();
        let constraints = self.constraints.get_mut(at.claim).map(Vec::as_mut_slice).unwrap_or_default();
        let refusing = constraints.iter_mut().position(|constraint| !constraint.add(names, &candidate.id.driver, object));
        if let Some(refusing) = refusing {
            constraints.iter_mut().take(refusing).for_each(|constraint| constraint.remove(names));
            self.give_back(candidate);
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
        Ok(true)
    }

    fn deallocate(&mut self, at: Position, plan: &RequestPlan<'a>, device: usize) {
        let names = plan.request.names();
        self.constraints.get_mut(at.claim).into_iter().flatten().for_each(|constraint| constraint.remove(names));
        if let Some(candidate) = self.candidates.get(device) {
            self.give_back(candidate);
        }
        self.users.get_mut(device).into_iter().for_each(|users| users.truncate(users.len().saturating_sub(1)));
        self.devices.get_mut(at.claim).into_iter().for_each(|devices| *devices -= 1);
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
