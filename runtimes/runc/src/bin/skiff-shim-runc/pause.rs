//! The first process of a PID namespace that Linux containers share (`Content::Pause` of the contract). It reaps processes whose
//! parents have ended, and waits until it is killed; the kernel then ends the whole namespace. Its neighbours may be hostile and
//! see it in `/proc`, so it has an empty root, the Pod's namespaces, a user of its own without capabilities, few system calls,
//! and a program that is mounted read-only. Signals from within its namespace do not reach it: it handles none, and the kernel
//! drops them for the first process.
//!
//! There are two steps with an `exec` in between: the second has neither arguments nor files of the node.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, chdir, dup2_stderr, execveat, setgroups, setresgid, setresuid, setsid};
use runtimes_host::confine;
use runtimes_host::files::{PRIVATE, write_volatile};
use runtimes_host::process::ProcessRef;
use runtimes_runc::pause::{PROGRAM, ROOT};
use runtimes_shim::channel::Channel;
use runtimes_shim::own_cgroups::OwnCgroups;
use runtimes_shim::record::{PidRecord, now_ms};

use crate::{Failure, runc};

/// The only argument of the second step, by which it is recognized; the name is that of other pause containers.
pub const NAME: &str = "/pause";
/// The user and group of other pause containers.
const USER: u32 = 65_535;
/// The argument of a user namespace begins with it.
const USER_NAMESPACE: &str = "user=";

/// What the second step does from its last privilege on: it answers the agent, then waits and reaps.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    libc::SYS_brk, libc::SYS_close, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn, libc::SYS_rt_sigtimedwait, libc::SYS_sendmsg, libc::SYS_wait4,
];

/// The first step. Returns our exit code when it fails.
pub fn prepare(channel: Channel, args: &[OsString]) -> i32 {
    match become_pause(&channel, args) {
        Ok(never) => match never {},
        Err(failure) => channel.refuse(failure.kind, &failure.message),
    }
}

