//! Being told by the kernel (inotify) that something in a directory was written or made: the follower
//! of a log sleeps until then.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tokio::io::unix::AsyncFd;

/// Bytes of events taken at one time; what they say does not matter, only that there were some.
const EVENTS_LEN: usize = 4_096;

/// A directory that is watched.
pub(crate) struct Changes {
    events: AsyncFd<OwnedFd>,
}

impl Changes {
    /// Watches from now on.
    pub(crate) fn of(dir: &Path) -> io::Result<Self> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: no pointers go in; the result is checked.
        let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just opened and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let mask = libc::IN_MODIFY | libc::IN_CREATE | libc::IN_MOVED_TO;
        // SAFETY: `path` is a NUL-ended string that lives through the call.
        if unsafe { libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), mask) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the `AsyncFd` owns `fd`, whose raw number stays the same and open until it is dropped.
        Ok(Self { events: unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)? })
    }

    /// Resolves when something has changed since the last call.
    pub(crate) async fn next(&self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [0_u8; EVENTS_LEN];
            match ready.try_io(|fd| nix::unistd::read(fd.get_ref(), &mut buffer).map_err(io::Error::from)) {
                Ok(read) => return read.map(|_| ()),
                Err(_would_block) => {}
            }
        }
    }
}
