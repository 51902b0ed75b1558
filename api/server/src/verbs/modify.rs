//! Changing a stored object: read, change, check, write on condition that nobody was faster; if
//! somebody was, the same again. PUT, the patches and the subresources that write differ only in
//! the change they make.

use std::sync::Arc;

use api_admission::Operation;
use api_model::field::{FieldError, Path};
use api_model::meta;
use api_store::Expect;
use serde_json::Value;

use super::admit::{self, Step};
use super::owners;
use super::recording::Recording;
use crate::app::{Call, WriteError};
use crate::held::WriteLocks;
use crate::services::{self, carry_over};
use api_cache::{Object, encode};
use api_wire::status::{ApiError, ApiResult};

/// Others that may get in between before the client is told so.
const ATTEMPTS_MAX: usize = 64;

/// What came of a change.
pub(crate) enum Outcome {
    /// It is stored (or there was nothing to change).
    Stored(Arc<Object>),
    /// Nothing holds a deleted object back any more, so it is gone.
    Gone(Arc<Object>),
    /// What would have been stored.
    DryRun(Value),
}

impl Outcome {
    /// The object as it is after the change.
    pub(crate) fn value(&self) -> Arc<Value> {
        match self {
            Self::Stored(object) | Self::Gone(object) => object.value(),
            Self::DryRun(value) => Arc::new(value.clone()),
        }
    }
}

/// Changes the object that the call names. `change` makes the new object, in stored form, from the
/// present one; it is asked again when somebody else was faster. `recording` says who comes to own it.
pub(crate) async fn modify(
    call: &mut Call,
    dry_run: bool,
    recording: &Recording,
    change: impl FnMut(&mut Call, &Value) -> ApiResult<Value>,
) -> ApiResult<Outcome> {
    repeat(call, dry_run, change, Rules::Clients(recording)).await
}

/// [`modify`] for a change that the server itself makes, such as a Binding: the kind's rules for what
/// clients may change do not apply to it, and nobody comes to own what it changes.
pub(crate) async fn modify_unchecked(
    call: &mut Call,
    dry_run: bool,
    change: impl FnMut(&mut Call, &Value) -> ApiResult<Value>,
) -> ApiResult<Outcome> {
    repeat(call, dry_run, change, Rules::None).await
}

/// What a change is held against.
#[derive(Clone, Copy)]
enum Rules<'a> {
    /// The kind's rules and admission, and somebody comes to own it.
    Clients(&'a Recording),
    None,
}

