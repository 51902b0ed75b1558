//! The container's log: guest streams as CRI lines. Writing is direct; a page cache write is faster
//! than handing it to a thread.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use parking_lot::Mutex;
use runtimes_host::mounts::detached;
use runtimes_shim::cri::{LineWriter, Stream};
use runtimes_shim::launch::Refusal;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::attached::Attached;
use super::{Failure, signals};

/// The most bytes that a guest may write at once.
const PERMIT_LEN: usize = 64 << 10;

/// The log file. Its directory is open as a mount of its own that is not in the file system: a new file can be opened there
/// after the old one was renamed, and `..` leads to the directory itself.
pub struct Log {
    dir: OwnedFd,
    name: OsString,
    file: Mutex<File>,
    attached: Arc<Attached>,
}

impl Log {
    /// Opens the file, which the agent has created. Attached clients get the same bytes.
    pub fn open(path: &Path, attached: Arc<Attached>) -> Result<Self, Failure> {
        let opening = || format!("opening the log {}", path.display());
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Failure::new(Refusal::Io, format!("{}: not a file name", opening())));
        };
        let parent = CString::new(parent.as_os_str().as_bytes()).map_err(Failure::io(opening()))?;
        let dir = detached(AT_FDCWD, &parent, 0).map_err(Failure::io(opening()))?;
        let file = open_in(&dir, name).map_err(Failure::io(opening()))?;
        Ok(Self { dir, name: name.to_owned(), file: Mutex::new(file), attached })
    }

    /// A stream of its own: lines of two streams never mix within a line.
    pub fn stream(self: &Arc<Self>, stream: Stream) -> LogStream {
        LogStream(Arc::new(Mutex::new(Lines { log: self.clone(), stream, writer: LineWriter::new(stream), scratch: Vec::new() })))
    }

    fn write(&self, lines: &[u8]) {
        let mut file = self.file.lock();
        if signals::take_reopen()
            && let Ok(fresh) = open_in(&self.dir, &self.name)
        {
            *file = fresh;
        }
        // A full disk must not end the guest: lines that do not fit are lost, as in other runtimes.
        let _written = file.write_all(lines);
    }
}

fn open_in(dir: &OwnedFd, name: &std::ffi::OsStr) -> nix::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(dir.as_fd(), name, flags, Mode::empty()).map(File::from)
}

struct Lines {
    log: Arc<Log>,
    stream: Stream,
    writer: LineWriter,
    scratch: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.log.attached.output(self.stream, bytes);
        self.writer.push(bytes, SystemTime::now(), &mut self.scratch);
        self.out();
    }

    fn out(&mut self) {
        if !self.scratch.is_empty() {
            self.log.write(&self.scratch);
            self.scratch.clear();
            self.scratch.shrink_to(PERMIT_LEN);
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.writer.finish(SystemTime::now(), &mut self.scratch);
        self.out();
    }
}

/// One stream of a guest. Its clones are the same stream.
#[derive(Clone)]
pub struct LogStream(Arc<Mutex<Lines>>);

impl LogStream {
    /// Writes text now.
    pub fn say(&self, text: &str) {
        self.push(text.as_bytes());
    }

    /// Writes bytes now.
    pub fn push(&self, bytes: &[u8]) {
        self.0.lock().push(bytes);
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.0.lock().push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT_LEN)
    }
}

impl AsyncWrite for LogStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
