//! A new object.

use api_model::meta;
use axum::body::Body;
use http::{Response, StatusCode};

use super::recording::Recording;
use super::write::{Write, Written};
use super::{WritePath, body};
use crate::call::Call;
use crate::core::WriteError;
use crate::present::Presentation;
use crate::registry::Internal;
use api_wire::accept::Answer;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// `POST` on a collection.
pub(crate) async fn create(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let mut object = body::object(call, bytes, &options)?;
    body::set_namespace(call, &mut object)?;
    let recording = Recording::of(call, &options);
    let created = create_object(path, call, object, &options, &recording).await?;
    Ok(created.respond(&presentation, StatusCode::CREATED))
}

/// From an object in internal form with the right namespace to a stored one.
pub(super) async fn create_object(
    path: &WritePath,
    call: &mut Call,
    object: Internal,
    options: &WriteOptions,
    recording: &Recording,
) -> ApiResult<Written> {
    if !meta::resource_version(&object).is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let write = Write { path, old: None, recording: Some(recording), dry_run: options.dry_run };
    write.run(call, object).await.map_err(|error| match error {
        WriteError::Conflict => ApiError::modified(&call.served.name, &call.name),
        WriteError::Api(error) => error,
    })
}
