//! One container, from `runc create` to the exit record.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{pipe2, setsid};
use runtimes_contract::{Exit, UserNamespace};
use runtimes_host::cgroup::{Cgroups, oom_kills};
use runtimes_host::files::{PRIVATE, write_volatile};
use runtimes_host::process::ProcessRef;
use runtimes_runc::{project_quota, stage};
use runtimes_shim::attach::Hub;
use runtimes_shim::channel::Channel;
use runtimes_shim::cri::Stream;
use runtimes_shim::record::{PidRecord, encode_exit, now_ms};

use crate::console::Console;
use crate::log::{Log, Source};
use crate::runc::{self, Ended, Runc};
use crate::verify::verify;
use crate::{Failure, exec_fifo, mounts, signals};

/// How long output is read after the container's end: another process may hold the pipe.
const DRAIN_MS: u16 = 2000;

/// How long output waits for an attached client that reads nothing.
const STUCK_MS: u16 = 10_000;

/// The checks of a starting process, one each ms.
const GUEST_WITHIN_TRIES: u32 = 1000;

struct Args<'a> {
    dir: &'a Path,
    runc: Runc<'a>,
    log: &'a Path,
    oom_counter: &'a Path,
    tty: bool,
    stdin: bool,
    stdin_once: bool,
    /// The container's cgroup, when its processes do not end with its first process.
    shared: Option<&'a str>,
}

struct Container {
    _lock: Flock<File>,
    exit: File,
    signals: SignalFd,
    log: Log,
    sources: Vec<Source>,
    /// The attached clients; holds the container's stdin open.
    hub: Hub,
    init: i32,
}

/// Runs a container to its end. Returns our exit code.
pub fn run(channel: Channel, args: &[OsString]) -> i32 {
    let Some(args) = parse(args) else {
        return channel.refuse(
            "io",
            "usage: skiff-shim-runc run DIR RUNC ROOT ID LOG COUNTER [tty] [stdin] [stdin-once] [project-quota] [cgroup=PATH]",
        );
    };
    match start(&channel, &args) {
        Ok(container) => {
            channel.ready(None);
            drop(channel);
            let (exit, (code, signal), mut hub, message) = container.sources_until_end(args.shared);
            // The memory limit is to blame when it struck and the container did not end well.
            let killed = std::fs::read_to_string(args.oom_counter).map_or(0, |text| oom_kills(&text));
            let oom_killed = killed > 0 && code != 0;
            let record = Exit { code, signal, oom_killed, finished_at_ms: now_ms(), message };
            // If it cannot be written, the end is taken for a kill; there is no other way to report it.
            let _written = exit.write_all_at(encode_exit(&record).as_bytes(), 0);
            hub.finish(Duration::from_millis(DRAIN_MS.into()));
            0
        }
        Err(failure) => channel.refuse(failure.kind, &failure.message),
    }
}

fn parse(args: &[OsString]) -> Option<Args<'_>> {
    let [dir, binary, root, id, log, oom_counter, flags @ ..] = args else { return None };
    let has = |name: &str| flags.iter().any(|flag| flag == OsStr::new(name));
    let dir = Path::new(dir);
    let runc = Runc { binary, root, id, log: dir.join("runc.log"), keeps_projects: has(project_quota::FLAG) };
    let (tty, stdin, stdin_once) = (has("tty"), has("stdin"), has("stdin-once"));
    let shared = flags.iter().find_map(|flag| flag.to_str()?.strip_prefix("cgroup="));
    Some(Args { dir, runc, log: Path::new(log), oom_counter: Path::new(oom_counter), tty, stdin, stdin_once, shared })
}

