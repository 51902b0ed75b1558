//! One pass over an autoscaler without its requests: whether metrics are needed, what they propose together, and what status and
//! events say of it. Upstream's `reconcileAutoscaler`.

mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscaler, MetricSpec, MetricStatus};
use k8s_openapi::api::core::v1::Pod;

use super::behavior::{self, Bounds};
use super::calculator::{Calculator, Tolerances};
use super::conditions::{self, ABLE_TO_SCALE, Draft, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED};
use super::history::History;
use super::metrics::MetricsError;
use super::proposal::{self, Invalid, Replicas};
use super::source::{Reading, Source};
use crate::config::Autoscaling;
pub use outcome::{disabled, no_scale, scale_read};

const ABOVE_MAX: &str = "Current number of replicas above Spec.MaxReplicas";
const BELOW_MIN: &str = "Current number of replicas below Spec.MinReplicas";

/// What a pass is about.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The autoscaler.
    pub autoscaler: &'a HorizontalPodAutoscaler,
    /// Its target's replicas.
    pub replicas: Replicas,
    /// The settings.
    pub settings: &'a Autoscaling,
    /// The time.
    pub now: Timestamp,
}

/// What the target's replicas alone decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Somebody else set the replicas to zero: the target is not scaled.
    Disabled,
    /// The replicas are beyond a limit.
    Rescale(Rescale),
    /// The metrics decide.
    Compute,
}

/// What a pass decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It cannot: the target stays as it is.
    Stuck,
    /// The target has the right number of replicas.
    Stay,
    /// The target gets another number of replicas.
    Rescale(Rescale),
}

/// A change of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescale {
    /// The number of replicas.
    pub replicas: i32,
    /// Upstream's reason in events.
    pub reason: String,
}

impl<'a> Snapshot<'a> {
    /// The autoscaler's metrics.
    pub fn metrics(&self) -> &'a [MetricSpec] {
        self.autoscaler.spec.metrics.as_deref().unwrap_or_default()
    }

    fn min(&self) -> i32 {
        self.autoscaler.spec.min_replicas.unwrap_or(1)
    }

    /// Whether this controller, rather than a user, set the target's replicas to zero.
    fn is_scaled_to_zero(&self) -> bool {
        conditions::is_true(self.autoscaler, SCALED_TO_ZERO)
    }

    fn counts_without_pods(&self) -> bool {
        self.metrics().iter().any(|metric| Source::new(metric).counts_without_pods())
    }

    /// What follows from the target's replicas.
    pub fn start(&self) -> Start {
        let (current, min, max) = (self.replicas.spec, self.min(), self.autoscaler.spec.max_replicas);
        let rescale = |replicas, reason: &str| Start::Rescale(Rescale { replicas, reason: reason.to_owned() });
        if current == 0 {
            let comes_back = self.is_scaled_to_zero() && (min != 0 || self.counts_without_pods());
            return if comes_back { Start::Compute } else { Start::Disabled };
        }
        if current > max {
            rescale(max, ABOVE_MAX)
        } else if current < min {
            rescale(min, BELOW_MIN)
        } else {
            Start::Compute
        }
    }

    /// What the metrics decide; `pods` are those that the target selects, `readings` what was read for each metric.
    pub fn compute(
        &self,
        pods: &[Arc<Pod>],
        readings: Vec<Result<Reading, MetricsError>>,
        history: &mut History,
        draft: &mut Draft,
    ) -> Decision {
        let calculator = Calculator { pods, tolerances: self.tolerances(), settings: self.settings, now: self.now };
        let namespace = self.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
        let (mut invalid, mut best) = (Vec::new(), (0, String::new()));
        for (spec, read) in self.metrics().iter().zip(readings) {
            match proposal::propose(&calculator, self.replicas, namespace, Source::new(spec), read) {
                Ok(proposal) => {
                    if best.0 == 0 || proposal.replicas > best.0 {
                        best = (proposal.replicas, proposal.name);
                    }
                    draft.metrics.push(proposal.status);
                }
                Err(why) => {
                    draft.warning(why.reason, why.message.clone());
                    // As upstream: the entries are in the order of the metrics.
                    draft.metrics.push(MetricStatus::default());
                    invalid.push(why);
                }
            }
        }
        let (proposed, metric) = best;
        // Metrics that are missing might want the replicas that the others do not need.
        if invalid.len() >= self.metrics().len() || (!invalid.is_empty() && proposed < self.replicas.spec) {
            self.fail(&invalid, draft);
            return Decision::Stuck;
        }
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        draft.set(SCALING_ACTIVE, true, "ValidMetricFound", message);
        self.normalize(proposed, &metric, history, draft)
    }

    fn fail(&self, invalid: &[Invalid], draft: &mut Draft) {
        self.stop(draft);
        let Some(first) = invalid.first() else { return };
        let message = format!("the HPA was unable to compute the replica count: {}", first.message);
        draft.set(SCALING_ACTIVE, false, first.reason, message);
        let (count, all) = (invalid.len(), self.metrics().len());
        let error = format!("invalid metrics ({count} invalid out of {all}), first error is: {}", first.error);
        draft.warning("FailedComputeMetricsReplicas", error);
    }

    /// From the proposal to the number of replicas.
    fn normalize(&self, proposed: i32, metric: &str, history: &mut History, draft: &mut Draft) -> Decision {
        let (current, min) = (self.replicas.spec, self.min());
        let spec = &self.autoscaler.spec;
        let bounds = Bounds { current, min, max: spec.max_replicas };
        let downscale = self.settings.downscale_stabilization;
        let normalized = behavior::normalize(spec.behavior.as_ref(), history, bounds, proposed, downscale, self.now);
        draft.says(ABLE_TO_SCALE, normalized.able);
        draft.says(SCALING_LIMITED, normalized.limited);
        let reason = match proposed {
            more if more > current => format!("{metric} above target"),
            less if less < current => "All metrics below target".to_owned(),
            _ if current == 0 && min > normalized.replicas => BELOW_MIN.to_owned(),
            _ => String::new(),
        };
        // The minimum was raised while the target was at zero.
        let replicas = if current == 0 { normalized.replicas.max(min) } else { normalized.replicas };
        if replicas == current { Decision::Stay } else { Decision::Rescale(Rescale { replicas, reason }) }
    }

    fn tolerances(&self) -> Tolerances {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        let of = |rules: Option<&HPAScalingRules>| {
            let tolerance = rules.and_then(|rules| rules.tolerance.as_ref());
            // Billionths are exact for every tolerance that somebody writes.
            let nano = tolerance.and_then(|tolerance| api_model::quantity::nano(&tolerance.0).ok());
            nano.map_or(self.settings.tolerance, |nano| nano as f64 / 1e9)
        };
        Tolerances {
            scale_down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
            scale_up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        }
    }
}
