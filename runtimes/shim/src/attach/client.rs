//! The agent's side: connects to a shim and turns frames into streams.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Cursor};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::SOCKET;
use super::frame::{Frames, Kind, put};
use runtimes_contract::RuntimeError;
use runtimes_contract::TerminalSize;
use runtimes_contract::{AttachSession, ContainerId};

/// How much may wait in one direction of one stream.
const WAITING_MAX: usize = 64 << 10;
/// The bytes of one read.
const CHUNK_LEN: usize = 32 << 10;
/// How long the delivery of the input of a client that has left may take.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);
/// Sizes that may wait.
const SIZES_MAX: usize = 4;

/// Attaches to the container whose directory this is. It must be running.
pub async fn connect(dir: &Path, id: &ContainerId, stdin: bool, tty: bool) -> Result<AttachSession, RuntimeError> {
    let doing = || format!("attaching to container {id}");
    let directory = File::open(dir).map_err(RuntimeError::io(doing()))?;
    let connected = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())).await;
    let socket = connected.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RuntimeError::Unsupported(format!("container {id} was started by a version that knew no attach")),
        _ => RuntimeError::io(doing())(error),
    })?;
    let (from, mut to) = socket.into_split();
    if stdin {
        let mut hello = Vec::new();
        put(Kind::WithStdin, &[], &mut hello);
        to.write_all(&hello).await.map_err(RuntimeError::io(doing()))?;
    }
    let (stdout, our_stdout) = duplex(WAITING_MAX);
    let (stderr, our_stderr) = duplex(WAITING_MAX);
    let (stdin, our_stdin) = stdin.then(|| duplex(WAITING_MAX)).unzip();
    let (resize, sizes) = mpsc::channel(SIZES_MAX);
    let (alive, left) = oneshot::channel();
    let mut sender = Sender { to, stdin: our_stdin, sizes, waiting: Cursor::default(), chunk: vec![0; CHUNK_LEN] };
    tokio::spawn(async move {
        let is_left = tokio::select! {
            () = receive(from, our_stdout, our_stderr) => false,
            never = sender.run() => match never {},
            _dropped = left => true,
        };
        // The input that was sent before the client left has been sent.
        if is_left {
            // A shim that does not read its stdin must not be waited for.
            let _drained = tokio::time::timeout(DRAIN_WITHIN, sender.drain()).await;
        }
    });
    Ok(AttachSession {
        stdin: stdin.map(|stdin| Box::new(stdin) as Box<_>),
        stdout: Box::new(AttachedStdout { from: stdout, _alive: alive }),
        stderr: (!tty).then(|| Box::new(stderr) as Box<_>),
        resize: tty.then_some(resize),
    })
}

async fn receive(mut from: OwnedReadHalf, mut stdout: DuplexStream, mut stderr: DuplexStream) {
    let mut frames = Frames::default();
    let mut chunk = vec![0; CHUNK_LEN];
    while let Ok(len @ 1..) = from.read(&mut chunk).await {
        frames.push(chunk.get(..len).unwrap_or_default());
        loop {
            let written = match frames.next() {
                Ok(Some((Kind::Stdout, bytes))) => stdout.write_all(&bytes).await,
                Ok(Some((Kind::Stderr, bytes))) => stderr.write_all(&bytes).await,
                Ok(Some(_)) => Ok(()),
                Ok(None) => break,
                // A shim that speaks otherwise: to the reader it ends like any other.
                Err(_) => return,
            };
            // A client that does not read one of the two may read the other.
            let _unread = written;
        }
    }
}

/// The bytes to the shim. Sending may be interrupted anywhere and continued.
struct Sender {
    to: OwnedWriteHalf,
    stdin: Option<DuplexStream>,
    sizes: mpsc::Receiver<TerminalSize>,
    /// Frames that are not written yet.
    waiting: Cursor<Vec<u8>>,
    chunk: Vec<u8>,
}

impl Sender {
    /// Sends until the future is dropped.
    async fn run(&mut self) -> Infallible {
        loop {
            if self.write().await.is_err() {
                // The shim does not read; what it has still sent is being read.
                std::future::pending::<()>().await;
            }
            tokio::select! {
                len = read(&mut self.stdin, &mut self.chunk) => self.take(len),
                Some(TerminalSize { width, height }) = self.sizes.recv() => {
                    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
                    put(Kind::Resize, &size, self.waiting.get_mut());
                }
            }
        }
    }

    /// Sends the rest of stdin, when the client sends no more.
    async fn drain(&mut self) -> io::Result<()> {
        self.write().await?;
        while self.stdin.is_some() {
            let len = read(&mut self.stdin, &mut self.chunk).await;
            self.take(len);
            self.write().await?;
        }
        Ok(())
    }

    fn take(&mut self, len: usize) {
        match self.chunk.get(..len).unwrap_or_default() {
            [] => {
                self.stdin = None;
                put(Kind::StdinEnd, &[], self.waiting.get_mut());
            }
            bytes => put(Kind::Stdin, bytes, self.waiting.get_mut()),
        }
    }

    async fn write(&mut self) -> io::Result<()> {
        while self.waiting.position() < u64::try_from(self.waiting.get_ref().len()).unwrap_or_default() {
            self.to.write_buf(&mut self.waiting).await?;
        }
        self.waiting = Cursor::default();
        Ok(())
    }
}

/// Bytes of stdin, empty at its end; pending for ever when there is no stdin any more.
async fn read(stdin: &mut Option<DuplexStream>, chunk: &mut [u8]) -> usize {
    match stdin {
        Some(stdin) => stdin.read(chunk).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// The container's stdout; dropping it detaches the client.
struct AttachedStdout {
    from: DuplexStream,
    _alive: oneshot::Sender<Infallible>,
}

impl AsyncRead for AttachedStdout {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.from).poll_read(context, buffer)
    }
}
