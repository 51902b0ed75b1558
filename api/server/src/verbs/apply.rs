//! Server-side apply: a `PATCH` with the fields that its manager wants. It creates an object that does not exist.

use std::sync::Arc;

use api_model::decode::{Decoded, Duplicate, decode_applied, yaml_complaint};
use api_model::go::json_type;
use api_model::meta;
use api_rules::apply::{self, Target, Typing, Writer};
use api_rules::{FieldValidation, check_fields};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::Value;

use super::create::create_object;
use super::modify::modify;
use super::recording::Recording;
use super::write::Written;
use super::{WritePath, body};
use crate::call::Call;
use crate::present::Presentation;
use crate::registry::{External, Internal};
use api_wire::accept::Answer;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// The media type of such a patch; JSON is YAML.
const MEDIA: &str = "application/apply-patch+yaml";
/// How often others may create and delete the object in between.
const ATTEMPTS_MAX: usize = 8;

/// Whether the request is an apply.
pub(crate) fn is_apply(call: &Call) -> bool {
    api_wire::body::content_type(&call.headers) == MEDIA
}

/// `PATCH` of a name, or of one of the subresources that show the whole object.
pub(crate) async fn apply(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = WriteOptions::parse_apply(&call.query)?;
    let served = Arc::clone(&call.served);
    let kind = &served.kind;
    let typed = Typed { group: &kind.group, version: &kind.version, kind: &kind.kind, typing: Typing::new(kind) };
    let mut config = decode(call, bytes, &typed, &options)?;
    // The types were checked already. This brings values into the notation in which they are stored.
    check_fields(kind, &mut config, &[], FieldValidation::Ignore)
        .map_err(|error| ApiError::bad_request(error.handled_as(&kind.kind, &kind.version)))?;
    let config = served.internal(External::new(config));
    let recording = Recording::applied(&options);
    for _ in 0..ATTEMPTS_MAX {
        if call.sub().is_none() && call.object().is_err() {
            match create(path, call, &config, &options).await {
                Err(error) if error.is_already_exists() => continue,
                Err(error) => return Err(error),
                Ok(created) => return Ok(created.respond(&presentation, StatusCode::CREATED)),
            }
        }
        let changed = modify(path, call, options.dry_run, &recording, |call, old| {
            let mut object = applied(call, Some(old), &config, &options)?;
            body::check_name(call, &mut object)?;
            Ok(object)
        });
        match changed.await {
            Err(_) if call.sub().is_none() && call.object().is_err() => {}
            changed => return Ok(changed?.respond(&presentation, StatusCode::OK)),
        }
    }
    Err(ApiError::modified(&call.served.name, &call.name))
}

async fn create(path: &WritePath, call: &mut Call, config: &Internal, options: &WriteOptions) -> ApiResult<Written> {
    call.check_may("create")?;
    let uid = meta::uid(config);
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(ApiError::conflict(&call.served.name, &call.name, &why));
    }
    let mut object = applied(call, None, config, options)?;
    body::set_namespace(call, &mut object)?;
    body::check_name(call, &mut object)?;
    create_object(path, call, object, options, &Recording::Done).await
}

/// The object with a configuration applied to it through the call's main resource or subresource.
pub(crate) fn applied(call: &Call, live: Option<&Internal>, config: &Internal, options: &WriteOptions) -> ApiResult<Internal> {
    let target = Target::new(&call.served.stored, call.sub());
    let writer = Writer { manager: &options.field_manager, now: &meta::time(api_clock::now()) };
    let applied = apply::apply(&target, live.map(|live| &**live), config, writer, options.force)?;
    Ok(Internal::new(applied))
}

/// The type that a configuration must have.
pub(crate) struct Typed<'t> {
    pub(crate) group: &'t str,
    pub(crate) version: &'t str,
    pub(crate) kind: &'t str,
    pub(crate) typing: Typing<'t>,
}

/// A configuration from a request's body, which fits its type.
pub(crate) fn decode(call: &mut Call, bytes: &[u8], typed: &Typed<'_>, options: &WriteOptions) -> ApiResult<Value> {
    let undecodable = |error: String| ApiError::bad_request(format!("error decoding patch: {error}"));
    let Decoded { value: config, duplicates } = decode_applied(bytes).map_err(|error| undecodable(error.to_string()))?;
    if !config.is_object() {
        let found = json_type(&config);
        return Err(undecodable(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")));
    }
    check_kind(&config, typed)?;
    if config.get("metadata").and_then(|metadata| metadata.get("managedFields")).is_some_and(|entries| !entries.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(complaint) = apply::complaint(typed.typing, &config) {
        let (namespace, name) = (&call.namespace, meta::name(&config));
        let kind = format!("{}/{}, Kind={}", typed.group, typed.version, typed.kind);
        return Err(ApiError::untyped(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {complaint}")));
    }
    match options.validation {
        FieldValidation::Strict if !duplicates.is_empty() => {
            let complaint = yaml_complaint(&duplicates);
            return Err(ApiError::bad_request(format!("error strict decoding patch: error converting YAML to JSON: {complaint}")));
        }
        FieldValidation::Ignore => {}
        _ => call.warn(duplicates.iter().map(Duplicate::to_string).collect()),
    }
    Ok(config)
}

/// Checks the kind that a configuration states.
fn check_kind(config: &Value, typed: &Typed<'_>) -> ApiResult<()> {
    let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let kind = text("kind");
    if (group, version, kind) == (typed.group, typed.version, typed.kind) {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
}
