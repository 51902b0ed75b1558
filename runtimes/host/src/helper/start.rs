//! The starter's half: creates a cgroup, starts the process, sends the question, reads the answer, and interprets the end of
//! the process. Dropping a run kills the process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::{Bounds, Envelope, FILES_MAX, HelperError, MESSAGE_LEN_MAX, Reply, exit, size};
use crate::cgroup::{Cgroups, Group};
use crate::process::ProcessRef;
use runtimes_contract::Resources;
use runtimes_contract::RuntimeError;

/// How much longer than its deadline the process may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How much of the process' stderr is read.
const ERRORS_LEN_MAX: u64 = 4_096;
/// Half the weight of a container without a CPU request that counts.
const CPU_SHARES: u64 = 512;
/// The least weight that there is.
const LOW_CPU_SHARES: u64 = 2;
/// The nice value of the least weight.
const LOW_NICE: libc::c_int = 19;
/// The setting of the allocator with which freed memory is unmapped, so that the limit of the process' data counts what is in use.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "retain:false,dirty_decay_ms:100");
/// Begins the name of each process' cgroup; the starter and a number follow.
const GROUP: &str = "helper-";
/// Ends the name of the parent of cgroups of low priority.
const LOW: &str = "-low";

/// Starts processes that run one job each.
#[derive(Clone, Debug)]
pub struct Helper {
    program: PathBuf,
    args: Vec<OsString>,
    pub(super) cgroups: Option<(Cgroups, String)>,
    has_low_priority: bool,
}

/// One run.
#[derive(Debug)]
pub struct Job<'a, Q> {
    /// The directory that becomes the root, or on which an empty root is mounted.
    pub root: &'a Path,
    /// Its limits.
    pub bounds: Bounds,
    /// The question.
    pub question: Q,
    /// Files that the process gets, in order.
    pub files: Vec<OwnedFd>,
}

impl Helper {
    /// A program that calls [`super::serve`] when it is started with these arguments.
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Self {
        Self { program: program.into(), args: args.iter().map(OsString::from).collect(), cgroups: None, has_low_priority: false }
    }

    /// Puts each process into a cgroup of its own below `parent`. Without it memory is bounded by resource
    /// limits alone.
    ///
    /// # Errors
    /// When the machine has no cgroups that limit.
    pub fn in_cgroup(self, parent: &str) -> Result<Self, RuntimeError> {
        Ok(Self { cgroups: Some((Cgroups::detect()?, parent.to_owned())), ..self })
    }

    /// For work that can wait: its processes run when nothing else wants the CPU, neither Pods nor other helpers.
    #[must_use]
    pub fn with_low_priority(self) -> Self {
        Self { has_low_priority: true, ..self }
    }

    /// Removes cgroups of starters that have ended, and ends their processes. Blocks. Call it before the first run.
    ///
    /// # Errors
    /// When one of them cannot be removed.
    pub fn clear(&self) -> Result<(), RuntimeError> {
        let Some((cgroups, parent)) = &self.cgroups else { return Ok(()) };
        for parent in [parent.clone(), format!("{parent}{LOW}")] {
            Self::clear_below(cgroups, &parent)?;
        }
        Ok(())
    }

    fn clear_below(cgroups: &Cgroups, parent: &str) -> Result<(), RuntimeError> {
        for name in cgroups.group(parent)?.children() {
            let Some((starter, _number)) = name.strip_prefix(GROUP).and_then(|rest| rest.rsplit_once('-')) else { continue };
            // Earlier versions named only the starter's pid.
            if !ProcessRef::is_alive_by_name(starter) {
                cgroups.group(&format!("{parent}/{name}"))?.remove_tree()?;
            }
        }
        Ok(())
    }

