//! The scheduling queue: the Pods that wait for a node. A Pod is active (to be scheduled next, by priority, then age), in
//! back-off after a failure, or unschedulable until an event may help it. Upstream's `PriorityQueue` is the model.

mod members;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sched_framework::{Changes, ClusterEvent, NamespaceLabels, PodInfo, TopologySpread};
use tokio::time::Instant;

use crate::config::PodBackoff;
use crate::diagnosis::Rejectors;
use crate::metrics::{self, CountedRejection, QueueName};

/// An unschedulable Pod is tried again after this time even if no event may help it. Upstream's
/// `podMaxInUnschedulablePodsDuration`.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

// What moves a Pod, beside changes in the cluster: upstream's labels.
const POD_ADD: &str = "UnschedulablePodAdd";
const POD_UPDATE: &str = "UnschedulablePodUpdate";
const SCHEDULE_ATTEMPT_FAILURE: &str = "ScheduleAttemptFailure";
const BACKOFF_COMPLETE: &str = "BackoffComplete";
const UNSCHEDULABLE_TIMEOUT: &str = "UnschedulableTimeout";
const FORCE_ACTIVATE: &str = "ForceActivate";
const POD_GROUP_UPDATE: &str = "PodGroupUpdate";

type Order = (Reverse<i32>, Option<Timestamp>, u64);

/// A Pod of the queue with its attempts: upstream's `QueuedPodInfo`.
struct QueuedPodInfo {
    pod: Arc<PodInfo>,
    attempts: u32,
    /// The time of the latest attempt; before the first one, that of the Pod's creation. Of Pods of the same priority the earliest
    /// goes first, so that old Pods that never fit do not starve others.
    since: Option<Timestamp>,
    /// The time of the first attempt.
    first_attempt: Option<Timestamp>,
    /// The plugins that ruled the Pod out, until the next attempt ends.
    rejection: Option<CountedRejection>,
    stage: Stage,
}

impl QueuedPodInfo {
    fn new(pod: Arc<PodInfo>) -> Self {
        let since = pod.created;
        Self { pod, attempts: 0, since, first_attempt: None, rejection: None, stage: Stage::InFlight(0) }
    }

    /// An attempt begins.
    fn attempt(&mut self, at: Timestamp) -> Arc<PodInfo> {
        self.attempts += 1;
        self.since = Some(at);
        self.first_attempt.get_or_insert(at);
        Arc::clone(&self.pod)
    }
}

/// A change in the cluster.
#[derive(Clone)]
pub(crate) struct Occurrence {
    /// What happened.
    pub event: ClusterEvent,
    /// The Pod that came to a node, or the Pod whose nomination ended, if that is the event.
    pub pod: Option<Arc<PodInfo>>,
    /// The key of the claim that appeared or changed, `namespace/name`, if that is the event.
    pub claim: Option<String>,
}

impl Occurrence {
    /// An event that may help every Pod that waits for such events.
    pub fn new(event: ClusterEvent) -> Self {
        Self { event, pod: None, claim: None }
    }

    /// An event of the Pod.
    pub fn of_pod(event: ClusterEvent, pod: Arc<PodInfo>) -> Self {
        Self { pod: Some(pod), ..Self::new(event) }
    }

    /// A claim appeared or changed.
    pub fn of_claim(key: String) -> Self {
        Self { claim: Some(key), ..Self::new(ClusterEvent::PersistentVolumeClaim) }
    }

    /// The ResourceClaim of that key has another status.
    pub fn of_resource_claim(key: String) -> Self {
        Self { claim: Some(key), ..Self::new(ClusterEvent::ResourceClaimUpdate) }
    }

    /// Whether an unschedulable Pod that waits so may fit now: upstream's queueing hint.
    fn may_help(&self, pod: &PodInfo, waits: &Wait, namespaces: &NamespaceLabels) -> bool {
        match (self.event, &self.pod) {
            _ if waits.events.contains(&ClusterEvent::WildCard) => true,
            _ if !waits.events.contains(&self.event) => false,
            // Only Pods that follow other Pods gain by one more.
            (ClusterEvent::AssignedPodAdd, Some(added)) => {
                pod.may_follow(added, namespaces) || waits.spread.iter().any(|constraint| added.is_spread_by(constraint, &pod.namespace))
            }
            (ClusterEvent::AssignedPodDelete, Some(deleted)) => pod.priority <= deleted.priority,
            (ClusterEvent::PersistentVolumeClaim, _) => self.claim.as_ref().is_none_or(|claim| pod.uses_claim(claim)),
            (ClusterEvent::ResourceClaimUpdate, _) => self.claim.as_ref().is_none_or(|claim| pod.uses_resource_claim(claim)),
            _ => true,
        }
    }
}

