//! The process' own half. There are two processes: the first waits for the question, creates the namespaces, and watches the
//! second, which is the first of its PID namespace, drops its privileges and does the work.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Bounds, Envelope, FILES_MAX, Fault, MESSAGE_LEN_MAX, Reply, Rights, confine, exit};
use crate::process::{Pidfd, close_inherited};

/// The exit code of a process that could not do its part.
const FAILED: i32 = 1;

/// Answers one question on stdin and ends the process. Call it first: the process must have one thread and no files open but
/// the standard ones.
pub fn serve<Q, A>(rights: Rights, job: impl FnOnce(Q, Vec<File>) -> Result<A, Fault>) -> !
where
    Q: DeserializeOwned,
    A: Serialize,
{
    let code = match serve_one(rights, job) {
        Ok(code) => code,
        Err(error) => {
            // Stderr belongs to the starter, which reads it.
            let _said = writeln!(io::stderr(), "{error}");
            FAILED
        }
    };
    std::process::exit(code)
}

fn serve_one<Q, A>(rights: Rights, job: impl FnOnce(Q, Vec<File>) -> Result<A, Fault>) -> io::Result<i32>
where
    Q: DeserializeOwned,
    A: Serialize,
{
    close_inherited()?;
    prctl::set_no_new_privs()?;
    prctl::set_dumpable(false)?;
    // If memory runs out nevertheless, the kernel should kill this process first.
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    let stdin = io::stdin();
    // The starter has put this process into its cgroup before.
    let (question, files) = receive(stdin.as_fd())?;
    let envelope: Envelope<Q> = serde_json::from_slice(&question)?;
    let namespaces =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWPID;
    unshare(namespaces)?;
    // Of this process: in the new PID namespace it has no number, and a later process may have its old one.
    let parent = Pidfd::open(getpid().as_raw())?;
    // SAFETY: this process has one thread, so that the child's memory is whole.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(files);
            watch(child, stdin.as_fd(), envelope.bounds)
        }
        ForkResult::Child => Ok(work(rights, envelope, files, parent, job)),
    }
}

fn work<Q, A>(
    rights: Rights,
    envelope: Envelope<Q>,
    files: Vec<File>,
    parent: Pidfd,
    job: impl FnOnce(Q, Vec<File>) -> Result<A, Fault>,
) -> i32
where
    A: Serialize,
{
    let Envelope { root, bounds, question } = envelope;
    let given_up = confine::give_up_rights(rights, &root, &bounds, &parent);
    drop(parent);
    let reply = match given_up {
        Err((doing, error)) => Reply::Failed(Fault::System(format!("{doing}: {error}"))),
        // A panic shows in stderr and in the exit code.
        Ok(()) => match catch_unwind(AssertUnwindSafe(|| job(question, files))) {
            Ok(Ok(answer)) => Reply::Done(answer),
            Ok(Err(fault)) => Reply::Failed(fault),
            Err(_) => return FAILED,
        },
    };
    let Ok(bytes) = serde_json::to_vec(&reply) else { return FAILED };
    // SAFETY: descriptor 0 is the socket to the starter; nothing else in this process owns it.
    let mut socket = File::from(unsafe { OwnedFd::from_raw_fd(0) });
    match bytes.len() < MESSAGE_LEN_MAX && socket.write_all(&bytes).is_ok() {
        true => 0,
        false => FAILED,
    }
}

/// Waits until the work is done, its deadline is over, or the starter has gone.
fn watch(worker: Pid, starter: BorrowedFd<'_>, bounds: Bounds) -> io::Result<i32> {
    let deadline = Instant::now() + bounds.wall;
    // Not reaped yet, so that its pid is its own.
    let handle = Pidfd::open(worker.as_raw())?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        // No event is requested: poll reports a closed socket without that.
        let mut fds = [PollFd::new(handle.as_fd(), PollFlags::POLLIN), PollFd::new(starter, PollFlags::empty())];
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let [ended, gone] = fds.map(|fd| fd.revents().is_some_and(|events| !events.is_empty()));
        if ended {
            return Ok(code(waitpid(worker, None)?, bounds));
        }
        if gone || left.is_zero() {
            kill(worker, Signal::SIGKILL)?;
            waitpid(worker, None)?;
            return Ok(exit::WALL);
        }
    }
}

fn code(status: WaitStatus, bounds: Bounds) -> i32 {
    match status {
        WaitStatus::Exited(_, code) => code,
        // The limit of CPU time kills the first process of a PID namespace without a warning.
        WaitStatus::Signaled(_, Signal::SIGKILL, _) if has_used(bounds.cpu) => exit::CPU,
        WaitStatus::Signaled(_, signal, _) => exit::SIGNAL + signal as i32,
        _ => FAILED,
    }
}

/// Whether the CPU limit was the cause: the kernel counts for the limit in ticks, which on a busy machine is up to twice the
/// time that it reports afterwards.
fn has_used(cpu: Duration) -> bool {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return false };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.try_into().unwrap_or_default()) >= cpu / 2
}

/// One line, and the files that come with its beginning.
fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<File>)> {
    let mut bytes = vec![0; MESSAGE_LEN_MAX + 1];
    let mut rights = nix::cmsg_space!([i32; FILES_MAX]);
    let (mut len, mut files) = (0, Vec::new());
    {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut rights), MsgFlags::MSG_CMSG_CLOEXEC)?;
        len += message.bytes;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(received) = control {
                // SAFETY: the kernel made these descriptors for this process just now.
                files.extend(received.into_iter().map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) })));
            }
        }
    }
    let mut reader = File::from(socket.try_clone_to_owned()?);
    while bytes.get(..len).is_some_and(|have| !have.ends_with(b"\n")) {
        match bytes.get_mut(len..).map(|rest| reader.read(rest)) {
            Some(Ok(0)) | None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(Ok(read)) => len += read,
            Some(Err(error)) => return Err(error),
        }
    }
    bytes.truncate(len);
    Ok((bytes, files))
}
