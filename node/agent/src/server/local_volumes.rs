//! Removes the directory of a volume for the provisioner, after its claim is gone. The request may come again: the answer is
//! success when there is no such directory any more.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use node_volumes::VolumeError;

use super::refuse;
use crate::error::chain;
use crate::node::Node;

/// Removes the directory of the volume of that name.
pub(super) async fn remove(State(node): State<Arc<Node>>, Path(name): Path<String>) -> Response {
    match node.volumes.remove_local(&name).await {
        Ok(was_there) => {
            if was_there {
                tracing::info!(volume = name, "directory of a released volume removed");
            }
            StatusCode::OK.into_response()
        }
        Err(error) => refuse(status(&error), chain(&error)),
    }
}

fn status(error: &VolumeError) -> StatusCode {
    match error {
        VolumeError::NotAVolume(_) => StatusCode::NOT_FOUND,
        VolumeError::InUse(_) | VolumeError::NotRemovedYet(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
