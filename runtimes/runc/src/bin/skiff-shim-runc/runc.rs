//! Calls of runc. Its errors go to a log of JSON lines that the agent reads.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use runtimes_host::process::Pidfd;
use runtimes_runc::project_quota;
use runtimes_shim::channel::Channel;

use crate::Failure;

/// runc for one container.
pub struct Runc<'a> {
    /// The binary.
    pub binary: &'a OsStr,
    /// Its state directory.
    pub root: &'a OsStr,
    /// The container.
    pub id: &'a OsStr,
    /// The log file.
    pub log: PathBuf,
    /// Whether the container, which inherits the filters of runc, has the one of [`project_quota`].
    pub keeps_projects: bool,
}

impl Runc<'_> {
    /// The pipe for which the container's first process waits.
    pub fn exec_fifo(&self) -> PathBuf {
        Path::new(self.root).join(self.id).join("exec.fifo")
    }

    /// A subcommand, without stdio.
    pub fn command<I: IntoIterator<Item = OsString>>(&self, verb: &str, args: I) -> Command {
        let mut command = Command::new(self.binary);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg("--root").arg(self.root).arg("--log").arg(&self.log).args(["--log-format", "json"]);
        command.arg(verb).args(args).arg(self.id);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // runc ends when the shim is killed, so that a runc that hangs is not left behind. What a wrapper forks is not covered.
        let shim = Pid::this();
        let filter = self.keeps_projects.then(project_quota::filter);
        let prepare = move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The shim may have been killed before the call.
            if Pid::parent() != shim {
                return Err(io::Error::from(Errno::ESRCH));
            }
            filter.as_deref().map_or(Ok(()), project_quota::apply)
        };
        // SAFETY: three system calls between fork and exec.
        unsafe { command.pre_exec(prepare) };
        command
    }
}

/// Runs runc to its end.
pub fn call(command: &mut Command) -> Result<(), Failure> {
    checked(command.status())
}

/// Runs runc to its end, or to that of the session, which is an error. Then runc and what it has started are left to [`kill_children`].
pub fn call_in_session(command: &mut Command, channel: &Channel) -> Result<(), Failure> {
    checked(command.spawn().and_then(|runc| wait_in_session(runc, channel)))
}

fn wait_in_session(mut runc: Child, channel: &Channel) -> io::Result<ExitStatus> {
    // Our child and not reaped: the pid is its own.
    let process = Pidfd::open(runc.id().cast_signed())?;
    loop {
        let mut fds = [process.as_fd(), channel.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            // The agent sends nothing more: a readable socket is the end.
            Ok(_) => {
                let [has_ended, _] = fds.map(|fd| fd.any().unwrap_or(false));
                return if has_ended { runc.wait() } else { Err(io::Error::other("the agent has ended the session")) };
            }
        }
    }
}

fn checked(ended: io::Result<ExitStatus>) -> Result<(), Failure> {
    let ended = ended.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure { kind: "missing", message: "runc is not installed; on Debian and Ubuntu: apt-get install runc".into() }
        }
        _ => Failure::io("running runc")(error),
    })?;
    if ended.success() { Ok(()) } else { Err(Failure::runc()) }
}

/// Kills and reaps all children of a subreaper that has one thread: runc, and what runc leaves when it ends.
pub fn kill_children() {
    loop {
        // Where the kernel has no such file, runc alone ends: by its parent's end.
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let children: Vec<i32> = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        if children.is_empty() {
            return;
        }
        for pid in children {
            // Our child and not reaped: the pid is its own.
            let _killed = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // Its children are ours by its end; the next round kills them.
        let _reaped = waitpid(None, None);
    }
}

/// The pid that runc wrote.
pub fn read_pid(path: &Path) -> Result<i32, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::io("reading the container's pid"))?;
    text.trim().parse().map_err(Failure::io("reading the container's pid"))
}

/// How a process ended: its code (128 + signal), and the signal.
pub type Ended = (i32, Option<i32>);

/// Reaps all processes that have ended; returns how the given process ended if it was among them.
pub fn reap(ours: i32) -> Option<Ended> {
    let mut ended = None;
    loop {
        match waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == Pid::from_raw(ours) => ended = Some((code, None)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == Pid::from_raw(ours) => {
                let signal = signal as i32;
                ended = Some((128 + signal, Some(signal)));
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return ended,
            Ok(_) => {}
        }
    }
}
