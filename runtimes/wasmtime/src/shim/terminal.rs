//! A terminal as the stdio of a guest. It controls this process, which is the leader of a session: its interrupt character stops the
//! guest.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::termios::{InputFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr};
use nix::unistd::read;
use parking_lot::Mutex;

use super::Failure;
use super::log::LogStream;
use super::stdio::Session;

/// The bytes of one read of the guest's output.
const CHUNK_LEN: usize = 4 << 10;
/// The thread polls and copies.
const STACK_LEN: usize = 128 << 10;

/// The side of a terminal that is not the guest's.
pub struct Master {
    /// Input is written to it and output is read from it.
    pub fd: OwnedFd,
    /// The character that ends the input.
    pub end: u8,
}

/// Opens a terminal: the guest's side as its stdio, and the other side.
pub fn open() -> io::Result<(Session, Master)> {
    let OpenptyResult { master, slave } = openpty(None, None)?;
    // SAFETY: a terminal, and a request without a pointer.
    Errno::result(unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) })?;
    let mut settings = tcgetattr(&slave)?;
    // Ctrl-S would stop the guest in the middle of a write, where no signal reaches it. A guest cannot change the setting itself.
    settings.input_flags.remove(InputFlags::IXON);
    tcsetattr(&slave, SetArg::TCSANOW, &settings)?;
    let end = settings.control_chars.get(SpecialCharacterIndices::VEOF as usize).copied().unwrap_or(4);
    // Opened again, because output blocks and input must not.
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    // SAFETY: a terminal, and a request with flags instead of a pointer; the result is a new descriptor or -1.
    let stdin = Errno::result(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags.bits()) })?;
    // SAFETY: the kernel just made it for us.
    let stdin = unsafe { OwnedFd::from_raw_fd(stdin) };
    let stderr = Arc::new(File::from(slave.try_clone()?));
    let session = Session { stdin: Mutex::new(Some(stdin)), stdout: File::from(slave), stderr, is_terminal: true };
    Ok((session, Master { fd: master, end }))
}

/// Copies a guest's output to the log and to the clients that are attached, on a thread of its own.
pub struct Copying(Receiver<()>);

impl Copying {
    /// Begins. The other side of the terminal belongs to the thread from now on.
    pub fn begin(master: OwnedFd, log: LogStream) -> Result<Self, Failure> {
        let (ended, receiver) = channel();
        let thread = std::thread::Builder::new().name("terminal".into()).stack_size(STACK_LEN);
        let copying = move || {
            copy(&master, &log);
            // Nobody waits when the container has ended already.
            let _sent = ended.send(());
        };
        thread.spawn(copying).map(|_| Self(receiver)).map_err(Failure::io("starting a thread"))
    }

    /// Waits until all output is copied, which is when the guest's side is closed.
    pub fn finish(self, within: Duration) {
        // What is not copied in time is lost: something keeps the guest's side open.
        let _ended = self.0.recv_timeout(within);
    }
}

fn copy(master: &OwnedFd, log: &LogStream) {
    let mut chunk = [0; CHUNK_LEN];
    loop {
        match read(master, &mut chunk) {
            Ok(len @ 1..) => log.push(chunk.get(..len).unwrap_or_default()),
            // The clients' input must not block, so neither do reads.
            Err(Errno::EAGAIN | Errno::EINTR) => {
                // An interruption leads to another read.
                let _ready = poll(&mut [PollFd::new(master.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            }
            // EIO: the guest's side is closed.
            Ok(_) | Err(_) => return,
        }
    }
}
