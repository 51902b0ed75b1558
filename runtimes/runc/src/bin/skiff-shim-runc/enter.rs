//! A further process in a running container. The agent sends descriptors for its stdio (or gets its terminal). When the agent
//! ends the session, the process is killed, or continues if it outlives its session. A session that ends while runc still starts the
//! process ends runc, too: runc may hang, and the next probe comes in a second.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::termios::{SpecialCharacterIndices, tcgetattr};
use nix::unistd::{Pid, setsid, write};
use runtimes_runc::{project_quota, stage};
use runtimes_shim::channel::Channel;

use crate::console::Console;
use crate::runc::{self, Runc};
use crate::{Failure, mounts, signals};

struct Args<'a> {
    dir: &'a Path,
    runc: Runc<'a>,
    name: &'a str,
    tty: bool,
    outlives_session: bool,
}

/// The process, and the descriptors of its stdio that stay open here.
struct Started {
    pid: i32,
    signals: SignalFd,
    terminal: Option<OwnedFd>,
    /// The agent's ends of stdout and stderr. A process that outlives its session writes into them until they are full, and
    /// gets no error when there is no reader.
    _outputs: Vec<OwnedFd>,
}

/// Runs a process to its end. Returns our exit code.
pub fn run(channel: Channel, args: &[OsString]) -> i32 {
    let Some(args) = parse(args) else {
        return channel.refuse("io", "usage: skiff-shim-runc exec DIR RUNC ROOT ID NAME [tty] [stdin] [outlives] [project-quota]");
    };
    match start(&channel, &args) {
        Ok(mut started) => {
            channel.ready(started.terminal.as_ref().map(AsFd::as_fd));
            if !args.outlives_session {
                started.terminal = None;
            }
            let code = watch(&channel, &started, args.outlives_session);
            channel.ended(code);
            0
        }
        Err(failure) => {
            // runc, when the session has ended before it, and a process that nobody would watch.
            runc::kill_children();
            channel.refuse(failure.kind, &failure.message)
        }
    }
}

fn parse(args: &[OsString]) -> Option<Args<'_>> {
    let [dir, binary, root, id, name, flags @ ..] = args else { return None };
    let (dir, name) = (Path::new(dir), name.to_str()?);
    let has = |name: &str| flags.iter().any(|flag| flag == OsStr::new(name));
    let runc = Runc { binary, root, id, log: dir.join(format!("{name}.log")), keeps_projects: has(project_quota::FLAG) };
    Some(Args { dir, runc, name, tty: has("tty"), outlives_session: has("outlives") })
}

/// Has runc start the process. After an error, runc and the process may run.
fn start(channel: &Channel, args: &Args<'_>) -> Result<Started, Failure> {
    setsid().map_err(Failure::io("becoming a session leader"))?;
    prctl::set_child_subreaper(true).map_err(Failure::io("becoming a subreaper"))?;
    let mut stdio = channel.wait_for_go().map_err(Failure::io("waiting for the agent"))?.into_iter();
    let stage = stage::read(args.dir).map_err(Failure::io("reading the container's mounts"))?;
    let node = stage.as_ref().map(mounts::enter_empty).transpose()?;
    let file = |kind: &str| args.dir.join(format!("{}.{kind}", args.name));
    let mut command_args: Vec<OsString> =
        vec!["--detach".into(), "--process".into(), file("json").into(), "--pid-file".into(), file("pid").into()];
    let terminal = if args.tty {
        let console = Console::listen(args.dir, args.name)?;
        command_args.extend(["--console-socket".into(), console.path().as_os_str().to_owned()]);
        runc::call_in_session(&mut args.runc.command("exec", command_args), channel)?;
        Some(console.terminal()?)
    } else {
        let mut command = args.runc.command("exec", command_args);
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdio.next(), stdio.next(), stdio.next()) else {
            return Err(Failure { kind: "io", message: "the agent sent no pipes".into() });
        };
        if let Some(stage) = &stage {
            [&stdin, &stdout, &stderr].into_iter().try_for_each(|pipe| mounts::give(pipe, &stage.user))?;
        }
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        runc::call_in_session(&mut command, channel)?;
        None
    };
    let pid = runc::read_pid(&file("pid"))?;
    let signals = node.map_or(Ok(()), mounts::Node::back).and_then(|()| signals::open())?;
    Ok(Started { pid, signals, terminal, _outputs: stdio.collect() })
}

/// Waits for the process. When the agent has ended the session, a process that outlives it reads the end of its
/// input, and any other is killed.
fn watch(channel: &Channel, started: &Started, outlives_session: bool) -> i32 {
    let mut agent_gone = false;
    loop {
        if let Some((code, _)) = runc::reap(started.pid) {
            return code;
        }
        let mut fds = vec![PollFd::new(started.signals.as_fd(), PollFlags::POLLIN)];
        if !agent_gone {
            fds.push(PollFd::new(channel.as_fd(), PollFlags::POLLIN));
        }
        // An error is an interruption; the loop checks everything again.
        let _ready = poll(&mut fds, PollTimeout::NONE);
        // The agent sends nothing more: a readable socket is the end.
        if fds.get(1).is_some_and(|fd| fd.any().unwrap_or(false)) {
            agent_gone = true;
            match &started.terminal {
                Some(terminal) => end_input(terminal),
                None if outlives_session => {}
                // Our child and not reaped: the pid is still its own.
                None => {
                    let _killed = kill(Pid::from_raw(started.pid), Signal::SIGKILL);
                }
            }
        }
        let _ = signals::take_reopen(&started.signals);
    }
}

/// Types the terminal's end-of-file character twice: after an unfinished line the first one only submits the line. When a
/// terminal accepts no more input, or none by lines, its process does not wait for the end.
fn end_input(terminal: &OwnedFd) {
    let Ok(settings) = tcgetattr(terminal) else { return };
    if let Some(&end) = settings.control_chars.get(SpecialCharacterIndices::VEOF as usize) {
        let _typed = write(terminal, &[end, end]);
    }
}
