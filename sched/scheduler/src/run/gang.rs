//! Groups of Pods in the loop. The Pods of a gang are tried in one cycle: each is assumed on its node, so that the next one sees it there,
//! and all of them are bound when enough are placed, or all are taken back. So a gang never has a part of the room that another one needs.
//! A cycle of a large gang has several steps, each a turn of the loop; no other Pod is tried between them. A gang that does not fit may
//! preempt less important Pods, in further steps of its cycle.
//!
//! Once enough Pods of a gang are on nodes, its other Pods are scheduled one by one, and so are the Pods of a group without a gang.

mod preemption;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::ObjectKey;
use futures::future::join_all;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use sched_framework::{ClusterEvent, PodGroupInfo, PodInfo};
use tokio::time::Instant;

pub(super) use self::preemption::EndedPreemption;
use self::preemption::Preempting;
use super::{Finished, Next, Scheduler, WRITES_IN_FLIGHT_MAX};
use crate::bind::{GroupCondition, Reason};
use crate::cycle;
use crate::diagnosis::{Rejectors, rejected};
use crate::metrics::{self, Attempt};
use crate::plugins::{BindingError, Feasibility, placement_feasible};
use crate::queue::Occurrence;

/// The number of Pods that one step of a cycle tries: as many take a few milliseconds.
const MEMBERS_PER_STEP: usize = 64;
/// The highest number of Pods of a gang whose status is written at the same time.
const STATUS_WRITES_MAX: usize = 16;
/// The time after which a gang is tried again of which a Pod is between two attempts.
const TRANSITION: Duration = Duration::from_secs(1);
/// A gang waits so many times longer than its cycle took: one that never fits has a small share of the scheduler's time, however many
/// Pods it has.
const IDLE_SHARE: u32 = 20;

/// A cycle of a gang that is under way.
pub(super) struct GangCycle {
    group: Arc<str>,
    started: Instant,
    /// The Pods that were not tried yet.
    remaining: VecDeque<Arc<PodInfo>>,
    /// The Pods that are assumed on nodes.
    placed: Vec<(Arc<PodInfo>, String)>,
    unplaced: Vec<Unplaced>,
    /// The Pods that were nominated to nodes at the beginning.
    nominated: Vec<(Arc<PodInfo>, String)>,
    /// The search for room, if the gang does not fit.
    preempting: Option<Box<Preempting>>,
}

impl GangCycle {
    /// Counts the cycle, which has ended.
    fn attempted(&self, attempt: Attempt) {
        let placed = self.placed.iter().map(|(pod, _)| pod).chain(self.unplaced.iter().map(|one| &one.pod));
        if let Some(pod) = self.remaining.iter().chain(placed).next() {
            metrics::group_attempted(&pod.scheduler_name, attempt, self.started.elapsed());
        }
    }
}

/// A Pod that no node is feasible for, and why.
struct Unplaced {
    pod: Arc<PodInfo>,
    message: String,
    next: Next,
}

/// What becomes of the nominations of Pods that are not placed.
enum Nominated {
    /// They end.
    None,
    /// They stay: room is being made.
    AsBefore,
}

/// Why a Pod of a gang has no node.
enum MemberError {
    /// No node is feasible: the message, and what becomes of the Pod.
    Unschedulable(String, Next),
    /// A plugin failed.
    Failed(String),
}

/// The order in which the Pods of a gang are tried.
fn sort_by_creation(pods: &mut [Arc<PodInfo>]) {
    pods.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
}

impl Scheduler {
    /// Adds a Pod to the queue, unless it waits for its group or for other Pods of the group.
    pub(super) fn enqueue(&mut self, pod: Arc<PodInfo>) {
        let Some(group) = self.group_of(&pod) else { return self.queue.update(pod, Instant::now()) };
        let is_queued = self.queue.contains(&pod.uid);
        self.groups.add(&pod, !is_queued);
        if is_queued {
            self.queue.update(pod, Instant::now());
        }
        self.enqueue_ready(&group);
    }

    /// Adds the Pods of a group to the queue that wait for nothing any more.
    pub(super) fn enqueue_ready(&mut self, group: &str) {
        let now = Instant::now();
        self.groups.take_ready(group).into_iter().for_each(|pod| self.queue.update(pod, now));
    }

