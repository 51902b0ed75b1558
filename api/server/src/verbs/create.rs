//! A new object.

use std::sync::Arc;

use api_admission::Operation;
use api_model::meta;
use api_model::request::REMOTE_ADDRESS;
use api_store::Expect;
use axum::body::Body;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use super::admit::{self, Step};
use super::body;
use super::recording::Recording;
use crate::app::{Call, WriteError};
use crate::held::WriteLocks;
use crate::present::Presentation;
use crate::services::{self, Reservation};
use api_cache::{Object, encode};
use api_wire::accept::Answer;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// Upstream's `maxNameGenerationCreateAttempts`.
const NAME_ATTEMPTS_MAX: usize = 8;

/// `POST` on a collection.
pub(crate) async fn create(call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let mut object = body::object(call, bytes, &options)?;
    body::set_namespace(call, &mut object)?;
    let recording = Recording::of(call, &options);
    match create_object(call, object, &options, &recording).await? {
        Created::Stored(object) => Ok(presentation.object(StatusCode::CREATED, &object)),
        Created::DryRun(value) => Ok(presentation.unstored(StatusCode::CREATED, value)),
    }
}

/// What came of it.
pub(crate) enum Created {
    Stored(Arc<Object>),
    DryRun(Value),
}

/// From an object with the right namespace to a stored one.
pub(crate) async fn create_object(call: &mut Call, mut object: Value, options: &WriteOptions, recording: &Recording) -> ApiResult<Created> {
    if !meta::resource_version(&object).is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    api_rules::default(&call.served.stored, &mut object);
    api_rules::drop_empty(&call.served.stored, &mut object);
    recording.enter(call, None, &mut object);
    let name = meta::name(&object).to_owned();
    let step = Step { operation: Operation::Create, name: &name, old: None, dry_run: options.dry_run };
    admit::mutate_patiently(call, step, &mut object).await?;
    // A webhook may not move the object elsewhere.
    body::set_namespace(call, &mut object)?;
    let alone = services::alone(call, options.dry_run).await?;
    let is_generated = meta::name(&object).is_empty() && !meta::text(&object, "generateName").is_empty();
    if !is_generated {
        let (object, reservation) = prepare(call, object, options).await?;
        return store(call, object, WriteLocks { reservation, alone, ..WriteLocks::default() }, options).await;
    }
    // Rules may have worked the name into other fields, so a new name is a new object.
    let warnings = call.warnings.len();
    for attempt in 1.. {
        call.warnings.truncate(warnings);
        let (prepared, reservation) = prepare(call, object.clone(), options).await?;
        let held = WriteLocks { reservation, alone: alone.clone(), ..WriteLocks::default() };
        match store(call, prepared, held, options).await {
            Err(error) if error.is_already_exists() && attempt < NAME_ATTEMPTS_MAX => {}
            Err(error) if error.is_already_exists() => break,
            done => return done,
        }
    }
    Err(ApiError::generated_name_taken(&call.served.name, meta::text(&object, "generateName")))
}

/// Everything between the admission that may change an object and the write.
async fn prepare(call: &mut Call, mut object: Value, options: &WriteOptions) -> ApiResult<(Value, Option<Reservation>)> {
    let served = Arc::clone(&call.served);
    fill_in(&mut object);
    api_rules::prepare_create(&served.stored, &mut object);
    sign(call, &mut object);
    let name = meta::name(&object).to_owned();
    let mut errors = call.misplaced(&object, None);
    errors.extend(served.validate_create(&object));
    if !errors.is_empty() {
        return Err(ApiError::invalid(&served.kind, &name, &errors));
    }
    // Before the server puts in what nobody asked for.
    call.warn_of_unacted(&object, None);
    let reservation = call.app.services.reserve(&served, &mut object, None, &call.app.cache)?;
    let step = Step { operation: Operation::Create, name: &name, old: None, dry_run: options.dry_run };
    admit::check_escalation(call, step, &object)?;
    admit::validate(call, step, Some(&mut object)).await?;
    call.warn(api_rules::warnings(&served.stored, &object));
    Ok((object, reservation))
}

/// What only the server writes.
fn fill_in(object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta::unset(object, field);
    }
    meta::set(object, "uid", meta::new_uid());
    meta::set(object, "creationTimestamp", meta::time(Timestamp::now()));
    if meta::name(object).is_empty() {
        let name = match meta::text(object, "generateName") {
            "" => return,
            base => meta::generated_name(base),
        };
        meta::set(object, "name", name);
    }
}

/// A signing request says who made it, and only the server says so.
fn sign(call: &Call, object: &mut Value) {
    if !call.served.is("certificates.k8s.io", "certificatesigningrequests") {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let user = &*call.user;
    spec.retain(|field, _| !matches!(field.as_str(), "username" | "uid" | "groups" | "extra"));
    spec.insert("username".to_owned(), user.username.as_str().into());
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), user.groups.clone().into());
    }
    let mut extra = user.extra.clone();
    // It tells which machine asks; nobody else may say so.
    extra.remove(REMOTE_ADDRESS);
    extra.extend(call.remote.map(|remote| (REMOTE_ADDRESS.to_owned(), vec![remote.to_string()])));
    if !extra.is_empty() {
        spec.insert("extra".to_owned(), serde_json::json!(extra));
    }
}

/// `held` is what makes a Service's addresses its own.
async fn store(call: &Call, mut object: Value, mut held: WriteLocks, options: &WriteOptions) -> ApiResult<Created> {
    let (app, served, namespace) = (&call.app, &call.served, call.namespace_key());
    let name = meta::name(&object).to_owned();
    let step = Step { operation: Operation::Create, name: &name, old: None, dry_run: options.dry_run };
    if options.dry_run {
        admit::hold_quota(call, step, &mut object).await?;
        return match served.resource.get(namespace, &name) {
            Some(_) => Err(ApiError::already_exists(&served.name, &name)),
            None => Ok(Created::DryRun(object)),
        };
    }
    let mut object = served.for_storage(object).await?;
    held.quota = admit::hold_quota(call, step, &mut object).await?;
    let bytes = encode(&object);
    drop(object);
    let written = app.put_holding(served, (namespace, &name), Expect::Absent, bytes, held).await.map_err(|error| match error {
        WriteError::Conflict => ApiError::already_exists(&served.name, &name),
        WriteError::Api(error) => error,
    });
    served.one_in_version(written?).await.map(Created::Stored)
}
