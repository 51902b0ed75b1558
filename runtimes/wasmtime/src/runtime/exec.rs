//! A further guest in a running container: a program of the container's files, compiled like the container's own and run by a shim of
//! its own in the same cgroup, namespaces and directories, as the same user. The guest ends with its container. Programs that `kubectl cp`
//! needs are the shim's own if the container has none.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use runtimes_contract::{ContainerId, ContainerSpec, ContainerState, ExecSession, ExecSpec, RuntimeError};
use runtimes_host::blocking;
use runtimes_host::files::{PRIVATE, write_volatile};
use runtimes_host::process::Pidfd;
use runtimes_shim::exec::{Files, SessionError, session};
use runtimes_shim::launch::{PidNamespace, launch_helper, understand};

use super::WasmtimeRuntime;
use super::program::Runnable;
use crate::kind::Kind;

impl WasmtimeRuntime {
    pub(super) async fn start_further(&self, id: &ContainerId, exec: &ExecSpec) -> Result<ExecSession, RuntimeError> {
        let (spec, container) = self.running(id).await?;
        let dir = self.shims.state.dir(id);
        let files = Arc::new(Files::new(&dir));
        let program = self.program(&spec, exec).await?;
        // Nobody would read or write the rest of an archive.
        let outlives_session = exec.outlives_session && matches!(program, Runnable::Guest(_));
        let exec = &ExecSpec { outlives_session, ..exec.clone() };
        let permit = self.permits.take(id, exec)?;
        let group = self.shims.group(&spec)?;

        let further = ContainerSpec { args: exec.args.clone(), stdin: exec.stdin, tty: exec.tty, ..spec };
        let text = serde_json::to_vec(&further).map_err(std::io::Error::other).map_err(RuntimeError::io("writing the exec's spec"))?;
        let path = files.path("json");
        blocking(move || write_volatile(&path, &text, PRIVATE).map_err(RuntimeError::io(format!("writing {}", path.display())))).await?;
        let mut args: Vec<OsString> = vec!["exec".into(), files.path("json").into(), self.empty_mounts.path().into()];
        args.extend(program.shim_args());
        args.extend(exec.outlives_session.then(|| "outlives".into()));
        let socket = launch_helper(&self.shim, args, Some(group), PidNamespace::Own, permit).await?;
        session(socket, exec, &[container.as_fd().as_raw_fd()], files).await.map_err(|error| match error {
            SessionError::Refused(answer) => understand(&answer, String::new),
            SessionError::Io(error) => RuntimeError::io(format!("starting a process in container {id}"))(error),
        })
    }

    /// The spec of a running container, and its process.
    async fn running(&self, id: &ContainerId) -> Result<(ContainerSpec, Pidfd), RuntimeError> {
        let (shims, owned) = (self.shims.clone(), id.clone());
        blocking(move || {
            let (made, state) = shims.look(&owned)?;
            let process = match (state, shims.state.shim(&owned)?) {
                (ContainerState::Running { .. }, Some(shim)) => shim.open().map_err(RuntimeError::io(format!("looking for {owned}")))?,
                _ => None,
            };
            let ended = || RuntimeError::Start(format!("cannot exec in a container that is not running: {owned}"));
            Ok((made.spec, process.ok_or_else(ended)?))
        })
        .await
    }

    /// The program, which must be one that runs to an end.
    async fn program(&self, spec: &ContainerSpec, exec: &ExecSpec) -> Result<Runnable, RuntimeError> {
        let program = self.programs.runnable(spec, &exec.args).await?;
        let Runnable::Guest(artifact) = &program else { return Ok(program) };
        match artifact.kind {
            Kind::Module | Kind::Command | Kind::AsyncCommand => Ok(program),
            Kind::Http | Kind::Service | Kind::Plugin => {
                let name = exec.args.first().map(String::as_str).unwrap_or_default();
                Err(RuntimeError::Start(format!("exec: {name:?}: a {} component is no command", artifact.kind)))
            }
        }
    }

    pub(super) async fn prepare_further(&self, id: &ContainerId, exec: &ExecSpec) -> Result<(), RuntimeError> {
        let (spec, _) = self.running(id).await?;
        self.program(&spec, exec).await.map(drop)
    }
}
