//! Gives up every privilege: user, groups, capabilities, new privileges, most system calls. After
//! this a guest that escaped wasmtime is nobody, in an empty root, with the network of its Pod.

use std::collections::BTreeMap;

use caps::CapSet;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use runtimes_contract::User;
use runtimes_contract::launch::Refusal;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition, SeccompFilter, SeccompRule, apply_filter,
};

use super::Failure;
use crate::NOBODY;

/// Open files and sockets of one container.
const FILES_MAX: u64 = 65_536;

/// Becomes the spec's user, or nobody, for good.
pub fn drop_privileges(user: &User) -> Result<(), Failure> {
    let dropping = "giving up privileges";
    let (uid, gid) = (user.uid.unwrap_or(NOBODY), user.gid.unwrap_or(NOBODY));
    prctl::set_no_new_privs().map_err(Failure::io(dropping))?;
    caps::clear(None, CapSet::Bounding).map_err(Failure::io(dropping))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(Failure::io(dropping))?;
    let (_, files_max) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).map_err(Failure::io(dropping))?;
    let files_max = files_max.min(FILES_MAX);
    setrlimit(Resource::RLIMIT_NOFILE, files_max, files_max).map_err(Failure::io(dropping))?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(Failure::io(dropping))?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    setresgid(gid, gid, gid).map_err(Failure::io(dropping))?;
    setresuid(uid, uid, uid).map_err(Failure::io(dropping))?;
    // User 0 keeps them through a change of user.
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).map_err(Failure::io(dropping))?;
    }
    prctl::set_dumpable(false).map_err(Failure::io(dropping))?;
    filter_syscalls()
}

fn filter_syscalls() -> Result<(), Failure> {
    let failed = |error: seccompiler::Error| Failure::new(Refusal::Missing, format!("the kernel refuses a seccomp filter: {error}"));
    let filter = |rules, otherwise, matched| {
        let arch = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules, otherwise, matched, arch)?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        Ok(program)
    };
    let compile = |rules, otherwise, matched| filter(rules, otherwise, matched).map_err(|error| failed(seccompiler::Error::Backend(error)));
    // glibc tries clone3 first, whose flags no filter can see, and falls back to clone at this answer.
    let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let no_clone3 = compile(no_clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()))?;
    let allowed = compile(rules().map_err(failed)?, SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow)?;
    apply_filter(&no_clone3).map_err(failed)?;
    apply_filter(&allowed).map_err(failed)
}

/// What the shim, wasmtime and tokio need, and nothing that makes processes, mounts or namespaces.
fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(ALLOWED_X86_64.iter().map(|&call| (call, Vec::new())));

    // Threads, not processes and not namespaces.
    let thread = u64::try_from(libc::CLONE_THREAD | libc::CLONE_VM).unwrap_or_default();
    rules.insert(libc::SYS_clone, vec![when(0, Op::MaskedEq(thread), thread)?]);
    // Memory is not made executable any more: all code is mapped.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![when(2, Op::MaskedEq(u64::from(libc::PROT_EXEC.unsigned_abs())), 0)?]);
    }
    // The Pod's network; getaddrinfo asks a netlink socket which addresses there are.
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(|family| when(0, Op::Eq, u64::from(family.unsigned_abs())));
    rules.insert(libc::SYS_socket, families.into_iter().collect::<Result<_, _>>()?);
    let ioctls = [libc::FIONBIO, libc::FIONREAD, libc::TCGETS].map(|request| when(1, Op::Eq, request));
    rules.insert(libc::SYS_ioctl, ioctls.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

fn when(argument: u8, op: Op, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition = Condition::new(argument, Len::Dword, op, value).map_err(seccompiler::Error::Backend)?;
    SeccompRule::new(vec![condition]).map_err(seccompiler::Error::Backend)
}

#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    // Memory, time, threads, signals.
    libc::SYS_brk, libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_memfd_create, libc::SYS_mremap,
    libc::SYS_munmap, libc::SYS_clock_getres, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_clone3,
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex, libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getrandom, libc::SYS_prctl, libc::SYS_restart_syscall, libc::SYS_rseq,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sched_getaffinity, libc::SYS_sched_yield,
    libc::SYS_set_robust_list, libc::SYS_sigaltstack, libc::SYS_tgkill, libc::SYS_uname,
    // Files that were opened for the guest, and what is below them.
    libc::SYS_close, libc::SYS_copy_file_range, libc::SYS_dup, libc::SYS_dup3, libc::SYS_fadvise64, libc::SYS_fallocate, libc::SYS_fcntl,
    libc::SYS_fdatasync, libc::SYS_flock, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync, libc::SYS_ftruncate, libc::SYS_getcwd,
    libc::SYS_getdents64, libc::SYS_linkat, libc::SYS_lseek, libc::SYS_mkdirat, libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_openat2,
    libc::SYS_pread64, libc::SYS_preadv, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readlinkat,
    libc::SYS_readv, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_statx, libc::SYS_symlinkat, libc::SYS_unlinkat,
    libc::SYS_utimensat, libc::SYS_write, libc::SYS_writev,
    // Sockets and waiting for them.
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_connect, libc::SYS_epoll_create1, libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_getpeername, libc::SYS_getsockname, libc::SYS_getsockopt,
    libc::SYS_listen, libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_recvfrom, libc::SYS_recvmmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg,
    libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_setsockopt, libc::SYS_shutdown, libc::SYS_socketpair,
];

/// Older names of the same that glibc still uses there.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_X86_64: &[i64] = &[
    libc::SYS_epoll_wait, libc::SYS_getdents, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat, libc::SYS_time,
    libc::SYS_gettimeofday,
];
