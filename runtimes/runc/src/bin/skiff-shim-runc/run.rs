//! One container, from `runc create` to the exit record.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{pipe2, setsid};
use runtimes_contract::Exit;
use runtimes_contract::cri::Stream;
use runtimes_contract::process::ProcessRef;
use runtimes_contract::record::{PidRecord, encode_exit, now_ms, oom_kills};
use runtimes_contract::state::write_whole;

use crate::channel::Channel;
use crate::console::Console;
use crate::log::{Log, Source};
use crate::runc::{self, Ended, Runc};
use crate::{Failure, signals};

/// How long output is read after the container's end: another process may hold the pipe.
const DRAIN_MS: u16 = 2000;

/// Looks at a starting process, one each ms.
const GUEST_WITHIN_TRIES: u32 = 1000;

struct Args<'a> {
    dir: &'a Path,
    runc: Runc<'a>,
    log: &'a Path,
    oom_counter: &'a Path,
    tty: bool,
    stdin: bool,
}

struct Container {
    _lock: Flock<File>,
    exit: File,
    signals: SignalFd,
    log: Log,
    sources: Vec<Source>,
    /// Both ends of a stdin that nobody writes to, so that it does not end either.
    _stdin: Option<(OwnedFd, OwnedFd)>,
    init: i32,
}

/// Runs a container to its end. Returns our exit code.
pub fn run(channel: Channel, args: &[OsString]) -> i32 {
    let Some(args) = parse(args) else {
        return channel
            .refuse(&Failure { kind: "io", message: "usage: skiff-shim-runc run DIR RUNC ROOT ID LOG COUNTER [tty] [stdin]".into() });
    };
    match start(&channel, &args) {
        Ok(container) => {
            channel.ready(&[]);
            drop(channel);
            let (exit, (code, signal)) = container.sources_until_end();
            // The memory limit is to blame when it struck and the container did not end well.
            let killed = std::fs::read_to_string(args.oom_counter).map_or(0, |text| oom_kills(&text));
            let oom_killed = killed > 0 && code != 0;
            let record = Exit { code, signal, oom_killed, finished_at_ms: now_ms(), message: String::new() };
            // When it cannot be written, the end is taken for a kill; there is nobody to tell more.
            let _written = exit.write_all_at(encode_exit(&record).as_bytes(), 0);
            0
        }
        Err(failure) => channel.refuse(&failure),
    }
}

fn parse(args: &[OsString]) -> Option<Args<'_>> {
    let [dir, binary, root, id, log, oom_counter, flags @ ..] = args else { return None };
    let has = |name: &str| flags.iter().any(|flag| flag == OsStr::new(name));
    let dir = Path::new(dir);
    let runc = Runc { binary, root, id, log: dir.join("runc.log") };
    Some(Args { dir, runc, log: Path::new(log), oom_counter: Path::new(oom_counter), tty: has("tty"), stdin: has("stdin") })
}

fn start(channel: &Channel, args: &Args<'_>) -> Result<Container, Failure> {
    setsid().map_err(Failure::io("becoming a session leader"))?;
    prctl::set_child_subreaper(true).map_err(Failure::io("becoming a subreaper"))?;
    channel.wait_for_go()?;
    let file = |name: &str| {
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(args.dir.join(name));
        open.map_err(Failure::io("opening the container's records"))
    };
    let lock = Flock::lock(file("lock")?, FlockArg::LockExclusiveNonblock)
        .map_err(|_| Failure { kind: "io", message: "the container is already running".into() })?;
    let exit = file("exit")?;
    let log = Log::open(args.log).map_err(Failure::io("opening the log"))?;
    // Told of only now: runc's own children are waited for one by one before.
    let (sources, stdin) = create(args)?;
    let signals = signals::open()?;
    let init = begin(args).inspect_err(|_| {
        // It was made and cannot be used; a container that is not there is what the agent expects.
        let _deleted = runc::call(&mut args.runc.command("delete", ["--force".into()]));
    })?;
    Ok(Container { _lock: lock, exit, signals, log, sources, _stdin: stdin, init })
}

type Made = (Vec<Source>, Option<(OwnedFd, OwnedFd)>);

