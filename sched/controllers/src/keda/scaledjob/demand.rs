//! How many Jobs the triggers of a ScaledJob want: upstream's calculation over several triggers, and its scaling strategies.

use crate::keda::spec::{ScaledJobSpec, ScalingStrategy};
use crate::keda::triggers::Sample;

/// Jobs that one look creates. A longer queue gets the rest of its Jobs in the next polling intervals.
pub const JOBS_AT_ONCE_MAX: i64 = 100;

/// What the triggers say.
#[derive(Debug, Default, PartialEq)]
pub struct Demand {
    /// At least one failed.
    pub is_error: bool,
    queues: Vec<Queue>,
}

/// What one trigger says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Queue {
    length: f64,
    /// The Jobs for that length, at most the maximum.
    jobs: f64,
    is_active: bool,
}

/// Jobs that have not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// All.
    pub jobs: i64,
    /// Those without a running Pod.
    pub pending: i64,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether Jobs are wanted.
    pub is_active: bool,
    /// The Jobs to create now.
    pub jobs: i64,
}

impl Demand {
    /// Adds a trigger with its target in thousandths. As upstream, a target of the type `Value` wants no Jobs.
    pub fn add(&mut self, sample: Sample, target: Option<(&str, i128)>, max: i64) {
        let length = units(sample.milli.into());
        let per_job = target.filter(|(type_, _)| *type_ == "AverageValue").map_or(0.0, |(_, target)| units(target));
        let jobs = if per_job == 0.0 { 0.0 } else { (length / per_job).min(number(max)) };
        self.queues.push(Queue { length, jobs, is_active: sample.is_active });
    }

    /// The number of Jobs to create beside those that run.
    pub fn decide(&self, spec: &ScaledJobSpec, running: Running) -> Decision {
        let (min, max) = (spec.min(), spec.max());
        let Queue { length, jobs, is_active } = self.together(&spec.scaling_strategy.multiple_scalers_calculation);
        let is_active = is_active || min > 0;
        let (mut wanted, most) = (ceiling(length), ceiling(jobs.min(number(max))));
        let most = if running.jobs < min {
            wanted = min - running.jobs;
            wanted
        } else {
            let beyond = Running { jobs: running.jobs - min, ..running };
            spec.scaling_strategy.limit(most, beyond, max, &mut wanted)
        };
        let jobs = if is_active { wanted.min(most).clamp(0, JOBS_AT_ONCE_MAX) } else { 0 };
        Decision { is_active, jobs }
    }

    fn together(&self, calculation: &str) -> Queue {
        let active: Vec<Queue> = self.queues.iter().copied().filter(|queue| queue.is_active).collect();
        let none = Queue { length: 0.0, jobs: 0.0, is_active: false };
        let sum =
            || active.iter().fold(none, |sum, one| Queue { length: sum.length + one.length, jobs: sum.jobs + one.jobs, is_active: true });
        match calculation {
            "min" => active.iter().fold(none, |least, one| if least.length == 0.0 || one.length < least.length { *one } else { least }),
            "avg" if active.is_empty() => none,
            "avg" => {
                let (sum, count) = (sum(), number(i64::try_from(active.len()).unwrap_or(i64::MAX)));
                Queue { length: sum.length / count, jobs: sum.jobs / count, is_active: true }
            }
            "sum" => sum(),
            _ => active.iter().fold(none, |most, one| if one.length > most.length { *one } else { most }),
        }
    }
}

impl ScalingStrategy {
    /// The most Jobs to create: `most` for the queue, while others run. Changes how many are wanted.
    fn limit(&self, most: i64, running: Running, max: i64, wanted: &mut i64) -> i64 {
        let percentage = self.custom_scaling_running_job_percentage.parse::<f64>().ok().filter(|number| number.is_finite());
        match (self.strategy.as_str(), percentage) {
            ("custom", Some(percentage)) => {
                let deduction = i64::from(self.custom_scaling_queue_length_deduction.unwrap_or_default());
                (most - deduction - truncated(number(running.jobs) * percentage)).min(max)
            }
            ("accurate", _) if most + running.jobs - running.pending > max => max - running.jobs,
            ("accurate", _) => most - running.pending,
            ("eager", _) => {
                *wanted = max;
                (max - running.jobs - running.pending).min(most)
            }
            _ => most - running.jobs,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "upstream computes with approximate numbers too")]
fn units(milli: i128) -> f64 {
    milli as f64 / 1_000.0
}

#[allow(clippy::cast_precision_loss, reason = "upstream computes with approximate numbers too")]
fn number(count: i64) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, reason = "a conversion of a float saturates")]
fn truncated(number: f64) -> i64 {
    number as i64
}

fn ceiling(number: f64) -> i64 {
    truncated(number.ceil())
}