    /// Runs the job to its end. Dropping the future kills the process.
    ///
    /// # Errors
    /// See [`HelperError`].
    pub async fn run<Q, A>(&self, job: Job<'_, Q>) -> Result<A, HelperError>
    where
        Q: Serialize,
        A: DeserializeOwned,
    {
        let Job { root, bounds, question, files } = job;
        let doing = || format!("starting {}", self.program.display());
        let envelope = serde_json::to_vec(&Envelope { root: root.to_owned(), bounds, question });
        let mut envelope = envelope.map_err(|error| HelperError::system(doing())(error.into()))?;
        envelope.push(b'\n');
        if envelope.len() > MESSAGE_LEN_MAX || files.len() > FILES_MAX {
            return Err(HelperError::system(doing())(io::ErrorKind::ArgumentListTooLong.into()));
        }
        let helper = self.clone();
        let started = tokio::task::spawn_blocking(move || helper.start(&envelope, &files, bounds)).await;
        let mut running = started.map_err(|error| HelperError::system(doing())(error.into()))??;
        let heard = tokio::time::timeout(bounds.wall + GRACE, running.hear()).await;
        let (answer, status) = heard.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => HelperError::Bound(too_long(bounds)),
            _ => HelperError::system("waiting for the process that does it")(error),
        })?;
        let answer = match serde_json::from_slice(&answer) {
            Ok(Reply::Done(answer)) if status.success() => Ok(answer),
            Ok(Reply::Failed(fault)) => Err(fault.into()),
            _ => Err(running.failure(status, bounds)),
        };
        running.remove_group().await;
        answer
    }

    fn start(&self, envelope: &[u8], files: &[OwnedFd], bounds: Bounds) -> Result<Running, HelperError> {
        let doing = || format!("starting {}", self.program.display());
        let group = self.group(bounds).map_err(|error| HelperError::system(doing())(io::Error::other(error)))?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(HelperError::system(doing()))?;
        let errors = memfd_create("errors", MFdFlags::MFD_CLOEXEC).map_err(|error| HelperError::system(doing())(error.into()))?;
        let errors = File::from(errors);
        let their_errors = errors.try_clone().map_err(HelperError::system(doing()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().env(ALLOCATOR.0, ALLOCATOR.1).kill_on_drop(true);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(their_errors);
        let child = command.spawn().map_err(HelperError::system(doing()))?;
        // The command owns their end of the socket.
        drop(command);
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        if let (Some(Placed(Some(group))), Some(pid)) = (&group, pid) {
            group.add(pid).map_err(|error| HelperError::system(doing())(io::Error::other(error)))?;
        }
        if let (true, Some(pid)) = (self.has_low_priority, pid) {
            lower_priority(pid).map_err(HelperError::system(doing()))?;
        }
        send(&ours, envelope, files).map_err(HelperError::system(doing()))?;
        ours.set_nonblocking(true).map_err(HelperError::system(doing()))?;
        let socket = UnixStream::from_std(ours).map_err(HelperError::system(doing()))?;
        Ok(Running { child, socket, errors, group })
    }

    fn group(&self, bounds: Bounds) -> Result<Option<Placed>, RuntimeError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some((cgroups, parent)) = &self.cgroups else { return Ok(None) };
        let parent = if self.has_low_priority { format!("{parent}{LOW}") } else { parent.clone() };
        if self.has_low_priority {
            // A weight counts among siblings: the parent's is the one beside Pods and other helpers.
            cgroups.group(&parent)?.create(&Resources { cpu_shares: Some(LOW_CPU_SHARES), ..Resources::default() })?;
        }
        let starter = ProcessRef::current().map_err(RuntimeError::io("reading /proc/self/stat"))?;
        let name = format!("{parent}/{GROUP}{}-{}", starter.encode_name(), COUNT.fetch_add(1, Ordering::Relaxed));
        let placed = Placed(Some(cgroups.group(&name)?));
        let limits = Resources {
            memory_limit_bytes: Some(bounds.memory_bytes),
            cpu_shares: Some(CPU_SHARES),
            // The first of the two processes counts.
            pids_max: Some(i64::from(bounds.threads) + 1),
            ..Resources::default()
        };
        if let Some(group) = &placed.0 {
            group.create(&limits)?;
        }
        Ok(Some(placed))
    }
}

/// The process waits for its question, and what it starts later inherits the value: this counts also on a machine without cgroups.
fn lower_priority(pid: i32) -> io::Result<()> {
    // SAFETY: the call takes integers alone; the process is our child and not reaped, so that the pid is its own.
    let lowered = unsafe { libc::setpriority(libc::PRIO_PROCESS, pid.unsigned_abs(), LOW_NICE) };
    nix::errno::Errno::result(lowered).map(drop).map_err(io::Error::from)
}

