//! Managed fields of objects with several versions: a field that one manager changes in its version may belong to another manager
//! under another name in the other's version.

use api_rules::apply::{self, Target};
use serde_json::Value;

use crate::call::Call;
use crate::verbs::recording::Recording;
use api_wire::status::ApiResult;

/// Removes changed fields from managers of other versions, or rejects an apply that would take fields from them. Entries of versions
/// that are not served any more stay.
pub(crate) async fn settle(call: &Call, old: &Value, new: &mut Value, recording: &Recording) -> ApiResult<()> {
    if call.served.converter().is_none() {
        return Ok(());
    }
    let forms = call.core.registry.equivalents(&call.served);
    for version in apply::other_versions(new, &call.served.kind.api_version()) {
        let Some(form) = forms.iter().find(|form| form.kind.api_version() == version) else { continue };
        let before = form.external_of_version(old).await?;
        let after = form.external_of_version(new).await?;
        let applier = match recording {
            Recording::Applied { manager, force: false } => Some(manager.as_str()),
            _ => None,
        };
        apply::settle(&Target::new(&form.kind, call.sub()), &before, &after, new, applier)?;
    }
    Ok(())
}
