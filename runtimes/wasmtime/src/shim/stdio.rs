//! Where the output of guests goes, and where their input comes from.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use runtimes_shim::cri::Stream;
use runtimes_shim::exec::Terminal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::cli::{AsyncStdinStream, IsTerminal, OutputFile, StdinStream, StdoutStream};
use wasmtime_wasi::p2::{InputStream, OutputStream};

use super::attached::Attached;
use super::log::Log;

/// The three streams.
pub enum Stdio {
    /// Pipes of the container: its log and the clients that are attached.
    Container { log: Arc<Log>, attached: Arc<Attached> },
    /// Of one client, or the terminal of the container.
    Session(Session),
}

/// The descriptors that somebody else reads and writes at their other ends. Output blocks when nobody reads.
pub struct Session {
    /// It does not block. Taken by the guest.
    pub stdin: Mutex<Option<OwnedFd>>,
    pub stdout: File,
    pub stderr: Arc<File>,
    /// All three are one terminal.
    pub is_terminal: bool,
}

/// A stream that says whether it is a terminal.
struct SessionStream<T> {
    stream: T,
    is_terminal: bool,
}

impl<T> IsTerminal for SessionStream<T> {
    fn is_terminal(&self) -> bool {
        self.is_terminal
    }
}

impl<T: StdoutStream> StdoutStream for SessionStream<T> {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        self.stream.async_stream()
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        self.stream.p2_stream()
    }
}

impl<T: StdinStream> StdinStream for SessionStream<T> {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        self.stream.async_stream()
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        self.stream.p2_stream()
    }
}

impl Stdio {
    /// Gives an instance its streams. Only the first one has stdin.
    pub fn connect(&self, wasi: &mut WasiCtxBuilder) -> wasmtime::Result<()> {
        match self {
            Self::Container { log, attached } => {
                wasi.stdout(log.stream(Stream::Stdout));
                wasi.stderr(log.stream(Stream::Stderr));
                if let Some(stdin) = attached.take_stdin() {
                    wasi.stdin(AsyncStdinStream::new(pipe::Receiver::from_owned_fd(stdin)?));
                }
            }
            Self::Session(Session { stdin, stdout, stderr, is_terminal }) => {
                let is_terminal = *is_terminal;
                wasi.stdout(SessionStream { stream: OutputFile::new(stdout.try_clone()?), is_terminal });
                wasi.stderr(SessionStream { stream: OutputFile::new(stderr.try_clone()?), is_terminal });
                if let Some(stdin) = stdin.lock().take() {
                    wasi.stdin(SessionStream { stream: AsyncStdinStream::new(Terminal::new(stdin)?), is_terminal });
                }
            }
        }
        Ok(())
    }

    /// Writes messages about the guest, beside its own output.
    pub fn messages(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        match self {
            Self::Container { log, .. } => {
                let stream = log.stream(Stream::Stderr);
                Box::new(move |text| stream.say(text))
            }
            Self::Session(Session { stderr, .. }) => {
                let stderr = stderr.clone();
                Box::new(move |text| {
                    // The client may have left.
                    let _written = (&*stderr).write_all(text.as_bytes());
                })
            }
        }
    }
}