    /// The key of the Pod's group, if the profile of the Pod has a say in groups.
    fn group_of(&self, pod: &PodInfo) -> Option<Arc<str>> {
        let group = pod.pod_group.as_ref()?;
        self.profiles.get(&pod.scheduler_name)?.has_gang_scheduling.then(|| Arc::clone(group))
    }

    /// A PodGroup appeared, changed or is gone. A gang that needs fewer Pods than before may fit.
    pub(super) fn group_changed(&mut self, key: &ObjectKey, group: Option<&PodGroup>) {
        let (key, now) = (key.to_string(), Instant::now());
        let before = self.groups.min_count(&key);
        let info = group.map(PodGroupInfo::new);
        self.cache.set_indivisible(&key, info.as_ref().is_some_and(|info| info.disrupts_all));
        self.groups.set(&key, info);
        let min_count = self.groups.min_count(&key);
        if before.is_some_and(|before| min_count.is_none_or(|now| now < before)) {
            self.groups.pods(&key).iter().for_each(|uid| self.queue.wake(uid, now));
        }
        self.enqueue_ready(&key);
        self.report_group(&key);
    }

    /// Whether a popped Pod is scheduled by itself. If not, it waits for its group, or the cycle of its gang begins.
    pub(super) fn goes_alone(&mut self, pod: &Arc<PodInfo>) -> bool {
        let Some(key) = self.group_of(pod) else { return true };
        let Some(group) = self.groups.info(&key) else {
            self.queue.delete(&pod.uid);
            self.end_nomination(pod);
            self.groups.add(pod, true);
            return false;
        };
        if let Some(message) = group.mismatch(pod) {
            self.attempt_failed(Arc::clone(pod), message, Instant::now());
            return false;
        }
        let goes_alone = group.min_count.is_none_or(|min_count| self.cache.scheduled_in(&key) >= min_count);
        if !goes_alone {
            self.begin_gang(key, Arc::clone(pod));
        }
        goes_alone
    }

    /// Takes all Pods of the gang that wait. `first` was popped.
    fn begin_gang(&mut self, group: Arc<str>, first: Arc<PodInfo>) {
        let (now, started) = (Instant::now(), api_clock::now());
        if let Some(until) = self.groups.retry_at(&group).filter(|until| *until > now) {
            return self.queue.delay(&first.uid, until);
        }
        let others: Vec<String> = self.groups.pods(&group).into_iter().filter(|uid| *uid != first.uid).collect();
        // A Pod whose failure is being written, for example: without it, the gang would be judged by a part of its Pods.
        if others.iter().any(|uid| self.queue.in_flight(uid).is_some() && self.cache.pod(uid).is_none()) {
            return self.queue.delay(&first.uid, now + TRANSITION);
        }
        let mut pods: Vec<_> = others.iter().filter_map(|uid| self.queue.take(uid, started)).collect();
        pods.push(first);
        sort_by_creation(&mut pods);
        let nominations = &self.cache.snapshot().nominated;
        let nominated = pods.iter().filter_map(|pod| Some((Arc::clone(pod), nominations.node_of(&pod.uid)?.to_owned()))).collect();
        let (placed, unplaced) = (Vec::new(), Vec::new());
        let cycle = GangCycle { group, started: now, remaining: pods.into(), placed, unplaced, nominated, preempting: None };
        match self.fault_of(&cycle) {
            Some(message) => self.gang_failed(cycle, message),
            None => self.continue_gang(cycle),
        }
    }

    /// Why the Pods of a gang cannot be scheduled together.
    fn fault_of(&self, cycle: &GangCycle) -> Option<String> {
        let group = self.groups.info(&cycle.group)?;
        let scheduler = &cycle.remaining.front()?.scheduler_name;
        let other = cycle.remaining.iter().map(|pod| &pod.scheduler_name).find(|other| *other != scheduler);
        if let Some(other) = other {
            let message = "all pods in a single pod group should have the same .spec.schedulerName set";
            return Some(format!("{message}, got: {other:?} and {scheduler:?}"));
        }
        // Calls of extenders do not end within a cycle.
        let judges = |pod: &Arc<PodInfo>| self.extension.as_ref().is_some_and(|extension| extension.extenders.judges(pod));
        if cycle.remaining.iter().any(judges) {
            return Some("the Pods of a gang cannot be scheduled with extenders".to_owned());
        }
        cycle.remaining.iter().find_map(|pod| group.mismatch(pod))
    }

