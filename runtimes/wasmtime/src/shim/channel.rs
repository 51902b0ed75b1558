//! The socket to the agent that started this shim, on stdin: it sends `go`, and the shim answers once.

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use runtimes_shim::launch::Refusal;

use super::Failure;

/// The socket.
pub struct Channel(UnixStream);

impl Channel {
    /// Takes over stdin.
    pub fn from_stdin() -> Self {
        // SAFETY: the agent put a socket there, and nothing else in this process uses stdin.
        Self(unsafe { UnixStream::from_raw_fd(0) })
    }

    /// Blocks until we are in our cgroup.
    pub fn wait_for_go(&mut self) -> Result<(), Failure> {
        let mut word = [0; 3];
        match self.0.read_exact(&mut word) {
            Ok(()) if &word == b"go\n" => Ok(()),
            Ok(()) => Err(Failure::new(Refusal::Io, "the agent said something else than go")),
            Err(error) => Err(Failure::new(Refusal::Io, format!("waiting for the agent: {error}"))),
        }
    }

    /// The guest is about to run.
    pub fn ready(self) {
        self.say("ready\n");
    }

    /// Reports that there will be no guest.
    pub fn refuse(self, refusal: Refusal, message: &str) {
        self.say(&format!("error {} {message}\n", refusal.word()));
    }

    fn say(mut self, words: &str) {
        // The agent may have ended; the next one reads the records.
        let _sent = self.0.write_all(words.as_bytes());
    }
}
