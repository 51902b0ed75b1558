//! Pods that wait for a node: those to try now (by priority, then age), those backing off after a
//! failure, and those parked until something changes that may help them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sched_framework::{ClusterEvent, PodInfo};
use tokio::time::Instant;

/// First back-off; it doubles with each attempt. Upstream's `podInitialBackoffSeconds`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest back-off. Upstream's `podMaxBackoffSeconds`.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Parked Pods are tried again after this even if nothing was seen to help, as upstream.
const PARKED_MAX: Duration = Duration::from_secs(300);

type Order = (Reverse<i32>, Option<Timestamp>, u64);

struct Entry {
    pod: Arc<PodInfo>,
    attempts: u32,
    stage: Stage,
}

enum Stage {
    Active(Order),
    /// Tried again at that time.
    BackingOff(Instant, u64),
    /// Tried again when one of these happens, and not before back-off ends.
    Unschedulable {
        until: Instant,
        backoff: Instant,
        sequence: u64,
        helped_by: HashSet<ClusterEvent>,
    },
    /// Taken out to be scheduled; a change meanwhile makes it active again if it comes back.
    InFlight,
}

/// The waiting Pods by UID.
#[derive(Default)]
pub(crate) struct Queue {
    entries: HashMap<String, Entry>,
    active: BTreeSet<(Order, String)>,
    timed: BTreeMap<(Instant, u64), String>,
    sequence: u64,
}