    /// Tries the next Pods of the gang, or goes on with the search for Pods to preempt.
    pub(super) fn continue_gang(&mut self, mut cycle: GangCycle) {
        if let Some(preempting) = cycle.preempting.take() {
            return self.continue_preempting(cycle, preempting);
        }
        for _ in 0..MEMBERS_PER_STEP {
            let Some(min_count) = self.groups.min_count(&cycle.group) else { return self.abandon_gang(cycle) };
            match placement_feasible(min_count, self.cache.scheduled_in(&cycle.group), cycle.remaining.len()) {
                Feasibility::Feasible => return self.gang_placed(cycle),
                Feasibility::Infeasible(message) => return self.gang_infeasible(cycle, message),
                Feasibility::Wait => {}
            }
            let Some(pod) = cycle.remaining.pop_front() else { break };
            // A Pod may be gone, or bound by somebody else, between two turns.
            if self.queue.in_flight(&pod.uid).is_some()
                && let Err(message) = self.assume_member(&mut cycle, pod)
            {
                metrics::group_cycled(cycle.started.elapsed());
                return self.gang_failed(cycle, message);
            }
        }
        self.gang_cycle = Some(cycle);
    }

    /// Assumes the Pod on the best node, if there is one. An error is a failure of a plugin.
    fn assume_member(&mut self, cycle: &mut GangCycle, pod: Arc<PodInfo>) -> Result<(), String> {
        let pod = match self.profiles.get(&pod.scheduler_name) {
            Some(running) => self.default_spread.apply(pod, &running.default_constraints),
            None => pod,
        };
        match self.schedule_member(&pod) {
            Ok(node) => cycle.placed.push((pod, node)),
            Err(MemberError::Unschedulable(message, next)) => cycle.unplaced.push(Unplaced { pod, message, next }),
            Err(MemberError::Failed(message)) => {
                let error = format!("failed to schedule other pod from a pod group: {message}");
                cycle.unplaced.push(Unplaced { pod, message, next: Next::Backoff });
                return Err(error);
            }
        }
        Ok(())
    }

    /// Assumes the Pod on the best node and reserves what it uses there; returns the node.
    fn schedule_member(&mut self, pod: &Arc<PodInfo>) -> Result<String, MemberError> {
        let started = Instant::now();
        self.cache.order_nodes();
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else {
            return Err(MemberError::Failed(format!("profile not found for scheduler name {:?}", pod.scheduler_name)));
        };
        if let Some(message) = running.begin_cycle() {
            return Err(MemberError::Failed(message));
        }
        let result = cycle::schedule_member(&running.profile, pod, self.cache.snapshot(), &mut running.progress);
        metrics::cycled(started.elapsed());
        if let Some(message) = running.external_failure() {
            return Err(MemberError::Failed(message));
        }
        let node = result.map_err(|error| MemberError::Unschedulable(error.to_string(), Next::Unschedulable(error.rejectors())))?;
        self.cache.assume_pod(Arc::clone(pod), &node);
        match self.reserve(pod, &node) {
            Ok(()) => Ok(node),
            Err(error) => {
                self.take_back(pod);
                Err(match error {
                    BindingError::Unschedulable(message) => MemberError::Unschedulable(rejected(&message), Next::Backoff),
                    BindingError::Failed { .. } => MemberError::Failed(error.to_string()),
                })
            }
        }
    }

    /// Takes the assumption of a Pod back, and what is reserved for it.
    fn take_back(&mut self, pod: &PodInfo) {
        self.unreserve(pod);
        // The cache has a Pod that somebody else bound meanwhile on its node.
        if self.queue.in_flight(&pod.uid).is_some() {
            self.cache.forget_pod(&pod.uid);
        }
    }

