//! Work on hostile bytes (unpacking a layer, compiling a module) in a short-lived process of its own. The input is a small
//! question and open files; the output is a small answer, or why there is none. A [`Helper`] starts the process and waits for
//! it; [`serve`] is the process' own half.
//!
//! The process has a cgroup, resource limits, namespaces of its own (mount, network, IPC, UTS, PID), a root directory that
//! contains only what it works on, no capability that its work does not need, a list of system calls, and a deadline. It ends
//! with the process that started it. So the cost of a hostile input is bounded, and a defect in a decoder or in the compiler is
//! not a defect in the node agent.
//!
//! The answer is not evidence: a hostile input may make the process write anything.

mod confine;
mod refused;
mod serve;
mod slots;
mod start;
mod syscalls;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use refused::Refused;
pub use serve::serve;
pub use slots::{Slot, Slots};
pub use start::{Helper, Job};

/// Most bytes of a question or of an answer.
const MESSAGE_LEN_MAX: usize = 256 << 10;
/// The most files that are sent with a question.
const FILES_MAX: usize = 4;

/// The limits of one run of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Memory, its own and the kernel's for it, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub threads: u32,
    /// CPU time of all threads together.
    pub cpu: Duration,
    /// Time by the clock.
    pub wall: Duration,
    /// Longest file that it may write, in bytes.
    pub file_bytes: u64,
}

/// The kernel features that the work needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rights {
    /// Files of any owner and mode in the root directory, which is writable; one thread.
    Files,
    /// Only memory, threads and the files that came with the question; the user is nobody.
    Memory,
}

/// Why the work was not done, in the process' own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Fault {
    /// The input is malformed.
    #[error("{0}")]
    Content(String),
    /// The input exceeds a limit.
    #[error("{0}")]
    Limit(String),
    /// The disk has no room for the result.
    #[error("{0}")]
    DiskFull(String),
    /// The system failed.
    #[error("{0}")]
    System(String),
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum HelperError {
    /// The process returned the error.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The process reached a limit that the kernel enforces.
    #[error("{0}")]
    Bound(String),
    /// The process ended without an answer: its input made it fail.
    #[error("the process that does it failed: {0}")]
    Crashed(String),
    /// The process could not be started, or not be heard.
    #[error("{doing}")]
    System {
        /// What was attempted.
        doing: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl HelperError {
    fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }

    /// Whether the same input will fail again, however often it is tried.
    pub fn is_inputs_fault(&self) -> bool {
        match self {
            Self::Fault(Fault::Content(_) | Fault::Limit(_)) | Self::Bound(_) | Self::Crashed(_) => true,
            Self::Fault(Fault::DiskFull(_) | Fault::System(_)) | Self::System { .. } => false,
        }
    }
}

/// The message to the process.
#[derive(Serialize, Deserialize)]
struct Envelope<Q> {
    root: PathBuf,
    bounds: Bounds,
    question: Q,
}

/// The message from the process.
#[derive(Serialize, Deserialize)]
enum Reply<A> {
    Done(A),
    Failed(Fault),
}

/// How the first of the two processes ends when it ended the second, or saw why it ended.
mod exit {
    /// The deadline was over.
    pub(super) const WALL: i32 = 124;
    /// The CPU time was used up.
    pub(super) const CPU: i32 = 125;
    /// Added to the signal that ended it.
    pub(super) const SIGNAL: i32 = 128;
}

/// Bytes in a unit that people read.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{bytes} bytes"),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ if bytes.trailing_zeros() >= 30 => format!("{} GiB", bytes >> 30),
        _ => format!("{} MiB", bytes >> 20),
    }
}