/// What an unschedulable Pod waits for.
struct Wait {
    /// One of these events.
    events: HashSet<ClusterEvent>,
    /// The constraints that the Pod must meet by default. They are not in the Pod as the informer has it.
    spread: Vec<TopologySpread>,
}

impl Wait {
    /// The wait of a Pod that no node was feasible for when it was `tried` with the default constraints.
    fn new(pod: &PodInfo, tried: &PodInfo, events: HashSet<ClusterEvent>) -> Self {
        let defaults = if pod.topology_spread.is_empty() { tried.topology_spread.as_slice() } else { &[] };
        Self { events, spread: defaults.iter().filter(|constraint| constraint.is_required).cloned().collect() }
    }
}

/// Where in the queue a Pod is.
enum Stage {
    /// Among the active Pods.
    Active(Order),
    /// Active again at that time.
    Backoff(Instant, u64),
    /// Active again after what it waits for, but not before the back-off ends; at the latest at `until`.
    Unschedulable { until: Instant, backoff: Instant, sequence: u64, waits: Wait },
    /// Popped: a cycle or a write is under way. The queue keeps the newest state of the Pod for a next attempt. The number is
    /// that of the next change when the Pod was popped.
    InFlight(usize),
}

/// The waiting Pods by UID.
#[derive(Default)]
pub(crate) struct SchedulingQueue {
    pods: HashMap<String, QueuedPodInfo>,
    active: BTreeSet<(Order, String)>,
    /// Active Pods that [`SchedulingQueue::pop`] leaves alone for now, by what they wait for.
    parked: BTreeMap<Vec<usize>, BTreeSet<(Order, String)>>,
    /// The Pods in back-off and the unschedulable ones, by the time at which they become active.
    deadlines: BTreeMap<(Instant, u64), String>,
    unschedulable: HashSet<String>,
    /// The latest changes: one of them may help a Pod that was in flight at the time.
    occurrences: Changes<Occurrence>,
    sequence: u64,
    backoff: PodBackoff,
}

impl SchedulingQueue {
    /// A queue without Pods.
    pub fn new(backoff: PodBackoff) -> Self {
        Self { backoff, ..Self::default() }
    }

