//! The metrics of the scheduler at `/metrics`, under upstream's names.
//!
//! A cycle filters and scores a node in one pass, and only nodes that changed, so that upstream's durations of the extension points
//! `Filter` and `Score` do not exist here: `scheduler_scheduling_algorithm_duration_seconds` has them together.

mod preemption;
mod queue;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api_metrics::{Counters, Families, Gauges, Histograms, number};
use jiff::Timestamp;

pub(crate) use self::preemption::{
    Disruption, EvaluationResult, PreemptorKind, pod_preemption_attempted, preempted, preemption_evaluated, preemption_executed,
    workload_preemption_attempted,
};
pub(crate) use self::queue::{CountedRejection, QueueName, incoming, set_pending};

/// Upstream's buckets: powers of two from a millisecond, with finer ones before it, because most cycles take less.
const SECONDS: &[f64] = &[
    0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192,
    16.384,
];
/// Upstream's buckets of the time until a Pod has its node: powers of two from 10 ms, with finer ones before it.
const SLI_SECONDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
    1_310.72, 2_621.44, 5_242.88,
];
const TRIES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];

static ATTEMPTS: Counters<2> = Counters::new(
    "scheduler_schedule_attempts_total",
    "Attempts to schedule a Pod, by their result: scheduled, unschedulable, or error when a plugin or the write of the decision failed.",
    ["profile", "result"],
);
static ATTEMPT_SECONDS: Histograms<2> = Histograms::new(
    "scheduler_scheduling_attempt_duration_seconds",
    "Duration of an attempt, with the write of the binding.",
    ["profile", "result"],
    SECONDS,
);
static CYCLE_SECONDS: Histograms<0> = Histograms::new(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Duration of a scheduling cycle: the choice of a node, without writes.",
    [],
    SECONDS,
);
static POD_ATTEMPTS: Histograms<0> =
    Histograms::new("scheduler_pod_scheduling_attempts", "Attempts that it took to schedule a Pod.", [], TRIES);
static POD_SECONDS: Histograms<1> = Histograms::new(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time from the first attempt to schedule a Pod until it was bound, by the number of attempts.",
    ["attempts"],
    SLI_SECONDS,
);
static PERMIT_SECONDS: Histograms<1> =
    Histograms::new("scheduler_permit_wait_duration_seconds", "Time that a Pod waited at permit, by the result.", ["result"], SECONDS);
static GROUP_ATTEMPTS: Counters<2> = Counters::new(
    "scheduler_podgroup_schedule_attempts_total",
    "Attempts to schedule a gang, by their result: scheduled, unschedulable, waiting_on_preemption, or error when a plugin failed.",
    ["profile", "result"],
);
static GROUP_SECONDS: Histograms<2> = Histograms::new(
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "Duration of an attempt to schedule a gang, with the choice of victims.",
    ["profile", "result"],
    SECONDS,
);
static GROUP_CYCLE_SECONDS: Histograms<0> =
    Histograms::new("scheduler_podgroup_scheduling_algorithm_duration_seconds", "Duration of the choice of nodes for a gang.", [], SECONDS);
static CACHE_SIZE: Gauges<1> = Gauges::new("scheduler_cache_size", "Nodes and Pods on nodes in the scheduler's cache.", ["type"]);
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
/// The number of bindings that are being written.
static BINDING: AtomicUsize = AtomicUsize::new(0);

/// The result of an attempt.
#[derive(Clone, Copy)]
pub(crate) enum Attempt {
    /// The Pod is bound.
    Scheduled,
    /// No node is feasible.
    Unschedulable,
    /// A plugin failed, or the decision could not be written.
    Error,
    /// Of a gang: it waits for the end of Pods that are preempted for it.
    WaitingOnPreemption,
}

