//! The state directory of a runtime whose containers are shims: one directory a container with `spec.json` (the spec that was
//! passed to `create`), `starting` (the shim, as the runtime started it), `pid` and `exit` (the shim's records, see
//! [`crate::record`]). A runtime has no other state, so a new process over the same directory knows the same.
//!
//! Calls block on small files; runtimes make them from blocking threads.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::record::{self, PidRecord, now_ms};
use crate::requests;
use runtimes_contract::RuntimeError;
use runtimes_contract::{ContainerId, ContainerSpec, ContainerState, ContainerStatus, Exit, HttpRequests};
use runtimes_host::files::{PRIVATE, private_dir, remove_tree, write_volatile};
use runtimes_host::process::ProcessRef;

/// The file with the identity of a shim from its start on.
pub(crate) const STARTING: &str = "starting";
/// A record that is longer was not written by a shim.
const RECORD_LEN_MAX: u64 = 32 * 1024;

/// The spec of a container when it was created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Made {
    /// The spec as given to `create`.
    pub spec: ContainerSpec,
    /// When, in ms since the epoch.
    pub created_at_ms: u64,
}

/// A runtime's directory of containers.
#[derive(Clone, Debug)]
pub struct StateDir {
    containers: PathBuf,
}

impl StateDir {
    /// Opens or creates it, readable by root alone.
    pub fn open(dir: &Path) -> Result<Self, RuntimeError> {
        let containers = dir.join("containers");
        for private in [dir, &containers] {
            private_dir(private).map_err(RuntimeError::io(format!("making {}", private.display())))?;
        }
        Ok(Self { containers })
    }

    /// The directory of all containers.
    pub(crate) fn containers(&self) -> &Path {
        &self.containers
    }

    /// The directory of one container.
    pub fn dir(&self, id: &ContainerId) -> PathBuf {
        self.containers.join(&id.0)
    }

    /// Creates a container's directory and writes its spec. [`RuntimeError::Exists`] when it exists.
    pub fn create(&self, spec: &ContainerSpec) -> Result<PathBuf, RuntimeError> {
        check_id(&spec.id)?;
        let dir = self.dir(&spec.id);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(RuntimeError::Exists(spec.id.0.clone())),
            Err(error) => return Err(RuntimeError::io(format!("making {}", dir.display()))(error)),
        }
        let made = Made { spec: spec.clone(), created_at_ms: now_ms() };
        let written =
            serde_json::to_vec(&made).map_err(io::Error::other).and_then(|bytes| write_volatile(&dir.join("spec.json"), &bytes, PRIVATE));
        match written {
            Ok(()) => Ok(dir),
            Err(error) => {
                self.forget(&spec.id)?;
                Err(RuntimeError::io(format!("writing {}/spec.json", dir.display()))(error))
            }
        }
    }

    /// The spec that was passed to `create`. [`RuntimeError::NotFound`] when there is no such container or it is incomplete;
    /// [`io::ErrorKind::InvalidData`] when the file cannot be parsed.
    pub fn made(&self, id: &ContainerId) -> Result<Made, RuntimeError> {
        let path = self.dir(id).join("spec.json");
        let missing = || RuntimeError::NotFound(id.0.clone());
        check_id(id).map_err(|_| missing())?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(error) => return Err(RuntimeError::io(format!("reading {}", path.display()))(error)),
        };
        // One kind for all unreadable files: for serde an empty file is the end of a file, not invalid data.
        let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        serde_json::from_slice(&bytes)
            .map_err(|error: serde_json::Error| RuntimeError::io(format!("reading {}", path.display()))(unreadable(error)))
    }

    /// The shim's pid record, once it has written one.
    pub fn pid(&self, id: &ContainerId) -> Result<Option<PidRecord>, RuntimeError> {
        Ok(read_record(&self.dir(id).join("pid"))?.as_deref().and_then(PidRecord::decode))
    }

    /// How the container ended, as far as recorded.
    pub fn exit(&self, id: &ContainerId) -> Result<Option<Exit>, RuntimeError> {
        Ok(read_record(&self.dir(id).join("exit"))?.as_deref().and_then(record::decode_exit))
    }

    /// The state of the container's life. A shim that is gone without an exit record was killed: code 137; `oom_killed` returns
    /// whether the kernel killed it. This result is written down, so that it stays the same.
    pub fn state(&self, id: &ContainerId, oom_killed: impl FnOnce() -> bool) -> Result<ContainerState, RuntimeError> {
        let pid = self.pid(id)?;
        // The exit record of a living shim is not trusted yet: a guest that controls the shim could continue to run as a
        // container that has ended.
        if let Some(pid) = pid.as_ref().filter(|pid| pid.shim.is_alive()) {
            return Ok(ContainerState::Running { pid: pid.init.pid });
        }
        if let Some(exit) = self.exit(id)? {
            return Ok(ContainerState::Exited(exit));
        }
        let Some(pid) = pid else { return Ok(ContainerState::Created) };
        pid.shim.reap();
        // A shim holds this lock as long as it lives; of several observers one writes the result.
        let _alone = self.lock(id)?;
        // It may have written its record between the two reads.
        if let Some(exit) = self.exit(id)? {
            return Ok(ContainerState::Exited(exit));
        }
        let exit = killed(oom_killed());
        let path = self.dir(id).join("exit");
        write_volatile(&path, record::encode_exit(&exit).as_bytes(), PRIVATE)
            .map_err(RuntimeError::io(format!("writing {}", path.display())))?;
        Ok(ContainerState::Exited(exit))
    }

    fn lock(&self, id: &ContainerId) -> Result<Flock<File>, RuntimeError> {
        let path = self.dir(id).join("lock");
        let doing = || format!("locking {}", path.display());
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(RuntimeError::io(doing()))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| RuntimeError::io(doing())(error.into()))
    }

    /// One container as `list` reports it. A container that is incomplete, or whose records cannot be read, has no labels: it
    /// must not hide the others.
    pub fn status(&self, id: &ContainerId, oom_killed: impl FnOnce(&ContainerSpec) -> bool) -> Result<ContainerStatus, RuntimeError> {
        match self.read_status(id, oom_killed) {
            Err(RuntimeError::NotFound(_)) if fs::symlink_metadata(self.dir(id)).is_err() => Err(RuntimeError::NotFound(id.0.clone())),
            Err(error) => {
                tracing::warn!(container = %id, %error, "a container's records cannot be read; it counts as half made");
                Ok(half_made(id))
            }
            status => status,
        }
    }

    fn read_status(&self, id: &ContainerId, oom_killed: impl FnOnce(&ContainerSpec) -> bool) -> Result<ContainerStatus, RuntimeError> {
        let made = self.made(id)?;
        let state = self.state(id, || oom_killed(&made.spec))?;
        let started_at_ms = self.pid(id)?.map(|pid| pid.started_at_ms);
        let Made { spec, created_at_ms } = made;
        let ContainerSpec { id, labels, log_path, user, .. } = spec;
        Ok(ContainerStatus { id, labels, state, created_at_ms, started_at_ms, log_path, user })
    }

    /// The ids of all containers, also incomplete ones.
    pub fn ids(&self) -> Result<Vec<ContainerId>, RuntimeError> {
        let doing = || format!("listing {}", self.containers.display());
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.containers).map_err(RuntimeError::io(doing()))? {
            let entry = entry.map_err(RuntimeError::io(doing()))?;
            ids.extend(entry.file_name().into_string().ok().map(ContainerId));
        }
        ids.sort();
        Ok(ids)
    }

    /// The shim that was started for the container, and may not have written a pid record yet.
    pub fn starting(&self, id: &ContainerId) -> Result<Option<ProcessRef>, RuntimeError> {
        Ok(read_record(&self.dir(id).join(STARTING))?.as_deref().and_then(ProcessRef::decode))
    }

    /// The process to wait for; `None` when none was started.
    pub fn shim(&self, id: &ContainerId) -> Result<Option<ProcessRef>, RuntimeError> {
        Ok(self.pid(id)?.map(|pid| pid.shim))
    }

    /// The counters of the container's HTTP requests; `None` when its shim has none.
    pub fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        let missing = || RuntimeError::NotFound(id.0.clone());
        check_id(id).map_err(|_| missing())?;
        let dir = self.dir(id);
        let counters = requests::read(&dir).map_err(RuntimeError::io(format!("reading the request counters in {}", dir.display())))?;
        if counters.is_none() && fs::symlink_metadata(&dir).is_err() {
            return Err(missing());
        }
        Ok(counters)
    }

    /// Removes a container's directory; no error when it does not exist.
    pub fn forget(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        check_id(id)?;
        let dir = self.dir(id);
        match remove_tree(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RuntimeError::io(format!("removing {}", dir.display()))(error)),
            _ => Ok(()),
        }
    }
}

