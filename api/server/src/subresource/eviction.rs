//! `pods/eviction`: a deletion that asks the Pod's disruption budget first.

use api_admission::Operation;
use api_model::kind::GroupResource;
use api_model::meta;
use api_model::selector::Selector;
use api_model::view::View;
use axum::body::Body;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app::{App, Call, WriteError};
use crate::json;
use crate::nonresource::json_answer;
use crate::status::{ApiError, ApiResult};
use crate::verbs::admit::{self, Step};
use crate::verbs::delete::delete_object;
use crate::wire::body;
use crate::wire::options::{DeleteOptions, WriteOptions};
use crate::wire::query::Query;

/// Others that may change the budget in between.
const ATTEMPTS_MAX: usize = 20;
/// Pods that a budget remembers as on their way out; beyond that upstream refuses too.
const DISRUPTED_LEN_MAX: usize = 2_000;

/// `POST` of an Eviction.
pub(super) async fn evict(call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let decoded = body::decode(&call.headers, bytes)?;
    let mut eviction = decoded.value;
    let warnings = api_rules::check_body("policy", "v1", "Eviction", &mut eviction, &decoded.duplicates, options.validation)
        .map_err(|error| ApiError::bad_request(error.handled_as("Eviction", "v1")))?;
    call.warn(warnings);
    let name = meta::name(&eviction).to_owned();
    if name != call.name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in Eviction object: {} != {name}", call.name)));
    }
    json::set(&mut eviction, &["apiVersion"], "policy/v1");
    json::set(&mut eviction, &["kind"], "Eviction");
    let step = Step { operation: Operation::Create, name: &name, old: None, dry_run: options.dry_run };
    admit::mutate(call, step, Some(&mut eviction)).await?;
    admit::validate(call, step, Some(&mut eviction)).await?;
    let mut delete = DeleteOptions::parse(&Query::default(), eviction.get("deleteOptions"))?;
    delete.dry_run |= options.dry_run;
    let pod = call.object()?.value();
    if needs_budget(&pod) {
        ask_budget(&call.app, &pod, delete.dry_run).await?;
    }
    delete_object(call, &name, &delete).await?;
    let mut response = json_answer(&json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// A Pod that does not run, or stops already, costs the budget nothing.
fn needs_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    !meta::is_deleting(pod) && !matches!(phase, "Succeeded" | "Failed" | "Pending")
}

fn budgets(app: &App, pod: &Value) -> Vec<std::sync::Arc<Value>> {
    let all = app.cache.list(&GroupResource::new("policy", "poddisruptionbudgets"), Some(meta::namespace(pod)));
    all.into_iter()
        .filter(|budget| Selector::from_label_selector(budget.pointer("/spec/selector")).is_ok_and(|selector| selector.matches(pod)))
        .collect()
}

/// Takes one disruption from the Pod's budget, or refuses.
async fn ask_budget(app: &App, pod: &Value, dry_run: bool) -> ApiResult<()> {
    for _ in 0..ATTEMPTS_MAX {
        let budgets = budgets(app, pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let changed = disrupted(budget, pod)?;
        if dry_run {
            return Ok(());
        }
        let served = app.registry.find("policy", "v1", "poddisruptionbudgets").ok_or_else(ApiError::no_such_resource)?;
        let (namespace, name) = (meta::namespace(budget), meta::name(budget));
        let revision = meta::resource_version(budget).parse().unwrap_or_default();
        match app.put(&served, namespace, name, api_store::Expect::At(revision), changed).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict) => app.cache.overtaken(&served.resource, namespace, name, revision).await,
            Err(WriteError::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::too_many_requests("couldn't update PodDisruptionBudget due to conflicts", 10))
}

/// The budget after one more disruption.
fn disrupted(budget: &Value, pod: &Value) -> ApiResult<Value> {
    let number = |path: &str| budget.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let name = meta::name(budget);
    if number("/status/observedGeneration") < number("/metadata/generation") {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        return Err(ApiError::disruption(message, &format!("The disruption budget {name} is still being processed by the server."), 10));
    }
    let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if number("/status/disruptionsAllowed") <= 0 || disrupted > DISRUPTED_LEN_MAX {
        let cause = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("/status/desiredHealthy"),
            number("/status/currentHealthy")
        );
        return Err(ApiError::disruption("Cannot evict pod as it would violate the pod's disruption budget.", &cause, 0));
    }
    let mut changed = budget.clone();
    json::set(&mut changed, &["status", "disruptionsAllowed"], number("/status/disruptionsAllowed") - 1);
    json::set(&mut changed, &["status", "disruptedPods", meta::name(pod)], meta::time(Timestamp::now()));
    Ok(changed)
}
