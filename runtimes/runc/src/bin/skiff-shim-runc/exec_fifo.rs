//! What `runc start` does, without the start of another program: the process that `runc create` has left waits until somebody reads from
//! its pipe, and becomes the guest then (`exec` in libcontainer/container_linux.go from runc 1.0 to 1.5). The start of runc would take
//! longer than everything else between the creation of a container and its first instruction. `runc start` is called where the pipe or
//! the process is not as expected (crun's pipe goes in the other direction), and when the process is dead, which runc reports.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use runtimes_host::process::ProcessRef;

use crate::Failure;

/// How often a wait looks whether the process still runs.
const LOOK_MS: u16 = 20;
/// The looks for the end of the pipe after the process has written.
const LOOKS_MAX: u32 = 100;

/// Lets the process become the guest. Up to runc 1.1.11 it is the guest at the return; later ones close the pipe a moment before. `false`
/// when nothing was started: `runc start` is left to the caller.
pub fn start(fifo: &Path, init: &ProcessRef) -> Result<bool, Failure> {
    if is_runc(init.pid) { read(fifo, init).map_err(Failure::io("starting the container")) } else { Ok(false) }
}

/// Whether a process is runc's before it becomes the guest. Its name is `runc:[2:INIT]` then.
pub fn is_runc(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("runc:["))
}

fn read(fifo: &Path, init: &ProcessRef) -> io::Result<bool> {
    // A pipe without a writer is open at once, and has nothing to read.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(fifo);
    let mut pipe = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    if !pipe.metadata()?.file_type().is_fifo() {
        return Ok(false);
    }
    let (mut has_written, mut looks) = (false, 0);
    while looks < LOOKS_MAX {
        let is_alive = init.is_alive();
        match pipe.read(&mut [0; 16]) {
            Ok(1..) => has_written = true,
            // It has closed the pipe.
            Ok(0) if has_written => break,
            // What it has written before its end was read before.
            Ok(_) if !is_alive => return Ok(false),
            Ok(_) => wait(&pipe)?,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => wait(&pipe)?,
            Err(error) => return Err(error),
        }
        looks += u32::from(has_written);
    }
    // The guest runs. Only what `runc state` says of it depends on the file.
    let _removed = std::fs::remove_file(fifo);
    Ok(true)
}

/// Waits a moment for the process.
fn wait(pipe: &File) -> io::Result<()> {
    let mut event = PollFd::new(pipe.as_fd(), PollFlags::POLLIN);
    match poll(std::slice::from_mut(&mut event), PollTimeout::from(LOOK_MS)) {
        // A writer that has closed the pipe without a word ends each poll at once.
        Ok(_) if event.revents() == Some(PollFlags::POLLHUP) => {
            let _slept = poll(&mut [], PollTimeout::from(LOOK_MS));
            Ok(())
        }
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn pipe() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("exec.fifo");
        mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
        (dir, path)
    }

    /// A shell with the pipe as `$0`.
    fn process(script: &str, fifo: &Path) -> (Child, ProcessRef) {
        let child = Command::new("sh").args(["-c", script]).arg(fifo).spawn().expect("a process");
        let process = ProcessRef::read(child.id().cast_signed()).expect("a process");
        (child, process)
    }

    #[test]
    fn a_process_that_waits_is_started_and_its_pipe_read_to_the_end() {
        let (dir, path) = pipe();
        let guest = dir.path().join("guest");
        // The pipe is closed by the second command, when the file is there.
        let script = format!("exec 3>\"$0\"; printf 0 >&3; sleep 0.2; touch {}; exec 3>&-; exec sleep 60", guest.display());
        let (mut child, process) = process(&script, &path);
        assert!(read(&path, &process).is_ok_and(|started| started));
        assert!(guest.exists() && !path.exists());
        child.kill().and_then(|()| child.wait()).expect("ended");
    }

    #[test]
    fn a_process_that_is_over_at_once_was_started() {
        let (_dir, path) = pipe();
        let (mut child, process) = process("printf 0 >\"$0\"", &path);
        assert!(read(&path, &process).is_ok_and(|started| started));
        child.wait().expect("ended");
    }

    #[test]
    fn everything_else_is_left_to_runc() {
        let (_dir, path) = pipe();
        let (mut child, process) = process("sleep 60", &path);
        // It is not runc's.
        assert!(start(&path, &process).is_ok_and(|started| !started));
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert!(read(&path, &process).is_ok_and(|started| !started) && path.exists(), "it is dead");
        std::fs::remove_file(&path).expect("removed");
        assert!(read(&path, &process).is_ok_and(|started| !started), "no pipe");
        std::fs::write(&path, "").expect("a file");
        assert!(read(&path, &process).is_ok_and(|started| !started), "a file");
    }
}
