//! A command in the container. A probe succeeds when the command ends with 0.

use k8s_openapi::api::core::v1::ExecAction;

use runtimes_contract::ExecSpec;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{ActionError, Target};
use crate::node::Node;
use crate::record::RunningInstance;

/// The bytes of a command's output that a message contains; upstream's.
const OUTPUT_LEN_MAX: u64 = 10 * 1_024;

pub(crate) async fn probe(target: &Target<'_>, action: &ExecAction) -> Result<(), ActionError> {
    let command = action.command.clone().unwrap_or_default();
    let (code, output) = run(target.node, target.alive, command).await?;
    match code {
        0 => Ok(()),
        _ if output.is_empty() => Err(ActionError::ProbeCommand(code)),
        _ => Err(ActionError::ProbeOutput(output)),
    }
}

/// Runs a command in a container: its exit code and the beginning of its output.
pub(crate) async fn run(node: &Node, alive: &RunningInstance, args: Vec<String>) -> Result<(i32, String), ActionError> {
    let runtime = node.parts.by_handler(&alive.handler).ok_or_else(|| ActionError::NoRuntime(alive.handler.clone()))?;
    let session = runtime.exec(&alive.id, ExecSpec { args, ..ExecSpec::default() }).await?;
    let (out, err, code) = tokio::join!(output(Some(session.stdout)), output(session.stderr), session.exit);
    let text = String::from_utf8_lossy(&[out, err].concat()).into_owned();
    Ok((code?, text))
}

/// The beginning of a stream. The stream is read to its end.
async fn output(stream: Option<Box<dyn AsyncRead + Send + Unpin>>) -> Vec<u8> {
    let mut output = Vec::new();
    let Some(mut stream) = stream else { return output };
    let mut head = (&mut stream).take(OUTPUT_LEN_MAX);
    if head.read_to_end(&mut output).await.is_ok()
        && let Err(error) = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    {
        tracing::debug!(%error, "rest of a command's output not read");
    }
    output
}
