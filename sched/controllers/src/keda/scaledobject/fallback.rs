//! What a failing metric counts as: the value at which the autoscaler arrives at the replicas of the fallback.

use crate::keda::spec::{Fallback, ScaledObjectSpec};
use crate::keda::status::{Health, ScaledObjectStatus};

const HAPPY: &str = "Happy";
const FAILING: &str = "Failing";

/// The target's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// Those of its spec.
    pub replicas: i32,
    /// Those that are ready.
    pub ready: i32,
}

/// Counts a success or a failure of a metric. Only objects with a fallback have such a count.
pub fn count(spec: &ScaledObjectSpec, status: &mut ScaledObjectStatus, metric: &str, is_failure: bool) {
    if spec.fallback.is_none() {
        status.health.clear();
        return;
    }
    let health = status.health.entry(metric.to_owned()).or_default();
    let failures = if is_failure { health.number_of_failures.unwrap_or_default().saturating_add(1) } else { 0 };
    *health = Health { number_of_failures: Some(failures), status: if is_failure { FAILING } else { HAPPY }.to_owned() };
}

/// The fallback, if a metric failed more often in a row than the threshold.
pub fn of<'a>(spec: &'a ScaledObjectSpec, status: &ScaledObjectStatus, metric: &str) -> Option<&'a Fallback> {
    let fallback = spec.fallback.as_ref()?;
    let health = status.health.get(metric)?;
    (health.status == FAILING && health.number_of_failures? > fallback.failure_threshold).then_some(fallback)
}

/// The value in thousandths of a metric with that target; none if it cannot be computed.
pub fn value(fallback: &Fallback, present: Present, (type_, target): (&str, i128)) -> Option<i64> {
    let replicas = match fallback.behavior.as_str() {
        "currentReplicas" => present.replicas,
        "currentReplicasIfHigher" => present.replicas.max(fallback.replicas),
        "currentReplicasIfLower" => present.replicas.min(fallback.replicas),
        _ => fallback.replicas,
    };
    let total = target.checked_mul(i128::from(replicas))?;
    let value = match type_ {
        // The autoscaler multiplies the ratio with the Pods that are ready.
        "Value" if present.ready == 0 => return None,
        "Value" => total / i128::from(present.ready),
        _ => total,
    };
    i64::try_from(value).ok()
}
