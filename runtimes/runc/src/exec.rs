//! The agent's side of an exec. A helper (the shim binary again) runs `runc exec` detached, is the new process' subreaper, and
//! sends its exit code. A helper without the agent kills the process, or lets it continue if it outlives its session. Pipes, or
//! a terminal, are sent over the helper's socket.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;
use oci_spec::runtime::Process;
use runtimes_contract::{ContainerId, ExecSession, ExecSpec, RuntimeError, TerminalSize};
use runtimes_host::files::{PRIVATE, write_atomic};
use runtimes_host::{Keyed, blocking};
use runtimes_shim::attach::hub::resize;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::tool::{Runc, flags};
use crate::{errors, fds};

/// Longest message of a helper.
const MESSAGE_LEN_MAX: usize = 4096;

/// The highest number of processes of one container that may outlive their sessions. Each has a helper on the node, whose
/// memory no limit of the Pod covers: a client that starts commands and leaves must not fill the node with them.
const OUTLIVING_MAX: usize = 64;

/// The permits of processes that outlive their sessions, by container.
#[derive(Default)]
pub struct Permits(Keyed<ContainerId, Semaphore>);

impl Permits {
    /// A permit for one more process; `None` for a process that ends with its session, which needs no permit.
    pub fn take(&self, id: &ContainerId, exec: &ExecSpec) -> Result<Option<OwnedSemaphorePermit>, RuntimeError> {
        if !exec.outlives_session {
            return Ok(None);
        }
        // A permit keeps the container's entry.
        let permit = self.0.get(id, || Semaphore::new(OUTLIVING_MAX)).try_acquire_owned();
        let full = |_| {
            RuntimeError::Start(format!(
                "{OUTLIVING_MAX} commands run in container {id} already; end some of them, for those of clients that left run on"
            ))
        };
        permit.map(Some).map_err(full)
    }
}

/// Starts a further process in a running container. `permit` is returned when the process has ended.
pub async fn start(
    shim: &Path,
    runc: &Runc,
    dir: &Path,
    id: &ContainerId,
    process: &Process,
    exec: &ExecSpec,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<ExecSession, RuntimeError> {
    let files = Files::new(dir);
    let text = serde_json::to_vec(process).map_err(io::Error::other).map_err(RuntimeError::io("writing the exec's spec"))?;
    let spec = files.spec();
    blocking(move || write_atomic(&spec, &text, PRIVATE).map_err(RuntimeError::io(format!("writing {}", spec.display())))).await?;

    let mut args: Vec<OsString> = vec!["exec".into()];
    args.extend([dir, &runc.binary, &runc.root].map(|path| path.as_os_str().to_owned()));
    args.extend([OsString::from(&id.0), files.name.clone().into()]);
    args.extend(flags(exec.tty, exec.stdin));
    if exec.outlives_session {
        args.push("outlives".into());
    }
    let (socket, theirs) = socket_pair().map_err(RuntimeError::io("making a socket"))?;
    let mut command = tokio::process::Command::new(shim);
    command.args(args).env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
    let mut helper = command.spawn().map_err(RuntimeError::io(format!("starting {}", shim.display())))?;
    drop(command);
    // Reaped here, also when the session is dropped; until then it has its permit.
    tokio::spawn(async move {
        if let Err(error) = helper.wait().await {
            tracing::debug!(%error, "a helper of an exec was not waited for");
        }
        drop(permit);
    });

    let session = if exec.tty { terminal(&socket, exec).await } else { pipes(&socket, exec).await };
    let (parts, terminal) = match session {
        Ok(session) => session,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let silent = || RuntimeError::Tool { tool: "runc", message: "exec failed and did not say why".into() };
            return Err(errors::complaint(&files.log(), "exec").unwrap_or_else(silent));
        }
        Err(error) => return Err(RuntimeError::io(format!("starting a process in container {id}"))(error)),
    };
    Ok(parts.session(Watch { socket, terminal, files }, exec.tty))
}

/// Our side and the helper's. Messages keep their boundaries, so that two of them are never read as one.
fn socket_pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let ours = std::os::unix::net::UnixStream::from(ours);
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs))
}

/// Files of one exec in the container's directory; removed at its end.
struct Files {
    dir: PathBuf,
    name: String,
}

impl Files {
    fn new(dir: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { dir: dir.to_owned(), name: format!("exec-{}-{count}", std::process::id()) }
    }

    fn spec(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.name))
    }

    fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [self.spec(), self.log(), self.dir.join(format!("{}.pid", self.name)), self.dir.join(format!("{}.sock", self.name))] {
            // The rest is removed with the container's directory.
            let _removed = std::fs::remove_file(path);
        }
    }
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
    files: Files,
}

impl Watch {
    async fn run(self, mut sizes: mpsc::Receiver<TerminalSize>) -> Result<i32, RuntimeError> {
        let _until_the_end = &self.files;
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

async fn pipes(socket: &UnixStream, exec: &ExecSpec) -> io::Result<Started> {
    let (stdin, to_stdin) = pipe2(OFlag::O_CLOEXEC)?;
    let (from_stdout, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let (from_stderr, stderr) = pipe2(OFlag::O_CLOEXEC)?;
    let mut fds = vec![stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
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

async fn terminal(socket: &UnixStream, exec: &ExecSpec) -> io::Result<Started> {
    fds::send(socket.as_fd(), b"go\n", &[])?;
    let terminal = expect_ready(socket).await?.into_iter().next();
    let terminal = terminal.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "there is no terminal"))?;
    let flags = OFlag::from_bits_truncate(fcntl(&terminal, FcntlArg::F_GETFL)?);
    fcntl(&terminal, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let stdin: Option<Box<dyn AsyncWrite + Send + Unpin>> = match exec.stdin {
        true => Some(Box::new(Terminal::new(terminal.try_clone()?)?)),
        false => None,
    };
    let stdout = Box::new(Terminal::new(terminal.try_clone()?)?);
    Ok((Parts { stdin, stdout, stderr: None }, Some(terminal)))
}

/// The helper's first word; [`io::ErrorKind::ConnectionRefused`] when runc would not.
async fn expect_ready(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    match hear(socket).await? {
        (text, fds) if text == "ready\n" => Ok(fds),
        _ => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}

/// One message of the helper with its descriptors; `None` when the helper is gone.
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

/// The master side of a terminal.
struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is owned by the registration, stays open with it, and is never replaced.
        let registered = unsafe { AsyncFd::register(fd) };
        registered.map(Self).map_err(|error| error.into_parts().1)
    }
}

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let read = guard.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), buffer.initialize_unfilled())?));
            match read {
                Ok(Ok(len)) => {
                    buffer.advance(len);
                    return Poll::Ready(Ok(()));
                }
                // The last process on the other side has closed it.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            match guard.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), bytes)?)) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
