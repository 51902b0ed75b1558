//! A further process in a running container: the shim's binary runs `runc exec` detached and is the new process' subreaper.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use runtimes_contract::{ContainerSpec, ExecSession, ExecSpec, RuntimeError};
use runtimes_host::blocking;
use runtimes_host::files::{PRIVATE, write_volatile};
use runtimes_shim::exec::{Files, SessionError, session};
use runtimes_shim::launch::{PidNamespace, launch_helper};
use tokio::sync::OwnedSemaphorePermit;

use crate::bundle::exec_process;
use crate::tool::{Runc, flags};
use crate::{errors, project_quota};

/// Starts a further process in the running container of a spec. `permit` is returned when the process has ended.
pub async fn start(
    shim: &Path,
    runc: &Runc,
    dir: &Path,
    spec: &ContainerSpec,
    exec: &ExecSpec,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<ExecSession, RuntimeError> {
    let files = Arc::new(Files::new(dir));
    let process = exec_process(spec, exec)?;
    let text = serde_json::to_vec(&process).map_err(io::Error::other).map_err(RuntimeError::io("writing the exec's spec"))?;
    let path = files.path("json");
    blocking(move || write_volatile(&path, &text, PRIVATE).map_err(RuntimeError::io(format!("writing {}", path.display())))).await?;

    let mut args: Vec<OsString> = vec!["exec".into()];
    args.extend([dir, &runc.binary, &runc.root].map(|path| path.as_os_str().to_owned()));
    args.extend([OsString::from(&spec.id.0), files.name().into()]);
    args.extend(flags(exec.tty, exec.stdin));
    args.extend(project_quota::flag(spec));
    if exec.outlives_session {
        args.push("outlives".into());
    }
    let socket = launch_helper(shim, args, None, PidNamespace::Node, permit).await?;
    session(socket, exec, &[], files.clone()).await.map_err(|error| match error {
        SessionError::Refused(_) => {
            let silent = || RuntimeError::Tool { tool: "runc", message: "exec failed and did not say why".into() };
            errors::complaint(&files.path("log"), "exec").unwrap_or_else(silent)
        }
        SessionError::Io(error) => RuntimeError::io(format!("starting a process in container {}", spec.id))(error),
    })
}