    /// Enough Pods are placed: they are bound. The Pods that were not tried are scheduled one by one.
    fn gang_placed(&mut self, cycle: GangCycle) {
        tracing::debug!(group = &*cycle.group, placed = cycle.placed.len(), "gang placed");
        metrics::group_cycled(cycle.started.elapsed());
        cycle.attempted(Attempt::Scheduled);
        self.group_scheduled(&cycle.group);
        for (pod, node) in cycle.placed {
            match self.queue.in_flight(&pod.uid) {
                Some(_) => self.assumed(pod, node, cycle.started),
                None => self.unreserve(&pod),
            }
        }
        cycle.remaining.iter().for_each(|pod| self.queue.put_back(&pod.uid));
        self.unplaced(cycle.unplaced, cycle.started, Reason::Unschedulable, None, &Nominated::None);
    }

    /// Too few Pods fit: all are taken back. Room may be made for them.
    fn gang_infeasible(&mut self, mut cycle: GangCycle, message: String) {
        metrics::group_cycled(cycle.started.elapsed());
        self.take_all_back(&mut cycle);
        self.begin_preempting(cycle, message);
    }

    /// The Pods wait until something helps them, those that are `nominated` for the room that was made for them.
    fn gang_unschedulable(&mut self, mut cycle: GangCycle, message: &str, nominated: &Nominated) {
        cycle.attempted(match nominated {
            Nominated::None => Attempt::Unschedulable,
            Nominated::AsBefore => Attempt::WaitingOnPreemption,
        });
        let condition = self.condition(&cycle.group, "Unschedulable", message);
        self.end_gang(&mut cycle, message, || Next::Unschedulable(Rejectors::default()));
        self.unplaced(cycle.unplaced, cycle.started, Reason::Unschedulable, condition, nominated);
    }

    /// A plugin failed, or the Pods cannot be scheduled together.
    fn gang_failed(&mut self, mut cycle: GangCycle, message: String) {
        cycle.attempted(Attempt::Error);
        let condition = self.condition(&cycle.group, "SchedulerError", &message);
        self.end_gang(&mut cycle, &message, || Next::Backoff);
        self.unplaced(cycle.unplaced, cycle.started, Reason::SchedulerError, condition, &Nominated::None);
    }

    /// The gang is gone, or is none any more: its Pods are judged again.
    fn abandon_gang(&mut self, cycle: GangCycle) {
        cycle.placed.iter().for_each(|(pod, _)| self.take_back(pod));
        let placed = cycle.placed.iter().map(|(pod, _)| pod).chain(cycle.unplaced.iter().map(|unplaced| &unplaced.pod));
        for pod in placed.chain(&cycle.remaining) {
            if self.queue.in_flight(&pod.uid).is_some() {
                self.queue.put_back(&pod.uid);
            }
        }
    }

    /// Takes all Pods back. They are nominated as before.
    fn take_all_back(&mut self, cycle: &mut GangCycle) {
        let placed = std::mem::take(&mut cycle.placed);
        placed.iter().for_each(|(pod, _)| self.take_back(pod));
        for (pod, node) in cycle.nominated.iter().filter(|(pod, _)| self.queue.in_flight(&pod.uid).is_some()) {
            self.cache.nominate(Arc::clone(pod), node);
        }
        // Cycles with extenders end between two turns of this one: they may have missed the room.
        if self.extension.is_some() && !placed.is_empty() {
            self.happened(Occurrence::new(ClusterEvent::AssignedPodDelete));
        }
        cycle.remaining.extend(placed.into_iter().map(|(pod, _)| pod));
    }

    /// Takes all Pods back. Those that no node was infeasible for wait with the others.
    fn end_gang(&mut self, cycle: &mut GangCycle, message: &str, next: impl Fn() -> Next) {
        tracing::debug!(group = &*cycle.group, message, "gang not placed");
        self.take_all_back(cycle);
        let others = cycle.remaining.drain(..);
        cycle.unplaced.extend(others.map(|pod| Unplaced { pod, message: message.to_owned(), next: next() }));
        let failures = self.groups.failed(&cycle.group);
        let wait = self.queue.backoff_after(failures).max(cycle.started.elapsed() * IDLE_SHARE);
        self.groups.back_off(&cycle.group, Instant::now() + wait);
    }

