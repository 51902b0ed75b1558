//! The clients that are attached to the container. A thread of its own accepts them and reads their input, since the guest may
//! compute without ever calling the host. The guest's output is sent from its own call, without blocking: a client that reads
//! too slowly is disconnected.
//!
//! A guest has pipes, or a terminal if its container asks for one. WASI has no terminal settings, sizes or signals.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::pipe2;
use parking_lot::Mutex;
use runtimes_contract::ContainerSpec;
use runtimes_shim::attach::Hub;
use runtimes_shim::cri::Stream;

use super::Failure;
use super::stdio::Session;
use super::terminal::{self, Master};

/// The thread polls and copies.
const STACK_LEN: usize = 128 << 10;
/// How long clients may take to read the rest when the guest has ended.
pub const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// The terminal of a guest. What clients send goes there, if the container has stdin.
fn open_terminal(hub: &mut Hub, spec: &ContainerSpec) -> std::io::Result<(Session, OwnedFd)> {
    let (session, Master { fd, .. }) = terminal::open()?;
    hub.set_terminal(fd.try_clone()?);
    if spec.stdin {
        hub.set_stdin(fd.try_clone()?, spec.stdin_once)?;
    } else {
        session.stdin.lock().take();
    }
    Ok((session, fd))
}

/// All attached clients, and the guest's stdin.
pub struct Attached {
    hub: Mutex<Hub>,
    /// The guest's end of stdin, until it is taken.
    stdin: Mutex<Option<OwnedFd>>,
    /// The guest's terminal in place of pipes, until it is taken.
    terminal: Mutex<Option<(Session, OwnedFd)>>,
    /// Wakes the thread when something waits to be sent.
    wake: EventFd,
}

impl Attached {
    /// Listens in the container's directory.
    pub fn listen(dir: &Path, spec: &ContainerSpec) -> Result<Self, Failure> {
        let listening = "listening for who attaches";
        let mut hub = Hub::listen(dir).map_err(Failure::io(listening))?;
        let (mut stdin, mut terminal) = (None, None);
        if spec.tty {
            terminal = Some(open_terminal(&mut hub, spec).map_err(Failure::io("opening a terminal"))?);
        } else if spec.stdin {
            let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(Failure::io("making stdin"))?;
            hub.set_stdin(write, spec.stdin_once).map_err(Failure::io("making stdin"))?;
            stdin = Some(read);
        }
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map_err(Failure::io(listening))?;
        Ok(Self { hub: Mutex::new(hub), stdin: Mutex::new(stdin), terminal: Mutex::new(terminal), wake })
    }

    /// Starts the thread.
    pub fn serve_beside(self: &Arc<Self>) -> Result<(), Failure> {
        let its = self.clone();
        let thread = std::thread::Builder::new().name("attached".into()).stack_size(STACK_LEN);
        thread.spawn(move || its.serve()).map(drop).map_err(Failure::io("starting a thread"))
    }

    fn serve(&self) {
        loop {
            let watched = self.hub.lock().watched();
            let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            fds.extend(watched.iter().map(|(fd, flags)| PollFd::new(fd.as_fd(), *flags)));
            // An interruption leads to another look.
            let _ready = poll(&mut fds, PollTimeout::NONE);
            let _woken = self.wake.read();
            self.hub.lock().serve();
        }
    }

    /// The guest's stdin, once; `None` when the container has none.
    pub fn take_stdin(&self) -> Option<OwnedFd> {
        self.stdin.lock().take()
    }

    /// The guest's terminal, once, with its other side, from which the guest's output is read; `None` when the container has pipes.
    pub fn take_terminal(&self) -> Option<(Session, OwnedFd)> {
        self.terminal.lock().take()
    }

    /// Sends the guest's output.
    pub fn output(&self, stream: Stream, bytes: &[u8]) {
        let mut hub = self.hub.lock();
        hub.output(stream, bytes);
        if hub.is_full() {
            hub.let_go_of_full();
        }
        if hub.is_waiting() {
            // A counter that is full wakes as well.
            let _woken = self.wake.write(1);
        }
    }

    /// Sends what still waits, for a moment.
    pub fn finish(&self) {
        self.hub.lock().finish(FINISH_WITHIN);
    }
}
