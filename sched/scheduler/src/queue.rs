//! The scheduling queue: the Pods that wait for a node. A Pod is active (to be scheduled next, by priority, then age), in
//! back-off after a failure, or unschedulable until an event may help it. Upstream's `PriorityQueue` is the model.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sched_framework::{ClusterEvent, PodInfo};
use tokio::time::Instant;

/// The first back-off; each attempt doubles it. Upstream's `podInitialBackoffSeconds`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest back-off. Upstream's `podMaxBackoffSeconds`.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// An unschedulable Pod is tried again after this time even if no event may help it. Upstream's
/// `podMaxInUnschedulablePodsDuration`.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(300);

type Order = (Reverse<i32>, Option<Timestamp>, u64);

/// A Pod of the queue with its attempts: upstream's `QueuedPodInfo`.
struct QueuedPodInfo {
    pod: Arc<PodInfo>,
    attempts: u32,
    stage: Stage,
}

/// Where in the queue a Pod is.
enum Stage {
    /// Among the active Pods.
    Active(Order),
    /// Active again at that time.
    Backoff(Instant, u64),
    /// Active again after one of these events, but not before the back-off ends; at the latest at `until`.
    Unschedulable { until: Instant, backoff: Instant, sequence: u64, events: HashSet<ClusterEvent> },
    /// Popped: a cycle or a binding is under way. The queue keeps the newest state of the Pod for a next attempt.
    InFlight,
}

/// The waiting Pods by UID.
#[derive(Default)]
pub(crate) struct SchedulingQueue {
    pods: HashMap<String, QueuedPodInfo>,
    active: BTreeSet<(Order, String)>,
    /// The Pods in back-off and the unschedulable ones, by the time at which they become active.
    deadlines: BTreeMap<(Instant, u64), String>,
    sequence: u64,
}

