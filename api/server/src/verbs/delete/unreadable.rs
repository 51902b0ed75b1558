//! The deletion of a stored object that cannot be read, since its key is lost or its bytes are damaged, by upstream's
//! `ignoreStoreReadErrorWithClusterBreakingPotential` (KEP-3926). Finalizers, plugins and webhooks are not asked. Until the deletion,
//! every list with the object fails and names the object.

use api_model::field::{FieldError, Path};
use api_store::{Expect, Write};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::json;

use crate::call::Call;
use crate::core::WriteError;
use crate::present::Presentation;
use api_cache::key;
use api_wire::options::{DeleteOptions, IGNORE_READ_ERROR};
use api_wire::status::{ApiError, ApiResult};

/// The verb for it. The right to delete is not enough.
const VERB: &str = "unsafe-delete-ignore-read-errors";

/// Deletes the object that the path names, which must be one that cannot be read.
pub(super) async fn delete(call: &Call, options: &DeleteOptions, presentation: &Presentation) -> ApiResult<Response<Body>> {
    call.check_may(VERB)?;
    let (core, resource, namespace) = (&call.core, &call.served.resource, call.namespace_key());
    let Some(unreadable) = resource.unreadable(namespace, &call.name) else {
        if resource.get(namespace, &call.name).is_none() {
            return Err(call.not_found());
        }
        let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
        let error = FieldError::invalid(&Path::new(IGNORE_READ_ERROR), true, why);
        return Err(ApiError::invalid(&call.served.kind, &call.name, &[error]));
    };
    if !options.dry_run {
        let key = key::object_key(&resource.name, namespace, &call.name);
        tracing::warn!(%key, user = call.user.username, why = unreadable.why, "deleting an object that cannot be read");
        let gone = core.write(Write::new(key, None, Expect::At(unreadable.revision)), call.fence.as_deref()).await;
        let revision = gone.map_err(|error| match error {
            WriteError::Conflict => ApiError::modified(&call.served.name, &call.name),
            WriteError::Api(error) => error,
        })?;
        core.cache.settled(resource, revision).await?;
    }
    let details = json!({"name": call.name, "group": call.served.name.group, "kind": call.served.name.resource});
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Ok(presentation.value(StatusCode::OK, &success))
}