fn start(channel: &Channel, args: &Args<'_>) -> Result<Container, Failure> {
    setsid().map_err(Failure::io("becoming a session leader"))?;
    prctl::set_child_subreaper(true).map_err(Failure::io("becoming a subreaper"))?;
    channel.wait_for_go().map_err(Failure::io("waiting for the agent"))?;
    let file = |name: &str| {
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(args.dir.join(name));
        open.map_err(Failure::io("opening the container's records"))
    };
    let lock = Flock::lock(file("lock")?, FlockArg::LockExclusiveNonblock)
        .map_err(|_| Failure { kind: "io", message: "the container is already running".into() })?;
    let exit = file("exit")?;
    let log = Log::open(args.log).map_err(Failure::io("opening the log"))?;
    let mut hub = Hub::listen(args.dir).map_err(Failure::io("listening for who attaches"))?;
    let stage = stage::read(args.dir).map_err(Failure::io("reading the container's mounts"))?;
    let node = stage.as_ref().map(mounts::enter).transpose()?;
    // Reported only now: runc's own children are waited for one by one before.
    let sources = create(args, stage.as_ref().map(|stage| &stage.user), &mut hub)?;
    let begun = node.map_or(Ok(()), mounts::Node::back).and_then(|()| Ok((signals::open()?, begin(args)?)));
    let (signals, init) = begun.inspect_err(|_| {
        // It was created and cannot be used; the agent expects that the container does not exist then.
        let _deleted = runc::call(&mut args.runc.command("delete", ["--force".into()]));
    })?;
    Ok(Container { _lock: lock, exit, signals, log, sources, hub, init })
}

/// `runc create`: the container is created and waits.
fn create(args: &Args<'_>, user: Option<&UserNamespace>, hub: &mut Hub) -> Result<Vec<Source>, Failure> {
    let piping = "making pipes";
    let mut command_args: Vec<OsString> = vec!["--bundle".into(), args.dir.into(), "--pid-file".into(), pid_file(args).into()];
    if args.tty {
        let console = Console::listen(args.dir, "console")?;
        command_args.extend(["--console-socket".into(), console.path().as_os_str().to_owned()]);
        runc::call(&mut args.runc.command("create", command_args))?;
        let terminal = console.terminal()?;
        let another = || terminal.try_clone().map_err(Failure::io("sharing the terminal"));
        hub.set_terminal(another()?);
        if args.stdin {
            hub.set_stdin(another()?, args.stdin_once).map_err(Failure::io("sharing the terminal"))?;
        }
        return Ok(vec![Source::new(terminal, Stream::Stdout)]);
    }
    let (from_stdout, stdout) = pipe2(OFlag::O_CLOEXEC).map_err(Failure::io(piping))?;
    let (from_stderr, stderr) = pipe2(OFlag::O_CLOEXEC).map_err(Failure::io(piping))?;
    let give = |pipe: &OwnedFd| user.map_or(Ok(()), |user| mounts::give(pipe, user));
    give(&stdout).and_then(|()| give(&stderr))?;
    let mut command = args.runc.command("create", command_args);
    command.stdout(stdout).stderr(stderr);
    if args.stdin {
        let (stdin, to_stdin) = pipe2(OFlag::O_CLOEXEC).map_err(Failure::io(piping))?;
        give(&stdin)?;
        command.stdin(Stdio::from(stdin));
        hub.set_stdin(to_stdin, args.stdin_once).map_err(Failure::io(piping))?;
    }
    runc::call(&mut command)?;
    // Dropping the command closes this process' copies of the container's ends.
    drop(command);
    Ok(vec![Source::new(from_stdout, Stream::Stdout), Source::new(from_stderr, Stream::Stderr)])
}

fn pid_file(args: &Args<'_>) -> PathBuf {
    args.dir.join("init.pid")
}