/// Creates (or takes over) the log file, owned by the user who writes to it, and lets that user enter its directory (not the
/// ones above: a shim opens the file before it gives up root).
pub fn open_log(path: &Path, owner: Option<(u32, u32)>) -> Result<File, RuntimeError> {
    let doing = || format!("making the log file {}", path.display());
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(RuntimeError::io(doing()))?;
    if let Some((uid, gid)) = owner {
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).map_err(RuntimeError::io(doing()))?;
        if let Some(dir) = path.parent() {
            let mode = fs::metadata(dir).map_err(RuntimeError::io(doing()))?.permissions().mode();
            if mode & 0o001 == 0 {
                fs::set_permissions(dir, PermissionsExt::from_mode(mode | 0o001)).map_err(RuntimeError::io(doing()))?;
            }
        }
    }
    Ok(file)
}

fn killed(oom_killed: bool) -> Exit {
    let message = if oom_killed { String::new() } else { "the container's process was killed".into() };
    Exit { code: 137, signal: Some(9), oom_killed, finished_at_ms: now_ms(), message }
}

fn half_made(id: &ContainerId) -> ContainerStatus {
    ContainerStatus {
        id: id.clone(),
        labels: Default::default(),
        state: ContainerState::Created,
        created_at_ms: 0,
        started_at_ms: None,
        log_path: PathBuf::new(),
        user: Default::default(),
    }
}

/// Ids become file and cgroup names.
fn check_id(id: &ContainerId) -> Result<(), RuntimeError> {
    let fits = !id.0.is_empty()
        && id.0.len() <= 200
        && !id.0.starts_with('.')
        && id.0.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if fits { Ok(()) } else { Err(RuntimeError::Unsupported(format!("container id {:?} cannot be a file name", id.0))) }
}

/// A shim may be another user's: no link is followed and no endless file read.
fn read_record(path: &Path) -> Result<Option<String>, RuntimeError> {
    let doing = || format!("reading {}", path.display());
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RuntimeError::io(doing())(error)),
    };
    let mut bytes = Vec::new();
    file.take(RECORD_LEN_MAX).read_to_end(&mut bytes).map_err(RuntimeError::io(doing()))?;
    Ok(String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests;
