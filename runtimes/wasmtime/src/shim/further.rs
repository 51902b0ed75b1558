//! A further guest in a running container, for one client: as the container's own guest, but with the client's streams, without log and
//! records, and it ends with the container. Or a program of the shim's own in the place of a guest. See [`runtimes_shim::exec`] for the other side.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use runtimes_contract::ContainerSpec;
use runtimes_shim::channel::Channel;
use runtimes_shim::launch::Refusal;
use runtimes_shim::own_cgroups::OwnCgroups;

use super::builtin::{self, Files};
use super::guest::Guest;
use super::stdio::{Session, Stdio};
use super::terminal::{self, Master};
use super::{ENTERING_CGROUPS, Failure, OPENING_CGROUPS, Program, ProgramArgs, confine, load, read_json, root, run_program};
use crate::builtin::{BUILTIN, Builtin};

/// The exit code of a guest whose container or session has ended: that of a process that was killed.
const KILLED: i32 = 137;
/// The thread polls.
const STACK_LEN: usize = 64 << 10;

/// The agent's arguments: description, the mount namespace to begin with, what to run, whether it outlives its session.
struct Args {
    spec: PathBuf,
    empty_mounts: PathBuf,
    further: FurtherArgs,
    outlives_session: bool,
}

/// The agent's arguments about what to run.
enum FurtherArgs {
    Guest(ProgramArgs),
    Builtin(Builtin),
}

/// What is run, while the container is not entered.
enum Runnable {
    Guest(Box<Program>),
    Builtin(Builtin),
}

/// What is run.
enum Further {
    Guest(Box<Program>, Arc<Guest>),
    Builtin { program: Builtin, args: Vec<String>, files: Files, session: Session },
}

/// Runs the guest to its end. Returns the exit code of this process.
pub fn run() -> i32 {
    let channel = Arc::new(Channel::from_stdin());
    match prepare(&channel) {
        Ok(further) => {
            let code = match further {
                Further::Guest(program, guest) => run_program(*program, guest, None).code,
                Further::Builtin { program, args, files, session } => builtin::run(program, args, files, session),
            };
            channel.ended(code);
            0
        }
        Err(failure) => channel.refuse(failure.refusal.word(), &failure.message),
    }
}

fn prepare(channel: &Arc<Channel>) -> Result<Further, Failure> {
    runtimes_host::process::close_inherited().map_err(Failure::io("closing descriptors"))?;
    nix::unistd::setsid().map_err(Failure::io("becoming a session leader"))?;
    let args = parse_args()?;
    let spec: ContainerSpec = read_json(&args.spec)?;
    root::read_page_size();
    match args.further {
        FurtherArgs::Guest(_) => {
            confine::take_oom_score(spec.oom_score_adj).map_err(Failure::io("writing /proc/self/oom_score_adj"))?;
        }
        FurtherArgs::Builtin(_) => builtin::prepare()?,
    }
    let profile = confine::Profile::open(&spec)?;
    let cgroups = OwnCgroups::open().map_err(Failure::io(OPENING_CGROUPS))?;
    let terminal = if spec.tty { Some(terminal::open().map_err(Failure::io("opening the terminal"))?) } else { None };
    let code = match &args.further {
        FurtherArgs::Guest(program) => Some(program.code.as_path()),
        FurtherArgs::Builtin(_) => None,
    };
    let sources = root::Sources::open(&spec, code)?;
    root::join_namespaces(&spec)?;
    sources.leave_node(&args.empty_mounts)?;
    let program = match &args.further {
        FurtherArgs::Guest(program) => Runnable::Guest(Box::new(load(&spec, program)?)),
        FurtherArgs::Builtin(program) => Runnable::Builtin(*program),
    };
    let preopens = sources.enter(&spec)?;

    let mut fds = channel.wait_for_go().map_err(Failure::io("waiting for the agent"))?.into_iter();
    cgroups.enter().map_err(Failure::io(ENTERING_CGROUPS))?;
    let container = fds.next().ok_or_else(|| Failure::new(Refusal::Io, "the agent sent no descriptor of the container"))?;
    let Streams { session, terminal } = match terminal {
        Some((session, master)) => Streams { session, terminal: Some(master) },
        None => Streams::of_pipes(&mut fds).map_err(Failure::io("opening the streams"))?,
    };
    confine::drop_privileges(&spec, profile)?;
    let master = terminal.as_ref().map(|terminal| terminal.fd.try_clone()).transpose().map_err(Failure::io("opening the terminal"))?;
    let outliving = args.outlives_session.then(|| Outliving { terminal, _outputs: fds.collect() });
    watch(channel.clone(), container, outliving)?;
    let further = match program {
        Runnable::Guest(program) => Further::Guest(program, Arc::new(Guest::new(spec, &preopens, Stdio::Session(session))?)),
        Runnable::Builtin(program) => {
            // As its user, which may open less than root.
            let files = Files::open(&preopens, &spec).map_err(Failure::io("opening the container's directories"))?;
            Further::Builtin { program, args: spec.args, files, session }
        }
    };
    channel.ready(master.as_ref().map(AsFd::as_fd));
    Ok(further)
}

