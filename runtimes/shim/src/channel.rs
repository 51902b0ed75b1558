//! A shim's end of the socket to the agent that started it, which is its stdin. The other end is [`launch`](crate::launch) or
//! [`session`](crate::exec::session).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::fds;

/// The socket. When it is dropped, the agent knows that it was told everything.
pub struct Channel(UnixStream);

impl Channel {
    /// Takes the socket from stdin.
    pub fn from_stdin() -> Self {
        // SAFETY: the agent put a socket there, and nothing else in this process uses stdin.
        Self(unsafe { UnixStream::from_raw_fd(0) })
    }

    /// Blocks until the agent sends `go`; returns the descriptors of the message.
    ///
    /// # Errors
    /// When the agent is gone.
    pub fn wait_for_go(&self) -> io::Result<Vec<OwnedFd>> {
        let mut word = [0; 3];
        let (len, fds) = fds::receive(self.0.as_fd(), &mut word)?;
        if word.get(..len) == Some(b"go\n") { Ok(fds) } else { Err(io::Error::other("the agent is gone")) }
    }

    /// Reports that the process runs; with a terminal it sends the master side.
    pub fn ready(&self, terminal: Option<BorrowedFd<'_>>) {
        self.say("ready\n", terminal);
    }

    /// Reports that there will be no process: the word of a [`Refusal`](crate::launch::Refusal) and a message. Returns the shim's exit code.
    pub fn refuse(&self, word: &str, message: &str) -> i32 {
        self.say(&format!("error {word} {message}\n"), None);
        128
    }

    /// Reports that the process has ended.
    pub fn ended(&self, code: i32) {
        self.say(&format!("exit {code}\n"), None);
    }

    /// Writes a line. A failed write is ignored: the agent has ended, and the next one reads the records.
    fn say(&self, line: &str, fd: Option<BorrowedFd<'_>>) {
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_raw_fd()).collect();
        let _sent = fds::send(self.0.as_fd(), line.as_bytes(), &fds);
    }
}

/// For poll: readable when the agent is gone.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
