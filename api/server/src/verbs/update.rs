//! An object replaced by another.

use api_model::meta;
use axum::body::Body;
use http::{Response, StatusCode};

use super::create::create_object;
use super::modify::modify;
use super::recording::Recording;
use super::{WritePath, body};
use crate::call::Call;
use crate::present::Presentation;
use api_wire::accept::Answer;
use api_wire::options::WriteOptions;
use api_wire::status::ApiResult;

/// `PUT` on a name, or on one of the subresources that show the whole object.
pub(crate) async fn update(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
    let mut object = body::object(call, bytes, &options)?;
    body::check_name(call, &mut object)?;
    let recording = Recording::of(call, &options);
    if call.sub().is_none() && call.served.is_created_by_update() && call.object().is_err() {
        if !meta::resource_version(&object).is_empty() || !meta::uid(&object).is_empty() {
            return Err(call.not_found());
        }
        call.check_may("create")?;
        let created = create_object(path, call, object, &options, &recording).await?;
        return Ok(created.respond(&presentation, StatusCode::CREATED));
    }
    let mut decoded = Some(object);
    let again = |call: &mut Call| {
        let warnings = call.warnings.len();
        let mut object = body::object(call, bytes, &options)?;
        body::check_name(call, &mut object)?;
        // The first decoding gave the same warnings.
        call.warnings.truncate(warnings);
        Ok(object)
    };
    let written = modify(path, call, options.dry_run, &recording, |call, _| decoded.take().map_or_else(|| again(call), Ok)).await?;
    Ok(written.respond(&presentation, StatusCode::OK))
}
