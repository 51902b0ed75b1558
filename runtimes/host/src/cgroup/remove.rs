//! Empties and removes groups. A group can be removed only when it has no process and no group below it. Killed processes leave
//! a moment later, so removal waits for them, with a limit.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::group::{Group, subdirs};
use super::layout::Mode;
use crate::process::Pidfd;
use runtimes_contract::RuntimeError;

/// A group that is not empty so long after a kill is reported. Uninterruptible sleep is the usual reason.
const EMPTY_WITHIN: Duration = Duration::from_secs(10);
/// Time between two tries to remove a group that v1 still counts as busy.
const RETRY_AFTER: Duration = Duration::from_millis(2);

impl Group {
    /// Kills every process of the group and of the groups below it, and waits until they are gone.
    pub fn kill(&self) -> Result<(), RuntimeError> {
        let deadline = Instant::now() + EMPTY_WITHIN;
        loop {
            let pids = self.pids();
            if pids.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(RuntimeError::io(format!("killing processes {pids:?} of cgroup {}", self.path))(
                    io::ErrorKind::TimedOut.into(),
                ));
            }
            self.kill_once(&pids)?;
        }
    }

    /// Removes the group in every hierarchy; waits a while for processes that are ending. No error when it does not exist.
    pub fn remove(&self) -> Result<(), RuntimeError> {
        let deadline = Instant::now() + EMPTY_WITHIN;
        for dir in self.dirs() {
            remove_dir(&dir, deadline)?;
        }
        Ok(())
    }

    /// Kills all processes in the group and below it, and removes all of it. Idempotent.
    pub fn remove_tree(&self) -> Result<(), RuntimeError> {
        self.kill()?;
        let deadline = Instant::now() + EMPTY_WITHIN;
        for dir in self.dirs() {
            remove_dirs(&dir, deadline)?;
        }
        Ok(())
    }

    fn kill_once(&self, pids: &[i32]) -> Result<(), RuntimeError> {
        if self.layout.mode == Mode::V2 {
            // One write kills the whole tree, concurrent forks included; kernels before 5.14 do not have the file.
            let killed = self.layout.load(&self.path).kill();
            if killed.is_ok() {
                return self.wait_for(pids);
            }
        }
        self.let_die();
        for &pid in pids {
            // The handle is opened before membership is checked again: a reused pid is never hit.
            if let Ok(handle) = Pidfd::open(pid)
                && self.has(pid)
            {
                handle.signal(libc::SIGKILL).map_err(RuntimeError::io(format!("killing process {pid} of cgroup {}", self.path)))?;
            }
        }
        self.wait_for(pids)
    }

    /// Without `cgroup.kill`, a process that forks faster than it is killed would never end, and a frozen process does not
    /// receive the signal.
    fn let_die(&self) {
        for dir in self.dirs() {
            for (file, value) in [("pids.max", "0"), ("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
                // Only some hierarchies have the file; the group may be gone.
                if let Err(error) = fs::write(dir.join(file), value)
                    && !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
                {
                    tracing::debug!(group = %dir.display(), file, %error, "not written");
                }
            }
        }
    }

    fn wait_for(&self, pids: &[i32]) -> Result<(), RuntimeError> {
        for &pid in pids {
            if let Ok(handle) = Pidfd::open(pid)
                && self.has(pid)
            {
                handle.ended_within(1000).map_err(RuntimeError::io(format!("waiting for process {pid} of cgroup {}", self.path)))?;
            }
        }
        Ok(())
    }

    fn has(&self, pid: i32) -> bool {
        // Groups that a container makes below its own may have any name.
        let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let own = format!("/{}", self.path);
        text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| {
            // Within a cgroup namespace or a nested machine the path may have something in front.
            path.find(&own).is_some_and(|at| path.get(at + own.len()..).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        })
    }
}

fn remove_dirs(dir: &Path, deadline: Instant) -> Result<(), RuntimeError> {
    for below in subdirs(dir) {
        remove_dirs(&below, deadline)?;
    }
    remove_dir(dir, deadline)
}

fn remove_dir(dir: &Path, deadline: Instant) -> Result<(), RuntimeError> {
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                #[expect(clippy::disallowed_methods, reason = "v1 has no event for a group that became empty")]
                std::thread::sleep(RETRY_AFTER);
            }
            Err(error) => return Err(RuntimeError::io(format!("removing cgroup {}", dir.display()))(error)),
        }
    }
}
