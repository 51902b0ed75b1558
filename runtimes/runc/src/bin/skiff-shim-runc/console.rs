//! runc hands out a terminal's master side over a socket that it connects to by path. Paths of
//! sockets are short, state directories may be deep: ours leads through `/proc/<pid>/fd`.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use runtimes_shim::fds;

use crate::Failure;

/// A socket that waits for runc.
pub struct Console {
    listener: UnixListener,
    path: PathBuf,
    _dir: File,
}

impl Console {
    /// Listens on `<dir>/<name>.sock`.
    pub fn listen(dir: &Path, name: &str) -> Result<Self, Failure> {
        let listening = "listening for a terminal";
        let dir = File::open(dir).map_err(Failure::io(listening))?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}/{name}.sock", std::process::id(), dir.as_raw_fd()));
        let listener = UnixListener::bind(&path).map_err(Failure::io(listening))?;
        Ok(Self { listener, path, _dir: dir })
    }

    /// The socket to which runc connects.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The terminal. runc has sent it by now.
    pub fn terminal(self) -> Result<OwnedFd, Failure> {
        let receiving = "receiving a terminal from runc";
        self.listener.set_nonblocking(true).map_err(Failure::io(receiving))?;
        let (socket, _) = self.listener.accept().map_err(Failure::io(receiving))?;
        socket.set_nonblocking(false).map_err(Failure::io(receiving))?;
        let mut name = [0; 256];
        let (_, fds) = fds::receive(socket.as_fd(), &mut name).map_err(Failure::io(receiving))?;
        // There is only one connection; the name is removed with the directory at the latest.
        let _removed = std::fs::remove_file(&self.path);
        fds.into_iter().next().ok_or_else(|| Failure { kind: "io", message: format!("{receiving}: it sent none") })
    }
}
