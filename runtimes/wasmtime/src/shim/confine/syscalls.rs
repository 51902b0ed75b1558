//! The system calls that are left, and with which arguments. All others return `EPERM`. An allowed call may concern this
//! process, the Pod's network and files below open directories; none reaches another process, another namespace or a part of
//! the kernel that the shim does not use.

use std::collections::BTreeMap;

use runtimes_shim::launch::Refusal;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition, SeccompFilter,
    SeccompRule, apply_filter, sock_filter,
};

use super::super::Failure;

/// The rules of one call: it is allowed when all conditions of one of them hold, or when there is none.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Applies the filter, for good.
pub fn filter() -> Result<(), Failure> {
    let failed = |error: seccompiler::Error| Failure::new(Refusal::Missing, format!("the kernel refuses a seccomp filter: {error}"));
    let program = program().map_err(|error| failed(seccompiler::Error::Backend(error)))?;
    apply_filter(&program).map_err(failed)
}

/// One program, since the kernel runs every filter for each call when it is set.
fn program() -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let allowed: BpfProgram = SeccompFilter::new(rules()?, denied, SeccompAction::Allow, arch)?.try_into()?;
    let mut program = no_clone3();
    program.extend(allowed);
    Ok(program)
}

/// glibc tries clone3 first, whose flags no filter can see, and uses clone after this answer. Jumps are relative, so the rest
/// of the program is unchanged.
fn no_clone3() -> BpfProgram {
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let instruction = |code: u32, jf: u8, k: u32| sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf, k };
    vec![
        // The number of the call is the first field of a filter's input.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, clone3),
        instruction(libc::BPF_RET | libc::BPF_K, 0, no_such_call),
    ]
}

/// One condition: argument, comparison, value.
type When = (u8, Op, u64);

fn rules() -> Result<Rules, BackendError> {
    let mut rules: Rules = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(ALLOWED_X86_64.iter().map(|&call| (call, Vec::new())));
    for (call, alternatives) in conditional() {
        let rule = |conditions: Vec<When>| {
            let one = |(argument, op, value)| Condition::new(argument, Len::Dword, op, value);
            SeccompRule::new(conditions.into_iter().map(one).collect::<Result<_, _>>()?)
        };
        rules.insert(call, alternatives.into_iter().map(rule).collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// Calls that are allowed with certain arguments only: each with its alternatives, each of these with all of
/// its conditions.
fn conditional() -> Vec<(i64, Vec<Vec<When>>)> {
    let one_of = |argument: u8, values: &[i32]| values.iter().map(|&value| vec![(argument, Op::Eq, bits(value))]).collect::<Vec<_>>();
    let none_of = |argument: u8, flags: i32| (argument, Op::MaskedEq(bits(flags)), 0);
    let thread = bits(libc::CLONE_THREAD | libc::CLONE_VM);
    let pid = std::process::id().into();
    vec![
        // Threads, not processes and not namespaces.
        (libc::SYS_clone, vec![vec![(0, Op::MaskedEq(thread | bits(NAMESPACES)), thread)]]),
        // Memory never becomes executable: all code is mapped. The node's huge pages are not for guests.
        (libc::SYS_mmap, vec![vec![none_of(2, libc::PROT_EXEC), none_of(3, libc::MAP_HUGETLB)]]),
        (libc::SYS_mprotect, vec![vec![none_of(2, libc::PROT_EXEC)]]),
        (libc::SYS_memfd_create, vec![vec![none_of(1, !(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).cast_signed())]]),
        // glibc's abort and raise.
        (libc::SYS_tgkill, vec![vec![(0, Op::Eq, pid)]]),
        (libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME, libc::PR_SET_VMA])),
        // No owners of descriptors (which would get signals), no leases, no locks.
        (
            libc::SYS_fcntl,
            one_of(
                1,
                &[libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_ADD_SEALS],
            ),
        ),
        (libc::SYS_ioctl, [libc::FIONBIO, libc::FIONREAD, libc::TCGETS, libc::TIOCSWINSZ].map(|request| vec![(1, Op::Eq, request)]).into()),
        (libc::SYS_socket, sockets()),
        // The pairs of tokio and of the standard library; a datagram pair could be connected to another socket.
        (libc::SYS_socketpair, vec![vec![(0, Op::Eq, bits(libc::AF_UNIX)), of_type(libc::SOCK_STREAM)]]),
        (libc::SYS_getsockopt, [options(READ), options(WRITTEN), tcp_options()].concat()),
        (libc::SYS_setsockopt, [options(WRITTEN), tcp_options()].concat()),
    ]
}

/// The Pod's network by TCP and UDP; getaddrinfo reads the present addresses from a netlink socket.
fn sockets() -> Vec<Vec<When>> {
    let mut rules = vec![vec![(0, Op::Eq, bits(libc::AF_NETLINK)), (2, Op::Eq, bits(libc::NETLINK_ROUTE))]];
    for family in [libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)] {
            for protocol in [0, protocol] {
                rules.push(vec![(0, Op::Eq, bits(family)), of_type(kind), (2, Op::Eq, bits(protocol))]);
            }
        }
    }
    rules
}

