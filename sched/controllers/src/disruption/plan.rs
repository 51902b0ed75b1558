//! The status of a budget, computed from the budget, its Pods, the scale of their workloads and the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_model::selector::Selector;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scales::{Total, Unscaled};
use crate::{meta, pods};

#[cfg(test)]
mod tests;

/// A Pod whose eviction was granted and whose deletion did not begin within this time counts again, as upstream.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// The type of the only condition.
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The result of one pass.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// The status that the budget gets.
    pub status: PodDisruptionBudgetStatus,
    /// When the first granted eviction times out.
    pub look_again: Option<Duration>,
    /// Pods whose granted eviction timed out.
    pub not_deleted: Vec<Arc<Pod>>,
    /// Whether Pods without a workload are selected although the budget is computed from workloads.
    pub has_unmanaged: bool,
}

/// The Pods that the budget selects: all with an empty selector, none without a selector.
pub fn selector(budget: &PodDisruptionBudget) -> Selector {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.map_or_else(|| Selector::from_label_selector(None).unwrap_or_default(), meta::selector)
}

/// Whether the budget is a share of the scale of the Pods' workloads; an integer `minAvailable` is not.
pub fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// Computes the budget's status. `scale` is used only where [`needs_scale`].
pub fn plan(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], scale: &Total, now: Timestamp) -> Result<Plan, Unscaled> {
    let (expected, desired) = expected(budget, pods.len(), scale.replicas)?;
    let (disrupted, not_deleted) = disrupted(budget, pods, now);
    let first = disrupted.values().map(|since| since.0).min();
    let healthy = pods.iter().filter(|pod| !meta::is_deleting(&pod.metadata) && pods::is_ready(pod));
    let healthy = healthy.filter(|pod| !disrupted.contains_key(meta::name(&pod.metadata))).count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    let (verdict, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let status = PodDisruptionBudgetStatus {
        conditions: Some(with_condition(budget, budget.metadata.generation, (verdict, reason, ""), now)),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: budget.metadata.generation,
    };
    // The entry counts up to the very end of its time.
    let left = first.map(|since| DELETION_TIMEOUT.saturating_sub(now.duration_since(since)) + SignedDuration::from_millis(1));
    let look_again = left.map(|left| Duration::try_from(left).unwrap_or_default());
    Ok(Plan { status, look_again, not_deleted, has_unmanaged: scale.has_unmanaged })
}

/// The expected number of Pods, and how many of them must stay healthy. Percentages are rounded up in both cases.
fn expected(budget: &PodDisruptionBudget, selected: usize, scale: i32) -> Result<(i32, i32), Unscaled> {
    let Some(spec) = &budget.spec else { return Ok((0, 0)) };
    if let Some(most) = &spec.max_unavailable {
        return Ok((scale, scale.saturating_sub(share(most, scale)?).max(0)));
    }
    match &spec.min_available {
        Some(IntOrString::Int(least)) => Ok((i32::try_from(selected).unwrap_or(i32::MAX), *least)),
        Some(percent) => Ok((scale, share(percent, scale)?)),
        None => Ok((0, 0)),
    }
}

fn share(amount: &IntOrString, total: i32) -> Result<i32, Unscaled> {
    let text = match amount {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::String(text) => text,
    };
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok());
    let percent = percent.ok_or_else(|| Unscaled::NotAShare(text.clone()))?;
    let product = percent.saturating_mul(i64::from(total));
    let rounded_up = product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0);
    Ok(i32::try_from(rounded_up).unwrap_or(i32::MAX))
}

/// Granted evictions whose Pods still exist and are not being deleted yet, and the Pods of evictions that timed out.
fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> (BTreeMap<String, Time>, Vec<Arc<Pod>>) {
    let granted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let (mut waiting, mut timed_out) = (BTreeMap::new(), Vec::new());
    for pod in pods.iter().filter(|pod| !meta::is_deleting(&pod.metadata)) {
        let name = meta::name(&pod.metadata);
        let Some(since) = granted.and_then(|granted| granted.get(name)) else { continue };
        if now.duration_since(since.0) > DELETION_TIMEOUT {
            timed_out.push(Arc::clone(pod));
        } else {
            waiting.insert(name.to_owned(), since.clone());
        }
    }
    (waiting, timed_out)
}

/// The status of a budget that could not be computed: nothing is allowed, the rest stays as it was.
pub fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let before = budget.status.clone().unwrap_or_default();
    let observed = before.observed_generation;
    PodDisruptionBudgetStatus {
        conditions: Some(with_condition(budget, observed, ("False", "SyncFailed", why), now)),
        disruptions_allowed: Some(0),
        ..before
    }
}

/// The budget's conditions with `DisruptionAllowed` of this status, reason and message.
fn with_condition(budget: &PodDisruptionBudget, generation: Option<i64>, says: (&str, &str, &str), now: Timestamp) -> Vec<Condition> {
    let mut conditions = budget.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let (status, reason, message) = says;
    let since = conditions.iter().find(|old| old.type_ == DISRUPTION_ALLOWED && old.status == status);
    let condition = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.map_or_else(|| meta::whole_seconds(now), |same| same.last_transition_time.clone()),
    };
    match conditions.iter_mut().find(|old| old.type_ == DISRUPTION_ALLOWED) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    conditions
}

/// The message of the event for a budget that selects Pods without a workload.
pub fn unmanaged_message(budget: &PodDisruptionBudget) -> String {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB \
         cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value.",
        meta::selector_text(&selector)
    )
}
