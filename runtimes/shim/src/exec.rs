//! The agent's side of a further process in a running container. A helper (the shim's binary again) starts the process and sends its
//! exit code. A helper without the agent kills the process, or lets it continue if it outlives its session. Pipes, or a terminal,
//! are sent over the helper's socket: the agent sends `go` with descriptors, the helper answers `ready` or why not, and at the end
//! `exit CODE`.

mod terminal;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use runtimes_contract::{ContainerId, ExecSession, ExecSpec, RuntimeError, TerminalSize};
use runtimes_host::Keyed;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::attach::hub::resize;
use crate::fds;
pub use terminal::Terminal;

/// Longest message of a helper.
const MESSAGE_LEN_MAX: usize = 4096;

/// The permits of processes that outlive their sessions, by container. A client that starts commands and leaves must not fill the node
/// or the container with them.
pub struct Permits {
    max: usize,
    by_container: Keyed<ContainerId, Semaphore>,
}

impl Permits {
    /// So many for each container.
    pub fn new(max: usize) -> Self {
        Self { max, by_container: Keyed::default() }
    }

    /// A permit for one more process; `None` for a process that ends with its session, which needs no permit.
    ///
    /// # Errors
    /// When the container has as many of them as it may have.
    pub fn take(&self, id: &ContainerId, exec: &ExecSpec) -> Result<Option<OwnedSemaphorePermit>, RuntimeError> {
        if !exec.outlives_session {
            return Ok(None);
        }
        // A permit keeps the container's entry.
        let permit = self.by_container.get(id, || Semaphore::new(self.max)).try_acquire_owned();
        let full = |_| {
            RuntimeError::Start(format!(
                "{} commands run in container {id} already; end some of them, for those of clients that left run on",
                self.max
            ))
        };
        permit.map(Some).map_err(full)
    }
}

/// Files of one exec in the container's directory; removed at its end.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    name: String,
}

impl Files {
    /// What the files may contain: description, messages, pid, socket of the terminal.
    const KINDS: [&str; 4] = ["json", "log", "pid", "sock"];

    /// Files that do not exist yet.
    pub fn new(dir: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { dir: dir.to_owned(), name: format!("exec-{}-{count}", std::process::id()) }
    }

    /// The name that the files have in common.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of the files; `kind` is its ending.
    pub fn path(&self, kind: &str) -> PathBuf {
        self.dir.join(format!("{}.{kind}", self.name))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for kind in Self::KINDS {
            // The rest is removed with the container's directory.
            let _removed = std::fs::remove_file(self.path(kind));
        }
    }
}

