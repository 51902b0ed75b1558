//! The directories of volumes, for the provisioner: removes one after its claim is gone, and gives one a larger capacity. Both requests may
//! come again; they are successes when there is nothing left to do.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::core::v1::PersistentVolume;
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

/// Gives the directory of the volume the capacity of the object, which is the body.
pub(super) async fn grow(State(node): State<Arc<Node>>, Path(name): Path<String>, Json(volume): Json<PersistentVolume>) -> Response {
    if volume.metadata.name.as_deref() != Some(name.as_str()) {
        return refuse(StatusCode::BAD_REQUEST, "the name of the object does not match the name on the URL");
    }
    match node.volumes.grow_local(volume).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => refuse(status(&error), chain(&error)),
    }
}

fn status(error: &VolumeError) -> StatusCode {
    match error {
        VolumeError::NotAVolume(_) => StatusCode::NOT_FOUND,
        VolumeError::Capacity { .. } => StatusCode::BAD_REQUEST,
        VolumeError::InUse(_) | VolumeError::Busy(_) | VolumeError::NotRemovedYet(_) | VolumeError::ForeignPath { .. } => {
            StatusCode::CONFLICT
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
