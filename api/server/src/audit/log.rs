//! The file of the audit events. One thread writes it from a bounded buffer, so that a request never waits for the
//! disk. When the buffer is full, requests wait, so that no event is lost: this is upstream's blocking mode with a
//! buffer before it.
//!
//! The file is rotated by size. A rotated file has the time of the rotation in its name
//! (`audit-2026-01-02T03-04-05.678.log`). Rotated files are removed by age and number, as lumberjack does it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api_tasks::Tasks;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of events in the buffer: upstream's default of `--audit-log-batch-buffer-size`.
const BUFFER_LEN_MAX: usize = 10_000;
/// Format of the time in the names of rotated files.
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";
/// The writing thread's name.
const TASK: &str = "api-server/audit-log";
const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The destination of events; names follow upstream's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    /// `--audit-log-path`: a file, or `-` for standard output.
    pub path: PathBuf,
    /// `--audit-log-maxage`: days that rotated files are kept; 0, whatever their age.
    pub max_age_days: u32,
    /// `--audit-log-maxbackup`: rotated files that are kept; 0, all.
    pub max_backups: u32,
    /// `--audit-log-maxsize`: megabytes after which the file is rotated; 0 stands for 100.
    pub max_size_mb: u32,
}

enum Message {
    Line(Vec<u8>),
    /// Write everything to the file, then answer.
    Flush(oneshot::Sender<()>),
}

/// The sender to the writing thread.
pub(super) struct Writer {
    sender: mpsc::Sender<Message>,
    pub(super) counts: Arc<Counts>,
}

/// Counters for the metrics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) events: AtomicU64,
    pub(super) errors: AtomicU64,
}

impl Writer {
    /// Opens the file, and starts the thread that writes it as one of `tasks`.
    pub(super) fn open(log: &AuditLog, tasks: &Tasks) -> io::Result<Self> {
        let mut output = Output::open(log)?;
        let (sender, receiver) = mpsc::channel(BUFFER_LEN_MAX);
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        // The thread ends when the last sender is dropped. A stopping server waits for `flush`, not for the thread.
        tasks.own_thread(TASK, move || write(receiver, &mut output, &counted))?;
        Ok(Self { sender, counts })
    }

    /// Sends an event to the thread; waits while the buffer is full.
    pub(super) async fn put(&self, line: Vec<u8>) {
        // The thread ends only after the last sender.
        let _ = self.sender.send(Message::Line(line)).await;
    }

    /// Sends an event to the thread if the buffer has space.
    pub(super) fn try_put(&self, line: Vec<u8>) -> Result<(), Vec<u8>> {
        use mpsc::error::TrySendError;
        match self.sender.try_send(Message::Line(line)) {
            Err(TrySendError::Full(Message::Line(line))) => Err(line),
            _ => Ok(()),
        }
    }

    /// Waits until every event sent so far is in the file.
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

fn write(mut receiver: mpsc::Receiver<Message>, output: &mut Output, counts: &Counts) {
    let mut messages = Vec::new();
    while receiver.blocking_recv_many(&mut messages, BUFFER_LEN_MAX) > 0 {
        api_tasks::fault_point(TASK);
        let mut waiting = Vec::new();
        for message in messages.drain(..) {
            match message {
                Message::Line(line) => {
                    counts.events.fetch_add(1, Ordering::Relaxed);
                    note(output.put(&line), counts);
                }
                Message::Flush(done) => waiting.push(done),
            }
        }
        note(output.file.flush(), counts);
        for done in waiting {
            // The caller may have stopped waiting.
            let _ = done.send(());
        }
    }
}

fn note(written: io::Result<()>, counts: &Counts) {
    if let Err(error) = written {
        counts.errors.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, "writing the audit log failed");
    }
}

struct Output {
    log: AuditLog,
    file: Box<dyn Write + Send>,
    size: u64,
}