/// Why there is no session.
#[derive(Debug)]
pub enum SessionError {
    /// The helper did not start the process. Its message; empty when it ended without one.
    Refused(String),
    /// The system failed.
    Io(io::Error),
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Has the helper at the other end of the socket start the process. `own` are descriptors for the helper itself, which get there before
/// those of the process' stdio. The files stay until the process has ended.
///
/// # Errors
/// When the process was not started.
pub async fn session(socket: UnixStream, exec: &ExecSpec, own: &[RawFd], files: Arc<Files>) -> Result<ExecSession, SessionError> {
    let (parts, terminal) = if exec.tty { by_terminal(&socket, exec, own).await? } else { by_pipes(&socket, exec, own).await? };
    Ok(parts.session(Watch { socket, terminal, _files: files }, exec.tty))
}

/// Our ends of a process' stdio.
struct Parts {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

impl Parts {
    fn session(self, watch: Watch, tty: bool) -> ExecSession {
        let (sizes, resized) = mpsc::channel(4);
        let watching = AbortOnDrop(tokio::spawn(watch.run(resized)));
        let exit = Box::pin(async move {
            let mut watching = watching;
            (&mut watching.0).await.map_err(|error| RuntimeError::io("waiting for a process")(error.into()))?
        });
        ExecSession { stdin: self.stdin, stdout: self.stdout, stderr: self.stderr, resize: tty.then_some(sizes), exit }
    }
}

/// Ends the watch, and by it the process, unless the process outlives its session.
struct AbortOnDrop(tokio::task::JoinHandle<Result<i32, RuntimeError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the end of a process. The helper takes a closed socket for the end of the session.
struct Watch {
    socket: UnixStream,
    terminal: Option<OwnedFd>,
    _files: Arc<Files>,
}

impl Watch {
    async fn run(self, mut sizes: mpsc::Receiver<TerminalSize>) -> Result<i32, RuntimeError> {
        let mut open = true;
        let ended = hear(&self.socket);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                message = &mut ended => {
                    let (text, _) = message.map_err(RuntimeError::io("waiting for a process"))?;
                    let code = text.strip_prefix("exit ").and_then(|code| code.trim().parse().ok());
                    let killed = || RuntimeError::Tool { tool: "the shim", message: "it was killed before the process ended".into() };
                    return code.ok_or_else(killed);
                }
                size = sizes.recv(), if open => match (size, &self.terminal) {
                    (Some(size), Some(terminal)) => resize(terminal, size).map_err(RuntimeError::io("resizing a terminal"))?,
                    (Some(_), None) => {}
                    (None, _) => open = false,
                },
            }
        }
    }
}

type Started = (Parts, Option<OwnedFd>);

async fn by_pipes(socket: &UnixStream, exec: &ExecSpec, own: &[RawFd]) -> Result<Started, SessionError> {
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from);
    let (stdin, to_stdin) = pipe()?;
    let (from_stdout, stdout) = pipe()?;
    let (from_stderr, stderr) = pipe()?;
    let mut fds = own.to_vec();
    fds.extend([stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()]);
    if exec.outlives_session {
        // The helper keeps these two open: without any reader the process would end by SIGPIPE after the session.
        fds.extend([from_stdout.as_raw_fd(), from_stderr.as_raw_fd()]);
    }
    fds::send(socket.as_fd(), b"go\n", &fds)?;
    drop((stdin, stdout, stderr));
    // Without stdin the pipe is closed at once, and the process reads the end.
    let stdin: Option<Box<dyn AsyncWrite + Send + Unpin>> = match exec.stdin {
        true => Some(Box::new(pipe::Sender::from_owned_fd(to_stdin)?)),
        false => None,
    };
    let stdout = Box::new(pipe::Receiver::from_owned_fd(from_stdout)?);
    let stderr = Box::new(pipe::Receiver::from_owned_fd(from_stderr)?);
    expect_ready(socket).await?;
    Ok((Parts { stdin, stdout, stderr: Some(stderr) }, None))
}

async fn by_terminal(socket: &UnixStream, exec: &ExecSpec, own: &[RawFd]) -> Result<Started, SessionError> {
    fds::send(socket.as_fd(), b"go\n", own)?;
    let terminal = expect_ready(socket).await?.into_iter().next();
    let terminal = terminal.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "there is no terminal"))?;
    let set = |flags| fcntl(&terminal, flags).map_err(io::Error::from);
    set(FcntlArg::F_SETFL(OFlag::from_bits_truncate(set(FcntlArg::F_GETFL)?) | OFlag::O_NONBLOCK))?;
    let stdin: Option<Box<dyn AsyncWrite + Send + Unpin>> = match exec.stdin {
        true => Some(Box::new(Terminal::new(terminal.try_clone()?)?)),
        false => None,
    };
    let stdout = Box::new(Terminal::new(terminal.try_clone()?)?);
    Ok((Parts { stdin, stdout, stderr: None }, Some(terminal)))
}

/// The descriptors of the helper's first message.
async fn expect_ready(socket: &UnixStream) -> Result<Vec<OwnedFd>, SessionError> {
    match hear(socket).await? {
        (text, fds) if text == "ready\n" => Ok(fds),
        (text, _) => Err(SessionError::Refused(text)),
    }
}

/// One message of the helper with its descriptors; an empty one when the helper is gone.
async fn hear(socket: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    loop {
        socket.readable().await?;
        let mut buffer = [0; MESSAGE_LEN_MAX];
        match socket.try_io(Interest::READABLE, || fds::receive(socket.as_fd(), &mut buffer)) {
            Ok((len, fds)) => return Ok((String::from_utf8_lossy(buffer.get(..len).unwrap_or_default()).into_owned(), fds)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok((String::new(), Vec::new())),
            Err(error) => return Err(error),
        }
    }
}