    /// Adds a new Pod to the active Pods.
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        let uid = pod.uid.clone();
        self.pods.insert(uid.clone(), QueuedPodInfo::new(pod));
        self.move_to_active(&uid);
        metrics::incoming(QueueName::Active, POD_ADD);
    }

    /// Stores the new state of a Pod, or adds the Pod when the queue does not have it. When a field changed that its placement
    /// depends on, an unschedulable Pod becomes active, after its back-off, and an active Pod gets the place of its priority.
    pub fn update(&mut self, pod: Arc<PodInfo>, now: Instant) {
        let Some(queued) = self.pods.get_mut(&pod.uid) else { return self.add(pod) };
        let uid = pod.uid.clone();
        // Plugins of a profile may read annotations.
        let differs = queued.pod.placement_differs(&pod) || queued.pod.annotations != pod.annotations;
        queued.pod = pod;
        match queued.stage {
            Stage::Active(_) if differs => self.move_to_active(&uid),
            Stage::Unschedulable { backoff, .. } if differs => self.move_to_active_or_backoff(&uid, backoff, now, POD_UPDATE),
            _ => {}
        }
    }

    /// Removes a Pod from the queue.
    pub fn delete(&mut self, uid: &str) {
        self.leave_stage(uid);
        self.pods.remove(uid);
    }

    /// The numbers of Pods that are active, in back-off and unschedulable.
    pub fn counts(&self) -> [usize; 3] {
        let parked: usize = self.parked.values().map(BTreeSet::len).sum();
        [self.active.len() + parked, self.deadlines.len() - self.unschedulable.len(), self.unschedulable.len()]
    }

    /// The number of a Pod's attempts, and the time of the first one.
    pub fn attempts(&self, uid: &str) -> Option<(u32, Timestamp)> {
        let queued = self.pods.get(uid)?;
        Some((queued.attempts, queued.first_attempt?))
    }

    /// The Pod as the queue has it.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|queued| &queued.pod)
    }

    /// The Pod as the queue has it, if it was popped and nothing became of it yet.
    pub fn in_flight(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).filter(|queued| matches!(queued.stage, Stage::InFlight(_))).map(|queued| &queued.pod)
    }

    /// Parks the first active Pods as long as they wait for something, so that others go before them.
    pub fn park_while(&mut self, waits_for: impl Fn(&PodInfo) -> Option<Vec<usize>>) {
        let pods = &self.pods;
        let group = |(_, uid): &(Order, String)| waits_for(&pods.get(uid)?.pod);
        while let Some(group) = self.active.first().and_then(group) {
            self.parked.entry(group).or_default().extend(self.active.pop_first());
        }
    }

    /// Makes the first parked Pods active again, one for each group that `may_go`.
    pub fn unpark(&mut self, may_go: impl Fn(&[usize]) -> bool) {
        for (_, pods) in self.parked.iter_mut().filter(|(group, _)| may_go(group)) {
            self.active.extend(pods.pop_first());
        }
        self.parked.retain(|_, pods| !pods.is_empty());
    }

    /// Makes an unschedulable Pod active whose nomination ended.
    pub fn activate(&mut self, uid: &str) {
        if self.pods.get(uid).is_some_and(|queued| matches!(queued.stage, Stage::Unschedulable { .. })) {
            self.move_to_active(uid);
            metrics::incoming(QueueName::Active, FORCE_ACTIVATE);
        }
    }

    /// Whether the queue has the Pod, in flight or not.
    pub fn contains(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Whether [`SchedulingQueue::pop`] returns a Pod.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// The next Pod to schedule; the attempt begins at `at`. The Pod stays in flight until [`SchedulingQueue::delete`],
    /// [`SchedulingQueue::add_unschedulable_if_not_present`] or [`SchedulingQueue::move_to_backoff`].
    pub fn pop(&mut self, at: Timestamp) -> Option<Arc<PodInfo>> {
        let (_, uid) = self.active.pop_first()?;
        let queued = self.pods.get_mut(&uid)?;
        queued.stage = Stage::InFlight(self.occurrences.next());
        Some(queued.attempt(at))
    }

    /// Puts a popped Pod among the unschedulable ones until one of the events happens; into back-off if one of them happened while
    /// the Pod was in flight. A Pod that was deleted from the queue meanwhile is not added again. `tried` is the Pod with the default
    /// constraints of its profile.
    pub fn add_unschedulable_if_not_present(
        &mut self,
        tried: &PodInfo,
        Rejectors { plugins, events }: Rejectors,
        now: Instant,
        namespaces: &NamespaceLabels,
    ) {
        let (uid, sequence) = (tried.uid.as_str(), self.next_sequence());
        let Some(queued) = self.pods.get_mut(uid) else { return };
        let Stage::InFlight(popped) = queued.stage else { return };
        let waits = Wait::new(&queued.pod, tried, events);
        queued.rejection = Some(CountedRejection::new(plugins, &tried.scheduler_name));
        let helps = |occurrence: &Occurrence| occurrence.may_help(&queued.pod, &waits, namespaces);
        // Of older changes the queue does not know any more whether they help.
        if self.occurrences.since(popped).is_none_or(|mut occurrences| occurrences.any(helps)) {
            return self.back_off(uid, now);
        }
        let (until, backoff) = (now + UNSCHEDULABLE_MAX, now + backoff(queued.attempts, self.backoff));
        queued.stage = Stage::Unschedulable { until, backoff, sequence, waits };
        self.deadlines.insert((until, sequence), uid.to_owned());
        self.unschedulable.insert(uid.to_owned());
        metrics::incoming(QueueName::Unschedulable, SCHEDULE_ATTEMPT_FAILURE);
    }

    /// Puts a popped Pod into back-off.
    pub fn move_to_backoff(&mut self, uid: &str, now: Instant) {
        let Some(queued) = self.pods.get_mut(uid).filter(|queued| matches!(queued.stage, Stage::InFlight(_))) else { return };
        queued.rejection = None;
        self.back_off(uid, now);
    }

    /// Puts a Pod into back-off whose attempt failed.
    fn back_off(&mut self, uid: &str, now: Instant) {
        let Some(queued) = self.pods.get(uid) else { return };
        let due = now + backoff(queued.attempts, self.backoff);
        self.insert_backoff(uid, due);
        metrics::incoming(QueueName::Backoff, SCHEDULE_ATTEMPT_FAILURE);
    }

    /// Moves the unschedulable Pods that the change may help to the active ones, or into back-off while theirs lasts.
    pub fn move_all_to_active_or_backoff(&mut self, occurrence: Occurrence, now: Instant, namespaces: &NamespaceLabels) {
        let helped = |uid: &String| match self.pods.get(uid) {
            Some(QueuedPodInfo { pod, stage: Stage::Unschedulable { backoff, waits, .. }, .. }) => {
                occurrence.may_help(pod, waits, namespaces).then(|| (uid.clone(), *backoff))
            }
            _ => None,
        };
        let moved: Vec<(String, Instant)> = self.unschedulable.iter().filter_map(helped).collect();
        let event = occurrence.event.label();
        moved.iter().for_each(|(uid, backoff)| self.move_to_active_or_backoff(uid, *backoff, now, event));
        self.occurrences.push(occurrence);
    }

    /// The time at which [`SchedulingQueue::flush`] moves a Pod next.
    pub fn next_flush(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((due, _), _)| *due)
    }

    /// Makes the Pods active whose back-off has ended or who were unschedulable for [`UNSCHEDULABLE_MAX`].
    pub fn flush(&mut self, now: Instant) {
        while let Some(((due, _), uid)) = self.deadlines.first_key_value() {
            if *due > now {
                return;
            }
            let uid = uid.clone();
            let event = if self.unschedulable.contains(&uid) { UNSCHEDULABLE_TIMEOUT } else { BACKOFF_COMPLETE };
            self.move_to_active(&uid);
            metrics::incoming(QueueName::Active, event);
        }
    }

    fn move_to_active(&mut self, uid: &str) {
        self.leave_stage(uid);
        let sequence = self.next_sequence();
        if let Some(queued) = self.pods.get_mut(uid) {
            let order = (Reverse(queued.pod.priority), queued.since, sequence);
            queued.stage = Stage::Active(order);
            self.active.insert((order, uid.to_owned()));
        }
    }

    fn move_to_active_or_backoff(&mut self, uid: &str, backoff: Instant, now: Instant, event: &str) {
        if backoff <= now {
            self.move_to_active(uid);
            metrics::incoming(QueueName::Active, event);
        } else {
            self.leave_stage(uid);
            self.insert_backoff(uid, backoff);
            metrics::incoming(QueueName::Backoff, event);
        }
    }

    fn insert_backoff(&mut self, uid: &str, due: Instant) {
        let sequence = self.next_sequence();
        if let Some(queued) = self.pods.get_mut(uid) {
            queued.stage = Stage::Backoff(due, sequence);
            self.deadlines.insert((due, sequence), uid.to_owned());
        }
    }

    /// Removes a Pod from the active Pods or from the deadlines.
    fn leave_stage(&mut self, uid: &str) {
        let Some(queued) = self.pods.get_mut(uid) else { return };
        match std::mem::replace(&mut queued.stage, Stage::InFlight(self.occurrences.next())) {
            Stage::Active(order) => {
                let entry = (order, uid.to_owned());
                if !self.active.remove(&entry) {
                    let _was_parked = self.parked.values_mut().any(|pods| pods.remove(&entry));
                }
            }
            Stage::Backoff(due, sequence) => {
                self.deadlines.remove(&(due, sequence));
            }
            Stage::Unschedulable { until, sequence, .. } => {
                self.deadlines.remove(&(until, sequence));
                self.unschedulable.remove(uid);
            }
            Stage::InFlight(_) => {}
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

/// The back-off after so many attempts.
fn backoff(attempts: u32, PodBackoff { initial, max }: PodBackoff) -> Duration {
    initial.saturating_mul(1 << attempts.saturating_sub(1).min(30)).min(max)
}

#[cfg(test)]
mod tests;