/// The type without `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
fn of_type(kind: i32) -> When {
    (1, Op::MaskedEq(0xf), bits(kind))
}

fn options(allowed: &[(i32, i32)]) -> Vec<Vec<When>> {
    allowed.iter().map(|&(level, option)| vec![(1, Op::Eq, bits(level)), (2, Op::Eq, bits(option))]).collect()
}

/// The first six: no delay, segments, keep-alive.
fn tcp_options() -> Vec<Vec<When>> {
    vec![vec![(1, Op::Eq, bits(libc::IPPROTO_TCP)), (2, Op::Le, bits(libc::TCP_KEEPCNT))]]
}

/// An argument's lower half.
fn bits(value: i32) -> u64 {
    value.cast_unsigned().into()
}

/// Socket options that may be read only: none of them names the peer.
const READ: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
    (libc::SOL_SOCKET, libc::SO_DOMAIN),
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::SOL_SOCKET, libc::SO_PROTOCOL),
    (libc::SOL_SOCKET, libc::SO_TYPE),
];

/// Options of sockets that WASI offers or that resolver and event loop set.
const WRITTEN: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// Every namespace that `clone` can make.
const NAMESPACES: i32 = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    // Memory, time, threads, signals.
    libc::SYS_brk, libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_clock_getres,
    libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_clone3, libc::SYS_exit, libc::SYS_exit_group,
    libc::SYS_futex, libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
    libc::SYS_getrandom, libc::SYS_restart_syscall, libc::SYS_rseq, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_sched_getaffinity, libc::SYS_sched_yield, libc::SYS_set_robust_list, libc::SYS_sigaltstack,
    libc::SYS_uname,
    // Files that were opened for the guest, and files below them.
    libc::SYS_close, libc::SYS_copy_file_range, libc::SYS_dup, libc::SYS_dup3, libc::SYS_fadvise64, libc::SYS_fdatasync, libc::SYS_fstat,
    libc::SYS_fstatfs, libc::SYS_fsync, libc::SYS_ftruncate, libc::SYS_getcwd, libc::SYS_getdents64, libc::SYS_linkat, libc::SYS_lseek,
    libc::SYS_mkdirat, libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_openat2, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_pwrite64,
    libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readlinkat, libc::SYS_readv, libc::SYS_renameat, libc::SYS_renameat2,
    libc::SYS_statx, libc::SYS_symlinkat, libc::SYS_unlinkat, libc::SYS_utimensat, libc::SYS_write, libc::SYS_writev,
    // Sockets and waiting for them.
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_connect, libc::SYS_epoll_create1, libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_getpeername, libc::SYS_getsockname, libc::SYS_listen,
    libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_recvfrom, libc::SYS_recvmmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_sendmsg,
    libc::SYS_sendto, libc::SYS_shutdown,
];

/// Older names of the same calls that glibc still uses there.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_X86_64: &[i64] = &[
    libc::SYS_epoll_wait, libc::SYS_getdents, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat, libc::SYS_time,
    libc::SYS_gettimeofday,
];
