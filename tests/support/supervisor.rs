//! Kills a process right before a system call by which it changes the machine. A seccomp filter sends those calls to the
//! test (seccomp_unotify(2)), which records them as steps and lets them go on. So a test can kill a process before each of
//! its steps in turn, and the process needs no code for it.

#![allow(unsafe_code, reason = "seccomp's notifications have no safe form")]

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard};

use nix::libc::{self, c_int, c_long, c_void, seccomp_notif, seccomp_notif_resp, sock_filter};

use crate::run::eventually;

/// What a call acts on, by the places of its arguments.
#[derive(Clone, Copy)]
enum Object {
    /// A path.
    Path(usize),
    /// A path, relative to a directory's descriptor.
    At(usize, usize),
    /// What a descriptor leads to.
    Descriptor(usize),
    /// Nothing that has a name.
    Nameless,
}

/// The calls that are steps. `execve` is one, so that the program begins after the test has the listener. Of `openat`, those that
/// may make a file; of `clone` and `clone3`, those that make a process.
const CALLS: &[(c_long, &str, Object)] = &[
    (libc::SYS_execve, "execve", Object::Path(0)),
    (libc::SYS_openat, "openat", Object::At(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir", Object::Path(0)),
    (libc::SYS_mkdirat, "mkdirat", Object::At(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename", Object::Path(1)),
    (libc::SYS_renameat, "renameat", Object::At(2, 3)),
    (libc::SYS_renameat2, "renameat2", Object::At(2, 3)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink", Object::Path(0)),
    (libc::SYS_unlinkat, "unlinkat", Object::At(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir", Object::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink", Object::Path(1)),
    (libc::SYS_symlinkat, "symlinkat", Object::At(1, 2)),
    (libc::SYS_linkat, "linkat", Object::At(2, 3)),
    (libc::SYS_mknodat, "mknodat", Object::At(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, "chmod", Object::Path(0)),
    (libc::SYS_fchmod, "fchmod", Object::Descriptor(0)),
    (libc::SYS_fchmodat, "fchmodat", Object::At(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, "chown", Object::Path(0)),
    (libc::SYS_fchown, "fchown", Object::Descriptor(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, "lchown", Object::Path(0)),
    (libc::SYS_fchownat, "fchownat", Object::At(0, 1)),
    (libc::SYS_ftruncate, "ftruncate", Object::Descriptor(0)),
    (libc::SYS_write, "write", Object::Descriptor(0)),
    (libc::SYS_pwrite64, "pwrite64", Object::Descriptor(0)),
    (libc::SYS_sendto, "sendto", Object::Descriptor(0)),
    (libc::SYS_sendmsg, "sendmsg", Object::Descriptor(0)),
    (libc::SYS_mount, "mount", Object::Path(1)),
    (libc::SYS_umount2, "umount2", Object::Path(0)),
    (libc::SYS_move_mount, "move_mount", Object::At(2, 3)),
    (libc::SYS_mount_setattr, "mount_setattr", Object::At(0, 1)),
    (libc::SYS_unshare, "unshare", Object::Nameless),
    (libc::SYS_clone, "clone", Object::Nameless),
    (libc::SYS_clone3, "clone3", Object::Nameless),
    (libc::SYS_kill, "kill", Object::Nameless),
    (libc::SYS_pidfd_send_signal, "pidfd_send_signal", Object::Nameless),
];

/// Longest path that is read from a process.
const PATH_LEN: usize = 4096;
/// Bytes of a piece of a name in hexadecimal digits from which on it counts as an id.
const ID_LEN: usize = 6;
/// What stands before ids, and before the random endings of temporary files and of volumes for tokens.
const PREFIXES: [&str; 5] = ["pod", "tmp", "helper-", "kube-api-access-", "pvc-"];
/// Bytes of a random ending: of a file, and of a volume.
const RANDOM_LENS: [usize; 2] = [6, 5];
/// The command line of the process in which a node compiles a module.
const COMPILER: &[u8] = b"/proc/self/exe\0internal\0compile\0";

/// One call that changes the machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    call: &'static str,
    /// What it acts on, with `*` for ids, so that the same step of two runs is equal.
    object: String,
    /// A compiler of the process makes it.
    of_compiler: bool,
    /// Which of the calls with that name on that object, from 1.
    nth: u32,
}

impl Step {
    /// Whether a compiler of the process makes it.
    pub fn is_of_compiler(&self) -> bool {
        self.of_compiler
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.of_compiler { "compiler: " } else { "" };
        write!(f, "{whose}{} {} ({})", self.call, self.object, self.nth)
    }
}

#[derive(Default)]
struct Watch {
    recording: bool,
    steps: Vec<Step>,
    /// How often each call was made, by the step with the number 0.
    calls: HashMap<Step, u32>,
    kill_before: Option<Step>,
}

/// Supervises a process, and those that it starts. Only the steps of the first and of its compilers are recorded, and only the first is
/// killed. A supervised process must not outlive the test. Needs root, and Linux 6.9 for `PIDFD_THREAD`.
#[derive(Clone, Default)]
pub struct Supervisor {
    watch: Arc<Mutex<Watch>>,
}

impl Supervisor {
    /// Starts a program under supervision.
    pub fn spawn(&self, command: &mut Command) -> Child {
        let (mut from_child, to_parent) = io::pipe().expect("a pipe");
        let filter = filter();
        // SAFETY: between fork and exec, the closure makes system calls alone; it takes no lock and no memory.
        unsafe { command.pre_exec(move || send_calls(&filter, to_parent.as_raw_fd())) };
        let supervisor = self.clone();
        std::thread::spawn(move || {
            let mut words = [0; 8];
            from_child.read_exact(&mut words).expect("the process says its number");
            let [pid, number] = [0, 4].map(|at| i32::from_ne_bytes(words[at..at + 4].try_into().expect("four bytes")));
            let listener = eventually("the process has its filter", || descriptor(pid, number).map_err(|error| error.to_string()));
            supervisor.serve(pid, &listener);
        });
        command.spawn().expect("the program starts")
    }

    /// Records the steps from now on.
    pub fn record(&self) {
        *self.watch() = Watch { recording: true, ..Watch::default() };
    }

    /// Ends the record; returns the steps in their order.
    pub fn recorded(&self) -> Vec<Step> {
        std::mem::take(&mut *self.watch()).steps
    }

    /// Kills the process when it is about to do that step, counted from now on, or when a compiler of the process is about to do it. The
    /// compiler goes on.
    pub fn kill_before(&self, step: &Step) {
        *self.watch() = Watch { kill_before: Some(step.clone()), ..Watch::default() };
    }

    /// Lets the process live; returns whether it was killed before.
    pub fn disarm(&self) -> bool {
        std::mem::take(&mut *self.watch()).kill_before.is_none()
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().expect("not poisoned")
    }

    /// Answers the calls of a process and of those that it started, until the last has ended.
    fn serve(&self, pid: i32, listener: &OwnedFd) {
        loop {
            let mut polled = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd.
            if unsafe { libc::poll(&raw mut polled, 1, -1) } < 0 {
                // A signal came.
                continue;
            }
            if polled.revents & libc::POLLIN == 0 {
                return;
            }
            // SAFETY: all zeros is a valid value, and what the kernel demands.
            let mut call: seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel writes one seccomp_notif.
            if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } != 0 {
                // The thread has ended since.
                continue;
            }
            if self.goes_on(pid, &call) {
                let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("a flag");
                let mut answer = seccomp_notif_resp { id: call.id, val: 0, error: 0, flags };
                // SAFETY: the kernel reads one seccomp_notif_resp. It fails if the thread has ended since.
                unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
            }
        }
    }

    /// Whether the call may be made; otherwise the process that makes it is dead.
    fn goes_on(&self, pid: i32, call: &seccomp_notif) -> bool {
        let mut watch = self.watch();
        if !watch.recording && watch.kill_before.is_none() {
            return true;
        }
        let Some(mut step) = meaning(pid, call) else { return true };
        let nth = watch.calls.entry(step.clone()).or_default();
        *nth += 1;
        step.nth = *nth;
        if watch.kill_before.as_ref() == Some(&step) {
            watch.kill_before = None;
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).expect("it is ours");
            // A compiler has to end by itself.
            return step.of_compiler;
        }
        if watch.recording {
            watch.steps.push(step);
        }
        true
    }
}

/// The program of the filter: it notifies of [`CALLS`], and allows all others.
fn filter() -> Vec<sock_filter> {
    let word = |bits: u32| u16::try_from(bits).expect("16 bits");
    let load = |offset: usize| sock_filter {
        code: word(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
        jt: 0,
        jf: 0,
        k: u32::try_from(offset).expect("a small offset"),
    };
    let jump = |test: u32, k: u32, jt: usize| {
        let jt = u8::try_from(jt).expect("a short program");
        sock_filter { code: word(libc::BPF_JMP | test | libc::BPF_K), jt, jf: 0, k }
    };
    let give = |k: u32| sock_filter { code: word(libc::BPF_RET | libc::BPF_K), jt: 0, jf: 0, k };
    let others: Vec<u32> =
        CALLS.iter().map(|(number, ..)| *number).filter(|number| *number != libc::SYS_openat).map(|number| number as u32).collect();
    let mut program = vec![load(std::mem::offset_of!(libc::seccomp_data, nr))];
    // Behind the jumps: `openat` by its flags, then what is allowed, then what is notified of.
    let behind = |index: usize| others.len() - index;
    program.extend(others.iter().enumerate().map(|(index, number)| jump(libc::BPF_JEQ, *number, behind(index) + 3)));
    let mut is_openat = jump(libc::BPF_JEQ, libc::SYS_openat as u32, 0);
    is_openat.jf = 2;
    program.push(is_openat);
    program.push(load(std::mem::offset_of!(libc::seccomp_data, args) + 2 * size_of::<u64>()));
    program.push(jump(libc::BPF_JSET, libc::O_CREAT.cast_unsigned(), 1));
    program.extend([give(libc::SECCOMP_RET_ALLOW), give(libc::SECCOMP_RET_USER_NOTIF)]);
    program
}

/// Puts the filter on the calling process, and first sends its number and the listener's to the parent. From then on, each
/// of the process' calls of the filter waits until the parent answers.
fn send_calls(filter: &[sock_filter], to_parent: RawFd) -> io::Result<()> {
    let checked = |result: c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: plain calls; `program` outlives them, and a new descriptor gets the lowest number that is free.
    unsafe {
        let number = libc::dup(to_parent);
        checked(number.into())?;
        libc::close(number);
        let words = [libc::getpid(), number];
        checked(libc::write(to_parent, words.as_ptr().cast::<c_void>(), size_of_val(&words)) as c_long)?;
        checked(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program))?;
    }
    Ok(())
}

/// A copy of a process' or thread's descriptor.
fn descriptor(pid: i32, number: RawFd) -> io::Result<OwnedFd> {
    let owned = |result: c_long| {
        let number = RawFd::try_from(result).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made it.
        if number < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(number) }) }
    };
    // SAFETY: plain calls.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, libc::PIDFD_THREAD) })?;
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

/// Whether a process or thread compiles a module for a node.
pub fn is_compiler(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == COMPILER)
}

/// The step that a call is, with the number 0; nothing if it is no step: made by another process than the supervised one and its
/// compilers, or on what is no part of the machine's state.
fn meaning(pid: i32, call: &seccomp_notif) -> Option<Step> {
    let tid = i32::try_from(call.pid).ok()?;
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let of_compiler = !tasks.join(tid.to_string()).exists();
    // A compiler may outlive its starter by a moment.
    if of_compiler && !(tasks.exists() && is_compiler(tid)) {
        return None;
    }
    let (number, name, object) = *CALLS.iter().find(|(number, ..)| *number == c_long::from(call.data.nr))?;
    let argument = |index: usize| call.data.args[index];
    let object = match object {
        Object::Path(path) => shape(&text(tid, argument(path))),
        Object::At(directory, path) => shape(&at(tid, argument(directory) as c_int, &text(tid, argument(path)))),
        Object::Descriptor(number) => lasting(tid, argument(number) as c_int)?,
        Object::Nameless => String::new(),
    };
    let flags = match number {
        libc::SYS_clone => argument(0),
        libc::SYS_clone3 => u64::from_ne_bytes(memory(tid, argument(0), 8).try_into().ok()?),
        _ => 0,
    };
    (flags & libc::CLONE_THREAD as u64 == 0).then_some(Step { call: name, object, of_compiler, nth: 0 })
}

/// What a descriptor leads to, if writing to it changes something outside of the process: a file other than its log, a
/// Unix socket, or the kernel's network by netlink.
fn lasting(tid: i32, number: RawFd) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{tid}/fd/{number}")).ok()?.display().to_string();
    if link.starts_with("socket:") {
        let socket = descriptor(tid, number).ok()?;
        let (mut domain, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: the kernel writes one number.
        unsafe {
            let to = (&raw mut domain).cast::<c_void>();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, to, &raw mut len);
        }
        return match domain {
            libc::AF_UNIX => Some("a Unix socket".to_owned()),
            libc::AF_NETLINK => Some("netlink".to_owned()),
            _ => None,
        };
    }
    let is_file = link.starts_with('/') && !link.starts_with("/dev/") && !link.starts_with("/memfd:");
    (is_file && !link.ends_with("/log") && !link.ends_with("/out")).then(|| shape(&link))
}

/// A path, absolute if it was relative to a directory's descriptor.
fn at(tid: i32, directory: c_int, path: &str) -> String {
    if path.starts_with('/') || directory == libc::AT_FDCWD {
        return path.to_owned();
    }
    let base = std::fs::read_link(format!("/proc/{tid}/fd/{directory}")).unwrap_or_else(|_| PathBuf::from("?"));
    base.join(path).display().to_string()
}

/// A text in the memory of a thread.
fn text(tid: i32, address: u64) -> String {
    let bytes = memory(tid, address, PATH_LEN);
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// So many bytes at most of a thread's memory.
fn memory(tid: i32, address: u64, len: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; len];
    // Memory may end within: a page at a time is read at most.
    let end = address.next_multiple_of(4096).max(address + 1);
    let first = usize::try_from(end - address).unwrap_or(len).min(len);
    let Ok(file) = std::fs::File::open(format!("/proc/{tid}/mem")) else { return Vec::new() };
    let mut filled = file.read_at(&mut bytes[..first], address).unwrap_or_default();
    if filled == first && first < len {
        filled += file.read_at(&mut bytes[first..], end).unwrap_or_default();
    }
    bytes.truncate(filled);
    bytes
}

/// A name with `*` for each id and random ending.
fn shape(name: &str) -> String {
    let parts = name.split_inclusive(['/', '.', '_', ':', '~']).map(|part| {
        let word = part.trim_end_matches(['/', '.', '_', ':', '~']);
        let (fixed, varies) = PREFIXES.iter().find_map(|prefix| Some((*prefix, word.strip_prefix(prefix)?))).unwrap_or(("", word));
        let is_hex =
            varies.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') && varies.bytes().any(|byte| byte.is_ascii_digit());
        let is_id =
            is_hex && varies.len() >= ID_LEN || varies.parse::<u64>().is_ok() || !fixed.is_empty() && RANDOM_LENS.contains(&varies.len());
        format!("{fixed}{}{}", if is_id { "*" } else { varies }, &part[word.len()..])
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    use super::*;

    fn shell(supervisor: &Supervisor, script: &str) -> Child {
        supervisor.spawn(Command::new("sh").args(["-c", script]).stdin(Stdio::null()))
    }

    #[test]
    fn a_process_is_killed_before_the_step_that_the_test_chose() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let script = format!("cd {}; umask 0; echo x > one; echo x > two; echo x > three", dir.path().display());
        let supervisor = Supervisor::default();
        supervisor.record();
        assert!(shell(&supervisor, &script).wait().expect("it ends").success());
        let steps = supervisor.recorded();
        let second = steps.iter().find(|step| step.to_string() == "openat two (1)").unwrap_or_else(|| panic!("{steps:?}"));
        for name in ["one", "two", "three"] {
            std::fs::remove_file(path(name)).expect("it was written");
        }
        supervisor.kill_before(second);
        assert_eq!(shell(&supervisor, &script).wait().expect("it ends").signal(), Some(libc::SIGKILL));
        assert!(path("one").exists() && !path("two").exists() && supervisor.disarm());
        assert!(shell(&supervisor, &script).wait().expect("it ends").success(), "nothing is killed any more");
        assert!(path("three").exists());
    }
}
