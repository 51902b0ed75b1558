//! The programs of [`Builtin`]. They run where a further guest of the container would: with its user, its files and its limits, and with the
//! system calls of a shim alone. Their arguments and messages are those of GNU's programs, as far as `kubectl cp` and tools like it need.

mod files;
mod tar;
mod test;

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::stdio::Session;
use crate::builtin::Builtin;
pub use files::Files;

/// The exit code of a program that had trouble.
const TROUBLE: i32 = 2;

/// The streams of a program.
struct Streams {
    stdin: File,
    stdout: File,
    messages: Messages,
}

/// What a program tells its user.
struct Messages {
    program: Builtin,
    stderr: Arc<File>,
    /// Whether there was one.
    have_trouble: bool,
}

impl Messages {
    /// Writes a message about `what`, a path or an argument.
    fn complain(&mut self, what: impl std::fmt::Display, error: &io::Error) {
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

/// Runs a program to its end. Returns its exit code.
pub fn run(program: Builtin, args: &[String], files: &Files, session: Session) -> i32 {
    let Session { stdin, stdout, stderr, .. } = session;
    let mut messages = Messages { program, stderr, have_trouble: false };
    let stdin = match stdin.into_inner().map(blocking).transpose() {
        Ok(Some(stdin)) => stdin,
        Ok(None) => return TROUBLE,
        Err(error) => {
            messages.complain("stdin", &error);
            return TROUBLE;
        }
    };
    let args = args.get(1..).unwrap_or_default();
    match program {
        Builtin::Tar => tar::run(args, files, Streams { stdin, stdout, messages }),
        Builtin::Test => test::run(args, files, &mut messages),
    }
}

/// Reads wait for input from now on.
fn blocking(stdin: std::os::fd::OwnedFd) -> io::Result<File> {
    fcntl(&stdin, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(File::from(stdin))
}
