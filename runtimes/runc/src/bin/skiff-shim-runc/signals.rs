//! The signals we live by, as a descriptor: a child ended, the log was renamed away. The signals that
//! stop programs are not for us; the agent sends them to the container.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::Failure;

/// Blocks the signals and opens the descriptor. Children are started without the block.
pub fn open() -> Result<SignalFd, Failure> {
    let listening = "listening for signals";
    let mut blocked: SigSet = [Signal::SIGCHLD, Signal::SIGUSR1].into_iter().collect();
    let heard = blocked;
    blocked.extend([Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGPIPE]);
    blocked.thread_block().map_err(Failure::io(listening))?;
    SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(Failure::io(listening))
}

/// Whether the log must be opened again. Also reports that children may have ended.
pub fn take_reopen(signals: &SignalFd) -> bool {
    let mut reopen = false;
    while let Ok(Some(signal)) = signals.read_signal() {
        reopen |= signal.ssi_signo == Signal::SIGUSR1 as u32;
    }
    reopen
}