async fn repeat(
    call: &mut Call,
    dry_run: bool,
    mut change: impl FnMut(&mut Call, &Value) -> ApiResult<Value>,
    rules: Rules<'_>,
) -> ApiResult<Outcome> {
    let warnings = call.warnings.len();
    for _ in 0..ATTEMPTS_MAX {
        call.warnings.truncate(warnings);
        let old = call.object()?;
        let shown = call.served.one_in_version(Arc::clone(&old)).await?;
        let old_value = call.served.current(&shown);
        let mut new = change(call, &old_value)?;
        check_version(call, &new, &old_value)?;
        let step = Step { operation: Operation::Update, name: &old.name, old: Some(&old_value), dry_run };
        let held = match rules {
            Rules::Clients(recording) => prepare(call, step, &mut new, &old_value, recording).await?,
            Rules::None => WriteLocks::default(),
        };
        match store(call, (&old, &shown), new, held, dry_run).await {
            Ok(outcome) => return Ok(outcome),
            Err(WriteError::Conflict) => call.app.cache.overtaken(&call.served.resource, &old.namespace, &old.name, old.revision).await,
            Err(WriteError::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.served.name, &call.name))
}

/// A resource version or uid in the new object is a condition.
fn check_version(call: &Call, new: &Value, old: &Value) -> ApiResult<()> {
    let (version, uid) = (meta::resource_version(new), meta::uid(new));
    if !uid.is_empty() && uid != meta::uid(old) {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", meta::uid(old));
        return Err(ApiError::conflict(&call.served.name, &call.name, &why));
    }
    if matches!(version, "" | "0") && !call.served.allows_unconditional_update() {
        let path = Path::new("metadata").child("resourceVersion");
        // Go shows unsigned numbers so, and upstream names the resource here rather than the kind.
        let error = FieldError { value: None, ..FieldError::invalid(&path, 0, "0x0: must be specified for an update") };
        return Err(ApiError::invalid_kind(&call.served.name.group, &call.served.name.resource, &call.name, &[error]));
    }
    if !version.is_empty() && version != "0" && version != meta::resource_version(old) {
        return Err(ApiError::modified(&call.served.name, &call.name));
    }
    Ok(())
}

/// Every stage between the change and the conversion to the stored version: default, mutate, validate, admit. Addresses are
/// reserved before validating admission, as for a new object, so that it sees the addresses.
async fn prepare(call: &mut Call, step: Step<'_>, new: &mut Value, old: &Value, recording: &Recording) -> ApiResult<WriteLocks> {
    let served = Arc::clone(&call.served);
    let sub = call.sub().map(str::to_owned);
    if served.is("", "services") && sub.is_none() {
        carry_over(new, old);
    }
    api_rules::default(&served.stored, new);
    api_rules::drop_empty(&served.stored, new);
    recording.enter(call, Some(old), new);
    owners::settle(call, old, new, recording).await?;
    admit::mutate(call, step, Some(new)).await?;
    api_rules::prepare_update(&served.stored, sub.as_deref(), new, old);
    let (mut errors, mut warnings) = (call.misplaced(new, Some(old)), Vec::new());
    errors.extend(served.validate_update(sub.as_deref(), new, old, &mut warnings));
    call.warn(warnings);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&served.kind, step.name, &errors));
    }
    if matches!(sub.as_deref(), None | Some("ephemeralcontainers" | "resize")) {
        call.warn_of_unacted(new, Some(old));
    }
    let alone = services::alone(call, step.dry_run).await?;
    let reservation = call.app.services.reserve(&served, new, Some(old), &call.app.cache)?;
    admit::check_escalation(call, step, new)?;
    admit::validate(call, step, Some(new)).await?;
    call.warn(api_rules::warnings(&served.stored, new));
    Ok(WriteLocks { reservation, alone, ..WriteLocks::default() })
}

/// Writes over `old`, which clients see as `shown`.
async fn store(
    call: &Call,
    (old, shown): (&Arc<Object>, &Arc<Object>),
    mut new: Value,
    mut held: WriteLocks,
    dry_run: bool,
) -> Result<Outcome, WriteError> {
    let (app, served) = (&call.app, &call.served);
    let old_value = shown.value();
    let step = Step { operation: Operation::Update, name: &old.name, old: Some(&old_value), dry_run };
    if dry_run {
        admit::hold_quota(call, step, &mut new).await.map_err(WriteError::Api)?;
        return Ok(Outcome::DryRun(new));
    }
    if is_released(&new) {
        return app.remove_shown(served, old, shown).await.map(Outcome::Gone);
    }
    api_rules::apply::keep_times(&old_value, &mut new);
    let mut new = served.for_storage(new).await.map_err(WriteError::Api)?;
    let bytes = encode(&new);
    if old.is_stored_as(&bytes) {
        return Ok(Outcome::Stored(Arc::clone(shown)));
    }
    let (place, expect) = ((&*old.namespace, &*old.name), Expect::At(old.revision));
    held.quota = admit::hold_quota(call, step, &mut new).await.map_err(WriteError::Api)?;
    drop(new);
    let stored = app.put_holding(served, place, expect, bytes, held).await?;
    served.one_in_version(stored).await.map(Outcome::Stored).map_err(WriteError::Api)
}

/// Whether an object is deleted and nothing holds it back: no grace and no finalizers, neither in
/// its metadata nor, for a Namespace, in its spec.
pub(crate) fn is_released(object: &Value) -> bool {
    let grace = object.get("metadata").and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    meta::is_deleting(object) && meta::finalizers(object).is_empty() && grace.unwrap_or_default() == 0 && spec_finalizers(object) == 0
}

/// A Namespace's own finalizers.
pub(crate) fn spec_finalizers(object: &Value) -> usize {
    let is_namespace = object.get("kind").and_then(Value::as_str) == Some("Namespace");
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    finalizers.filter(|_| is_namespace).map_or(0, Vec::len)
}