/// In a user namespace, a child takes over in the PID namespace, and this process ends.
fn become_pause(channel: &Channel, args: &[OsString]) -> Result<Infallible, Failure> {
    let [dir, oom_score_adj, namespaces @ ..] = args else {
        return Err(Failure { kind: "io", message: "usage: skiff-shim-runc pause DIR OOM_SCORE_ADJ [KIND=PATH]…".into() });
    };
    let dir = Path::new(dir);
    setsid().map_err(Failure::io("becoming a session leader"))?;
    channel.wait_for_go().map_err(Failure::io("waiting for the agent"))?;
    OwnCgroups::open().and_then(OwnCgroups::enter).map_err(Failure::io("entering its cgroup"))?;
    std::fs::write("/proc/self/oom_score_adj", oom_score_adj.as_bytes()).map_err(Failure::io("setting the OOM score"))?;
    for namespace in namespaces {
        join(namespace)?;
    }
    let own = ProcessRef::current().map_err(Failure::io("reading /proc"))?;
    let has_user_namespace = namespaces.iter().any(|namespace| namespace.as_bytes().starts_with(USER_NAMESPACE.as_bytes()));
    if has_user_namespace {
        continue_in_child(dir)?;
    } else {
        write_record(dir, own)?;
    }
    let program = leave_mounts(dir).map_err(Failure::io("making its root"))?;
    let program = open(&program, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(Failure::io("opening its program"))?;
    // The log of errors is a file of the node.
    dup2_stderr(std::io::stdout()).map_err(Failure::io("closing the log"))?;
    if has_user_namespace {
        become_root().map_err(Failure::io("becoming the root of the user namespace"))?;
    }
    let name = CString::new(NAME).map_err(Failure::io("naming itself"))?;
    // By its descriptor: the root of a user namespace may not walk to it.
    execveat(&program, c"", &[name], &[] as &[CString], AtFlags::AT_EMPTY_PATH).map_err(Failure::io("starting the second step"))
}

fn write_record(dir: &Path, process: ProcessRef) -> Result<(), Failure> {
    let record = PidRecord { shim: process.clone(), init: process, started_at_ms: now_ms() };
    write_volatile(&dir.join("pid"), record.encode().as_bytes(), PRIVATE).map_err(Failure::io("writing the pid record"))
}

/// Makes a PID namespace and returns in its first process, whose parent is the agent, as soon as its record is written. This process ends.
fn continue_in_child(dir: &Path) -> Result<(), Failure> {
    let starting = "starting its child";
    let (mut recorded, to_child) = std::io::pipe().map_err(Failure::io(starting))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(Failure::io("making a PID namespace"))?;
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: without CLONE_VM the child has its own copy of the memory, and this process has one thread, so that the copy is whole.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    let child = i32::try_from(Errno::result(child).map_err(Failure::io(starting))?).map_err(Failure::io(starting))?;
    if child == 0 {
        drop(to_child);
        let mut word = [0];
        // Without a record, nobody would know of this process: its starter reports why there is none.
        if recorded.read_exact(&mut word).is_err() {
            std::process::exit(1);
        }
        return setsid().map(drop).map_err(Failure::io("becoming a session leader"));
    }
    drop(recorded);
    let process = ProcessRef::read(child).map_err(Failure::io("reading /proc"))?;
    write_record(dir, process)?;
    (&to_child).write_all(b"\n").map_err(Failure::io(starting))?;
    std::process::exit(0)
}

/// Takes the ids that are root's in the user namespace. The node's root has none there, and loses its rights when it starts a program.
fn become_root() -> nix::Result<()> {
    let (user, group) = (Uid::from_raw(0), Gid::from_raw(0));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

/// Joins one of the Pod's namespaces, given as `user=PATH`, `network=PATH`, `ipc=PATH` or `uts=PATH`.
fn join(argument: &OsStr) -> Result<(), Failure> {
    let joining = || format!("joining the namespace {}", argument.display());
    let kinds = [
        (USER_NAMESPACE, CloneFlags::CLONE_NEWUSER),
        ("network=", CloneFlags::CLONE_NEWNET),
        ("ipc=", CloneFlags::CLONE_NEWIPC),
        ("uts=", CloneFlags::CLONE_NEWUTS),
    ];
    let found = kinds.iter().find_map(|(kind, flag)| Some((argument.as_bytes().strip_prefix(kind.as_bytes())?, *flag)));
    let Some((path, flag)) = found else { return Err(Failure { kind: "io", message: format!("{}: no such kind", joining()) }) };
    let namespace = File::open(OsStr::from_bytes(path)).map_err(Failure::io(&joining()))?;
    setns(namespace.as_fd(), flag).map_err(Failure::io(&joining()))
}

/// Makes mounts that the node does not see: the program, which a neighbour with many rights could otherwise reach through
/// `/proc` and write to, and an empty root, which becomes the working directory. Returns the program's path.
fn leave_mounts(dir: &Path) -> std::io::Result<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)?;
    confine::make_mounts_private()?;
    let program = dir.join(PROGRAM);
    let none = None::<&str>;
    mount(Some(&std::env::current_exe()?), &program, none, MsFlags::MS_BIND, none)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(none, &program, none, flags, none)?;
    let root = dir.join(ROOT);
    confine::mount_empty(&root, &[])?;
    chdir(&root)?;
    Ok(program)
}

/// The second step: gives up all rights, answers the agent and reaps for ever. Returns our exit code when it fails.
pub fn run(channel: Channel) -> i32 {
    let ended = SigSet::from(Signal::SIGCHLD);
    if let Err(failure) = confine_itself(ended) {
        return channel.refuse(failure.kind, &failure.message);
    }
    channel.ready(None);
    drop(channel);
    loop {
        // Reaps nothing of its own: the number of no process.
        let _ended = runc::reap(0);
        if ended.wait().is_err() {
            return 1;
        }
    }
}

fn confine_itself(ended: SigSet) -> Result<(), Failure> {
    ended.thread_block().map_err(Failure::io("blocking signals"))?;
    prctl::set_name(c"pause").map_err(Failure::io("naming itself"))?;
    confine::enter_working_dir().map_err(Failure::io("entering its root"))?;
    confine::give_up_all(USER, CALLS).map_err(Failure::io("giving up privileges"))
}
