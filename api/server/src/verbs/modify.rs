//! Changing a stored object: read it, change it, write it on condition that nobody was faster; if somebody was, do the same
//! again. PUT, the patches and the subresources that write differ only in the change that they make.

use api_model::field::{FieldError, Path};
use api_model::meta;
use serde_json::Value;

use super::WritePath;
use super::recording::Recording;
use super::write::{Old, Write, Written};
use crate::call::Call;
use crate::core::WriteError;
use crate::registry::Internal;
use api_wire::status::{ApiError, ApiResult};

/// How often somebody else may be faster before the client gets a conflict.
const ATTEMPTS_MAX: usize = 64;

/// Changes the object that the call names. `change` makes the new object from the present one, both in internal form; it is
/// called again when somebody else was faster. `recording` says who owns the changed fields.
pub(crate) async fn modify(
    path: &WritePath,
    call: &mut Call,
    dry_run: bool,
    recording: &Recording,
    mut change: impl FnMut(&mut Call, &Internal) -> ApiResult<Internal>,
) -> ApiResult<Written> {
    let change = |call: &mut Call, old: &Old| {
        let new = change(call, old.value())?;
        check_version(call, &new, old.value())?;
        Ok(new)
    };
    repeat(path, call, dry_run, Some(recording), change).await
}

/// [`modify`] for a change that the server itself makes, such as a Binding: see [`Write::recording`]. `change` gets the present object
/// to change it in place.
pub(crate) async fn modify_unchecked(
    path: &WritePath,
    call: &mut Call,
    dry_run: bool,
    mut change: impl FnMut(&mut Call, Internal) -> ApiResult<Internal>,
) -> ApiResult<Written> {
    repeat(path, call, dry_run, None, |call, old| change(call, old.present())).await
}

async fn repeat(
    path: &WritePath,
    call: &mut Call,
    dry_run: bool,
    recording: Option<&Recording>,
    mut change: impl FnMut(&mut Call, &Old) -> ApiResult<Internal>,
) -> ApiResult<Written> {
    let warnings = call.warnings.len();
    for _ in 0..ATTEMPTS_MAX {
        call.warnings.truncate(warnings);
        let old = Old::read(call).await?;
        let new = change(call, &old)?;
        let write = Write { path, old: Some(&old), recording, dry_run };
        match write.run(call, new).await {
            Ok(written) => return Ok(written),
            Err(WriteError::Conflict) => {
                let Old { stored, .. } = &old;
                call.core.cache.overtaken(&call.served.resource, &stored.namespace, &stored.name, stored.revision).await;
            }
            Err(WriteError::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.served.name, &call.name))
}

/// A resource version or uid in the new object is a condition.
fn check_version(call: &Call, new: &Value, old: &Value) -> ApiResult<()> {
    let (version, uid) = (meta::resource_version(new), meta::uid(new));
    if !uid.is_empty() && uid != meta::uid(old) {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", meta::uid(old));
        return Err(ApiError::conflict(&call.served.name, &call.name, &why));
    }
    if matches!(version, "" | "0") && !call.served.allows_unconditional_update() {
        let path = Path::new("metadata").child("resourceVersion");
        // Go shows unsigned numbers so, and upstream names the resource here rather than the kind.
        let error = FieldError { value: None, ..FieldError::invalid(&path, 0, "0x0: must be specified for an update") };
        return Err(ApiError::invalid_kind(&call.served.name.group, &call.served.name.resource, &call.name, &[error]));
    }
    if !version.is_empty() && version != "0" && version != meta::resource_version(old) {
        return Err(ApiError::modified(&call.served.name, &call.name));
    }
    Ok(())
}
