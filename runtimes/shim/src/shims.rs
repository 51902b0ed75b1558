//! What all runtimes with shims do in the same way: list, wait, signal, reopen the log, read statistics, remove. Each answer
//! comes from the state directory, the kernel and the cgroups, so it does not matter which process started the container. Only where the
//! cgroup of a container is, is remembered.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::state::{Made, StateDir, open_log};
use runtimes_contract::AttachSession;
use runtimes_contract::RuntimeError;
use runtimes_contract::{ContainerId, ContainerSpec, ContainerState, ContainerStatus, Exit, HttpRequests, Stats};
use runtimes_host::blocking;
use runtimes_host::cgroup::{Cgroups, Group, StatsReader};
use runtimes_host::process::ProcessRef;

/// How long a shim has to end after its container was killed.
const SHIM_ENDS_WITHIN_MS: u16 = 10_000;

/// The containers of one state directory.
#[derive(Clone, Debug)]
pub struct Shims {
    /// Their records.
    pub state: StateDir,
    /// The machine's cgroups.
    pub cgroups: Arc<Cgroups>,
    /// The cgroups of containers whose use was read, so that the spec is not read each time.
    groups: Arc<Mutex<HashMap<ContainerId, Group>>>,
}

impl Shims {
    /// Opens a state directory.
    pub fn open(dir: &Path) -> Result<Self, RuntimeError> {
        Ok(Self { state: StateDir::open(dir)?, cgroups: Arc::new(Cgroups::detect()?), groups: Arc::default() })
    }

    /// The cgroup of a container.
    pub fn group(&self, spec: &ContainerSpec) -> Result<Group, RuntimeError> {
        self.cgroups.group(&spec.cgroup)
    }

    /// See [`runtimes_contract::Runtime::supports_user_namespaces`]. The state directory is tried too. Blocks.
    pub fn check_user_namespaces(&self, dirs: &[&Path]) -> Result<(), RuntimeError> {
        let dirs: Vec<&Path> = dirs.iter().copied().chain([self.state.containers()]).collect();
        Ok(runtimes_host::user_namespace::check(&dirs)?)
    }

    /// See [`runtimes_contract::Runtime::list`].
    pub async fn list(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        let shims = self.clone();
        blocking(move || {
            let ids = shims.state.ids()?;
            // A container that is removed during the listing is left out.
            let statuses = ids.iter().map(|id| shims.status(id)).filter(|status| !matches!(status, Err(RuntimeError::NotFound(_))));
            statuses.collect()
        })
        .await
    }

    /// The status of one container. Blocks.
    pub fn status(&self, id: &ContainerId) -> Result<ContainerStatus, RuntimeError> {
        self.state.status(id, |spec| self.oom_killed(spec))
    }

    /// The spec and state of a container. Blocks.
    pub fn look(&self, id: &ContainerId) -> Result<(Made, ContainerState), RuntimeError> {
        let made = self.state.made(id)?;
        let state = self.state.state(id, || self.oom_killed(&made.spec))?;
        Ok((made, state))
    }

    /// The spec of a container that may be started now. Blocks.
    pub fn startable(&self, id: &ContainerId) -> Result<Made, RuntimeError> {
        match self.look(id)? {
            (made, ContainerState::Created) => Ok(made),
            (_, state) => Err(RuntimeError::Unsupported(format!("container {id} cannot be started: it is {}", name(&state)))),
        }
    }

    /// See [`runtimes_contract::Runtime::wait`]. A container that was not started is not waited for.
    pub async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError> {
        let shims = self.clone();
        let owned = id.clone();
        let shim = blocking(move || {
            let (_, state) = shims.look(&owned)?;
            match (state, shims.state.shim(&owned)?) {
                (ContainerState::Created, _) | (_, None) => Err(not_started(&owned)),
                (_, Some(shim)) => Ok(shim),
            }
        })
        .await?;
        // Also when it has exited by its record: only then is its process reaped for certain.
        shim.ended().await.map_err(RuntimeError::io(format!("waiting for container {id}")))?;
        let shims = self.clone();
        let owned = id.clone();
        match blocking(move || shims.look(&owned)).await? {
            (_, ContainerState::Exited(exit)) => Ok(exit),
            (_, state) => {
                let odd = std::io::Error::other(format!("its shim ended and it is {}", name(&state)));
                Err(RuntimeError::io(format!("waiting for container {id}"))(odd))
            }
        }
    }

