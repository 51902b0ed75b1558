//! The directory of the device plugins: it has one owner at a time, the sockets in it are opened by name without following links, and
//! those that nobody serves any more go when a node begins.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::net::{UnixListener, UnixStream};

use crate::error::{DirectoryError, RegisterError};
use crate::wire::KUBELET_SOCKET;

/// Upstream's mode of the directory.
const DIR_MODE: u32 = 0o750;
/// Whoever registers may get devices of Pods, and has files of the node mounted: root alone.
const SOCKET_MODE: u32 = 0o600;
/// How long a plugin may take to accept a connection; upstream's.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts to connect to a plugin that does not listen yet.
const DIAL_RETRY: Duration = Duration::from_millis(100);
/// How long to wait for the answer whether somebody listens.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The directory, locked until dropped.
pub(crate) struct Directory {
    path: PathBuf,
    /// The directory itself, whatever is mounted or moved at its path later. The owner locks it.
    dir: File,
}

impl Directory {
    /// Makes the directory if need be, and takes it. Fails when another agent has it, or a program listens on its socket. Then removes
    /// the sockets in it, as upstream: plugins that watch for that register again.
    pub(crate) async fn take(path: &Path) -> Result<Self, DirectoryError> {
        let directory = Self::lock(path)?;
        let socket = directory.path.join(KUBELET_SOCKET);
        if is_listening(&directory.at(KUBELET_SOCKET)).await {
            return Err(DirectoryError::Listening(socket));
        }
        directory.remove_sockets()?;
        Ok(directory)
    }

    /// Blocks for a few system calls.
    fn lock(path: &Path) -> Result<Self, DirectoryError> {
        let made = DirBuilder::new().recursive(true).mode(DIR_MODE).create(path);
        made.map_err(DirectoryError::io("making", path))?;
        let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(path);
        let dir = opened.map_err(DirectoryError::io("opening", path))?;
        let meta = dir.metadata().map_err(DirectoryError::io("reading", path))?;
        if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(DirectoryError::Writable(path.to_owned()));
        }
        match dir.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), dir }),
            Err(fs::TryLockError::WouldBlock) => Err(DirectoryError::Taken(path.to_owned())),
            Err(fs::TryLockError::Error(source)) => Err(DirectoryError::io("locking", path)(source)),
        }
    }

    /// The path of an entry, which is short enough for a socket's address.
    fn at(&self, name: &str) -> PathBuf {
        below(&self.dir, name)
    }

    fn remove_sockets(&self) -> Result<(), DirectoryError> {
        for entry in fs::read_dir(self.at("")).map_err(DirectoryError::io("listing", &self.path))? {
            let entry = entry.map_err(DirectoryError::io("listing", &self.path))?;
            // Not what a link leads to.
            if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
                remove(&entry.path()).map_err(DirectoryError::io("removing", self.path.join(entry.file_name())))?;
            }
        }
        Ok(())
    }

    /// Listens for registrations.
    pub(crate) fn listen(&self) -> Result<RegistrationSocket, DirectoryError> {
        let failed = || DirectoryError::io("listening on", self.path.join(KUBELET_SOCKET));
        let path = self.at(KUBELET_SOCKET);
        let listener = UnixListener::bind(&path).map_err(failed())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(SOCKET_MODE)).map_err(failed())?;
        let inode = fs::symlink_metadata(&path).map_err(failed())?.ino();
        Ok(RegistrationSocket { listener, inode })
    }

    /// Removes the socket of the registration, unless it is another one by now.
    pub(crate) fn remove_socket(&self, inode: u64) -> io::Result<()> {
        let path = self.at(KUBELET_SOCKET);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.ino() == inode => remove(&path),
            _ => Ok(()),
        }
    }

    /// Connects to a plugin by the name of its socket. As upstream, a plugin may register before it listens.
    pub(crate) async fn dial(&self, endpoint: &str) -> Result<UnixStream, RegisterError> {
        let is_name = !endpoint.contains(['/', '\0']) && !["", ".", "..", KUBELET_SOCKET].contains(&endpoint);
        if !is_name {
            return Err(RegisterError::Endpoint(endpoint.to_owned()));
        }
        let began = tokio::time::Instant::now();
        loop {
            match self.dial_once(endpoint).await {
                Err(RegisterError::Absent(_)) if began.elapsed() < DIAL_TIMEOUT => tokio::time::sleep(DIAL_RETRY).await,
                dialled => return dialled,
            }
        }
    }

    async fn dial_once(&self, endpoint: &str) -> Result<UnixStream, RegisterError> {
        let dial_error = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => RegisterError::Absent(error.to_string()),
            _ => RegisterError::Dial(error.to_string()),
        };
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        let socket = OpenOptions::new().read(true).custom_flags(flags.bits()).open(self.at(endpoint));
        let socket = socket.map_err(dial_error)?;
        if !socket.metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
            return Err(RegisterError::Endpoint(endpoint.to_owned()));
        }
        // The very file that was checked.
        let connecting = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        let connected = tokio::time::timeout(DIAL_TIMEOUT, connecting).await;
        let connected = connected.map_err(|_| RegisterError::Dial("context deadline exceeded".to_owned()))?;
        connected.map_err(dial_error)
    }
}

/// The socket of the registration.
pub(crate) struct RegistrationSocket {
    pub(crate) listener: UnixListener,
    pub(crate) inode: u64,
}

/// Removes the socket that an agent left which was killed. Another owner's stays.
pub(crate) async fn remove_leftover(path: &Path) {
    if !path.exists() {
        return;
    }
    match Directory::take(path).await {
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "the directory of the device plugins stays as it is"),
    }
}

fn below(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether somebody accepts connections, or has so many that they wait.
async fn is_listening(socket: &Path) -> bool {
    let connecting = tokio::time::timeout(PROBE_TIMEOUT, UnixStream::connect(socket)).await;
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    !matches!(connecting, Ok(Err(error)) if gone.contains(&error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_directory_where_anybody_may_write() {
        let at = tempfile::tempdir().expect("a directory");
        drop(std::os::unix::net::UnixListener::bind(at.path().join("stale.sock")).expect("a socket"));
        fs::set_permissions(at.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
        let refused = Directory::take(at.path()).await.err();
        assert!(matches!(refused, Some(DirectoryError::Writable(_))), "{refused:?}");
        assert!(at.path().join("stale.sock").exists(), "nothing is removed there");
        fs::set_permissions(at.path(), fs::Permissions::from_mode(0o750)).expect("a mode");
        Directory::take(at.path()).await.expect("taken");
        assert!(!at.path().join("stale.sock").exists(), "nobody serves it");
    }
}