impl Attempt {
    fn label(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
            Self::WaitingOnPreemption => "waiting_on_preemption",
        }
    }
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
        POD_ATTEMPTS.add_to(families);
        POD_SECONDS.add_to(families);
        PERMIT_SECONDS.add_to(families);
        GROUP_ATTEMPTS.add_to(families);
        GROUP_SECONDS.add_to(families);
        GROUP_CYCLE_SECONDS.add_to(families);
        CACHE_SIZE.add_to(families);
        RELOADS.add_to(families);
        EXTENDER_SECONDS.add_to(families);
        let running = [("binding", &BINDING), ("prioritizing_extender", &PRIORITIZING)];
        let running =
            running.map(|(operation, count)| ([("operation", operation.to_owned())], number(count.load(Ordering::Relaxed) as u64)));
        families.gauge("scheduler_goroutines", "Tasks of the scheduler that run now, by what they do.", running);
        queue::add_to(families);
        preemption::add_to(families);
    });
}

/// Counts an attempt of a Pod of that `schedulerName`.
pub(crate) fn attempted(profile: &str, attempt: Attempt, took: Duration) {
    ATTEMPTS.count([profile, attempt.label()]);
    ATTEMPT_SECONDS.observe([profile, attempt.label()], took.as_secs_f64());
}

/// Counts an attempt of a gang of that `schedulerName`.
pub(crate) fn group_attempted(profile: &str, attempt: Attempt, took: Duration) {
    GROUP_ATTEMPTS.count([profile, attempt.label()]);
    GROUP_SECONDS.observe([profile, attempt.label()], took.as_secs_f64());
}

/// Counts a scheduling cycle.
pub(crate) fn cycled(took: Duration) {
    CYCLE_SECONDS.observe([], took.as_secs_f64());
}

/// Counts the choice of nodes for a gang.
pub(crate) fn group_cycled(took: Duration) {
    GROUP_CYCLE_SECONDS.observe([], took.as_secs_f64());
}

/// Counts a Pod that is bound after so many attempts, of which the first began then.
pub(crate) fn bound(attempts: u32, first: Timestamp) {
    POD_ATTEMPTS.observe([], f64::from(attempts));
    let label = if attempts < 15 { &attempts.to_string() } else { "15+" };
    POD_SECONDS.observe([label], api_clock::now().duration_since(first).as_secs_f64().max(0.0));
}

/// Counts a Pod that does not wait at permit any more. [`Attempt::Scheduled`] is for a Pod that is bound now.
pub(crate) fn permitted(result: Attempt, waited: Duration) {
    let result = match result {
        Attempt::Scheduled => "Success",
        Attempt::Unschedulable | Attempt::WaitingOnPreemption => "Unschedulable",
        Attempt::Error => "Error",
    };
    PERMIT_SECONDS.observe([result], waited.as_secs_f64());
}

/// The size of the cache.
pub(crate) fn set_cache_size(nodes: usize, pods: usize) {
    CACHE_SIZE.set(["nodes"], nodes as u64);
    CACHE_SIZE.set(["pods"], pods as u64);
}

/// Counts a call of an extender.
pub(crate) fn extender_called(extender: &str, verb: &str, is_success: bool, took: Duration) {
    EXTENDER_SECONDS.observe([extender, verb, if is_success { "success" } else { "error" }], took.as_secs_f64());
}

/// Counts a call that prioritizes nodes until it is dropped.
pub(crate) fn prioritizing() -> Running {
    Running::begin(&PRIORITIZING)
}

/// Counts a binding until it is dropped.
pub(crate) fn binding() -> Running {
    Running::begin(&BINDING)
}

/// Work that is counted until it ends.
pub(crate) struct Running(&'static AtomicUsize);

impl Running {
    fn begin(count: &'static AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The lines of the metrics of this process that begin so.
#[cfg(test)]
pub(crate) fn lines(beginning: &str) -> Vec<String> {
    publish();
    let mut families = Families::default();
    api_metrics::add_process(&mut families);
    families.text().lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
}