impl Queue {
    /// Adds a Pod or takes over its new state. A parked Pod is tried again when what decides its
    /// placement changed.
    pub fn set(&mut self, pod: Arc<PodInfo>) {
        let uid = pod.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            self.entries.insert(uid.clone(), Entry { pod, attempts: 0, stage: Stage::InFlight });
            self.activate(&uid);
            return;
        };
        let differs = entry.pod.placement_differs(&pod);
        entry.pod = pod;
        if differs && !matches!(entry.stage, Stage::InFlight) {
            self.activate(&uid);
        }
    }

    /// Forgets a Pod.
    pub fn remove(&mut self, uid: &str) {
        self.leave(uid);
        self.entries.remove(uid);
    }

    /// Whether a Pod waits here.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// Whether [`Queue::take`] has one.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// The next Pod to try. It stays known until [`Queue::remove`], [`Queue::park`] or
    /// [`Queue::back_off`].
    pub fn take(&mut self) -> Option<Arc<PodInfo>> {
        let (_, uid) = self.active.pop_first()?;
        let entry = self.entries.get_mut(&uid)?;
        entry.stage = Stage::InFlight;
        entry.attempts += 1;
        Some(Arc::clone(&entry.pod))
    }

    /// Puts a taken Pod aside until one of the events happens.
    pub fn park(&mut self, uid: &str, helped_by: HashSet<ClusterEvent>, now: Instant) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let (until, backoff) = (now + PARKED_MAX, now + backoff(entry.attempts));
        entry.stage = Stage::Unschedulable { until, backoff, sequence, helped_by };
        self.timed.insert((until, sequence), uid.to_owned());
    }

    /// Tries a taken Pod again after its back-off.
    pub fn back_off(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get(uid) else { return };
        let due = now + backoff(entry.attempts);
        self.wait(uid, due);
    }

    /// Something happened: the parked Pods that it may help are tried again.
    pub fn happened(&mut self, event: ClusterEvent, now: Instant) {
        let helped: Vec<(String, Instant)> = self
            .entries
            .iter()
            .filter_map(|(uid, entry)| match &entry.stage {
                Stage::Unschedulable { backoff, helped_by, .. } if helped_by.contains(&event) => Some((uid.clone(), *backoff)),
                _ => None,
            })
            .collect();
        for (uid, backoff) in helped {
            if backoff <= now {
                self.activate(&uid);
            } else {
                self.leave(&uid);
                self.wait(&uid, backoff);
            }
        }
    }

    /// When [`Queue::tick`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        self.timed.first_key_value().map(|((due, _), _)| *due)
    }

    /// Makes active whose time has come.
    pub fn tick(&mut self, now: Instant) {
        while let Some(((due, _), uid)) = self.timed.first_key_value() {
            if *due > now {
                return;
            }
            let uid = uid.clone();
            self.activate(&uid);
        }
    }

    fn activate(&mut self, uid: &str) {
        self.leave(uid);
        let sequence = self.next_sequence();
        if let Some(entry) = self.entries.get_mut(uid) {
            let order = (Reverse(entry.pod.priority), entry.pod.created, sequence);
            entry.stage = Stage::Active(order);
            self.active.insert((order, uid.to_owned()));
        }
    }

    fn wait(&mut self, uid: &str, due: Instant) {
        let sequence = self.next_sequence();
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.stage = Stage::BackingOff(due, sequence);
            self.timed.insert((due, sequence), uid.to_owned());
        }
    }

    /// Takes an entry out of the order it stands in.
    fn leave(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match std::mem::replace(&mut entry.stage, Stage::InFlight) {
            Stage::Active(order) => {
                self.active.remove(&(order, uid.to_owned()));
            }
            Stage::BackingOff(due, sequence) | Stage::Unschedulable { until: due, sequence, .. } => {
                self.timed.remove(&(due, sequence));
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

    fn taken(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.take()).map(|pod| pod.name.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn higher_priority_goes_first_and_then_the_earlier() {
        let mut queue = Queue::default();
        for (name, priority) in [("a", 0), ("b", 0), ("c", 10), ("d", -1)] {
            queue.set(queued(name, priority));
        }
        assert_eq!(taken(&mut queue), ["c", "a", "b", "d"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_pod_comes_back_for_what_helps_it_and_not_before_its_back_off() {
        let mut queue = Queue::default();
        queue.set(queued("a", 0));
        queue.take().expect("active");
        queue.park("a", [ClusterEvent::PodGone].into(), Instant::now());
        queue.happened(ClusterEvent::NodeLabels, Instant::now());
        assert_eq!(queue.next_due(), Some(Instant::now() + PARKED_MAX));
        queue.happened(ClusterEvent::PodGone, Instant::now());
        assert!(!queue.has_active());
        tokio::time::advance(BACKOFF_MIN).await;
        queue.tick(Instant::now());
        assert_eq!(taken(&mut queue), ["a"]);
        queue.park("a", [ClusterEvent::PodGone].into(), Instant::now());
        tokio::time::advance(BACKOFF_MAX).await;
        queue.happened(ClusterEvent::PodGone, Instant::now());
        assert_eq!(taken(&mut queue), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_pod_is_tried_again_after_five_minutes_or_when_it_changes() {
        let mut queue = Queue::default();
        queue.set(queued("a", 0));
        queue.take().expect("active");
        queue.park("a", HashSet::new(), Instant::now());
        queue.set(queued("a", 0));
        assert!(!queue.has_active(), "nothing of its placement changed");
        queue.set(queued("a", 5));
        assert_eq!(taken(&mut queue), ["a"]);
        queue.park("a", HashSet::new(), Instant::now());
        tokio::time::advance(PARKED_MAX).await;
        queue.tick(Instant::now());
        assert_eq!(taken(&mut queue), ["a"]);
    }

    #[test]
    fn back_off_doubles_up_to_ten_seconds() {
        let seconds: Vec<u64> = (1..=6).map(|n| backoff(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_pod_leaves_every_order() {
        let mut queue = Queue::default();
        queue.set(queued("a", 0));
        queue.set(queued("b", 0));
        queue.take().expect("active");
        queue.back_off("a", Instant::now());
        queue.remove("a");
        queue.remove("b");
        assert!(!queue.contains("a") && !queue.has_active() && queue.next_due().is_none());
    }
}
