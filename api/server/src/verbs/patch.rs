//! Patches: JSON patch, JSON merge patch and strategic merge patch. Server-side apply, the fourth kind, has its own file.

use std::sync::Arc;

use api_model::decode::{DecodeError, Decoded, Duplicate, decode, decode_strategic};
use api_model::field::{FieldError, Path};
use api_rules::{FieldValidation, patch};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::Value;

use super::modify::modify;
use super::recording::Recording;
use super::{WritePath, apply, body};
use crate::call::Call;
use crate::present::Presentation;
use api_wire::accept::Answer;
use api_wire::json::go_text;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// The kinds of patch, named by media types.
const PATCH_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";
/// The kinds of patch for custom resources.
const CUSTOM_PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
/// The fields of an operation of a JSON patch.
const OPERATION_FIELDS: &[&str] = &["op", "path", "from", "value"];

/// The most complaints about one patch.
const COMPLAINTS_MAX: usize = 100;

/// How a patch is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
}

/// A decoded patch.
#[derive(Debug)]
pub(crate) struct Patch {
    kind: PatchKind,
    pub(crate) decoded: Decoded,
}

impl Patch {
    /// From a request's body and its media type.
    pub(crate) fn decode(call: &Call, bytes: &[u8]) -> ApiResult<Self> {
        let kind = match api_wire::body::content_type(&call.headers) {
            "application/json-patch+json" => PatchKind::Json,
            "application/merge-patch+json" => PatchKind::Merge,
            "application/strategic-merge-patch+json" if call.served.custom.is_none() => PatchKind::Strategic,
            _ if call.served.custom.is_some() => return Err(ApiError::unsupported_media_type(CUSTOM_PATCH_TYPES)),
            _ => return Err(ApiError::unsupported_media_type(PATCH_TYPES)),
        };
        let decoded = match kind {
            PatchKind::Strategic => decode_strategic(bytes),
            PatchKind::Json | PatchKind::Merge => decode(bytes, false),
        }
        .map_err(|error| match (kind, error) {
            (PatchKind::Strategic, DecodeError::Json(why)) => ApiError::bad_request(why),
            (_, DecodeError::Json(why)) => ApiError::bad_request(format!("error decoding patch: {why}")),
            (_, error) => error.into(),
        })?;
        Ok(Self { kind, decoded })
    }

    /// The complaints of strict validation about the patch itself.
    fn complaints(&self) -> Vec<String> {
        let twice = self.decoded.duplicates.iter().map(Duplicate::to_string);
        if self.kind != PatchKind::Json {
            return twice.collect();
        }
        let operations = self.decoded.value.as_array().into_iter().flatten().enumerate();
        let fields = operations.flat_map(|(at, operation)| {
            operation.as_object().into_iter().flat_map(|operation| operation.keys()).map(move |name| (at, name))
        });
        let unknown = fields.filter(|(_, name)| !OPERATION_FIELDS.contains(&name.as_str()));
        let unknown = unknown.map(|(at, name)| format!("unknown field {}", Value::from(format!("[{at}].{name}"))));
        unknown.chain(twice).take(COMPLAINTS_MAX).map(|complaint| format!("json patch {complaint}")).collect()
    }

    /// The error for a patch whose result does not fit its kind. As upstream, it shows the result or, for a strategic merge patch, the
    /// patch.
    fn unfit(&self, schema: Option<&api_schema::Schema>, original: &Value, error: &DecodeError) -> ApiError {
        let received = match self.kind {
            PatchKind::Strategic => go_text(&self.decoded.value),
            _ => self
                .apply(schema, original)
                .map(|mut outcome| {
                    api_model::meta::unset(&mut outcome, "managedFields");
                    outcome.to_string()
                })
                .unwrap_or_default(),
        };
        ApiError::invalid_kind("", "", "", &[FieldError::invalid(&Path::new("patch"), received, error.to_string())])
    }

    /// The patched object. `schema` guides a strategic merge.
    pub(crate) fn apply(&self, schema: Option<&api_schema::Schema>, original: &Value) -> ApiResult<Value> {
        let patch = &self.decoded.value;
        let patched = match (self.kind, schema) {
            (PatchKind::Json, _) => patch::json(original, patch),
            (PatchKind::Merge, _) => patch::merge(original, patch),
            (PatchKind::Strategic, Some(schema)) => patch::strategic(schema, original, patch),
            (PatchKind::Strategic, None) => return Err(ApiError::unsupported_media_type(PATCH_TYPES)),
        };
        patched.map_err(Into::into)
    }
}

/// `PATCH` of a name, or of one of the subresources that show the whole object.
pub(crate) async fn patch(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    if apply::is_apply(call) {
        return apply::apply(path, call, bytes).await;
    }
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let patch = Patch::decode(call, bytes)?;
    let served = Arc::clone(&call.served);
    let schema = api_schema::of_kind(&served.kind);
    let recording = Recording::of(call, &options);
    let complaints = if options.validation == FieldValidation::Ignore { Vec::new() } else { patch.complaints() };
    let written = modify(path, call, options.dry_run, &recording, |call, old| {
        let old = &*served.external(old);
        let patched = patch.apply(schema, old)?;
        let is_strict = options.validation == FieldValidation::Strict;
        if !is_strict {
            call.warn(complaints.clone());
        }
        let mut object = body::checked(call, patched, &[], &options, |error, _| match error {
            DecodeError::Strict(more) => patch.unfit(schema, old, &DecodeError::Strict([complaints.clone(), more].concat())),
            DecodeError::Type(_) if patch.kind == PatchKind::Strategic => {
                let fault = patch.apply(schema, old).ok().and_then(|outcome| api_rules::conversion_fault(&served.kind, outcome));
                patch.unfit(schema, old, &fault.unwrap_or(error))
            }
            error => patch.unfit(schema, old, &error),
        })?;
        if is_strict && !complaints.is_empty() {
            return Err(patch.unfit(schema, old, &DecodeError::Strict(complaints.clone())));
        }
        body::check_name(call, &mut object)?;
        Ok(object)
    })
    .await?;
    Ok(written.respond(&presentation, StatusCode::OK))
}
