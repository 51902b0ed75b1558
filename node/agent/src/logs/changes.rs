//! Notifications of the kernel (inotify) that a file in a directory was written, created or removed, for followers of logs and for the
//! manifests of static Pods. The kernel
//! limits watchers by user, and root in a container counts as the node's root. When no watcher is left, the follower reads
//! again every second.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

/// Bytes of events read at one time; their content does not matter.
const EVENTS_LEN: usize = 4_096;

/// The period in which a directory is read that cannot be watched.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A directory that is watched.
pub(crate) struct Changes {
    /// `None` when the kernel has no watcher left.
    events: Option<AsyncFd<OwnedFd>>,
}

impl Changes {
    /// Watches from now on.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        Self::or_look_again(dir, Self::watch(dir))
    }

    fn or_look_again(dir: &Path, watched: io::Result<Self>) -> io::Result<Self> {
        match watched {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENOSPC)) => {
                tracing::debug!(dir = %dir.display(), %error, "no watcher is left; the log is looked at every second");
                Ok(Self { events: None })
            }
            watched => watched,
        }
    }

    fn watch(dir: &Path) -> io::Result<Self> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: no pointers go in; the result is checked.
        let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just opened and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let mask = libc::IN_MODIFY | libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_MOVED_TO;
        // SAFETY: `path` is a NUL-ended string that lives through the call.
        if unsafe { libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), mask) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the `AsyncFd` owns `fd`, whose raw number stays the same and open until it is dropped.
        Ok(Self { events: Some(unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)?) })
    }

    /// Resolves when something has changed since the last call.
    pub(crate) async fn next(&self) -> io::Result<()> {
        let Some(events) = &self.events else {
            tokio::time::sleep(LOOK_AGAIN).await;
            return Ok(());
        };
        loop {
            let mut ready = events.readable().await?;
            let mut buffer = [0_u8; EVENTS_LEN];
            match ready.try_io(|fd| nix::unistd::read(fd.get_ref(), &mut buffer).map_err(io::Error::from)) {
                Ok(read) => return read.map(|_| ()),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_directory_is_looked_at_when_no_watcher_is_left() {
        let dir = Path::new("/nowhere");
        for errno in [libc::EMFILE, libc::ENOSPC] {
            let refused = Changes::or_look_again(dir, Err(io::Error::from_raw_os_error(errno))).expect("looks by itself");
            refused.next().await.expect("a look");
        }
        assert!(Changes::new(dir).is_err(), "a directory that is not there is told");
    }
}
