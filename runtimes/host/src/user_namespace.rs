//! User namespaces of Pods. A process of many threads cannot enter a user namespace, so that a child without threads is made in it, with
//! the namespaces that it owns. The child waits while its starter pins them as files, and ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use runtimes_contract::{RuntimeError, USER_NAMESPACE_IDS};
use thiserror::Error;

use crate::mounts::{IdMapError, detached_at, detached_tmpfs, map_ids};

/// The first id of no Pod's: that of the namespace by which [`check`] tries.
const TRIAL: u32 = USER_NAMESPACE_IDS;

/// Why the machine has no Pods with user namespaces.
#[derive(Debug, Error)]
pub enum UserNamespaceError {
    /// The kernel has none, or allows no more (`user.max_user_namespaces`).
    #[error("making a user namespace, which the kernel and its setting user.max_user_namespaces must allow")]
    Make(#[source] io::Error),
    /// A directory cannot be mounted.
    #[error("mounting {}", .path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The files of a file system cannot be shown with other ids.
    #[error(transparent)]
    IdMap(#[from] IdMapError),
}

impl From<UserNamespaceError> for RuntimeError {
    fn from(error: UserNamespaceError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Self::Missing(format!("{error}{cause}"))
    }
}

/// A user namespace with the namespaces that it owns, as long as this value lives.
#[derive(Debug)]
pub struct Owned {
    child: Pid,
}

impl Owned {
    /// Makes a user namespace whose ids begin at `first_id` of the node, and new namespaces of the other kinds, which it owns. Blocks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make(first_id: u32, others: CloneFlags) -> Result<Self, UserNamespaceError> {
        let made = Self { child: waiting_child(CloneFlags::CLONE_NEWUSER | others).map_err(UserNamespaceError::Make)? };
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{map}", made.child);
            fs::write(path, format!("0 {first_id} {USER_NAMESPACE_IDS}")).map_err(UserNamespaceError::Make)?;
        }
        Ok(made)
    }

    /// The file of one of its namespaces, by the kernel's name of the kind (`user`, `net`, …).
    pub fn namespace(&self, kind: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/{kind}", self.child))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Our own child, not reaped yet: the number is its own. It waits for nothing but this signal.
        let _ended = kill(self.child, Signal::SIGKILL).and_then(|()| waitpid(self.child, None).map(drop));
    }
}

/// Whether Pods can have user namespaces, whose ids the files of these directories can be shown with. Blocks.
///
/// # Errors
/// What is missing.
pub fn check(dirs: &[&Path]) -> Result<(), UserNamespaceError> {
    let trial = Owned::make(TRIAL, CloneFlags::empty())?;
    let namespace = fs::File::open(trial.namespace("user")).map_err(UserNamespaceError::Make)?;
    // Each Linux container has its shared memory on one, since Linux 6.3.
    let memory = Path::new("tmpfs");
    let tree = detached_tmpfs(&[], 0).map_err(|source| UserNamespaceError::Mount { path: memory.to_owned(), source })?;
    map_ids(&tree, &namespace, memory)?;
    for dir in dirs {
        let tree = detached_at(dir, false).map_err(|source| UserNamespaceError::Mount { path: dir.to_path_buf(), source })?;
        map_ids(&tree, &namespace, dir)?;
    }
    Ok(())
}

/// Makes the calling thread, and no other, the root of a user namespace, for good: it has the node's id of that root. The kernel lets
/// nobody else write the settings of an IPC namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn become_root_of(first_id: u32) -> io::Result<()> {
    // SAFETY: a system call with numbers. The C library's function would change all threads.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, first_id, first_id, first_id) })?;
    Ok(())
}

/// A child in new namespaces that does nothing. It ends with the thread that calls this, at the latest.
fn waiting_child(namespaces: CloneFlags) -> io::Result<Pid> {
    let (parent, mut before) = (std::process::id(), SigSet::empty());
    // The child inherits the mask: handlers of this process must not run in it.
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    let flags = libc::c_long::from(namespaces.bits() | libc::SIGCHLD);
    let none = 0 as libc::c_long;
    // SAFETY: without CLONE_VM the child has its own copy of the memory, so that no stack is needed. Other threads may have held locks, so
    // that it only makes system calls until it ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    if child == 0 {
        wait_until_killed(parent);
    }
    let made = Errno::result(child);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    Ok(Pid::from_raw(i32::try_from(made?).map_err(io::Error::other)?))
}

/// In the child. It keeps no file open, and no process of the node waits for one because of it.
fn wait_until_killed(parent: u32) -> ! {
    // SAFETY: system calls with numbers as arguments; nothing of this process uses its descriptors again.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::close_range(0, libc::c_uint::MAX, 0);
        // The parent may have ended before the first call.
        while libc::getppid().cast_unsigned() == parent {
            libc::pause();
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_that_runs_this_has_user_namespaces_on_disk_and_in_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        check(&[dir.path(), Path::new("/dev/shm")]).expect("supported");
        let refused = check(&[Path::new("/proc")]).expect_err("no mount of it has other ids").to_string();
        assert!(refused.starts_with("failed to set MOUNT_ATTR_IDMAP on /proc: Invalid argument"), "{refused}");
    }

    #[test]
    fn it_owns_its_namespaces_has_its_ids_and_ends() {
        let owned = Owned::make(3 * USER_NAMESPACE_IDS, CloneFlags::CLONE_NEWNET).expect("made");
        let proc = PathBuf::from(format!("/proc/{}", owned.child));
        for map in ["uid_map", "gid_map"] {
            let text = fs::read_to_string(proc.join(map)).expect("read");
            assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["0", "196608", "65536"]);
        }
        let of = |path: PathBuf| fs::read_link(path).expect("a namespace");
        for kind in ["user", "net"] {
            assert_ne!(of(owned.namespace(kind)), of(format!("/proc/self/ns/{kind}").into()), "{kind}");
        }
        assert_eq!(of(owned.namespace("uts")), of("/proc/self/ns/uts".into()));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while fs::read_dir(proc.join("fd")).expect("its descriptors").count() > 0 {
            assert!(std::time::Instant::now() < deadline, "it keeps no file open");
            std::thread::yield_now();
        }
        drop(owned);
        assert!(!proc.exists());
    }
}