impl SchedulingQueue {
    /// Adds a new Pod to the active Pods.
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        let uid = pod.uid.clone();
        self.pods.insert(uid.clone(), QueuedPodInfo { pod, attempts: 0, stage: Stage::InFlight });
        self.move_to_active(&uid);
    }

    /// Stores the new state of a Pod, or adds the Pod when the queue does not have it. A Pod in back-off or an unschedulable
    /// Pod becomes active when a field changed that its placement depends on.
    pub fn update(&mut self, pod: Arc<PodInfo>) {
        let Some(queued) = self.pods.get_mut(&pod.uid) else { return self.add(pod) };
        let uid = pod.uid.clone();
        let differs = queued.pod.placement_differs(&pod);
        queued.pod = pod;
        if differs && !matches!(queued.stage, Stage::InFlight) {
            self.move_to_active(&uid);
        }
    }

    /// Removes a Pod from the queue.
    pub fn delete(&mut self, uid: &str) {
        self.leave_stage(uid);
        self.pods.remove(uid);
    }

    /// The Pod as the queue has it.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|queued| &queued.pod)
    }

    /// Makes an unschedulable Pod active whose nomination ended.
    pub fn activate(&mut self, uid: &str) {
        if self.pods.get(uid).is_some_and(|queued| matches!(queued.stage, Stage::Unschedulable { .. })) {
            self.move_to_active(uid);
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

    /// The next Pod to schedule. The Pod stays in flight until [`SchedulingQueue::delete`],
    /// [`SchedulingQueue::add_unschedulable_if_not_present`] or [`SchedulingQueue::move_to_backoff`].
    pub fn pop(&mut self) -> Option<Arc<PodInfo>> {
        let (_, uid) = self.active.pop_first()?;
        let queued = self.pods.get_mut(&uid)?;
        queued.stage = Stage::InFlight;
        queued.attempts += 1;
        Some(Arc::clone(&queued.pod))
    }

    /// Puts a popped Pod among the unschedulable ones until one of the events happens. A Pod that was deleted from the queue
    /// meanwhile is not added again.
    pub fn add_unschedulable_if_not_present(&mut self, uid: &str, events: HashSet<ClusterEvent>, now: Instant) {
        let sequence = self.next_sequence();
        let Some(queued) = self.pods.get_mut(uid) else { return };
        let (until, backoff) = (now + UNSCHEDULABLE_MAX, now + backoff(queued.attempts));
        queued.stage = Stage::Unschedulable { until, backoff, sequence, events };
        self.deadlines.insert((until, sequence), uid.to_owned());
    }

    /// Puts a popped Pod into back-off.
    pub fn move_to_backoff(&mut self, uid: &str, now: Instant) {
        let Some(queued) = self.pods.get(uid) else { return };
        let due = now + backoff(queued.attempts);
        self.insert_backoff(uid, due);
    }

    /// Moves the unschedulable Pods that the event may help to the active ones, or into back-off while theirs lasts. `may_help`
    /// looks at the event's object: upstream's queueing hint.
    pub fn move_all_to_active_or_backoff(&mut self, event: ClusterEvent, now: Instant, may_help: &dyn Fn(&PodInfo) -> bool) {
        let moved: Vec<(String, Instant)> = self
            .pods
            .iter()
            .filter_map(|(uid, queued)| match &queued.stage {
                Stage::Unschedulable { backoff, events, .. } if events.contains(&event) && may_help(&queued.pod) => {
                    Some((uid.clone(), *backoff))
                }
                _ => None,
            })
            .collect();
        for (uid, backoff) in moved {
            if backoff <= now {
                self.move_to_active(&uid);
            } else {
                self.leave_stage(&uid);
                self.insert_backoff(&uid, backoff);
            }
        }
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
            self.move_to_active(&uid);
        }
    }

    fn move_to_active(&mut self, uid: &str) {
        self.leave_stage(uid);
        let sequence = self.next_sequence();
        if let Some(queued) = self.pods.get_mut(uid) {
            let order = (Reverse(queued.pod.priority), queued.pod.created, sequence);
            queued.stage = Stage::Active(order);
            self.active.insert((order, uid.to_owned()));
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
        match std::mem::replace(&mut queued.stage, Stage::InFlight) {
            Stage::Active(order) => {
                self.active.remove(&(order, uid.to_owned()));
            }
            Stage::Backoff(due, sequence) | Stage::Unschedulable { until: due, sequence, .. } => {
                self.deadlines.remove(&(due, sequence));
            }
            Stage::InFlight => {}
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

fn backoff(attempts: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::pod;

    fn queued(name: &str, priority: i32) -> Arc<PodInfo> {
        Arc::new(pod(name, json!({"priority": priority})))
    }

    fn popped(queue: &mut SchedulingQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).map(|pod| pod.name.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn higher_priority_goes_first_and_then_the_earlier() {
        let mut queue = SchedulingQueue::default();
        for (name, priority) in [("a", 0), ("b", 0), ("c", 10), ("d", -1)] {
            queue.update(queued(name, priority));
        }
        assert_eq!(popped(&mut queue), ["c", "a", "b", "d"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unschedulable_pod_is_active_after_an_event_that_helps_it_and_its_back_off() {
        let mut queue = SchedulingQueue::default();
        queue.update(queued("a", 0));
        queue.pop().expect("active");
        queue.add_unschedulable_if_not_present("a", [ClusterEvent::AssignedPodDelete].into(), Instant::now());
        queue.move_all_to_active_or_backoff(ClusterEvent::UpdateNodeLabel, Instant::now(), &|_| true);
        assert_eq!(queue.next_flush(), Some(Instant::now() + UNSCHEDULABLE_MAX));
        queue.move_all_to_active_or_backoff(ClusterEvent::AssignedPodDelete, Instant::now(), &|_| true);
        assert!(!queue.has_active());
        tokio::time::advance(BACKOFF_MIN).await;
        queue.flush(Instant::now());
        assert_eq!(popped(&mut queue), ["a"]);
        queue.add_unschedulable_if_not_present("a", [ClusterEvent::AssignedPodDelete].into(), Instant::now());
        tokio::time::advance(BACKOFF_MAX).await;
        queue.move_all_to_active_or_backoff(ClusterEvent::AssignedPodDelete, Instant::now(), &|_| true);
        assert_eq!(popped(&mut queue), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unschedulable_pod_is_tried_again_after_five_minutes_or_when_it_changes() {
        let mut queue = SchedulingQueue::default();
        queue.update(queued("a", 0));
        queue.pop().expect("active");
        queue.add_unschedulable_if_not_present("a", HashSet::new(), Instant::now());
        queue.update(queued("a", 0));
        assert!(!queue.has_active(), "no field changed that its placement depends on");
        queue.update(queued("a", 5));
        assert_eq!(popped(&mut queue), ["a"]);
        queue.add_unschedulable_if_not_present("a", HashSet::new(), Instant::now());
        tokio::time::advance(UNSCHEDULABLE_MAX).await;
        queue.flush(Instant::now());
        assert_eq!(popped(&mut queue), ["a"]);
    }

    #[test]
    fn back_off_doubles_up_to_ten_seconds() {
        let seconds: Vec<u64> = (1..=6).map(|n| backoff(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_pod_leaves_every_stage() {
        let mut queue = SchedulingQueue::default();
        queue.update(queued("a", 0));
        queue.update(queued("b", 0));
        queue.pop().expect("active");
        queue.move_to_backoff("a", Instant::now());
        queue.delete("a");
        queue.delete("b");
        assert!(!queue.contains("a") && !queue.has_active() && queue.next_flush().is_none());
    }
}
