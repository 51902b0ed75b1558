//! The metrics of preemption, for Pods and for gangs (upstream's workload preemption).

use std::time::Duration;

use api_metrics::{Counters, Families, Histograms};

const VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
const WORKLOAD_VICTIMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];
/// Upstream's buckets: powers of two from a millisecond.
const SECONDS: &[f64] = &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384, 32.768];

static ATTEMPTS: Counters<0> = Counters::new("scheduler_preemption_attempts_total", "Searches for Pods to preempt for a single Pod.", []);
static POD_VICTIMS: Histograms<0> =
    Histograms::new("scheduler_preemption_victims", "Victims of a preemption for a single Pod.", [], VICTIMS);
static WORKLOAD_ATTEMPTS: Counters<1> = Counters::new(
    "scheduler_workload_preemption_attempts_total",
    "Searches for Pods to preempt for a gang, by their result: Success, Unschedulable, or Error when a plugin failed.",
    ["result"],
);
static GANG_VICTIMS: Histograms<0> =
    Histograms::new("scheduler_workload_preemption_victims", "Victims of a preemption for a gang.", [], WORKLOAD_VICTIMS);
static DISRUPTIONS: Histograms<1> = Histograms::new(
    "scheduler_preemption_workload_disruptions",
    "What a preemption disrupts of groups: groups that are preempted as a whole, and single Pods of other groups.",
    ["preemptor"],
    WORKLOAD_VICTIMS,
);
static EVALUATION_SECONDS: Histograms<2> = Histograms::new(
    "scheduler_preemption_evaluation_duration_seconds",
    "Duration of the choice of victims.",
    ["preemptor", "result"],
    SECONDS,
);
static EXECUTION_SECONDS: Histograms<2> = Histograms::new(
    "scheduler_preemption_execution_duration_seconds",
    "Duration of the writes of a preemption. Other Pods are scheduled meanwhile.",
    ["preemptor", "result"],
    SECONDS,
);
static VIOLATIONS: Counters<1> = Counters::new(
    "scheduler_preemption_pdb_violations_total",
    "Disruptions by preemptions that a PodDisruptionBudget did not allow.",
    ["preemptor"],
);

/// For whom room is made.
#[derive(Clone, Copy)]
pub(crate) enum PreemptorKind {
    Pod,
    PodGroup,
}

impl PreemptorKind {
    fn label(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::PodGroup => "podgroup",
        }
    }
}

/// The result of a choice of victims.
#[derive(Clone, Copy)]
pub(crate) enum EvaluationResult {
    Success,
    Unschedulable,
    Error,
}

impl EvaluationResult {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unschedulable => "Unschedulable",
            Self::Error => "Error",
        }
    }
}

/// What a preemption disrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disruption {
    pub victims: usize,
    /// Groups that are preempted as a whole, and single Pods of other groups.
    pub groups: usize,
    /// The disruptions that budgets do not allow.
    pub violations: usize,
}

pub(super) fn add_to(families: &mut Families) {
    ATTEMPTS.add_to(families);
    POD_VICTIMS.add_to(families);
    WORKLOAD_ATTEMPTS.add_to(families);
    GANG_VICTIMS.add_to(families);
    DISRUPTIONS.add_to(families);
    EVALUATION_SECONDS.add_to(families);
    EXECUTION_SECONDS.add_to(families);
    VIOLATIONS.add_to(families);
}

/// Counts a search for Pods to preempt for a single Pod.
pub(crate) fn pod_preemption_attempted() {
    ATTEMPTS.count([]);
}

/// Counts a search for Pods to preempt for a gang, also one that ended before a choice.
pub(crate) fn workload_preemption_attempted(result: EvaluationResult) {
    WORKLOAD_ATTEMPTS.count([result.label()]);
}

/// Counts a choice of victims.
pub(crate) fn preemption_evaluated(preemptor: PreemptorKind, result: EvaluationResult, took: Duration) {
    EVALUATION_SECONDS.observe([preemptor.label(), result.label()], took.as_secs_f64());
}

/// Counts a preemption that was decided.
pub(crate) fn preempted(preemptor: PreemptorKind, Disruption { victims, groups, violations }: Disruption) {
    match preemptor {
        PreemptorKind::Pod => POD_VICTIMS.observe([], victims as f64),
        PreemptorKind::PodGroup => GANG_VICTIMS.observe([], victims as f64),
    }
    if groups > 0 {
        DISRUPTIONS.observe([preemptor.label()], groups as f64);
    }
    VIOLATIONS.add([preemptor.label()], violations as u64);
}

/// Counts a preemption that was written, or failed in part.
pub(crate) fn preemption_executed(preemptor: PreemptorKind, is_complete: bool, took: Duration) {
    EXECUTION_SECONDS.observe([preemptor.label(), if is_complete { "success" } else { "error" }], took.as_secs_f64());
}