    /// Signals the container's first process. See [`runtimes_contract::Runtime::signal`].
    pub async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError> {
        let shims = self.clone();
        let id = id.clone();
        blocking(move || match shims.look(&id)?.1 {
            ContainerState::Created => Err(not_started(&id)),
            ContainerState::Exited(_) => Ok(()),
            ContainerState::Running { .. } => {
                let pid = shims.state.pid(&id)?.ok_or_else(|| not_started(&id))?;
                send(&pid.init, signal)
            }
        })
        .await
    }

    /// Writes the container's cgroup. See [`runtimes_contract::Runtime::set_cpus`].
    pub async fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError> {
        let shims = self.clone();
        let (id, cpus) = (id.clone(), cpus.to_owned());
        blocking(move || match shims.look(&id)? {
            (_, ContainerState::Created) => Err(not_started(&id)),
            (_, ContainerState::Exited(_)) => Ok(()),
            (made, ContainerState::Running { .. }) => match shims.group(&made.spec)?.set_cpus(&cpus) {
                // It ends at this moment.
                Err(RuntimeError::NotFound(_)) => Ok(()),
                set => set,
            },
        })
        .await
    }

    /// Attaches to a running container's shim. See [`runtimes_contract::Runtime::attach`].
    pub async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError> {
        let shims = self.clone();
        let owned = id.clone();
        let spec = blocking(move || match shims.look(&owned)? {
            (made, ContainerState::Running { .. }) => Ok(made.spec),
            (_, state) => Err(RuntimeError::Start(format!("cannot attach to container {owned}: it is {}", name(&state)))),
        })
        .await?;
        crate::attach::connect(&self.state.dir(id), id, stdin, spec.tty).await
    }

    /// Creates the new log file and notifies the shim (SIGUSR1). See [`runtimes_contract::Runtime::reopen_log`].
    pub async fn reopen_log(&self, id: &ContainerId, owner: Option<(u32, u32)>) -> Result<(), RuntimeError> {
        let shims = self.clone();
        let id = id.clone();
        blocking(move || {
            let (made, state) = shims.look(&id)?;
            open_log(&made.spec.log_path, owner)?;
            match (state, shims.state.shim(&id)?) {
                (ContainerState::Running { .. }, Some(shim)) => send(&shim, libc::SIGUSR1),
                // Nothing writes; the next start opens the new file.
                _ => Ok(()),
            }
        })
        .await
    }

    /// The use of the container's cgroup. See [`runtimes_contract::Runtime::stats`].
    pub async fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError> {
        let (shims, id) = (self.clone(), id.clone());
        blocking(move || shims.read_stats(&id, &mut StatsReader::default())).await
    }

    /// The use of several. See [`runtimes_contract::Runtime::list_stats`].
    pub async fn list_stats(&self, ids: &[ContainerId]) -> HashMap<ContainerId, Stats> {
        let (shims, ids) = (self.clone(), ids.to_vec());
        let mut reader = StatsReader::default();
        let read = move |id: ContainerId| match shims.read_stats(&id, &mut reader) {
            Ok(stats) => Some((id, stats)),
            Err(error) => {
                tracing::debug!(container = %id, %error, "no stats");
                None
            }
        };
        let all = blocking(move || Ok::<_, RuntimeError>(ids.into_iter().filter_map(read).collect()));
        all.await.unwrap_or_default()
    }

    fn read_stats(&self, id: &ContainerId, reader: &mut StatsReader) -> Result<Stats, RuntimeError> {
        match reader.read(&self.group_of(id)?) {
            // The group of a container that has ended may be gone; that of one which another process has removed is.
            Err(RuntimeError::NotFound(_)) => {
                self.groups.lock().remove(id);
                self.state.made(id).map(|_| Stats::default())
            }
            stats => stats,
        }
    }

