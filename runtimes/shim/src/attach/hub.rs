//! The shim's side: the attached clients, the waiting bytes of each, and the container's stdin. Nothing here blocks: the shim
//! polls the descriptors of [`Hub::watched`] and calls [`Hub::serve`].
//!
//! A client that reads slowly has at most [`WAITING_MAX`] bytes waiting. What happens then is the shim's decision: delay the
//! container's output for a while, or disconnect the client.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::SOCKET;
use super::frame::{Frames, Kind, put};
use crate::cri::Stream;
use runtimes_contract::TerminalSize;

/// The output that may wait for one client.
pub const WAITING_MAX: usize = 256 << 10;
/// Input that may wait for the container; beyond, clients are not read.
const INPUT_MAX: usize = 64 << 10;
/// The highest number of clients.
const CLIENTS_MAX: usize = 16;
/// The bytes of one read from a client.
const CHUNK_LEN: usize = 16 << 10;

/// A descriptor to poll, and the events. It stays open as long as this value.
pub type Watched = (Arc<dyn AsFd + Send + Sync>, PollFlags);

/// All clients that are attached to one container.
pub struct Hub {
    listener: Arc<UnixListener>,
    clients: Vec<Client>,
    input: Input,
    terminal: Option<OwnedFd>,
}

struct Client {
    socket: Arc<UnixStream>,
    frames: Frames,
    waiting: VecDeque<u8>,
    sends_stdin: bool,
    /// It gets no more output; the input that it has sent still counts.
    deaf: bool,
    gone: bool,
}

/// The container's stdin.
#[derive(Default)]
struct Input {
    to: Option<Arc<File>>,
    waiting: VecDeque<u8>,
    /// Whether it ends with the first client that sends it.
    once: bool,
    /// Whether it ends when nothing waits any more.
    ends: bool,
}

impl Hub {
    /// Listens in a container's directory.
    pub fn listen(dir: &Path) -> io::Result<Self> {
        // Paths of sockets are short, state directories may be deep.
        let directory = File::open(dir)?;
        // An existing socket is left from a start that failed.
        match std::fs::remove_file(dir.join(SOCKET)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: Arc::new(listener), clients: Vec::new(), input: Input::default(), terminal: None })
    }

    /// From now on the clients' input goes there; `once`: until the first of them stops.
    pub fn set_stdin(&mut self, to: OwnedFd, once: bool) -> io::Result<()> {
        let flags = OFlag::from_bits_truncate(fcntl(&to, FcntlArg::F_GETFL)?);
        fcntl(&to, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        self.input = Input { to: Some(Arc::new(File::from(to))), once, ..Input::default() };
        Ok(())
    }

    /// The terminal that clients give new sizes.
    pub fn set_terminal(&mut self, terminal: OwnedFd) {
        self.terminal = Some(terminal);
    }

    /// Sends the container's output to all clients.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let kind = match stream {
            Stream::Stdout => Kind::Stdout,
            Stream::Stderr => Kind::Stderr,
        };
        for client in &mut self.clients {
            put(kind, bytes, &mut client.waiting);
            client.send();
        }
        self.forget_gone();
    }

    /// Whether too much waits for a client.
    pub fn is_full(&self) -> bool {
        self.clients.iter().any(Client::is_full)
    }

    /// Whether anything waits for a client.
    pub fn is_waiting(&self) -> bool {
        self.clients.iter().any(|client| !client.waiting.is_empty())
    }

    /// Disconnects the clients for which too much waits.
    pub fn let_go_of_full(&mut self) {
        for client in &mut self.clients {
            client.gone |= client.is_full();
        }
        self.forget_gone();
    }

    /// The descriptors to poll until [`Hub::serve`] has work.
    pub fn watched(&self) -> Vec<Watched> {
        let mut watched: Vec<Watched> = Vec::new();
        watched.push((self.listener.clone(), PollFlags::POLLIN));
        let takes_input = self.input.waiting.len() < INPUT_MAX;
        for client in &self.clients {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, takes_input);
            flags.set(PollFlags::POLLOUT, !client.waiting.is_empty());
            // A descriptor without events would still wake us for ever once its peer closes.
            if !flags.is_empty() {
                watched.push((client.socket.clone(), flags));
            }
        }
        if let Some(to) = self.input.to.as_ref().filter(|_| !self.input.waiting.is_empty()) {
            watched.push((to.clone(), PollFlags::POLLOUT));
        }
        watched
    }

    /// Does whatever can be done without waiting.
    pub fn serve(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            // A client beyond the limit is disconnected.
            if self.clients.len() < CLIENTS_MAX && socket.set_nonblocking(true).is_ok() {
                self.clients.push(Client::new(socket));
            }
        }
        for client in &mut self.clients {
            client.send();
            if self.input.waiting.len() < INPUT_MAX {
                client.receive(&mut self.input, self.terminal.as_ref());
            }
        }
        self.forget_gone();
        self.input.send();
    }

    /// Sends what waits, for a while; the container has ended.
    pub fn finish(&mut self, within: Duration) {
        let until = Instant::now() + within;
        while self.is_waiting() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(timeout) = PollTimeout::try_from(left) else { return };
            let watched: Vec<Watched> = self.watched().into_iter().filter(|(_, flags)| flags.contains(PollFlags::POLLOUT)).collect();
            let mut fds: Vec<PollFd<'_>> = watched.iter().map(|(fd, _)| PollFd::new(fd.as_fd(), PollFlags::POLLOUT)).collect();
            if left.is_zero() || !matches!(poll(&mut fds, timeout), Ok(1..) | Err(nix::errno::Errno::EINTR)) {
                return;
            }
            self.clients.iter_mut().for_each(Client::send);
            self.forget_gone();
        }
    }

    fn forget_gone(&mut self) {
        let input = &mut self.input;
        self.clients.retain(|client| {
            if client.gone && client.sends_stdin {
                input.lose_one();
            }
            !client.gone
        });
    }
}

