//! `scale`: the number of replicas, as an `autoscaling/v1` Scale.

use std::sync::Arc;

use api_model::decode::Duplicate;
use api_model::kind::Kind;
use api_model::meta;
use api_rules::apply::Typing;
use api_rules::scale;
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::call::Call;
use crate::present::Presentation;
use crate::registry::{External, Internal};
use crate::verbs::WritePath;
use crate::verbs::apply::{self, Typed};
use crate::verbs::body::check_name;
use crate::verbs::modify::modify;
use crate::verbs::patch::Patch;
use crate::verbs::recording::Recording;
use api_wire::accept::Answer;
use api_wire::body;
use api_wire::json;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// `GET`, `PUT` and `PATCH`.
pub(super) async fn answer(path: &WritePath, call: &mut Call, verb: &str, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let object = match verb {
        "get" => call.object_in_version().await?.value(),
        "update" => update(path, call, bytes).await?,
        _ => patch(path, call, bytes).await?,
    };
    let scale = read(call, &object)?;
    let (group, version, kind) = ("autoscaling".to_owned(), "v1".to_owned(), "Scale".to_owned());
    let kind = Kind { group, version, kind, custom: None, ..(*call.served.kind).clone() };
    Ok(presentation.foreign(StatusCode::OK, &kind, &scale))
}

fn read(call: &Call, object: &Value) -> ApiResult<Value> {
    scale::read(&call.served.kind, object).ok_or_else(ApiError::no_such_resource)
}

async fn update(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Arc<Value>> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let decoded = body::decode(&call.headers, bytes)?;
    let scale = checked(call, decoded.value, &decoded.duplicates, &options)?;
    write(path, call, &options, |_, _| Ok(scale.clone())).await
}

async fn patch(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Arc<Value>> {
    if apply::is_apply(call) {
        return apply_scale(path, call, bytes).await;
    }
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let patch = Patch::decode(call, bytes)?;
    let schema = api_schema::of_gvk("autoscaling", "v1", "Scale");
    write(path, call, &options, |call, old| {
        let patched = patch.apply(schema, &read(call, old)?)?;
        checked(call, patched, &patch.decoded.duplicates, &options)
    })
    .await
}

/// Applies a Scale: its replicas are applied to the object, as a change through this subresource.
async fn apply_scale(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Arc<Value>> {
    let options = WriteOptions::parse_apply(&call.query)?;
    let typing = api_schema::of_gvk("autoscaling", "v1", "Scale").map_or(Typing::Deduced, Typing::Known);
    let typed = Typed { group: "autoscaling", version: "v1", kind: "Scale", typing };
    let mut scale = apply::decode(call, bytes, &typed, &options)?;
    if meta::name(&scale).is_empty() {
        // The default is the name of the object.
        meta::set(&mut scale, "name", call.name.as_str());
    }
    let scale = checked(call, scale, &[], &options)?;
    let kind = &call.served.stored;
    let mut config = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": call.name}});
    if scale.get("spec").and_then(|spec| spec.get("replicas")).is_some() {
        if call.served.custom.is_none() {
            json::set(&mut config, &["spec"], json!({}));
        }
        scale::write(kind, &mut config, &scale);
    }
    let version = meta::resource_version(&scale);
    if !version.is_empty() {
        meta::set(&mut config, "resourceVersion", version);
    }
    let config = call.served.internal(External::new(config));
    let recording = Recording::applied(&options);
    let outcome = modify(path, call, options.dry_run, &recording, |call, old| apply::applied(call, Some(old), &config, &options)).await?;
    Ok(outcome.value())
}

async fn write(
    path: &WritePath,
    call: &mut Call,
    options: &WriteOptions,
    mut scale: impl FnMut(&mut Call, &Internal) -> ApiResult<Value>,
) -> ApiResult<Arc<Value>> {
    let recording = Recording::of(call, options);
    let outcome = modify(path, call, options.dry_run, &recording, |call, old| {
        let scale = scale(call, old)?;
        let mut new = old.clone();
        scale::write(&call.served.kind, &mut new, &scale);
        Ok(new)
    })
    .await?;
    Ok(outcome.value())
}

fn checked(call: &mut Call, mut scale: Value, duplicates: &[Duplicate], options: &WriteOptions) -> ApiResult<Value> {
    let warnings = api_rules::check_body("autoscaling", "v1", "Scale", &mut scale, duplicates, options.validation)
        .map_err(|error| ApiError::bad_request(error.handled_as("Scale", "v1")))?;
    call.warn(warnings);
    check_name(call, &mut scale)?;
    let errors = scale::validate(&scale);
    if errors.is_empty() { Ok(scale) } else { Err(ApiError::invalid_kind("autoscaling", "Scale", &call.name, &errors)) }
}
