//! The metrics of the scheduling queue.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use api_metrics::{Counters, Families, Gauges, number};

static PENDING: [(&str, AtomicUsize); 4] = [
    ("active", AtomicUsize::new(0)),
    ("backoff", AtomicUsize::new(0)),
    ("unschedulable", AtomicUsize::new(0)),
    ("gated", AtomicUsize::new(0)),
];
static INCOMING: Counters<2> =
    Counters::new("scheduler_queue_incoming_pods_total", "Pods that came into a queue, by what moved them.", ["queue", "event"]);
static UNSCHEDULABLE: Gauges<2> = Gauges::new(
    "scheduler_unschedulable_pods",
    "Pods that fitted on no node in their latest attempt, by each plugin that ruled nodes out.",
    ["plugin", "profile"],
);

/// A part of the queue.
#[derive(Clone, Copy)]
pub(crate) enum QueueName {
    Active,
    Backoff,
    Unschedulable,
}

pub(super) fn add_to(families: &mut Families) {
    let pending = PENDING.iter().map(|(queue, count)| ([("queue", (*queue).to_owned())], number(count.load(Ordering::Relaxed) as u64)));
    families.gauge("scheduler_pending_pods", "Pods that wait for a node, by the queue that they are in.", pending);
    INCOMING.add_to(families);
    UNSCHEDULABLE.add_to(families);
}

/// The numbers of Pods that are active, in back-off, unschedulable, and gated: these are not in the queue as long as something is missing,
/// such as a claim, or other Pods of their group.
pub(crate) fn set_pending(counts: [usize; 4]) {
    PENDING.iter().zip(counts).for_each(|((_, pending), count)| pending.store(count, Ordering::Relaxed));
}

/// Counts a Pod that came into the part of the queue. `event` is upstream's label of what moved it there.
pub(crate) fn incoming(queue: QueueName, event: &str) {
    let queue = match queue {
        QueueName::Active => "active",
        QueueName::Backoff => "backoff",
        QueueName::Unschedulable => "unschedulable",
    };
    INCOMING.count([queue, event]);
}

/// A Pod that plugins ruled out in its latest attempt, counted for each of them until this is dropped.
pub(crate) struct CountedRejection {
    plugins: BTreeSet<&'static str>,
    profile: String,
}

impl CountedRejection {
    /// Counts a Pod of that `schedulerName`.
    pub fn new(plugins: BTreeSet<&'static str>, profile: &str) -> Self {
        plugins.iter().for_each(|plugin| UNSCHEDULABLE.increment([plugin, profile]));
        Self { plugins, profile: profile.to_owned() }
    }
}

impl Drop for CountedRejection {
    fn drop(&mut self) {
        self.plugins.iter().for_each(|plugin| UNSCHEDULABLE.decrement([plugin, &self.profile]));
    }
}
