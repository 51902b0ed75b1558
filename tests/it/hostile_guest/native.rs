//! Native code in the shim. The shims belong to Pods in a cluster. The code is system calls that run inside them, see
//! [`tests::inject`].

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc::{self, c_long};
use tests::Kubectl;
use tests::inject::Injected;
use tests::kubectl::container_id;

const PODS: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {password: "only for those who mount it"}
---
apiVersion: v1
kind: Pod
metadata: {name: attacker}
spec:
  runtimeClassName: wasmtime
  containers:
    - name: c
      image: samples/web:latest
      imagePullPolicy: Never
      volumeMounts: [{name: scratch, mountPath: /scratch}, {name: secret, mountPath: /secret}]
  volumes: [{name: scratch, emptyDir: {}}, {name: secret, secret: {secretName: secret}}]
---
apiVersion: v1
kind: Pod
metadata: {name: as-root}
spec:
  runtimeClassName: wasmtime
  securityContext: {runAsUser: 0, runAsGroup: 0}
  containers: [{name: c, image: "samples/web:latest", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: on-the-node}
spec:
  runtimeClassName: wasmtime
  hostNetwork: true
  containers: [{name: c, image: "samples/web:latest", imagePullPolicy: Never, ports: [{containerPort: 8123}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  runtimeClassName: wasmtime
  containers: [{name: c, image: "samples/web:latest", imagePullPolicy: Never}]
"#;
const ATTACKERS: [&str; 3] = ["attacker", "as-root", "on-the-node"];

/// Calls that are harmless with any arguments: wasmtime, tokio and the C library need them. Adding a call here is a
/// decision.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_brk, libc::SYS_clock_getres, libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep, libc::SYS_clone3, libc::SYS_close, libc::SYS_connect, libc::SYS_copy_file_range, libc::SYS_dup,
    libc::SYS_dup3, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_epoll_wait,
    libc::SYS_eventfd2, libc::SYS_fadvise64, libc::SYS_fdatasync, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync,
    libc::SYS_ftruncate, libc::SYS_futex, libc::SYS_getcwd, libc::SYS_getdents, libc::SYS_getdents64, libc::SYS_getegid,
    libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getpeername, libc::SYS_getpid, libc::SYS_getrandom, libc::SYS_getsockname,
    libc::SYS_gettid, libc::SYS_gettimeofday, libc::SYS_getuid, libc::SYS_linkat, libc::SYS_listen, libc::SYS_lseek, libc::SYS_madvise,
    libc::SYS_membarrier, libc::SYS_mkdirat, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_nanosleep, libc::SYS_newfstatat,
    libc::SYS_open, libc::SYS_openat, libc::SYS_openat2, libc::SYS_pipe2, libc::SYS_poll, libc::SYS_ppoll, libc::SYS_pread64,
    libc::SYS_preadv, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readlink,
    libc::SYS_readlinkat, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmmsg, libc::SYS_recvmsg, libc::SYS_renameat,
    libc::SYS_renameat2, libc::SYS_restart_syscall, libc::SYS_rseq, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_sched_getaffinity, libc::SYS_sched_yield, libc::SYS_sendmmsg, libc::SYS_sendmsg, libc::SYS_sendto,
    libc::SYS_set_robust_list, libc::SYS_shutdown, libc::SYS_sigaltstack, libc::SYS_stat, libc::SYS_statx, libc::SYS_symlinkat,
    libc::SYS_time, libc::SYS_uname, libc::SYS_unlinkat, libc::SYS_utimensat, libc::SYS_write, libc::SYS_writev,
];
/// Allowed too, but not tried: they would end the process or never return. No filter sees `uretprobe` and `uprobe`; the
/// kernel lets them act only at places that it made itself.
const NOT_TRIED: [c_long; 5] = [libc::SYS_exit, libc::SYS_exit_group, libc::SYS_rt_sigreturn, 335, 336];
/// More than any kernel has.
const CALLS: std::ops::Range<c_long> = 0..600;

const EPERM: i64 = -(libc::EPERM as i64);

/// Starts the Pods.
pub fn start(kubectl: &Kubectl<'_>) {
    kubectl.apply(PODS).ok();
}

/// Tries every call in each attacker's shim.
pub fn reaches_nothing_but_its_own_pod(kubectl: &Kubectl<'_>) {
    for pod in ATTACKERS.into_iter().chain(["victim"]) {
        kubectl.until_ready(pod);
    }
    let victim = Shim::of_pod(kubectl, "victim");
    let attackers = ATTACKERS.map(|pod| Shim::of_pod(kubectl, pod));
    let outside = Outside::new();
    for shim in &attackers {
        no_descriptor_leads_out(shim, &outside);
        nobody_else_is_signalled_or_read(shim, &victim);
        few_system_calls_are_left(shim);
        arguments_are_looked_at(shim);
    }
    each_shim_is_a_user_and_a_process_of_its_own(&attackers, &victim);
}

/// The shims still serve: the attacks and other guests did not break them.
pub fn still_serves(kubectl: &Kubectl<'_>) {
    for pod in ATTACKERS.into_iter().chain(["victim"]) {
        kubectl.until_ready(pod);
        assert_eq!(kubectl.field(&format!("pod/{pod}"), "/status/containerStatuses/0/restartCount"), 0, "{pod}");
    }
}

/// The process of a Pod's only container.
struct Shim {
    name: String,
    pid: i32,
}

impl Shim {
    fn of_pod(kubectl: &Kubectl<'_>, pod: &str) -> Self {
        let status = kubectl.field(&format!("pod/{pod}"), "/status/containerStatuses/0");
        let found = tests::trace::shims(&|line| line.contains(container_id(&status)));
        let pid = found.first().and_then(|pid| pid.parse().ok()).expect("a shim");
        Self { name: pod.to_owned(), pid }
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    fn status(&self, field: &str) -> Vec<String> {
        let status = fs::read_to_string(self.proc("status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("the field");
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn descriptors(&self) -> Vec<(u64, PathBuf)> {
        let entries = fs::read_dir(self.proc("fd")).expect("its descriptors").flatten();
        entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, fs::read_link(entry.path()).ok()?))).collect()
    }
}

/// A file of the machine that anyone may read.
struct Outside {
    _dir: tempfile::TempDir,
    file: PathBuf,
}

impl Outside {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let file = dir.path().join("outside");
        fs::write(&file, "text of the machine").expect("writes");
        Self { _dir: dir, file }
    }
}

fn each_shim_is_a_user_and_a_process_of_its_own(attackers: &[Shim], victim: &Shim) {
    let all: Vec<&Shim> = attackers.iter().chain([victim]).collect();
    let users: BTreeSet<Vec<String>> = all.iter().map(|shim| shim.status("Uid")).collect();
    let groups: BTreeSet<Vec<String>> = all.iter().map(|shim| shim.status("Gid")).collect();
    let namespaces: BTreeSet<PathBuf> = all.iter().map(|shim| fs::read_link(shim.proc("ns/pid")).expect("a namespace")).collect();
    for (what, count) in [("user", users.len()), ("group", groups.len()), ("pid namespace", namespaces.len())] {
        assert_eq!(count, all.len(), "{what}s: {users:?} {groups:?} {namespaces:?}");
    }
    for shim in all {
        for id in shim.status("Uid").iter().chain(&shim.status("Gid")) {
            assert!(id.parse::<u32>().expect("a number") >= 0x7000_0000, "{} runs as {id}", shim.name);
        }
        assert_eq!(shim.status("NSpid").last().map(String::as_str), Some("1"), "{}", shim.name);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(shim.status(set), ["0000000000000000"], "{} {set}", shim.name);
        }
        assert_eq!(shim.status("Groups"), [""; 0], "{}", shim.name);
    }
}

fn no_descriptor_leads_out(shim: &Shim, outside: &Outside) {
    let mut injected = Injected::take_over(shim.pid);
    let up = "../".repeat(64);
    let outside = outside.file.strip_prefix("/").expect("an absolute path");
    let paths = [
        format!("{up}{}", outside.display()),
        format!("/{}", outside.display()),
        format!("/proc/self/root/{}", outside.display()),
        format!("/proc/1/root/{}", outside.display()),
        format!("/proc/self/cwd/{up}{}", outside.display()),
    ];
    let descriptors = shim.descriptors();
    assert!(descriptors.len() > 5, "{descriptors:?}");
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    for fd in descriptors.iter().map(|(fd, _)| *fd).chain([here]) {
        for path in &paths {
            let text = injected.text(path);
            for flags in [libc::O_RDONLY, libc::O_PATH] {
                let opened = injected.call(libc::SYS_openat, &[fd, text, flags as u64, 0]);
                assert!(opened < 0, "{}: descriptor {fd} of {descriptors:?} opens {path}", shim.name);
            }
        }
    }
    // All kinds of open descriptors are known: a new kind is a decision.
    for (fd, target) in &descriptors {
        let name = target.display().to_string();
        let known = ["/dev/null", "anon_inode:[eventpoll]", "anon_inode:[eventfd]"].contains(&name.as_str())
            || ["socket:[", "pipe:["].iter().any(|kind| name.starts_with(kind))
            || [".cwasm", "/0.log", "/exit", "/lock"].iter().any(|end| name.ends_with(end))
            || leads_to_own_root(&mut injected, *fd);
        assert!(known, "{}: descriptor {fd} is {name}", shim.name);
    }
}

/// Whether a descriptor is a directory of the container: its root, or one below, such as a volume. Nothing is above its root.
fn leads_to_own_root(injected: &mut Injected, fd: u64) -> bool {
    let mut inode_of = |fd: u64, path: &str, flags: i32| {
        let path = injected.text(path);
        let found = path + 2048;
        let answer = injected.call(libc::SYS_newfstatat, &[fd, path, found, flags as u64]);
        (answer == 0).then(|| injected.read(found, 16))
    };
    let above_all = inode_of(fd, &"../".repeat(64), 0);
    let root = inode_of(i64::from(libc::AT_FDCWD).cast_unsigned(), "/", 0);
    above_all.is_some() && (above_all == root || above_all == inode_of(fd, "", libc::AT_EMPTY_PATH))
}

fn nobody_else_is_signalled_or_read(shim: &Shim, victim: &Shim) {
    let mut injected = Injected::take_over(shim.pid);
    let (pid, page) = (victim.pid as u64, injected.put(&[0; 256]));
    let everyone = u64::MAX;
    let kill = libc::SIGKILL as u64;
    let calls: &[(&str, c_long, &[u64])] = &[
        ("kill", libc::SYS_kill, &[pid, kill]),
        ("kill everyone", libc::SYS_kill, &[everyone, kill]),
        ("kill the agent", libc::SYS_kill, &[1, kill]),
        ("tkill", libc::SYS_tkill, &[pid, kill]),
        ("tgkill", libc::SYS_tgkill, &[pid, pid, kill]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[pid, kill, page]),
        ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, &[pid, pid, kill, page]),
        ("pidfd_open", libc::SYS_pidfd_open, &[pid, 0]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, &[0, kill, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, &[0, 0, 0]),
        ("ptrace", libc::SYS_ptrace, &[u64::from(libc::PTRACE_SEIZE), pid, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, &[pid, page, 1, page, 1, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, &[pid, page, 1, page, 1, 0]),
        ("process_madvise", libc::SYS_process_madvise, &[0, page, 1, 0, 0]),
        ("kcmp", libc::SYS_kcmp, &[pid, pid, 0, 0, 0]),
        ("prlimit64", libc::SYS_prlimit64, &[pid, 7, 0, page]),
        ("setpriority", libc::SYS_setpriority, &[0, pid, 19]),
        ("a descriptor's owner", libc::SYS_fcntl, &[1, libc::F_SETOWN as u64, pid]),
        ("a descriptor's signal", libc::SYS_fcntl, &[1, 10, kill]),
    ];
    for (name, call, arguments) in calls {
        assert_eq!(injected.call(*call, arguments), EPERM, "{}: {name}", shim.name);
    }
    // If the filter failed, the call would still find no process: this namespace has no such pid.
    let unknown = injected.call(libc::SYS_sched_getaffinity, &[pid, 128, page]);
    assert_eq!(unknown, -i64::from(libc::ESRCH), "{}: the victim has a pid", shim.name);
    assert!(Path::new(&victim.proc("status")).exists());
}

fn few_system_calls_are_left(shim: &Shim) {
    let mut injected = Injected::take_over(shim.pid);
    let arguments = [u64::MAX; 6];
    let tried = CALLS.filter(|call| !NOT_TRIED.contains(call));
    let left: BTreeSet<c_long> = tried.filter(|&call| injected.call(call, &arguments) != EPERM).collect();
    assert_eq!(left, ALLOWED.iter().copied().collect(), "{}", shim.name);
    // The same numbers in the x32 table of calls.
    for call in [libc::SYS_ptrace, libc::SYS_kill, libc::SYS_openat] {
        assert_eq!(injected.call(call | 0x4000_0000, &arguments), EPERM, "{}: x32 {call}", shim.name);
    }
}

fn arguments_are_looked_at(shim: &Shim) {
    let mut injected = Injected::take_over(shim.pid);
    let page = injected.put(&[0; 64]);
    let flags = |flags: i32| flags as u64;
    let private = flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let thread = flags(libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND);
    let (read, execute) = (flags(libc::PROT_READ), flags(libc::PROT_READ | libc::PROT_EXEC));
    let calls: &[(&str, c_long, &[u64])] = &[
        ("a process", libc::SYS_clone, &[flags(libc::SIGCHLD)]),
        ("a user namespace", libc::SYS_clone, &[thread | flags(libc::CLONE_NEWUSER)]),
        ("code", libc::SYS_mmap, &[0, 4096, execute, private, u64::MAX, 0]),
        ("code of a page", libc::SYS_mprotect, &[page, 4096, execute]),
        ("huge pages", libc::SYS_mmap, &[0, 2 << 20, read, private | flags(libc::MAP_HUGETLB), u64::MAX, 0]),
        ("a file of huge pages", libc::SYS_memfd_create, &[page, u64::from(libc::MFD_HUGETLB)]),
        ("being dumpable", libc::SYS_prctl, &[flags(libc::PR_SET_DUMPABLE), 1]),
        ("datagrams to anyone", libc::SYS_socketpair, &[flags(libc::AF_UNIX), flags(libc::SOCK_DGRAM), 0, page]),
        ("a socket filter", libc::SYS_setsockopt, &[0, flags(libc::SOL_SOCKET), flags(libc::SO_ATTACH_FILTER), page, 16]),
        ("the other side's pid", libc::SYS_getsockopt, &[0, flags(libc::SOL_SOCKET), 77, page, page]),
        ("a terminal's input", libc::SYS_ioctl, &[0, libc::TIOCSTI, page]),
    ];
    for (name, call, arguments) in calls {
        assert_eq!(injected.call(*call, arguments), EPERM, "{}: {name}", shim.name);
    }
    let (stream, datagram) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
    let allowed = [
        (libc::AF_INET, stream, 0),
        (libc::AF_INET, datagram, 0),
        (libc::AF_INET6, stream, 0),
        (libc::AF_INET6, datagram, 0),
        (libc::AF_INET, stream, 6),
        (libc::AF_INET6, stream, 6),
        (libc::AF_INET, datagram, 17),
        (libc::AF_INET6, datagram, 17),
    ];
    for family in 0..46 {
        for kind in 1..=6 {
            // Internet protocols, and a netlink family other than routes.
            for protocol in [0, 1, 6, 17, 132, 255, 262] {
                let answer = injected.call(libc::SYS_socket, &[flags(family), flags(kind), flags(protocol)]);
                let routes = family == libc::AF_NETLINK && protocol == 0;
                if !routes && !allowed.contains(&(family, kind, protocol)) {
                    assert_eq!(answer, EPERM, "{}: socket {family} {kind} {protocol}", shim.name);
                } else if let Ok(fd) = u64::try_from(answer) {
                    injected.call(libc::SYS_close, &[fd]);
                }
            }
        }
    }
}
