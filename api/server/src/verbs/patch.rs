//! An object changed by a patch: JSON patch, JSON merge patch or strategic merge patch. Server-side apply,
//! the fourth kind, has its own file.

use std::sync::Arc;

use api_rules::{Decoded, patch};
use axum::body::Body;
use http::Response;
use serde_json::Value;

use super::modify::modify;
use super::recording::Recording;
use super::update::answer;
use super::{apply, body};
use crate::app::Call;
use crate::status::{ApiError, ApiResult};
use crate::wire;
use crate::wire::accept::Answer;
use crate::wire::options::WriteOptions;
use crate::wire::present::Presentation;

/// The kinds of patch, named by media types.
const PATCH_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

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
        let kind = match wire::body::content_type(&call.headers) {
            "application/json-patch+json" => PatchKind::Json,
            "application/merge-patch+json" => PatchKind::Merge,
            "application/strategic-merge-patch+json" if call.served.custom.is_none() => PatchKind::Strategic,
            _ => return Err(ApiError::unsupported_media_type(PATCH_TYPES)),
        };
        Ok(Self { kind, decoded: api_rules::decode(bytes, false)? })
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
pub(crate) async fn patch(call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    if apply::is_apply(call) {
        return apply::apply(call, bytes).await;
    }
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let patch = Patch::decode(call, bytes)?;
    let served = Arc::clone(&call.served);
    let schema = api_schema::of(&served.kind);
    let recording = Recording::of(call, &options);
    let outcome = modify(call, options.dry_run, &recording, |call, old| {
        let patched = match served.is_view() {
            false => patch.apply(schema, old)?,
            true => patch.apply(schema, &served.shown(old.clone()))?,
        };
        let mut object = body::checked(call, patched, &patch.decoded.duplicates, &options)?;
        body::check_name(call, &mut object)?;
        Ok(object)
    })
    .await?;
    Ok(answer(&presentation, outcome))
}