impl Output {
    fn open(log: &AuditLog) -> io::Result<Self> {
        if log.is_stdout() {
            return Ok(Self { log: log.clone(), file: Box::new(io::stdout()), size: 0 });
        }
        if let Some(directory) = log.path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory)?;
        }
        let (file, size) = append(&log.path)?;
        Ok(Self { log: log.clone(), file: Box::new(BufWriter::new(file)), size })
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let len = line.len() as u64;
        if !self.log.is_stdout() && self.size > 0 && self.size + len > self.log.size_bytes_max() {
            self.rotate()?;
        }
        self.size += len;
        self.file.write_all(line)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let now = api_clock::now();
        std::fs::rename(&self.log.path, self.log.rotated(now))?;
        let (file, size) = append(&self.log.path)?;
        (self.file, self.size) = (Box::new(BufWriter::new(file)), size);
        let rotated = self.log.rotated_files()?;
        for path in surplus(&self.log, rotated, now) {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Opens a file that only its owner may read.
fn append(path: &Path) -> io::Result<(File, u64)> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// The rotated files to remove because of the limits for number and age.
fn surplus(log: &AuditLog, mut rotated: Vec<(Timestamp, PathBuf)>, now: Timestamp) -> Vec<PathBuf> {
    rotated.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let age_max = DAY * log.max_age_days;
    let is_old = |at: Timestamp| Duration::try_from(now.duration_since(at)).is_ok_and(|age| age > age_max);
    let number_max = usize::try_from(log.max_backups).unwrap_or(usize::MAX);
    let is_retained =
        |number: usize, at: Timestamp| (log.max_backups == 0 || number < number_max) && (log.max_age_days == 0 || !is_old(at));
    rotated.into_iter().enumerate().filter(|(number, (at, _))| !is_retained(*number, *at)).map(|(_, (_, path))| path).collect()
}

impl AuditLog {
    fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    fn size_bytes_max(&self) -> u64 {
        u64::from(if self.max_size_mb == 0 { 100 } else { self.max_size_mb }) * MEGABYTE
    }

    /// The file's name before and after the time.
    fn name_parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let extension = part(self.path.extension()).map(|extension| format!(".{extension}")).unwrap_or_default();
        (format!("{}-", part(self.path.file_stem()).unwrap_or_default()), extension)
    }

    fn rotated(&self, at: Timestamp) -> PathBuf {
        let (stem, extension) = self.name_parts();
        self.path.with_file_name(format!("{stem}{}{extension}", at.strftime(TIME_FORMAT)))
    }

    fn rotated_files(&self) -> io::Result<Vec<(Timestamp, PathBuf)>> {
        let (stem, extension) = self.name_parts();
        let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&extension));
            if let Some(at) = time.and_then(rotated_at) {
                found.push((at, entry.path()));
            }
        }
        Ok(found)
    }
}

fn rotated_at(text: &str) -> Option<Timestamp> {
    Some(DateTime::strptime(TIME_FORMAT, text).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use api_tasks::TaskFailure;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_is_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let tasks = Tasks::new(CancellationToken::new());
        let writer = Writer::open(&log(directory.path().join("audit.log")), &tasks).expect("opens");
        api_tasks::fault::inject(TASK, api_tasks::fault::Fault::Panic);
        writer.put(b"one\n".to_vec()).await;
        let failure = tokio::time::timeout(Duration::from_secs(1), tasks.failed()).await.expect("seen within a second");
        assert!(matches!(failure, TaskFailure::Panicked { task: TASK, .. }), "{failure}");
    }

    fn log(path: PathBuf) -> AuditLog {
        AuditLog { path, max_age_days: 0, max_backups: 0, max_size_mb: 1 }
    }

    fn files(directory: &Path) -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
        let mut files: Vec<_> =
            entries.map(|e| (e.file_name().to_string_lossy().into_owned(), e.metadata().expect("metadata").len())).collect();
        files.sort();
        files
    }

    #[tokio::test]
    async fn what_was_put_is_in_the_file_after_a_flush() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = log(directory.path().join("deep/audit.log"));
        let tasks = Tasks::new(CancellationToken::new());
        for _ in 0..2 {
            let writer = Writer::open(&log, &tasks).expect("opens");
            writer.put(b"one\n".to_vec()).await;
            writer.try_put(b"two\n".to_vec()).expect("room");
            writer.flush().await;
            assert_eq!(writer.counts.events.load(Ordering::Relaxed), 2);
        }
        assert_eq!(std::fs::read_to_string(&log.path).expect("text"), "one\ntwo\none\ntwo\n", "a new start appends");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&log.path).expect("a file").permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_full_file_is_rotated() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut output = Output::open(&AuditLog { max_backups: 1, ..log(directory.path().join("audit.log")) }).expect("opens");
        std::fs::write(directory.path().join("audit-2020-01-02T03-04-05.678.log"), "old").expect("writes");
        std::fs::write(directory.path().join("audit-of-another.log"), "not ours").expect("writes");
        let line = vec![b'x'; 700 * 1024];
        output.put(&line).expect("writes");
        output.put(&line).expect("writes");
        output.file.flush().expect("writes");
        let files = files(directory.path());
        let lens: Vec<u64> = files.iter().map(|(_, len)| *len).collect();
        assert_eq!(lens, [700 * 1024, 8, 700 * 1024], "{files:?}");
        assert!(files[0].0.starts_with("audit-2") && !files[0].0.contains("2020"), "the oldest went: {files:?}");
    }

    #[test]
    fn rotated_files_go_by_number_and_by_age() {
        let log = |max_backups, max_age_days| AuditLog { max_backups, max_age_days, ..log("/x/audit.log".into()) };
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let rotated = || ["03", "01", "02"].map(|day| (at(&format!("2026-01-{day}T00:00:00Z")), PathBuf::from(day))).to_vec();
        let now = at("2026-01-04T00:00:00Z");
        let gone = |log| surplus(&log, rotated(), now).into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(gone(log(0, 0)), [""; 0]);
        assert_eq!(gone(log(1, 0)), ["02", "01"]);
        assert_eq!(gone(log(0, 2)), ["01"]);
        assert_eq!(gone(log(2, 1)), ["02", "01"]);
        let time = at("2026-01-02T03:04:05.678Z");
        let path = log(0, 0).rotated(time);
        assert_eq!(path, PathBuf::from("/x/audit-2026-01-02T03-04-05.678.log"));
        assert_eq!(rotated_at("2026-01-02T03-04-05.678"), Some(time));
    }
}