fn parse_args() -> Result<Args, Failure> {
    let mut args = std::env::args_os().skip(2).peekable();
    let mut parse = || {
        let (spec, empty_mounts) = (args.next()?.into(), args.next()?.into());
        let further = match args.next_if(|arg| arg == BUILTIN) {
            Some(_) => FurtherArgs::Builtin(args.next()?.to_str()?.parse().ok()?),
            None => FurtherArgs::Guest(ProgramArgs::parse(&mut args)?),
        };
        Some(Args { spec, empty_mounts, further, outlives_session: args.any(|arg| arg == "outlives") })
    };
    let usage = || {
        let guest = ProgramArgs::USAGE;
        format!("usage: skiff-shim-wasmtime exec SPEC MOUNTS ({guest} | {BUILTIN} PROGRAM) [outlives]; the node agent starts it")
    };
    parse().ok_or_else(|| Failure::new(Refusal::Io, usage()))
}

struct Streams {
    session: Session,
    terminal: Option<Master>,
}

impl Streams {
    fn of_pipes(fds: &mut impl Iterator<Item = OwnedFd>) -> io::Result<Self> {
        let mut next = || fds.next().ok_or_else(|| io::Error::other("the agent sent no pipes"));
        let (stdin, stdout, stderr) = (next()?, next()?, next()?);
        fcntl(&stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let session = Session {
            stdin: Mutex::new(Some(stdin)),
            stdout: File::from(stdout),
            stderr: Arc::new(File::from(stderr)),
            is_terminal: false,
        };
        Ok(Self { session, terminal: None })
    }
}

/// What a guest that outlives its session needs to be open. It writes into its pipes until they are full, and gets no error when there
/// is no reader.
struct Outliving {
    terminal: Option<Master>,
    _outputs: Vec<OwnedFd>,
}

/// Ends this process when the container has ended, or when the session has ended and the guest does not outlive it: a guest that
/// outlives it reads the end of its input. On a thread of its own: the guest may compute or wait for a client.
fn watch(channel: Arc<Channel>, container: OwnedFd, outliving: Option<Outliving>) -> Result<(), Failure> {
    let work = move || {
        let mut session_ended = false;
        loop {
            let mut fds = vec![PollFd::new(container.as_fd(), PollFlags::POLLIN)];
            if !session_ended {
                fds.push(PollFd::new(channel.as_fd(), PollFlags::POLLIN));
            }
            // An error is an interruption; the loop checks everything again.
            let _ready = poll(&mut fds, PollTimeout::NONE);
            let is_ready = |index: usize| fds.get(index).is_some_and(|fd| fd.any().unwrap_or(false));
            // The agent sends nothing more: a readable socket is the end.
            let (container_ended, agent_gone) = (is_ready(0), is_ready(1));
            if container_ended || (agent_gone && outliving.is_none()) {
                channel.ended(KILLED);
                // SAFETY: ends the process without running destructors, as a signal would.
                unsafe { libc::_exit(KILLED) }
            }
            if agent_gone {
                session_ended = true;
                if let Some(Master { fd, end }) = outliving.as_ref().and_then(|outliving| outliving.terminal.as_ref()) {
                    // Twice: after an unfinished line the first one only submits the line. A full terminal waits for no end.
                    let _typed = nix::unistd::write(fd, &[*end, *end]);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("session".into()).stack_size(STACK_LEN);
    thread.spawn(work).map(drop).map_err(Failure::io("starting a thread"))
}