/// The question and its files; the socket is empty, so that all of it is sent at once.
fn send(socket: &std::os::unix::net::UnixStream, envelope: &[u8], files: &[OwnedFd]) -> io::Result<()> {
    let raw: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
    let sent = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(envelope)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    io::Write::write_all(&mut &*socket, envelope.get(sent..).unwrap_or_default())
}

/// A running process. Dropping it kills the process; its group is removed when it is empty.
struct Running {
    child: Child,
    socket: UnixStream,
    errors: File,
    group: Option<Placed>,
}

impl Running {
    /// The answer to its end, and how the process ended.
    async fn hear(&mut self) -> io::Result<(Vec<u8>, ExitStatus)> {
        let mut answer = Vec::new();
        let mut socket = (&mut self.socket).take(MESSAGE_LEN_MAX as u64);
        // A process that is killed in the middle resets the connection: its exit status tells how it ended.
        while let Ok(1..) = socket.read_buf(&mut answer).await {}
        if answer.len() >= MESSAGE_LEN_MAX {
            self.child.start_kill()?;
        }
        Ok((answer, self.child.wait().await?))
    }

    /// Removes the group of a process that has ended, and waits for that: a command that ends after its helper would leave it.
    async fn remove_group(&mut self) {
        if let Some(placed) = self.group.take() {
            // The removal does not panic. If the runtime ends, the next start of the agent removes the group.
            let _removed = tokio::task::spawn_blocking(move || placed.remove()).await;
        }
    }

    /// The meaning of an end without an answer.
    fn failure(&mut self, status: ExitStatus, bounds: Bounds) -> HelperError {
        let mut text = Vec::new();
        let from = self.errors.metadata().map_or(0, |meta| meta.len().saturating_sub(ERRORS_LEN_MAX));
        let said = self.errors.seek(SeekFrom::Start(from)).and_then(|_| (&self.errors).take(ERRORS_LEN_MAX).read_to_end(&mut text));
        let said = said.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let oom_kills = self.group.as_ref().and_then(|placed| placed.0.as_ref()).map_or(0, Group::oom_kills);
        interpret(status, &said, oom_kills > 0, bounds)
    }
}

/// How a process without an answer ended. The process alone wrote its stderr.
fn interpret(status: ExitStatus, said: &str, oom_killed: bool, bounds: Bounds) -> HelperError {
    let memory = || HelperError::Bound(format!("it takes more than {} of memory", size(bounds.memory_bytes)));
    match status.code() {
        _ if oom_killed => memory(),
        Some(exit::WALL) => HelperError::Bound(too_long(bounds)),
        Some(exit::CPU) => HelperError::Bound(format!("it takes more than {} s of CPU time", bounds.cpu.as_secs())),
        // Rust's runtime writes this before it aborts.
        _ if said.contains("memory allocation of ") => memory(),
        Some(code) if code > exit::SIGNAL => HelperError::Crashed(last_line(said, &format!("signal {}", code - exit::SIGNAL))),
        Some(code) => HelperError::Crashed(last_line(said, &format!("exit code {code}"))),
        None => HelperError::Crashed(last_line(said, &format!("signal {}", status.signal().unwrap_or_default()))),
    }
}

fn too_long(bounds: Bounds) -> String {
    format!("it takes longer than {} s", bounds.wall.as_secs())
}

fn last_line(said: &str, otherwise: &str) -> String {
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with("note: "));
    line.map_or_else(|| otherwise.to_owned(), |line| line.chars().filter(|one| !one.is_control()).take(512).collect())
}

/// The cgroup of one process, which is removed with its processes when it is dropped.
struct Placed(Option<Group>);

impl Placed {
    /// Removes the group. If that is not possible now, the next start of the agent removes it.
    fn remove(mut self) {
        if let Some(group) = self.0.take() {
            drop(group.remove_tree());
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let Some(group) = self.0.take() else { return };
        let placed = Self(Some(group));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(|| placed.remove())),
            Err(_) => placed.remove(),
        }
    }
}
