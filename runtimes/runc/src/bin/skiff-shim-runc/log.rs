//! The container's log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runtimes_shim::attach::Hub;
use runtimes_shim::cri::{LineWriter, Stream};

/// The bytes of one read of a stream.
const CHUNK_LEN: usize = 16 << 10;

/// The file, which may be renamed while it is open.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Opens the file, which the agent has created.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: open(path)? })
    }

    /// Writes to the file that has the name now. The old one stays when there is none.
    pub fn reopen(&mut self) {
        if let Ok(file) = open(&self.path) {
            self.file = file;
        }
    }

    /// A full disk must not stop the container: lines that do not fit are lost, as in other runtimes.
    fn write(&mut self, lines: &[u8]) {
        let _written = self.file.write_all(lines);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// One of the container's streams, until it ends.
pub struct Source {
    from: File,
    stream: Stream,
    lines: LineWriter,
    scratch: Vec<u8>,
}

impl Source {
    /// The reading end of a pipe, or a terminal.
    pub fn new(from: OwnedFd, stream: Stream) -> Self {
        Self { from: File::from(from), stream, lines: LineWriter::new(stream), scratch: Vec::new() }
    }

    /// Copies the present bytes to the log and to all attached clients; returns whether there may be more.
    pub fn copy(&mut self, log: &mut Log, hub: &mut Hub) -> bool {
        let mut chunk = [0; CHUNK_LEN];
        let more = match self.from.read(&mut chunk) {
            Ok(len @ 1..) => {
                let bytes = chunk.get(..len).unwrap_or_default();
                hub.output(self.stream, bytes);
                self.lines.push(bytes, SystemTime::now(), &mut self.scratch);
                true
            }
            // A terminal does not block, since its other direction must not.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => true,
            // The end; a terminal returns EIO when its last process is gone.
            Ok(_) | Err(_) => {
                self.lines.finish(SystemTime::now(), &mut self.scratch);
                false
            }
        };
        if !self.scratch.is_empty() {
            log.write(&self.scratch);
            self.scratch.clear();
        }
        more
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}
