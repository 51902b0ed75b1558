//! The deletion of an object, at once or step by step: a Pod gets time to stop, and finalizers hold an object until they are removed.

pub(crate) mod definition;
mod plan;
pub(crate) mod unreadable;

use std::sync::Arc;

use api_admission::Operation;
use api_model::kind::GroupResource;
use api_model::meta;
use api_store::Expect;
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use self::plan::{Plan, plan};
use crate::admission::Admission;
use crate::attributes::Step;
use crate::call::Call;
use crate::core::WriteError;
use crate::present::Presentation;
use crate::registry::Internal;
use api_cache::Object;
use api_wire::accept::Answer;
use api_wire::body;
use api_wire::json;
use api_wire::options::DeleteOptions;
use api_wire::status::{ApiError, ApiResult};

/// How often somebody else may be faster before the client gets a conflict.
const ATTEMPTS_MAX: usize = 64;

/// The result of a deletion.
pub(crate) enum Outcome {
    /// The object is gone. This is its last state.
    Gone(Arc<Object>),
    /// The object is being deleted.
    Pending(Arc<Object>),
    /// A dry run: the object as it would be.
    DryRun(Internal),
}

/// `DELETE` of a name.
pub(crate) async fn delete(admission: &Admission, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = options(call, bytes)?;
    if options.ignore_read_error {
        return unreadable::delete(call, &options, &presentation).await;
    }
    let name = call.name.clone();
    Ok(match delete_object(admission, call, &name, &options).await? {
        Outcome::Pending(object) => presentation.object(StatusCode::OK, &object),
        Outcome::Gone(object) if call.served.deletion_answers_object() => presentation.object(StatusCode::OK, &object),
        Outcome::Gone(object) => presentation.value(StatusCode::OK, &success(call, &object.value())),
        Outcome::DryRun(value) if meta::is_deleting(&value) || call.served.deletion_answers_object() => {
            presentation.unstored(StatusCode::OK, &value)
        }
        Outcome::DryRun(value) => presentation.value(StatusCode::OK, &success(call, &value)),
    })
}

/// From the query and the body, which may be empty.
pub(crate) fn options(call: &Call, bytes: &[u8]) -> ApiResult<DeleteOptions> {
    let body = match bytes.is_empty() {
        true => None,
        false => Some(body::decode(&call.headers, bytes)?.value).filter(|value| !value.is_null()),
    };
    DeleteOptions::parse(&call.query, body.as_ref())
}

fn success(call: &Call, object: &Value) -> Value {
    let mut details = json!({"name": meta::name(object), "kind": call.served.name.resource, "uid": meta::uid(object)});
    if !call.served.name.group.is_empty() {
        json::set(&mut details, &["group"], call.served.name.group.as_str());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes an object of the call's kind and namespace.
pub(crate) async fn delete_object(admission: &Admission, call: &mut Call, name: &str, options: &DeleteOptions) -> ApiResult<Outcome> {
    for _ in 0..ATTEMPTS_MAX {
        let object = call.object_named(name)?;
        let in_version = call.served.one_in_version(Arc::clone(&object)).await?;
        let value = in_version.value();
        check_preconditions(call, &value, options)?;
        // A request through a subresource was admitted there.
        if call.subresource.is_empty() {
            let step = Step { operation: Operation::Delete, name, old: Some(&value), dry_run: options.dry_run };
            admission.delete(call, step, options).await?;
        }
        match perform(call, (&object, &in_version), plan(&call.served, &value, options, api_clock::now()), options.dry_run).await {
            Ok(outcome) => return Ok(outcome),
            Err(WriteError::Conflict) => call.core.cache.overtaken(&call.served.resource, &object.namespace, name, object.revision).await,
            Err(WriteError::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.served.name, name))
}

/// Rejects a deletion whose preconditions the object does not meet.
pub(crate) fn check_preconditions(call: &Call, object: &Value, options: &DeleteOptions) -> ApiResult<()> {
    let conditions = [
        ("UID", options.uid.as_deref(), meta::uid(object), "deleted and then recreated"),
        ("ResourceVersion", options.resource_version.as_deref(), meta::resource_version(object), "modified"),
    ];
    for (what, wanted, found, perhaps) in conditions {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {perhaps}"
            );
            // Upstream names the kind here, not the resource.
            let kind = GroupResource::new(&call.served.kind.group, &call.served.kind.kind);
            return Err(ApiError::conflict(&kind, meta::name(object), &why));
        }
    }
    Ok(())
}

async fn perform(
    call: &Call,
    (object, in_version): (&Arc<Object>, &Arc<Object>),
    plan: Plan,
    dry_run: bool,
) -> Result<Outcome, WriteError> {
    let (core, served) = (&call.core, &call.served);
    match plan {
        Plan::Remove if dry_run => Ok(Outcome::DryRun(served.current(in_version))),
        Plan::Change(value) if dry_run => Ok(Outcome::DryRun(Internal::new(value))),
        Plan::Keep => Ok(Outcome::Pending(Arc::clone(in_version))),
        Plan::Remove => core.remove_in_version(served, object, in_version, call.fence.as_ref()).await.map(Outcome::Gone),
        Plan::Change(value) => {
            let stored = served.for_storage(Internal::new(value)).await?;
            let (key, expect) = ((&*object.namespace, &*object.name), Expect::At(object.revision));
            let put = core.put(served, key, expect, stored.into_value(), call.fence.as_ref());
            served.one_in_version(put.await?).await.map(Outcome::Pending).map_err(WriteError::Api)
        }
    }
}
