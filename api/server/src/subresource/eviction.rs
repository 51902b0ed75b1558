//! `pods/eviction`: a deletion that first checks the Pod's disruption budget, and writes its reason into the Pod's
//! conditions.

mod budget;

use api_admission::Operation;
use api_model::meta;
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use self::budget::Answer;
use crate::attributes::Step;
use crate::call::Call;
use crate::present::Presentation;
use crate::registry::Internal;
use crate::verbs::WritePath;
use crate::verbs::delete::{check_preconditions, delete_object};
use crate::verbs::modify::modify_unchecked;
use api_wire::body;
use api_wire::json;
use api_wire::options::{DeleteOptions, WriteOptions};
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};

/// Maximum number of attempts when others change the Pod, or its budget, at the same time.
const ATTEMPTS_MAX: usize = 20;

/// `POST` of an Eviction.
pub(super) async fn evict(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::plain(&call.served, &call.headers, &call.query)?;
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
    let mut delete = DeleteOptions::parse(&Query::default(), eviction.get("deleteOptions"))?;
    delete.dry_run |= options.dry_run;
    let step = Step { operation: Operation::Create, name: &name, old: None, dry_run: delete.dry_run };
    path.admission.mutate(call, step, Some(&mut eviction)).await?;
    path.admission.validate(call, step, Some(&mut eviction)).await?;
    if !evict_unguarded(path, call, &delete).await? {
        evict_guarded(path, call, &delete).await?;
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(presentation.value(StatusCode::CREATED, &status))
}

/// Evicts a Pod that does not affect a budget, because it does not run or is stopping already. Returns whether the Pod
/// was such a one.
async fn evict_unguarded(path: &WritePath, call: &mut Call, delete: &DeleteOptions) -> ApiResult<bool> {
    let mut conflict = None;
    for _ in 0..ATTEMPTS_MAX {
        let pod = call.object()?.value();
        let is_over = meta::is_deleting(&pod) || matches!(phase(&pod), "Succeeded" | "Failed");
        if !is_over && phase(&pod) != "Pending" {
            return Ok(false);
        }
        // A pending Pod may start at any moment, and then its budget must be checked. So the deletion requires the Pod
        // unchanged.
        let options = if is_over { delete.clone() } else { as_of(&pod, delete) };
        match mark_and_delete(path, call, options).await {
            Err(error) if error.code() == StatusCode::CONFLICT && delete.resource_version.is_none() => conflict = Some(error),
            done => return done.map(|()| true),
        }
    }
    Err(conflict.unwrap_or_else(|| ApiError::modified(&call.served.name, &call.name)))
}

/// Evicts a running Pod, if its budget allows it.
async fn evict_guarded(path: &WritePath, call: &mut Call, delete: &DeleteOptions) -> ApiResult<()> {
    let pod = call.object()?.value();
    match budget::ask(call, &pod, delete.dry_run).await? {
        Answer::Granted => mark_and_delete(path, call, delete.clone()).await,
        // The Pod does not count as healthy, so its eviction costs nothing as long as the Pod is unchanged.
        Answer::NotCounted(name) => match mark_and_delete(path, call, as_of(&pod, delete)).await {
            Err(error) if error.code() == StatusCode::CONFLICT && delete.resource_version.is_none() => Err(budget::still_processed(&name)),
            done => done,
        },
    }
}

fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default()
}

/// The options with the precondition that the Pod is unchanged, unless the client set one.
fn as_of(pod: &Value, delete: &DeleteOptions) -> DeleteOptions {
    let version = delete.resource_version.clone().or_else(|| Some(meta::resource_version(pod).to_owned()));
    DeleteOptions { resource_version: version, ..delete.clone() }
}

/// Writes the reason into the Pod, then deletes it, both with the preconditions of `options`.
async fn mark_and_delete(path: &WritePath, call: &mut Call, mut options: DeleteOptions) -> ApiResult<()> {
    if !options.dry_run {
        let marking = modify_unchecked(path, call, false, |call, pod| {
            check_preconditions(call, &pod, &options)?;
            Ok(marked(pod))
        });
        let marked = marking.await?.value();
        if options.resource_version.is_some() {
            options.resource_version = Some(meta::resource_version(&marked).to_owned());
        }
    }
    let name = call.name.clone();
    delete_object(&path.admission, call, &name, &options).await.map(drop)
}

/// The Pod with the condition of upstream's eviction.
fn marked(mut pod: Internal) -> Internal {
    let mut conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_target = |condition: &&mut Value| condition.get("type").and_then(Value::as_str) == Some("DisruptionTarget");
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        "lastProbeTime": null, "lastTransitionTime": meta::time(api_clock::now()),
    });
    match conditions.iter_mut().find(is_target) {
        Some(same) if same.get("status") == condition.get("status") && same.get("reason") == condition.get("reason") => return pod,
        Some(other) => *other = condition,
        None => conditions.push(condition),
    }
    json::set(&mut pod, &["status", "conditions"], conditions);
    pod
}