    fn group_of(&self, id: &ContainerId) -> Result<Group, RuntimeError> {
        if let Some(group) = self.groups.lock().get(id) {
            return Ok(group.clone());
        }
        let group = self.group(&self.state.made(id)?.spec)?;
        self.groups.lock().insert(id.clone(), group.clone());
        if !self.state.dir(id).exists() {
            // It was removed meanwhile.
            self.groups.lock().remove(id);
        }
        Ok(group)
    }

    /// Removes a container's directory; no error when it does not exist. Blocks.
    pub fn forget(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let removed = self.state.forget(id);
        self.groups.lock().remove(id);
        removed
    }

    /// The counters in the container's directory. See [`runtimes_contract::Runtime::http_requests`].
    pub async fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        let (state, id) = (self.state.clone(), id.clone());
        blocking(move || state.http_requests(&id)).await
    }

    /// Kills a container's processes, the shim last, and removes its cgroup. The runtime then removes what else it has created,
    /// the state directory at the very end. Blocks; idempotent.
    pub fn kill_and_free(&self, id: &ContainerId, spec: &ContainerSpec) -> Result<(), RuntimeError> {
        let group = self.group(spec)?;
        // An unreadable record names no process.
        let shim = self.state.shim(id).ok().flatten();
        self.kill_starting(id, shim.as_ref())?;
        group.kill()?;
        if let Some(shim) = shim {
            end(&shim)?;
        }
        group.remove_tree()
    }

    /// [`Shims::kill_and_free`] for a container whose spec cannot be read: its cgroup is unknown and is removed with the cgroup
    /// of its Pod. The process in its pid record is killed. Blocks; idempotent.
    pub fn kill_recorded(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        // An unreadable record names no process.
        let record = self.state.pid(id).ok().flatten();
        self.kill_starting(id, record.as_ref().map(|record| &record.shim))?;
        let Some(record) = record else { return Ok(()) };
        send(&record.init, libc::SIGKILL)?;
        end(&record.shim)
    }

    /// Kills the process that was started for a container, unless it has become the container's shim. Without a pid record it may hang,
    /// and runc's is in no group. With one of another process it has ended, and may not be reaped.
    fn kill_starting(&self, id: &ContainerId, shim: Option<&ProcessRef>) -> Result<(), RuntimeError> {
        let starting = self.state.starting(id).ok().flatten();
        match starting.filter(|starting| Some(starting) != shim) {
            Some(starting) => kill(&starting),
            None => Ok(()),
        }
    }

    fn oom_killed(&self, spec: &ContainerSpec) -> bool {
        self.group(spec).is_ok_and(|group| group.oom_kills() > 0)
    }
}

/// A shim whose container is dead ends by itself, after it has written the exit record.
fn end(shim: &ProcessRef) -> Result<(), RuntimeError> {
    let doing = || format!("ending shim {}", shim.pid);
    if let Some(handle) = shim.open().map_err(RuntimeError::io(doing()))? {
        handle.ended_within(SHIM_ENDS_WITHIN_MS).map_err(RuntimeError::io(doing()))?;
    }
    // Nothing is left to kill if it has ended.
    kill(shim)
}

/// Kills a process, and reaps it if it is ours.
pub(crate) fn kill(process: &ProcessRef) -> Result<(), RuntimeError> {
    let doing = || format!("killing process {}", process.pid);
    if let Some(handle) = process.open().map_err(RuntimeError::io(doing()))? {
        handle.signal(libc::SIGKILL).map_err(RuntimeError::io(doing()))?;
        handle.ended_within(SHIM_ENDS_WITHIN_MS).map_err(RuntimeError::io(doing()))?;
    }
    process.reap();
    Ok(())
}

fn send(process: &ProcessRef, signal: i32) -> Result<(), RuntimeError> {
    let doing = || format!("sending signal {signal} to process {}", process.pid);
    match process.open().map_err(RuntimeError::io(doing()))? {
        Some(handle) => handle.signal(signal).map_err(RuntimeError::io(doing())),
        None => Ok(()),
    }
}

fn not_started(id: &ContainerId) -> RuntimeError {
    RuntimeError::Unsupported(format!("container {id} has not been started"))
}

fn name(state: &ContainerState) -> &'static str {
    match state {
        ContainerState::Created => "created",
        ContainerState::Running { .. } => "running",
        ContainerState::Exited(_) => "exited",
    }
}
