//! The metrics of the scheduler at `/metrics`, under upstream's names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api_metrics::{Counters, Families, Histograms, number};

/// Upstream's buckets: powers of two from a millisecond, with finer ones before it, because most cycles take less.
const SECONDS: &[f64] = &[
    0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192,
    16.384,
];
const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

static ATTEMPTS: Counters<2> = Counters::new(
    "scheduler_schedule_attempts_total",
    "Attempts to schedule a Pod, by their result: scheduled, unschedulable, or error when the decision could not be written.",
    ["profile", "result"],
);
static ATTEMPT_SECONDS: Histograms<2> = Histograms::new(
    "scheduler_scheduling_attempt_duration_seconds",
    "Duration of an attempt, with the write of its decision.",
    ["profile", "result"],
    SECONDS,
);
static CYCLE_SECONDS: Histograms<0> = Histograms::new(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Duration of a scheduling cycle: the choice of a node, without writes.",
    [],
    SECONDS,
);
static PREEMPTION_VICTIMS: Histograms<0> = Histograms::new("scheduler_preemption_victims", "Victims of a preemption.", [], VICTIMS);
static EXTENDER_SECONDS: Histograms<3> = Histograms::new(
    "skiff_scheduler_extender_call_duration_seconds",
    "Duration of a call of an extender, by its result: success or error.",
    ["extender", "verb", "result"],
    SECONDS,
);
static RELOADS: Counters<1> = Counters::new(
    "skiff_scheduler_config_reloads_total",
    "Changes of the configuration file while the scheduler ran, by their result: success, or failure when the file is not used.",
    ["result"],
);
/// The number of calls of extenders that prioritize nodes.
static PRIORITIZING: AtomicUsize = AtomicUsize::new(0);
static PENDING: [(&str, AtomicUsize); 3] =
    [("active", AtomicUsize::new(0)), ("backoff", AtomicUsize::new(0)), ("unschedulable", AtomicUsize::new(0))];

/// The result of an attempt.
#[derive(Clone, Copy)]
pub(crate) enum Attempt {
    /// The Pod is bound.
    Scheduled,
    /// No node is feasible.
    Unschedulable,
    /// The decision could not be written.
    Error,
}

/// Counts a change of the configuration file.
pub(crate) fn reloaded(is_success: bool) {
    RELOADS.count([if is_success { "success" } else { "failure" }]);
}

/// Adds the scheduler to the metrics of the process.
pub(crate) fn publish() {
    api_metrics::publish(|families: &mut Families| {
        ATTEMPTS.add_to(families);
        ATTEMPT_SECONDS.add_to(families);
        CYCLE_SECONDS.add_to(families);
        RELOADS.add_to(families);
        PREEMPTION_VICTIMS.add_to(families);
        EXTENDER_SECONDS.add_to(families);
        let prioritizing = [([("operation", "prioritizing_extender".to_owned())], number(PRIORITIZING.load(Ordering::Relaxed) as u64))];
        families.gauge("scheduler_goroutines", "Tasks of the scheduler that run now, by what they do.", prioritizing);
        let pending = PENDING.iter().map(|(queue, count)| ([("queue", (*queue).to_owned())], number(count.load(Ordering::Relaxed) as u64)));
        families.gauge("scheduler_pending_pods", "Pods that wait for a node, by the queue that they are in.", pending);
    });
}

/// Counts an attempt of a Pod of that `schedulerName`.
pub(crate) fn attempted(profile: &str, attempt: Attempt, took: Duration) {
    let result = match attempt {
        Attempt::Scheduled => "scheduled",
        Attempt::Unschedulable => "unschedulable",
        Attempt::Error => "error",
    };
    ATTEMPTS.count([profile, result]);
    ATTEMPT_SECONDS.observe([profile, result], took.as_secs_f64());
}

/// Counts a scheduling cycle.
pub(crate) fn cycled(took: Duration) {
    CYCLE_SECONDS.observe([], took.as_secs_f64());
}

/// Counts a call of an extender.
pub(crate) fn extender_called(extender: &str, verb: &str, is_success: bool, took: Duration) {
    EXTENDER_SECONDS.observe([extender, verb, if is_success { "success" } else { "error" }], took.as_secs_f64());
}

/// Counts a call that prioritizes nodes until it is dropped.
pub(crate) fn prioritizing() -> Prioritizing {
    PRIORITIZING.fetch_add(1, Ordering::Relaxed);
    Prioritizing(())
}

/// A call that prioritizes nodes.
pub(crate) struct Prioritizing(());

impl Drop for Prioritizing {
    fn drop(&mut self) {
        PRIORITIZING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a preemption.
pub(crate) fn preempted(victims: usize) {
    PREEMPTION_VICTIMS.observe([], victims as f64);
}

/// The numbers of Pods that are active, in back-off and unschedulable.
pub(crate) fn set_pending(counts: [usize; 3]) {
    PENDING.iter().zip(counts).for_each(|((_, pending), count)| pending.store(count, Ordering::Relaxed));
}
