//! Who owns which field, where managers speak different versions of an object: what one changes in its
//! version, another may own under another name in the version it speaks.

use api_rules::apply::{self, Target};
use serde_json::Value;

use crate::call::Call;
use crate::verbs::recording::Recording;
use api_wire::status::ApiResult;

/// Lets managers of other versions lose what a write changes, or refuses an apply that would take it from
/// them. Versions that are not served any more are left alone.
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