/// Verifies what was created, writes the pid record, then starts the guest: its first instruction.
fn begin(args: &Args<'_>) -> Result<i32, Failure> {
    let init = runc::read_pid(&pid_file(args))?;
    verify(init, &args.dir.join("config.json"))?;
    let process = |pid| ProcessRef::read(pid).map_err(Failure::io("reading /proc"));
    let record = PidRecord { shim: process(std::process::id().cast_signed())?, init: process(init)?, started_at_ms: now_ms() };
    let path = args.dir.join("pid");
    write_volatile(&path, record.encode().as_bytes(), PRIVATE).map_err(Failure::io("writing the pid record"))?;
    let started = exec_fifo::start(&args.runc.exec_fifo(), &record.init).and_then(|done| match done {
        true => Ok(()),
        false => runc::call(&mut args.runc.command("start", [])),
    });
    started.inspect_err(|_| {
        // No guest was started; the record would say otherwise.
        let _removed = std::fs::remove_file(&path);
    })?;
    wait_for_guest(init);
    Ok(init)
}

/// A start returns a moment before runc's init process becomes the guest, and a SIGTERM in that moment would end runc (with
/// code 2) instead of reaching the guest. There is no notification of the change, so the process' name is read, for
/// [`GUEST_WITHIN_TRIES`] ms at most.
fn wait_for_guest(init: i32) {
    for _ in 0..GUEST_WITHIN_TRIES {
        // It runs, or has ended already.
        if !exec_fifo::is_runc(init) {
            return;
        }
        let _slept = poll(&mut [], PollTimeout::from(1_u8));
    }
}

/// Kills what is left of a container that shares the PID namespace of others, after its first process has ended. Returns why
/// something is left, for the exit record.
fn kill_rest(cgroup: &str) -> String {
    let killed = Cgroups::detect().and_then(|cgroups| cgroups.group(cgroup)).and_then(|group| group.kill());
    killed.err().map(|error| error.to_string()).unwrap_or_default()
}

impl Container {
    /// Copies output until the container has ended and all output is copied. The last value is the message of the exit record.
    fn sources_until_end(mut self, shared: Option<&str>) -> (File, Ended, Hub, String) {
        let mut ended = runc::reap(self.init);
        while ended.is_none() {
            self.wait(PollTimeout::NONE);
            if signals::take_reopen(&self.signals) {
                self.log.reopen();
            }
            ended = runc::reap(self.init);
        }
        let message = shared.map(kill_rest).unwrap_or_default();
        while !self.sources.is_empty() && self.wait(PollTimeout::from(DRAIN_MS)) {}
        // Code 255 cannot happen: the loop above ends with an end.
        (self.exit, ended.unwrap_or((255, None)), self.hub, message)
    }

    /// Waits for output, an attached client or a signal, and handles it; returns whether something came in time. An attached
    /// client that reads too slowly delays the output, but not for ever.
    fn wait(&mut self, timeout: PollTimeout) -> bool {
        let is_draining = timeout != PollTimeout::NONE;
        let is_full = self.hub.is_full();
        let timeout = if is_full { PollTimeout::from(STUCK_MS) } else { timeout };
        let watched = self.hub.watched();
        let mut fds: Vec<PollFd<'_>> = watched.iter().map(|(fd, flags)| PollFd::new(fd.as_fd(), *flags)).collect();
        // While draining only output counts.
        if !is_draining {
            fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        }
        let others = fds.len();
        if !is_full {
            fds.extend(self.sources.iter().map(|source| PollFd::new(source.as_fd(), PollFlags::POLLIN)));
        }
        let came = match poll(&mut fds, timeout) {
            Ok(count) => count > 0,
            Err(error) => io::Error::from(error).kind() == io::ErrorKind::Interrupted,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        drop(fds);
        if is_full && !came {
            self.hub.let_go_of_full();
            return true;
        }
        if ready.iter().take(watched.len()).any(|ready| *ready) {
            self.hub.serve();
        }
        let mut talking = ready.into_iter().skip(others);
        let (log, hub) = (&mut self.log, &mut self.hub);
        self.sources.retain_mut(|source| !talking.next().unwrap_or(false) || source.copy(log, hub));
        came
    }
}
