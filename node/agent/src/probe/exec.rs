//! `exec` probes: a command in the container ends with 0.

use k8s_openapi::api::core::v1::ExecAction;

use super::Target;
use crate::hooks;

pub(super) async fn look(target: &Target<'_>, action: &ExecAction) -> Result<(), String> {
    let command = action.command.clone().unwrap_or_default();
    let (code, output) = hooks::exec(target.node, target.alive, command).await?;
    match code {
        0 => Ok(()),
        _ if output.is_empty() => Err(format!("command ended with exit code {code}")),
        _ => Err(output),
    }
}
