//! Reads a container's log as `kubectl logs` requests it: from which time, how many lines, with times or without, and following
//! the log as it grows.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncSeekExt as _, BufReader};
use tokio::sync::mpsc;

use super::Line;
use super::changes::Changes;

/// Bytes sent at one time.
const CHUNK_LEN: usize = 32 * 1_024;
/// The longest line that is read; containers write no longer ones.
const LINE_LEN_MAX: u64 = 64 * 1_024;
/// Bytes read at one time in the search for the last lines.
const BLOCK_LEN: u64 = 16 * 1_024;
/// The bytes at the end of a file among which the last lines are searched. Rotation keeps logs far shorter, but an attacker who
/// controls a shim can write a file of any length.
const TAIL_LEN_MAX: u64 = 256 << 20;

/// The options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) follow: bool,
    pub(crate) tail_lines: Option<u64>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) timestamps: bool,
    /// `stdout` or `stderr` alone.
    pub(crate) stream: Option<String>,
}

/// Sends a log to `out` until its end, until the reader is gone, or, when following, until `ended` reports that the container
/// writes no more.
pub(crate) async fn send(path: PathBuf, options: Options, ended: BoxFuture<'static, ()>, out: mpsc::Sender<io::Result<Bytes>>) {
    let mut reader = Reader { options, sent: 0, skipping: true, buffer: BytesMut::new(), out };
    if let Err(error) = reader.run(&path, ended).await
        && reader.out.send(Err(error)).await.is_err()
    {
        tracing::debug!("the log's reader is gone");
    }
}

struct Reader {
    options: Options,
    sent: u64,
    /// Lines before `since` are still being passed over.
    skipping: bool,
    buffer: BytesMut,
    out: mpsc::Sender<io::Result<Bytes>>,
}

/// The result at the end of a file.
enum End {
    /// All is read.
    Reached,
    /// The limit is reached, or the reader is gone.
    Enough,
}

impl Reader {
    async fn run(&mut self, path: &Path, mut ended: BoxFuture<'static, ()>) -> io::Result<()> {
        let dir = path.parent().unwrap_or(path);
        // Watched before the first read: nothing can be missed in between.
        let changes = if self.options.follow { Some(Changes::new(dir)?) } else { None };
        let mut file = BufReader::new(open(path, self.options.tail_lines).await?);
        let mut over = false;
        loop {
            if matches!(self.drain(&mut file).await?, End::Enough) {
                return Ok(());
            }
            let Some(changes) = changes.as_ref().filter(|_| !over) else { return Ok(()) };
            if let Some(next) = rotated(path, file.get_ref()).await? {
                // Lines that were written before the rename have been read, or are read now.
                if matches!(self.drain(&mut file).await?, End::Enough) {
                    return Ok(());
                }
                file = BufReader::new(next);
                continue;
            }
            tokio::select! {
                changed = changes.next() => changed?,
                () = &mut ended => over = true,
                () = self.out.closed() => return Ok(()),
            }
        }
    }

    /// Sends all complete lines of the file.
    async fn drain(&mut self, file: &mut BufReader<File>) -> io::Result<End> {
        loop {
            let mut line = Vec::new();
            let read = (&mut *file).take(LINE_LEN_MAX).read_until(b'\n', &mut line).await?;
            if line.last() != Some(&b'\n') && u64::try_from(read).unwrap_or(0) < LINE_LEN_MAX {
                // An incomplete line: it is read again when the rest is written.
                let back = i64::try_from(read).unwrap_or(0);
                file.seek(SeekFrom::Current(-back)).await?;
                return Ok(if self.flush().await { End::Reached } else { End::Enough });
            }
            line.pop();
            // Skipped lines are never sent: without this check the loop would not notice that the reader is gone.
            if !self.take(&line) || self.out.is_closed() {
                self.flush().await;
                return Ok(End::Enough);
            }
            if self.buffer.len() >= CHUNK_LEN && !self.flush().await {
                return Ok(End::Enough);
            }
        }
    }

    /// Adds a line to the next chunk; false when the limit is reached.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let Some(line) = Line::parse(bytes) else { return true };
        if self.skipping {
            if let Some(since) = self.options.since
                && line.at().is_some_and(|at| at < since)
            {
                return true;
            }
            self.skipping = false;
        }
        if self.options.stream.as_ref().is_some_and(|stream| stream.as_bytes() != line.stream) {
            return true;
        }
        let before = self.buffer.len();
        if self.options.timestamps {
            self.buffer.put_slice(line.time);
            self.buffer.put_u8(b' ');
        }
        self.buffer.put_slice(line.text);
        if !line.partial {
            self.buffer.put_u8(b'\n');
        }
        self.sent += u64::try_from(self.buffer.len() - before).unwrap_or(0);
        let over = self.options.limit_bytes.map_or(0, |limit| self.sent.saturating_sub(limit));
        if over > 0 {
            let keep = self.buffer.len().saturating_sub(usize::try_from(over).unwrap_or(usize::MAX));
            self.buffer.truncate(keep);
        }
        self.options.limit_bytes.is_none_or(|limit| self.sent < limit)
    }

    /// False when the reader is gone.
    async fn flush(&mut self) -> bool {
        let chunk = self.buffer.split().freeze();
        chunk.is_empty() || self.out.send(Ok(chunk)).await.is_ok()
    }
}

async fn open(path: &Path, tail_lines: Option<u64>) -> io::Result<File> {
    let mut file = File::open(path).await?;
    if let Some(lines) = tail_lines {
        let path = path.to_owned();
        let offset = api_tasks::blocking("node-agent/read-logs", move || tail_offset(&path, lines)).await.map_err(io::Error::other)??;
        file.seek(SeekFrom::Start(offset)).await?;
    }
    Ok(file)
}

/// The new file, when the path leads to another file than the open one.
async fn rotated(path: &Path, open: &File) -> io::Result<Option<File>> {
    match File::open(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(now) => Ok((now.metadata().await?.ino() != open.metadata().await?.ino()).then_some(now)),
    }
}

/// The position at which the last `lines` lines begin. Blocks.
fn tail_offset(path: &Path, lines: u64) -> io::Result<u64> {
    let mut file = std::fs::File::open(path)?;
    let len = file.metadata()?.len();
    if lines == 0 {
        return Ok(len);
    }
    // The newline at the very end belongs to the last line.
    let (mut end, mut left) = (len.saturating_sub(1), lines);
    let first = end.saturating_sub(TAIL_LEN_MAX);
    while end > first {
        let start = end.saturating_sub(BLOCK_LEN).max(first);
        let mut block = vec![0; usize::try_from(end - start).unwrap_or(0)];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        for (at, byte) in block.iter().enumerate().rev() {
            if *byte == b'\n' {
                left -= 1;
                if left == 0 {
                    return Ok(start + u64::try_from(at).unwrap_or(0) + 1);
                }
            }
        }
        end = start;
    }
    Ok(first)
}
