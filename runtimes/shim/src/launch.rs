//! Starts a shim and waits until it reports whether the container runs. The shim's stdin is a socket to us: it prepares, and goes on when
//! we send `go`. It answers `ready`, or `error <kind> <words>`. After that the socket is not needed: the shim outlives us.
//!
//! A shim that belongs into a cgroup begins there on cgroup v2 ([`spawn_in_cgroup`]), and enters it by itself on v1 ([`own_cgroups`]): both
//! cost no wait. Where the kernel can do neither, we move it.
//!
//! The shim is spawned without a fork of our own memory and makes itself a session leader. The task that waits for
//! it through its [`ProcessRef`] reaps it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use runtimes_contract::RuntimeError;
use runtimes_host::cgroup::Group;
use runtimes_host::process::{Pidfd, ProcessRef};
use runtimes_host::spawn::{Program, spawn_in_cgroup};

use crate::own_cgroups;
use crate::shims::kill;
use crate::state::STARTING;

/// A shim that does not answer for this time is killed.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// The wait after a failure to wait for a helper.
const REAP_RETRY: Duration = Duration::from_secs(1);
/// Most bytes of an answer.
const ANSWER_LEN_MAX: u64 = 16 * 1024;

/// A shim's answer; the words of the protocol are here for both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The content is at fault.
    Content,
    /// The command, working directory, port, … is at fault.
    Start,
    /// The machine lacks something.
    Missing,
    /// The system failed.
    Io,
}

impl Refusal {
    /// Its word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Start => "start",
            Self::Missing => "missing",
            Self::Io => "io",
        }
    }
}

/// Which processes a shim can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// Those of the node: the shim starts containers there.
    Node,
    /// Itself alone, as the first process of a namespace of its own.
    Own,
    /// Those of the node. It starts the container's process in a namespace which it makes, as another child of ours, and ends.
    OfChild,
}

/// Starts `program` with `args` and waits until it reports that the container runs. On an error the shim has ended and is
/// reaped. With a `cgroup` the shim is in it before it runs anything of the container. `dir` is the container's directory: it gets
/// `shim.log` (stderr) and `starting` (the shim's identity). If this call is dropped, the shim may go on; removing the container ends it.
pub async fn launch(
    program: &Path,
    args: Vec<OsString>,
    dir: &Path,
    cgroup: Option<Group>,
    pids: PidNamespace,
) -> Result<(), RuntimeError> {
    let program = program.to_owned();
    let (errors, starting) = (dir.join("shim.log"), dir.join(STARTING));
    let errors_again = errors.clone();
    let (sender, receiver) = oneshot::channel();
    let started = move || {
        let errors = File::options().create(true).truncate(true).write(true).mode(0o600).open(&errors_again);
        let errors = errors.map_err(RuntimeError::io(format!("making {}", errors_again.display())))?;
        let (shim, socket) = spawn(&program, &args, &errors, SockType::Stream, cgroup.as_ref(), pids)?;
        let mut record = OpenOptions::new();
        let record = record.create(true).truncate(true).write(true).mode(0o600).open(&starting);
        if let Err(error) = record.and_then(|mut record| record.write_all(shim.encode().as_bytes())) {
            drop(socket);
            kill(&shim)?;
            return Err(RuntimeError::io(format!("writing {}", starting.display()))(error));
        }
        // Nobody waits for the shim any more if the caller is gone.
        sender.send((shim, socket)).or_else(|(shim, _)| kill(&shim))
    };
    runtimes_host::blocking(started).await?;
    let gone = |_| RuntimeError::Tool { tool: "the shim", message: "it was not started".to_owned() };
    let (shim, mut socket) = receiver.await.map_err(gone)?;
    let heard = tokio::time::timeout(READY_TIMEOUT, hear(&mut socket)).await;
    let answer = heard.as_deref().unwrap_or_default().to_owned();
    let failure = match heard {
        Ok(answer) if answer == "ready\n" => {
            if pids == PidNamespace::OfChild {
                shim.ended().await.map_err(RuntimeError::io(format!("waiting for shim {}", shim.pid)))?;
            }
            return Ok(());
        }
        Ok(answer) => understand(&answer, || std::fs::read_to_string(&errors).unwrap_or_default()),
        Err(_) => RuntimeError::Tool { tool: "the shim", message: format!("said nothing for {} s", READY_TIMEOUT.as_secs()) },
    };
    let doing = || format!("ending shim {}", shim.pid);
    if let Some(handle) = shim.open().map_err(RuntimeError::io(doing()))? {
        // A shim that has answered is writing its exit record and ends by itself.
        if answer.is_empty() {
            handle.signal(libc::SIGKILL).map_err(RuntimeError::io(doing()))?;
        }
    }
    shim.ended().await.map_err(RuntimeError::io(doing()))?;
    Err(failure)
}