impl Client {
    fn new(socket: UnixStream) -> Self {
        Self { socket: Arc::new(socket), frames: Frames::default(), waiting: VecDeque::new(), sends_stdin: false, deaf: false, gone: false }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() > WAITING_MAX
    }

    fn send(&mut self) {
        self.deaf |= write_some(&mut self.waiting, &mut &*self.socket).is_err();
        if self.deaf {
            self.waiting.clear();
        }
    }

    fn receive(&mut self, input: &mut Input, terminal: Option<&OwnedFd>) {
        let mut chunk = [0; CHUNK_LEN];
        match (&*self.socket).read(&mut chunk) {
            Ok(len @ 1..) => {
                self.frames.push(chunk.get(..len).unwrap_or_default());
                self.gone |= self.take(input, terminal).is_err();
            }
            Err(error) if is_passing(&error) => {}
            Ok(_) | Err(_) => self.gone = true,
        }
    }

    fn take(&mut self, input: &mut Input, terminal: Option<&OwnedFd>) -> io::Result<()> {
        while let Some((kind, payload)) = self.frames.next()? {
            match (kind, payload.as_slice()) {
                (Kind::Stdin, bytes) => input.push(bytes),
                (Kind::WithStdin, _) => self.sends_stdin = true,
                (Kind::StdinEnd, _) => {
                    if std::mem::take(&mut self.sends_stdin) {
                        input.lose_one();
                    }
                }
                (Kind::Resize, &[a, b, c, d]) => {
                    let size = TerminalSize { width: u16::from_be_bytes([a, b]), height: u16::from_be_bytes([c, d]) };
                    if let Some(terminal) = terminal {
                        // A terminal whose last process has gone has no size to change.
                        let _resized = resize(terminal, size);
                    }
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }
}

impl Input {
    fn push(&mut self, bytes: &[u8]) {
        if self.to.is_some() && !self.ends {
            self.waiting.extend(bytes);
        }
    }

    /// A client that sent stdin has ended it.
    fn lose_one(&mut self) {
        self.ends |= self.once;
        self.send();
    }

    fn send(&mut self) {
        let Some(to) = &self.to else { return };
        let written = write_some(&mut self.waiting, &mut &**to);
        if written.is_err() || (self.ends && self.waiting.is_empty()) {
            // The container reads no more, or has been sent all.
            self.to = None;
            self.waiting.clear();
        }
    }
}

/// Writes as much as is accepted without blocking.
fn write_some(from: &mut VecDeque<u8>, to: &mut impl io::Write) -> io::Result<()> {
    while !from.is_empty() {
        match to.write(from.as_slices().0) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => drop(from.drain(..len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sets the size of a terminal.
pub fn resize(terminal: &OwnedFd, size: TerminalSize) -> io::Result<()> {
    let size = libc::winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: a terminal's descriptor, and a winsize that lives through the call.
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    nix::errno::Errno::result(set).map(drop).map_err(io::Error::from)
}