    /// Writes why the Pods have no node, and the condition of their group. The Pods are in flight until all of that is written, so that no
    /// cycle of the gang misses some of them.
    fn unplaced(
        &mut self,
        mut unplaced: Vec<Unplaced>,
        started: Instant,
        reason: Reason,
        condition: Option<GroupCondition>,
        nominated: &Nominated,
    ) {
        self.count_unplaced(&mut unplaced, started, reason);
        if matches!(nominated, Nominated::None) {
            unplaced.iter().for_each(|one| self.end_nomination(&one.pod));
        }
        if unplaced.is_empty() {
            return;
        }
        let nominated = matches!(nominated, Nominated::None).then_some("");
        let (writer, finished) = (self.writer.clone(), self.finished.clone());
        self.writes.spawn(api_tasks::named("scheduler/gang-status", async move {
            if let Some(condition) = &condition {
                writer.group_condition(condition).await;
            }
            for some in unplaced.chunks(STATUS_WRITES_MAX) {
                join_all(some.iter().map(|one| writer.not_scheduled(&one.pod, reason, &one.message, nominated))).await;
            }
            let pods = unplaced.into_iter().map(|Unplaced { pod, next, .. }| (pod, next)).collect();
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::GangStatus(pods)).await;
        }));
    }

    /// Counts attempts that failed. Pods that are gone, or were bound by somebody else meanwhile, are left out.
    fn count_unplaced(&self, unplaced: &mut Vec<Unplaced>, started: Instant, reason: Reason) {
        let attempt = match reason {
            Reason::Unschedulable => Attempt::Unschedulable,
            Reason::SchedulerError => Attempt::Error,
        };
        unplaced.retain(|one| self.queue.in_flight(&one.pod.uid).is_some());
        for Unplaced { pod, message, .. } in unplaced.iter() {
            tracing::debug!(pod = pod.key(), message, "not placed");
            metrics::attempted(&pod.scheduler_name, attempt, started.elapsed());
        }
    }

    /// The condition that says why a group is not scheduled, unless it was scheduled once or says so already.
    fn condition(&self, group: &str, reason: &'static str, message: &str) -> Option<GroupCondition> {
        let info = self.groups.info(group).filter(|info| !info.is_scheduled())?;
        let before = info.scheduled.as_ref();
        let is_same = before.is_some_and(|before| before.reason == reason && before.message == message);
        (!is_same).then(|| GroupCondition::new(group, info, "False", reason, message))
    }

    /// A Pod of a group is on a node: the group is scheduled if that are enough of its Pods.
    pub(super) fn member_scheduled(&mut self, pod: &PodInfo) {
        let Some(group) = self.group_of(pod) else { return };
        if self.cache.scheduled_in(&group) >= self.groups.min_count(&group).unwrap_or(1) {
            self.group_scheduled(&group);
        }
    }

    /// Writes that the group is scheduled unless its PodGroup says so. Its Pods may be on their nodes for long: another scheduler may have
    /// bound them, or this one before a restart.
    fn report_group(&mut self, group: &str) {
        let uids = self.groups.pods(group);
        let member = uids.iter().filter_map(|uid| self.cache.pod(uid)).find(|pod| self.group_of(pod).is_some());
        if let Some(pod) = member.cloned() {
            self.member_scheduled(&pod);
        }
    }

    fn group_scheduled(&mut self, group: &str) {
        let Some(info) = self.groups.succeeded(group) else { return };
        let (writer, finished, key) = (self.writer.clone(), self.finished.clone(), Arc::from(group));
        let condition = GroupCondition::new(group, &info, "True", "Scheduled", "");
        self.writes.spawn(api_tasks::named("scheduler/group-status", async move {
            if !writer.group_condition(&condition).await {
                // The receiver is gone only at shutdown: the next scheduler writes it.
                let _gone = finished.send(Finished::FailedReport(key)).await;
            }
        }));
    }

    pub(super) fn report_failed(&mut self, group: Arc<str>) {
        self.groups.report_failed(group, Instant::now());
    }

    /// The time at which a report that failed is repeated, if there is one and the number of writes in flight allows it.
    pub(super) fn next_report(&self) -> Option<Instant> {
        self.groups.next_report().filter(|_| self.writes.len() < WRITES_IN_FLIGHT_MAX)
    }

    /// Repeats a report that failed.
    pub(super) fn repeat_report(&mut self) {
        if let Some(group) = self.groups.take_failed_report(Instant::now()) {
            self.report_group(&group);
        }
    }
}

#[cfg(test)]
mod tests;