/// `runc create`: the container is made and waits.
fn create(args: &Args<'_>) -> Result<Made, Failure> {
    let piping = "making pipes";
    let mut command_args: Vec<OsString> = vec!["--bundle".into(), args.dir.into(), "--pid-file".into(), pid_file(args).into()];
    if args.tty {
        let console = Console::listen(args.dir, "console")?;
        command_args.extend(["--console-socket".into(), console.path().as_os_str().to_owned()]);
        runc::call(&mut args.runc.command("create", command_args))?;
        return Ok((vec![Source::new(console.terminal()?, Stream::Stdout)], None));
    }
    let (from_stdout, stdout) = pipe2(OFlag::O_CLOEXEC).map_err(Failure::io(piping))?;
    let (from_stderr, stderr) = pipe2(OFlag::O_CLOEXEC).map_err(Failure::io(piping))?;
    let stdin = if args.stdin { Some(pipe2(OFlag::O_CLOEXEC).map_err(Failure::io(piping))?) } else { None };
    let mut command = args.runc.command("create", command_args);
    command.stdout(stdout).stderr(stderr);
    if let Some((read, _)) = &stdin {
        command.stdin(Stdio::from(read.try_clone().map_err(Failure::io(piping))?));
    }
    runc::call(&mut command)?;
    // With the command go our copies of the writing ends.
    drop(command);
    Ok((vec![Source::new(from_stdout, Stream::Stdout), Source::new(from_stderr, Stream::Stderr)], stdin))
}

fn pid_file(args: &Args<'_>) -> PathBuf {
    args.dir.join("init.pid")
}

/// Says who runs, then `runc start`: the guest's first instruction.
fn begin(args: &Args<'_>) -> Result<i32, Failure> {
    let init = runc::read_pid(&pid_file(args))?;
    let process = |pid| ProcessRef::of(pid).map_err(Failure::io("reading /proc"));
    let record = PidRecord { shim: process(std::process::id().cast_signed())?, init: process(init)?, started_at_ms: now_ms() };
    let path = args.dir.join("pid");
    write_whole(&path, record.encode().as_bytes()).map_err(Failure::io("writing the pid record"))?;
    runc::call(&mut args.runc.command("start", [])).inspect_err(|_| {
        // Nothing was started; the record would say otherwise.
        let _removed = std::fs::remove_file(&path);
    })?;
    wait_for_guest(init);
    Ok(init)
}

/// `runc start` returns a moment before its init process becomes the guest, and a SIGTERM in that
/// moment would end runc (with code 2) instead of being the guest's to answer. Nothing announces the
/// change, so the process' name is looked at, for [`GUEST_WITHIN_TRIES`] ms at most.
fn wait_for_guest(init: i32) {
    let comm = format!("/proc/{init}/comm");
    for _ in 0..GUEST_WITHIN_TRIES {
        match std::fs::read_to_string(&comm) {
            Ok(name) if name.starts_with("runc:[") => {}
            // It runs, or has ended already.
            _ => return,
        }
        let _slept = poll(&mut [], PollTimeout::from(1_u8));
    }
}

impl Container {
    /// Copies output until the container has ended and said all.
    fn sources_until_end(mut self) -> (File, Ended) {
        let mut ended = runc::reap(self.init);
        while ended.is_none() {
            self.wait(PollTimeout::NONE);
            if signals::take_reopen(&self.signals) {
                self.log.reopen();
            }
            ended = runc::reap(self.init);
        }
        while !self.sources.is_empty() && self.wait(PollTimeout::from(DRAIN_MS)) {}
        // Code 255 cannot happen: the loop above ends with an end.
        (self.exit, ended.unwrap_or((255, None)))
    }

    /// Waits for output or a signal and copies what is there; whether something came in time.
    fn wait(&mut self, timeout: PollTimeout) -> bool {
        let mut fds: Vec<PollFd<'_>> = self.sources.iter().map(|source| PollFd::new(source.as_fd(), PollFlags::POLLIN)).collect();
        // While draining nothing but output counts.
        if timeout == PollTimeout::NONE {
            fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        }
        let came = match poll(&mut fds, timeout) {
            Ok(count) => count > 0,
            Err(error) => io::Error::from(error).kind() == io::ErrorKind::Interrupted,
        };
        let talking: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        let mut index = 0;
        let log = &mut self.log;
        self.sources.retain_mut(|source| {
            let talks = talking.get(index).copied().unwrap_or(false);
            index += 1;
            !talks || source.copy(log)
        });
        came
    }
}
