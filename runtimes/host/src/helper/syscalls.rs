//! The system calls that the work needs: memory, open files, and either files by name or threads. Sockets, processes, mounts,
//! namespaces and tracing are not among them.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition, SeccompRule, apply_filter,
};

use super::Rights;
use crate::confine::filter;

/// Limits the calling thread, and the threads that it creates, to what the work needs.
pub(super) fn allow(rights: Rights) -> io::Result<()> {
    let failed = |error: BackendError| io::Error::other(error);
    // glibc tries clone3 first, whose flags no filter can see, and falls back to clone at this answer.
    let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let no_clone3 = filter(no_clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.cast_unsigned())).map_err(failed)?;
    let allowed = rules(rights).map_err(failed)?;
    let allowed = filter(allowed, SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow).map_err(failed)?;
    apply_filter(&no_clone3).map_err(io::Error::other)?;
    apply_filter(&allowed).map_err(io::Error::other)
}

fn rules(rights: Rights) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALWAYS.iter().map(|&call| (call, Vec::new())).collect();
    match rights {
        Rights::Files => {
            rules.extend(FILES.iter().map(|&call| (call, Vec::new())));
            #[cfg(target_arch = "x86_64")]
            rules.extend(FILES_X86_64.iter().map(|&call| (call, Vec::new())));
            // Memory never becomes executable.
            for call in [libc::SYS_mmap, libc::SYS_mprotect] {
                let not_executable = Condition::new(2, Len::Dword, Op::MaskedEq(u64::from(libc::PROT_EXEC.unsigned_abs())), 0)?;
                rules.insert(call, vec![SeccompRule::new(vec![not_executable])?]);
            }
        }
        Rights::Memory => {
            rules.extend(THREADS.iter().map(|&call| (call, Vec::new())));
            let thread = u64::try_from(libc::CLONE_THREAD | libc::CLONE_VM).unwrap_or_default();
            rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![Condition::new(0, Len::Dword, Op::MaskedEq(thread), thread)?])?]);
        }
    }
    Ok(rules)
}

/// Signals reach only the PID namespace, which has no other process.
#[rustfmt::skip]
const ALWAYS: &[i64] = &[
    libc::SYS_brk, libc::SYS_madvise, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep, libc::SYS_clone3, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex, libc::SYS_getpid, libc::SYS_gettid,
    libc::SYS_getrandom, libc::SYS_restart_syscall, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield, libc::SYS_sigaltstack, libc::SYS_tgkill,
    libc::SYS_close, libc::SYS_fcntl, libc::SYS_fstat, libc::SYS_lseek, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_read,
    libc::SYS_readv, libc::SYS_write, libc::SYS_writev, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate,
];

/// Below a root that contains nothing else.
#[rustfmt::skip]
const FILES: &[i64] = &[
    libc::SYS_copy_file_range, libc::SYS_fallocate, libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat,
    libc::SYS_fsetxattr, libc::SYS_fstatfs, libc::SYS_getcwd, libc::SYS_getdents64, libc::SYS_linkat, libc::SYS_lsetxattr,
    libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_readlinkat, libc::SYS_renameat,
    libc::SYS_renameat2, libc::SYS_setxattr, libc::SYS_splice, libc::SYS_statfs, libc::SYS_statx, libc::SYS_symlinkat, libc::SYS_sendfile,
    libc::SYS_umask, libc::SYS_unlinkat, libc::SYS_utimensat,
];

/// Older names of the same calls that glibc still uses there.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const FILES_X86_64: &[i64] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_getdents, libc::SYS_lchown, libc::SYS_link, libc::SYS_lstat, libc::SYS_mkdir,
    libc::SYS_mknod, libc::SYS_open, libc::SYS_readlink, libc::SYS_rename, libc::SYS_rmdir, libc::SYS_stat, libc::SYS_symlink,
    libc::SYS_unlink,
];

/// The calls that create and name threads.
#[rustfmt::skip]
const THREADS: &[i64] = &[
    libc::SYS_membarrier, libc::SYS_prctl, libc::SYS_rseq, libc::SYS_sched_getaffinity, libc::SYS_set_robust_list,
];
