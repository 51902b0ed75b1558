//! The socket to the agent that started us, on stdin.

use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use runtimes_shim::fds;

use crate::Failure;

/// The socket.
pub struct Channel(UnixStream);

impl Channel {
    /// Takes the socket from stdin.
    pub fn from_stdin() -> Self {
        // SAFETY: the agent put a socket there, and nothing else in this process uses stdin.
        Self(unsafe { UnixStream::from_raw_fd(0) })
    }

    /// Blocks until the agent sends `go`; returns the descriptors of the message.
    pub fn wait_for_go(&self) -> Result<Vec<OwnedFd>, Failure> {
        let mut word = [0; 3];
        let (len, fds) = fds::receive(self.0.as_fd(), &mut word).map_err(Failure::io("waiting for the agent"))?;
        if word.get(..len) == Some(b"go\n") { Ok(fds) } else { Err(Failure { kind: "io", message: "the agent is gone".into() }) }
    }

    /// Reports that the process runs; with a terminal it sends the master side.
    pub fn ready(&self, fds: &[RawFd]) {
        self.say("ready\n", fds);
    }

    /// Reports that there will be no process. Returns the shim's exit code.
    pub fn refuse(self, failure: &Failure) -> i32 {
        self.say(&format!("error {} {}\n", failure.kind, failure.message), &[]);
        128
    }

    /// Writes a line. A failed write is ignored: the agent has ended.
    pub fn say(&self, line: &str, fds: &[RawFd]) {
        let _sent = fds::send(self.0.as_fd(), line.as_bytes(), fds);
    }

    /// For poll: readable when the agent is gone.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
