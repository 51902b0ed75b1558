//! The programs of [`Builtin`]. They run where a further guest of the container would: with its user, its files and its limits, and with the
//! system calls of a shim alone. Their arguments and messages are those of GNU's programs, as far as `kubectl cp` and tools like it need.

mod files;
mod tar;
mod test;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, umask};
use tokio::task::spawn_blocking;

use super::stdio::Session;
use super::{Failure, confine, signals, workers};
use crate::builtin::Builtin;
pub use files::Files;

/// The exit code of a program that had trouble.
const TROUBLE: i32 = 2;
/// When memory runs out in the container, a copy ends before the guest does.
const OOM_SCORE_ADJ: i32 = 1_000;
/// The memory of a copy, whatever an archive says of the length of its names.
const DATA_LEN_MAX: u64 = 128 << 20;

/// The streams of a program.
struct Streams {
    stdin: File,
    stdout: File,
    messages: Messages,
}

/// The messages of a program to its user.
struct Messages {
    program: Builtin,
    stderr: Arc<File>,
    /// Whether a message was written.
    have_trouble: bool,
}

impl Messages {
    /// Writes a message about `what`, a path or an argument.
    fn complain(&mut self, what: impl Display, error: &io::Error) {
        self.have_trouble = true;
        // The client may have left.
        let _written = writeln!(&*self.stderr, "{}: {what}: {}", self.program, reason(error));
    }
}

/// Without the number that the standard library adds.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}

/// A path on a terminal: a guest chooses the names of its files.
fn printable(path: &Path) -> String {
    let mut text = String::new();
    for char in path.to_string_lossy().chars() {
        if char.is_control() { text.extend(char.escape_default()) } else { text.push(char) }
    }
    text
}

/// Sets the bounds of the process, while it has its privileges. Signals end the program from then on.
pub fn prepare() -> Result<(), Failure> {
    // Of a shell. No mode can be set later: the filter of system calls has none that does.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    setrlimit(Resource::RLIMIT_DATA, DATA_LEN_MAX, DATA_LEN_MAX).map_err(Failure::io("limiting memory"))?;
    confine::take_oom_score(OOM_SCORE_ADJ).map_err(Failure::io("writing /proc/self/oom_score_adj"))?;
    signals::install(None)
}

/// Runs a program to its end, or until a signal. Returns its exit code.
pub fn run(program: Builtin, args: Vec<String>, files: Files, session: Session) -> i32 {
    let Session { stdin, stdout, stderr, .. } = session;
    let mut messages = Messages { program, stderr, have_trouble: false };
    let run = || {
        let stdin = blocking(stdin.into_inner().ok_or(Errno::EBADF)?)?;
        let streams = Streams { stdin, stdout, messages: Messages { stderr: messages.stderr.clone(), ..messages } };
        let runtime = workers::first_thread()?;
        let code = runtime.block_on(async {
            tokio::select! {
                code = spawn_blocking(move || run_to_end(program, &args, &files, streams)) => Ok(code?),
                signal = signals::stopped() => Ok(128 + signal?),
            }
        });
        // The program may wait for its client.
        runtime.shutdown_background();
        code
    };
    run().unwrap_or_else(|error: io::Error| {
        messages.complain("running", &error);
        TROUBLE
    })
}

fn run_to_end(program: Builtin, args: &[String], files: &Files, mut streams: Streams) -> i32 {
    let args = args.get(1..).unwrap_or_default();
    match program {
        Builtin::Tar => tar::run(args, files, streams),
        Builtin::Test => test::run(args, files, &mut streams.messages),
    }
}

/// Reads wait for input from now on.
fn blocking(stdin: OwnedFd) -> io::Result<File> {
    fcntl(&stdin, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(File::from(stdin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_nothing_to_a_terminal() {
        assert_eq!(printable(Path::new("/data/a \u{1b}]52;x\u{7}\nb é")), "/data/a \\u{1b}]52;x\\u{7}\\nb é");
    }
}