/// Starts `program` as the helper of an exec, which [`session`](crate::exec::session) talks to over the socket. With a `cgroup` the helper
/// is in it before it runs anything of the container. The helper is reaped, and `permit` returned, when it has ended.
///
/// # Errors
/// When it was not started.
pub async fn launch_helper(
    program: &Path,
    args: Vec<OsString>,
    cgroup: Option<Group>,
    pids: PidNamespace,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<UnixStream, RuntimeError> {
    let program = program.to_owned();
    // Its reaping begins where it is started: the caller may be gone by then. Until it has ended, it has its permit.
    let started = move || {
        let errors = null().map_err(RuntimeError::io("opening /dev/null"))?;
        let (helper, socket) = spawn(&program, &args, &errors, SockType::SeqPacket, cgroup.as_ref(), pids)?;
        tokio::spawn(async move {
            while let Err(error) = helper.ended().await {
                tracing::debug!(%error, "a helper of an exec was not waited for");
                tokio::time::sleep(REAP_RETRY).await;
            }
            drop(permit);
        });
        Ok(socket)
    };
    runtimes_host::blocking(started).await
}

/// Sends `go` and reads the answer to its end. A shim may fail before it reads `go`, and close the socket: its answer counts,
/// not the failed write.
async fn hear(socket: &mut UnixStream) -> String {
    let _heard = socket.write_all(b"go\n").await;
    let mut answer = Vec::new();
    let mut rest = socket.take(ANSWER_LEN_MAX);
    while let Ok(1..) = rest.read_buf(&mut answer).await {}
    String::from_utf8_lossy(&answer).into_owned()
}

/// With sockets of the kind `SeqPacket`, two messages are never read as one.
fn spawn(
    program: &Path,
    args: &[OsString],
    errors: &File,
    socket: SockType,
    cgroup: Option<&Group>,
    pids: PidNamespace,
) -> Result<(ProcessRef, UnixStream), RuntimeError> {
    let doing = || format!("starting {}", program.display());
    let pair = socketpair(AddressFamily::Unix, socket, None, SockFlag::SOCK_CLOEXEC).map_err(io::Error::from);
    let (ours, theirs) = pair.map_err(RuntimeError::io(doing()))?;
    let ours = std::os::unix::net::UnixStream::from(ours);
    ours.set_nonblocking(true).map_err(RuntimeError::io(doing()))?;
    let output = null().map_err(RuntimeError::io(doing()))?;
    let shim = Program { path: program, args, streams: [theirs.as_fd(), output.as_fd(), errors.as_fd()] };
    let dir = cgroup.map(Group::open_unified).transpose()?.flatten();
    let in_cgroup = dir.and_then(|dir| spawn_in_cgroup(dir.as_fd(), pids == PidNamespace::Own, &shim));
    let own_cgroups = cgroup.and_then(own_cgroups::files);
    let moved = cgroup.filter(|_| in_cgroup.is_none() && own_cgroups.is_none());
    let spawned = in_cgroup.unwrap_or_else(|| spawn_child(&shim, own_cgroups.as_deref(), pids));
    let pid = spawned.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            RuntimeError::Missing(format!("{} does not exist; it is built and installed beside skiff", program.display()))
        }
        _ => RuntimeError::io(doing())(error),
    })?;
    // It is our child, so its pid cannot be reused before it is reaped.
    let placed = moved.map_or(Ok(()), |cgroup| cgroup.add(pid)).and_then(|()| {
        let shim = ProcessRef::read(pid).map_err(RuntimeError::io(doing()))?;
        Ok((shim, UnixStream::from_std(ours).map_err(RuntimeError::io(doing()))?))
    });
    if placed.is_err() {
        kill_and_reap(pid);
    }
    placed
}

fn null() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}

/// Starts a shim in our cgroup. The namespace of a thread's children can be set only once, so each one needs a thread of its own.
fn spawn_child(shim: &Program<'_>, own_cgroups: Option<&OsStr>, pids: PidNamespace) -> io::Result<i32> {
    let [input, output, errors] = shim.streams.map(|stream| stream.try_clone_to_owned());
    let mut command = Command::new(shim.path);
    command.args(shim.args).env_clear().stdin(input?).stdout(output?).stderr(errors?);
    command.envs(own_cgroups.map(|files| (own_cgroups::VARIABLE, files)));
    let child = match pids {
        PidNamespace::Node | PidNamespace::OfChild => command.spawn(),
        PidNamespace::Own => {
            let spawn = || {
                unshare(CloneFlags::CLONE_NEWPID)?;
                command.spawn()
            };
            let ended = |_| Err(io::Error::other("the thread that starts the shim has ended"));
            std::thread::scope(|scope| scope.spawn(spawn).join().unwrap_or_else(ended))
        }
    };
    child.map(|child| child.id().cast_signed())
}

/// Ends a child that is not reaped.
fn kill_and_reap(pid: i32) {
    if let Ok(handle) = Pidfd::open(pid) {
        // The first error is the one to return.
        let _killed = handle.signal(libc::SIGKILL);
    }
    while waitpid(Pid::from_raw(pid), None) == Err(Errno::EINTR) {}
}

/// The error behind a shim's answer, or behind its silence: then what it wrote to stderr.
pub fn understand(answer: &str, errors: impl FnOnce() -> String) -> RuntimeError {
    let words = answer.strip_prefix("error ").and_then(|rest| rest.split_once(' '));
    match words.map(|(kind, message)| (kind, message.trim_end().to_owned())) {
        Some(("content", message)) => RuntimeError::BadContent(message),
        Some(("start", message)) => RuntimeError::Start(message),
        Some(("missing", message)) => RuntimeError::Missing(message),
        Some((_, message)) => RuntimeError::Tool { tool: "the shim", message },
        None => {
            let said = errors();
            let last = said.trim_end().lines().next_back().unwrap_or("it ended without a word");
            RuntimeError::Tool { tool: "the shim", message: last.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_errors() {
        let cases = [
            ("error content imports what is not offered\n", "imports what is not offered"),
            ("error start listen on port 80: address in use", "listen on port 80: address in use"),
            ("error io disk", "the shim failed: disk"),
            ("", "the shim failed: it ended without a word"),
            ("err", "the shim failed: it ended without a word"),
        ];
        for (answer, wanted) in cases {
            assert_eq!(understand(answer, String::new).to_string(), wanted);
        }
        assert!(matches!(understand("error start x", String::new), RuntimeError::Start(_)));
        assert!(matches!(understand("error content x", String::new), RuntimeError::BadContent(_)));
    }
}
