//! One object.

use axum::body::Body;
use http::{Response, StatusCode};

use crate::call::Call;
use crate::present::Presentation;
use api_wire::accept::Answer;
use api_wire::options::resource_version;
use api_wire::status::{ApiError, ApiResult};

/// `GET` of a name. Also answers the subresources that show the whole object, such as `status`.
pub(crate) async fn get(call: &Call) -> ApiResult<Response<Body>> {
    let presentation = Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    if let Some(revision) = resource_version(&call.query)? {
        let waited = call.core.cache.wait_for(revision).await;
        waited.map_err(|at| ApiError::too_large_version(revision, at))?;
    }
    let object = call.object_in_version().await?;
    Ok(presentation.object(StatusCode::OK, &object))
}
