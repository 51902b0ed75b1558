//! A connection to a node's server: TLS with the cluster's authority on both sides.

use std::sync::Arc;

use axum::body::Body;
use http::StatusCode;
use hyper::client::conn::http1;

use super::backend;
use super::target::Target;
use crate::app::App;
use crate::status::ApiError;

/// Connects and authenticates, both ways.
pub(super) async fn connect(app: &Arc<App>, target: &Target) -> Result<http1::SendRequest<Body>, ApiError> {
    let connected = backend::connect(app, &target.address, Some(&app.node_tls)).await;
    connected.map_err(|error| ApiError::internal(format!("error dialing backend: {error}")))
}

/// The node breaks off.
pub(super) fn failed(target: &Target, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal(format!("error dialing backend: {}: {error}", target.address.authority()))
}

/// The node answered with an error: its text is the client's.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> ApiError {
    let message = String::from_utf8_lossy(body).trim().to_owned();
    match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(message),
        StatusCode::NOT_FOUND => ApiError::not_found_text(message),
        _ => ApiError::internal(message),
    }
}
