//! `pods/binding`: the scheduler's decision. Only this subresource sets the node of a Pod.

use api_admission::Operation;
use api_model::meta;
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::attributes::Step;
use crate::call::Call;
use crate::present::Presentation;
use crate::registry::Internal;
use crate::verbs::WritePath;
use crate::verbs::modify::modify_unchecked;
use api_wire::body;
use api_wire::json;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// `POST` of a Binding. The call is for the Pod.
pub(crate) async fn bind(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::plain(&call.served, &call.headers, &call.query)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let decoded = body::decode(&call.headers, bytes)?;
    let mut binding = decoded.value;
    let warnings = api_rules::check_body("", "v1", "Binding", &mut binding, &decoded.duplicates, options.validation)
        .map_err(|error| ApiError::bad_request(error.handled_as("Binding", "v1")))?;
    call.warn(warnings);
    let name = meta::name(&binding);
    if name != call.name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in Binding object: {} != {name}", call.name)));
    }
    json::set(&mut binding, &["apiVersion"], "v1");
    json::set(&mut binding, &["kind"], "Binding");
    let pod = call.name.clone();
    let step = Step { operation: Operation::Create, name: &pod, old: None, dry_run: options.dry_run };
    path.admission.mutate(call, step, Some(&mut binding)).await?;
    path.admission.validate(call, step, Some(&mut binding)).await?;
    let node = target(&binding)?.to_owned();
    modify_unchecked(path, call, options.dry_run, |call, pod| {
        check(call, &pod, &binding)?;
        Ok(bound(pod, &binding, &node))
    })
    .await?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(presentation.value(StatusCode::CREATED, &status))
}

fn target(binding: &Value) -> ApiResult<&str> {
    let text = |field: &str| json::text(binding, &["target", field]);
    match (text("kind"), text("name")) {
        ("" | "Node", node) if !node.is_empty() => Ok(node),
        ("" | "Node", _) => Err(invalid(binding, "name", None)),
        (kind, _) => Err(invalid(binding, "kind", Some(kind))),
    }
}

fn invalid(binding: &Value, field: &str, kind: Option<&str>) -> ApiError {
    use api_model::field::{FieldError, Path};
    let path = Path::new("target").child(field);
    let error = match kind {
        Some(kind) => FieldError::not_supported(&path, kind, &["Node", "<empty>"]),
        None => FieldError::required(&path, ""),
    };
    ApiError::invalid_kind("", "Binding", meta::name(binding), &[error])
}

fn check(call: &Call, pod: &Value, binding: &Value) -> ApiResult<()> {
    let name = &call.name;
    let conflict = |why: String| {
        let resource = api_model::kind::GroupResource::new("", "pods/binding");
        Err(ApiError::conflict(&resource, name, &why))
    };
    let wanted = meta::uid(binding);
    if !wanted.is_empty() && wanted != meta::uid(pod) {
        return conflict(format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {}", meta::uid(pod)));
    }
    if meta::is_deleting(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = json::text(pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {node:?}"));
    }
    let gates = json::at(pod, &["spec", "schedulingGates"]).and_then(Value::as_array).map_or(0, Vec::len);
    if gates > 0 {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

/// The Pod on its node, with the Binding's annotations and labels and the condition `PodScheduled`. A nomination to a node
/// ends.
fn bound(mut pod: Internal, binding: &Value, node: &str) -> Internal {
    let value = &mut *pod;
    json::set(value, &["spec", "nodeName"], node);
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    for field in ["annotations", "labels"] {
        let Some(added) = json::at(binding, &["metadata", field]).and_then(Value::as_object) else { continue };
        for (key, text) in added {
            json::set(value, &["metadata", field, key], text.clone());
        }
    }
    let now = meta::time(api_clock::now());
    let generation = json::at(value, &["metadata", "generation"]).cloned();
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        "observedGeneration": generation});
    let mut conditions = match json::at_mut(value, &["status", "conditions"]).map(Value::take) {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    };
    conditions.retain(|condition| json::text(condition, &["type"]) != "PodScheduled");
    conditions.push(condition);
    json::set(value, &["status", "conditions"], conditions);
    pod
}
