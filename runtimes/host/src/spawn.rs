//! Starts a program inside a cgroup of the unified hierarchy. A process that is moved there later costs its starter a wait: before the
//! kernel moves a process with all its threads, it waits for an RCU grace period (11 ms on a machine that has nothing else to do).
//!
//! The child borrows the memory of this process until it runs its program, as with `posix_spawn`, which knows cgroups only in newer
//! C libraries. So the cost does not depend on the size of this process. The calling thread waits until then: for as long as the group is
//! frozen or throttled, so call it from a blocking thread.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// Flags of `clone3` that do not fit into the type of the others.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const CLONE_INTO_CGROUP: u64 = 1 << 33;
/// Units of 16 bytes of the child's stack: what `execve` and the lookup of symbols take.
const STACK_UNITS: usize = 4096;
/// The standard streams are not among the sources, so that no source is overwritten before it is used.
const SOURCE_MIN: RawFd = 3;
/// The exit code of a child that could not run its program; nobody sees it.
const NOT_RUN: c_int = 127;

/// A program and what it gets. It has no environment.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The file; `PATH` is not searched.
    pub path: &'a Path,
    /// Its arguments, without the program's own name.
    pub args: &'a [OsString],
    /// Its stdin, stdout and stderr.
    pub streams: [BorrowedFd<'a>; 3],
}

/// What the child reads, and its answer.
struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    streams: [RawFd; 3],
    mask: *const libc::sigset_t,
    /// The error by which the program was not run.
    errno: c_int,
}

/// Why there is no child.
enum Fault {
    /// The kernel made none there.
    NotCloned(io::Error),
    /// It could not run its program.
    NotRun(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::NotRun(error)
    }
}

/// Starts a program in a cgroup, given by its directory, and returns the pid of the child. With `in_pid_namespace` it is the first process
/// of a new PID namespace. It has no signal handlers, none of its signals is blocked, and SIGPIPE has its default.
///
/// `None` when the kernel makes no process there: Linux before 5.7, a filter of system calls, a group that is gone or full.
///
/// # Errors
/// When the program cannot be run.
pub fn spawn_in_cgroup(cgroup: BorrowedFd<'_>, in_pid_namespace: bool, program: &Program<'_>) -> Option<io::Result<i32>> {
    match spawn(cgroup, in_pid_namespace, program) {
        Ok(pid) => Some(Ok(pid)),
        Err(Fault::NotRun(error)) => Some(Err(error)),
        Err(Fault::NotCloned(error)) => {
            tracing::debug!(%error, "a process does not begin in its cgroup");
            None
        }
    }
}

fn spawn(cgroup: BorrowedFd<'_>, in_pid_namespace: bool, program: &Program<'_>) -> Result<i32, Fault> {
    let streams = program.streams.map(|stream| stream.as_raw_fd());
    if streams.iter().any(|stream| *stream < SOURCE_MIN) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    }
    let path = c_string(program.path.as_os_str())?;
    let args = program.args.iter().map(|arg| c_string(arg)).collect::<io::Result<Vec<_>>>()?;
    let argv: Vec<*const c_char> = [path.as_c_str()].into_iter().chain(args.iter().map(CString::as_c_str)).map(CStr::as_ptr).collect();
    let argv = [argv.as_slice(), &[ptr::null()]].concat();
    let envp = [ptr::null()];
    let none_blocked = SigSet::empty();
    let mut plan = Plan {
        path: path.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        streams,
        mask: ptr::from_ref(none_blocked.as_ref()),
        errno: 0,
    };
    let mut stack = vec![0_u128; STACK_UNITS];
    let namespace = if in_pid_namespace { libc::CLONE_NEWPID } else { 0 };
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK | namespace).cast_unsigned();
    // SAFETY: all fields are integers, for which zero means that nothing is given.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    // No handler of this process runs in the child, whose memory is the same.
    arguments.flags = u64::from(flags) | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP;
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    arguments.stack = stack.as_mut_ptr() as u64;
    arguments.stack_size = size_of_val(stack.as_slice()) as u64;
    arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    // SAFETY: the plan, what it points to and the stack outlive the call, which returns when the child has another memory or has ended.
    let result = unsafe { clone(&arguments, &mut plan) };
    if result < 0 {
        let errno = i32::try_from(-result).map_err(io::Error::other)?;
        return Err(Fault::NotCloned(io::Error::from_raw_os_error(errno)));
    }
    let pid = i32::try_from(result).map_err(io::Error::other)?;
    if plan.errno == 0 {
        return Ok(pid);
    }
    while waitpid(Pid::from_raw(pid), None) == Err(Errno::EINTR) {}
    Err(io::Error::from_raw_os_error(plan.errno).into())
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::from)
}

/// `clone3`, whose child calls [`run`] on the stack that the arguments name. Returns the pid, or the negative number of an error; that of a
/// call that does not exist on processors for which this is not written.
///
/// # Safety
/// The arguments have `CLONE_VM`, `CLONE_VFORK`, `CLONE_CLEAR_SIGHAND` and a stack.
unsafe fn clone(arguments: &libc::clone_args, plan: &mut Plan) -> c_long {
    let (arguments, plan) = (ptr::from_ref(arguments), ptr::from_mut(plan));
    let result;
    // SAFETY: this process goes on behind the label with no other change than the result's; the child has a stack of its own and never
    // gets there.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {plan}",
            "call {run}",
            "ud2",
            "2:",
            plan = in(reg) plan,
            run = sym run,
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") arguments,
            in("rsi") size_of::<libc::clone_args>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {plan}",
            "bl {run}",
            "brk 1",
            "2:",
            plan = in(reg) plan,
            run = sym run,
            inlateout("x0") arguments => result,
            in("x1") size_of::<libc::clone_args>(),
            in("x8") libc::SYS_clone3,
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _unused = (arguments, plan, run as extern "C" fn(*mut Plan) -> !);
        result = -c_long::from(libc::ENOSYS);
    }
    result
}

/// The child: system calls alone, as other threads of this process may hold its locks.
extern "C" fn run(plan: *mut Plan) -> ! {
    // SAFETY: the starter waits and keeps the plan; `errno` is the starter's own, which it does not read.
    unsafe {
        let [stdin, stdout, stderr] = (*plan).streams;
        let has_streams = libc::dup2(stdin, 0) >= 0 && libc::dup2(stdout, 1) >= 0 && libc::dup2(stderr, 2) >= 0;
        // Rust ignores this signal, and a program inherits that, as it inherits the mask.
        if has_streams
            && libc::signal(libc::SIGPIPE, libc::SIG_DFL) != libc::SIG_ERR
            && libc::sigprocmask(libc::SIG_SETMASK, (*plan).mask, ptr::null_mut()) == 0
        {
            libc::execve((*plan).path, (*plan).argv, (*plan).envp);
        }
        (*plan).errno = *libc::__errno_location();
        libc::_exit(NOT_RUN)
    }
}

#[cfg(test)]
mod tests;
