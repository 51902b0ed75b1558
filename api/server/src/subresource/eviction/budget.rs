//! The decision of a Pod's disruption budget about its eviction.

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::selector::Selector;
use api_model::view::View;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ATTEMPTS_MAX;
use crate::call::Call;
use crate::core::{Core, WriteError};
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};

/// Maximum number of disrupted Pods in a budget's status; upstream has the same limit.
const DISRUPTED_LEN_MAX: usize = 2_000;
/// Seconds until a rejected client may retry.
const RETRY_SECONDS: u32 = 10;

/// The budget's decision, if it is not a rejection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// There is no budget, or the disruption was subtracted from it.
    Granted,
    /// The Pod is not ready, and the budget with this name lets such a Pod go.
    NotCounted(String),
}

/// Takes one disruption from the Pod's budget, or rejects the eviction.
pub(super) async fn ask(call: &Call, pod: &Value, dry_run: bool) -> ApiResult<Answer> {
    let core = &call.core;
    let mut name = String::new();
    for _ in 0..ATTEMPTS_MAX {
        let budgets = budgets(core, pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(Answer::Granted),
            [budget] => budget,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        meta::name(budget).clone_into(&mut name);
        if !is_ready(pod) && spares_unready(budget) {
            return Ok(Answer::NotCounted(name));
        }
        let changed = disrupted(budget, pod, api_clock::now())?;
        if dry_run {
            return Ok(Answer::Granted);
        }
        let served = core.registry.find("policy", "v1", "poddisruptionbudgets").ok_or_else(ApiError::no_such_resource)?;
        let namespace = meta::namespace(budget);
        let revision = meta::resource_version(budget).parse().unwrap_or_default();
        match core.put(&served, (namespace, &name), api_store::Expect::At(revision), changed, call.fence.as_ref()).await {
            Ok(_) => return Ok(Answer::Granted),
            Err(WriteError::Conflict) => core.cache.overtaken(&served.resource, namespace, &name, revision).await,
            Err(WriteError::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::timeout(&format!("couldn't update PodDisruptionBudget {name:?} due to conflicts"), RETRY_SECONDS))
}

/// The error for a budget whose status does not yet reflect the latest change of its Pods.
pub(super) fn still_processed(budget: &str) -> ApiError {
    let cause = format!("The disruption budget {budget} is still being processed by the server.");
    ApiError::disruption("Cannot evict pod as it would violate the pod's disruption budget.", &cause, RETRY_SECONDS)
}

fn budgets(core: &Core, pod: &Value) -> Vec<std::sync::Arc<Value>> {
    let all = core.cache.list(&GroupResource::new("policy", "poddisruptionbudgets"), Some(meta::namespace(pod)));
    all.into_iter()
        .filter(|budget| Selector::from_label_selector(budget.pointer("/spec/selector")).is_ok_and(|selector| selector.matches(pod)))
        .collect()
}

fn is_ready(pod: &Value) -> bool {
    let text = |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True")
}

fn number(budget: &Value, path: &str) -> i64 {
    budget.pointer(path).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether Pods that are not ready may be evicted without the budget: `unhealthyPodEvictionPolicy`.
fn spares_unready(budget: &Value) -> bool {
    if budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str) == Some("AlwaysAllow") {
        return true;
    }
    let desired = number(budget, "/status/desiredHealthy");
    desired > 0 && number(budget, "/status/currentHealthy") >= desired
}

/// The budget after one further disruption.
fn disrupted(budget: &Value, pod: &Value, now: Timestamp) -> ApiResult<Value> {
    let name = meta::name(budget);
    if number(budget, "/status/observedGeneration") < number(budget, "/metadata/generation") {
        return Err(still_processed(name));
    }
    let forbidden = |why: &str| Err(ApiError::denied(&GroupResource::new("policy", "poddisruptionbudget"), name, why));
    let allowed = number(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if disrupted > DISRUPTED_LEN_MAX {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        let (needed, have) = (number(budget, "/status/desiredHealthy"), number(budget, "/status/currentHealthy"));
        let cause = format!("The disruption budget {name} needs {needed} healthy pods and has {have} currently");
        return Err(ApiError::disruption("Cannot evict pod as it would violate the pod's disruption budget.", &cause, 0));
    }
    let mut changed = budget.clone();
    json::set(&mut changed, &["status", "disruptionsAllowed"], allowed - 1);
    json::set(&mut changed, &["status", "disruptedPods", meta::name(pod)], meta::time(now));
    if allowed == 1 {
        set_exhausted(&mut changed, now);
    }
    Ok(changed)
}

/// Sets the condition that no further disruption is allowed.
fn set_exhausted(budget: &mut Value, now: Timestamp) {
    let mut conditions = budget.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_same = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some("DisruptionAllowed");
    let before = conditions.iter().find(is_same).cloned().unwrap_or_default();
    let since = match before.get("status").and_then(Value::as_str) {
        Some("False") => before.get("lastTransitionTime").cloned().unwrap_or_default(),
        _ => meta::time(now).into(),
    };
    conditions.retain(|condition| !is_same(&condition));
    conditions.push(json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": number(budget, "/status/observedGeneration"), "lastTransitionTime": since,
    }));
    json::set(budget, &["status", "conditions"], conditions);
}
