//! The admission chain, as the verbs call it: first what may change an object, the plugins, then the
//! policies and then the webhooks; later, when the object is final and follows its kind's rules, what may
//! refuse it, in the same order.

use std::time::Duration;

use api_admission::webhook::Reinvocation;
use api_admission::{Awaited, Denied, Operation, Request};
use api_auth::authorize::escalation::Write;
use api_model::selector::{FieldSelector, FieldTerm};
use serde_json::Value;

use crate::app::Call;
use crate::policies;
use crate::quota;
use crate::webhooks::{self, AdmissionAttributes};
use api_cache::{Filter, Since};
use api_wire::options::DeleteOptions;
use api_wire::status::{ApiError, ApiResult};

/// What is about to happen.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) operation: Operation,
    /// Name of the object; empty where it is still to be generated.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

/// How long a create waits for an object without which it is refused and that a controller is about
/// to make, as upstream does for a new namespace's ServiceAccount.
const AWAITED_FOR: Duration = Duration::from_secs(1);

/// Lets plugins, policies and webhooks change the object, or refuse.
pub(crate) async fn mutate(call: &mut Call, step: Step<'_>, mut object: Option<&mut Value>) -> ApiResult<()> {
    try_mutate(call, step, object.as_deref_mut())?;
    ask_to_change(call, AdmissionAttributes { step, delete: None }, object).await
}

/// [`mutate`], where the plugins are asked once more when what was missing appears within a moment.
pub(crate) async fn mutate_patiently(call: &mut Call, step: Step<'_>, object: &mut Value) -> ApiResult<()> {
    if let Err(denied) = try_mutate(call, step, Some(object)) {
        match denied.awaits() {
            Some(awaited) if appears(call, awaited).await => try_mutate(call, step, Some(object))?,
            _ => return Err(denied.into()),
        }
    }
    ask_to_change(call, AdmissionAttributes { step, delete: None }, Some(object)).await
}

/// Lets plugins, policies and webhooks refuse a deletion. One that is an eviction was let through as such.
pub(crate) async fn deletion(call: &mut Call, step: Step<'_>, options: &DeleteOptions) -> ApiResult<()> {
    if call.subresource == "eviction" {
        return Ok(());
    }
    let asked = AdmissionAttributes { step, delete: Some(options) };
    try_mutate(call, step, None)?;
    ask_to_change(call, asked, None).await?;
    try_validate(call, step, None)?;
    policies::validate(call, asked, None).await?;
    webhooks::validate(call, asked, None).await
}

/// Asks the mutating policies and webhooks; when some changed something, plugins and all of these get a
/// second round.
async fn ask_to_change(call: &mut Call, asked: AdmissionAttributes<'_>, mut object: Option<&mut Value>) -> ApiResult<()> {
    let (mut by_policies, mut by_webhooks) = (Reinvocation::default(), Reinvocation::default());
    loop {
        policies::mutate(call, asked, object.as_deref_mut(), &mut by_policies).await?;
        webhooks::mutate(call, asked, object.as_deref_mut(), &mut by_webhooks).await?;
        if !Reinvocation::goes_on([&mut by_policies, &mut by_webhooks]) {
            return Ok(());
        }
        try_mutate(call, asked.step, object.as_deref_mut())?;
    }
}

fn try_mutate(call: &mut Call, step: Step<'_>, object: Option<&mut Value>) -> Result<(), Denied> {
    let mut request = request(call, step, object);
    let warnings = call.app.chain.admit(&mut request, &*call.app.cache)?;
    call.warn(warnings);
    Ok(())
}

/// Whether the object is there by the end of the wait.
async fn appears(call: &Call, awaited: &Awaited) -> bool {
    let cache = &call.app.cache;
    let name = FieldTerm { path: "metadata.name".to_owned(), value: awaited.name.clone(), negated: false };
    let filter = Filter { namespace: Some(awaited.namespace.clone()), fields: FieldSelector { terms: vec![name] }, ..Filter::default() };
    let watched = cache.resource(&awaited.resource).watch(filter, Since::Everything, true, cache.applied());
    let Ok((beginning, mut subscription)) = watched else { return false };
    if !beginning.state.is_empty() {
        return true;
    }
    // The first event about an object that was not there is its creation.
    tokio::time::timeout(AWAITED_FOR, subscription.events.told()).await.unwrap_or(false)
}

/// Nobody may hand out rights that they do not hold: see `api_auth::authorize::escalation`. Nor may they have
/// a policy read what they may not.
pub(crate) fn check_escalation(call: &Call, step: Step<'_>, new: &Value) -> ApiResult<()> {
    let resource = &call.served.name;
    let write = Write { resource, namespace: call.namespace_key(), name: step.name, new, old: step.old };
    let checked = call.app.authorizer.check_escalation(&call.user, &write, &*call.app.cache);
    checked.map_err(|error| ApiError::denied(resource, step.name, &error.to_string()))?;
    policies::check_rights(call, step.old, new)
}

/// Lets the namespace's quotas refuse the object as it would be stored; goes last. What is answered is held
/// until the write is done.
pub(crate) async fn hold_quota(call: &Call, step: Step<'_>, object: &mut Value) -> ApiResult<Option<quota::Hold>> {
    quota::check(&call.app, &request(call, step, Some(object))).await
}

/// Lets plugins, policies and webhooks refuse the final object.
pub(crate) async fn validate(call: &mut Call, step: Step<'_>, mut object: Option<&mut Value>) -> ApiResult<()> {
    try_validate(call, step, object.as_deref_mut())?;
    let asked = AdmissionAttributes { step, delete: None };
    policies::validate(call, asked, object.as_deref_mut()).await?;
    webhooks::validate(call, asked, object).await
}

fn try_validate(call: &mut Call, step: Step<'_>, object: Option<&mut Value>) -> Result<(), Denied> {
    let request = request(call, step, object);
    let warnings = call.app.chain.validate(&request, &*call.app.cache)?;
    call.warn(warnings);
    Ok(())
}

/// A step as plugins and webhooks see it.
pub(crate) fn request<'a>(call: &'a Call, step: Step<'a>, object: Option<&'a mut Value>) -> Request<'a> {
    Request {
        operation: step.operation,
        kind: &call.served.stored,
        subresource: &call.subresource,
        namespace: &call.namespace,
        name: step.name,
        user: &call.user,
        object,
        old: step.old,
        dry_run: step.dry_run,
    }
}
