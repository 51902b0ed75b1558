//! A container does not take files out of their projects. This test program is started again in the container, where it tries.

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;

use nix::errno::Errno;
use runtimes_battery::{Harness as _, Program, spec_of};
use runtimes_contract::{ContainerSpec, ExecSpec, Mount, Seccomp, Security};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::harness::Runc;
use crate::oci::run;
use crate::user_namespaces::Pod;

/// The argument of the program in a container.
const ATTEMPTS: &str = "attempts";
const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u64 = 0x4004_6602;
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
const FILE_SETATTR: i64 = 469;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

/// `struct file_attr`.
#[repr(C)]
#[derive(Default)]
struct FileAttr {
    xflags: u64,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_TESTS: extern "C" fn() = before_tests;

/// The C library has given the arguments to the standard library by now.
extern "C" fn before_tests() {
    if std::env::args().nth(1).as_deref() == Some(ATTEMPTS) {
        for (name, outcome) in attempts() {
            println!("{name} {outcome}");
        }
        std::process::exit(0);
    }
}

/// Each attempt and how it ended: `ok` or the error. Then two lines about the process.
fn attempts() -> Vec<(&'static str, String)> {
    let path = c"/data/file";
    let file = File::open("/data/file").unwrap();
    let fd = file.as_raw_fd();
    let (mut flags, mut attributes) = (0_u64, FsXattr::default());
    let outcome = |result: i64| Errno::result(result).map_or_else(|errno| format!("{errno:?}"), |_| "ok".to_owned());
    let mut all = Vec::new();
    // SAFETY: each pointer is to memory of the size that the kernel reads or writes for the command, until the call ends.
    unsafe {
        all.push(("get-flags", outcome(libc::syscall(libc::SYS_ioctl, fd, FS_IOC_GETFLAGS, &raw mut flags))));
        all.push(("get-attributes", outcome(libc::syscall(libc::SYS_ioctl, fd, FS_IOC_FSGETXATTR, &raw mut attributes))));
        all.push(("close-on-exec", outcome(libc::syscall(libc::SYS_ioctl, fd, libc::FIOCLEX))));
        attributes.projid = 7;
        for (name, upper_half) in [("set-attributes", 0), ("set-attributes-upper", 0xff00_0001_u64 << 32)] {
            let command = FS_IOC_FSSETXATTR | upper_half;
            all.push((name, outcome(libc::syscall(libc::SYS_ioctl, fd, command, &raw const attributes))));
        }
        all.push(("set-flags", outcome(libc::syscall(libc::SYS_ioctl, fd, FS_IOC_SETFLAGS, &raw const flags))));
        all.push(("set-flags-32", outcome(libc::syscall(libc::SYS_ioctl, fd, FS_IOC32_SETFLAGS, &raw const flags))));
        let new = FileAttr { projid: 7, ..FileAttr::default() };
        let set = libc::syscall(FILE_SETATTR, libc::AT_FDCWD, path.as_ptr(), &raw const new, size_of::<FileAttr>(), 0);
        all.push(("file-setattr", outcome(set)));
    }
    all.push(("set-attributes-i386", i386_ioctl(fd, FS_IOC_FSSETXATTR)));
    all.push(("set-flags-i386", i386_ioctl(fd, FS_IOC32_SETFLAGS)));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    all.extend([("seccomp", field("Seccomp:")), ("no-new-privs", field("NoNewPrivs:"))]);
    all
}

/// The system call of 32-bit programs, with a null pointer.
#[cfg(target_arch = "x86_64")]
fn i386_ioctl(fd: RawFd, command: u64) -> String {
    let result: i32;
    // SAFETY: the kernel reads nothing at a null pointer. It preserves all registers but those that are named, and rbx is restored.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {fd}", "int 0x80", "xchg rbx, {fd}",
            fd = inout(reg) i64::from(fd) => _, inlateout("eax") 54 => result, in("rcx") command, in("rdx") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if result == 0 { "ok".to_owned() } else { format!("{:?}", Errno::from_raw(-result)) }
}

/// There is no such call from a 64-bit program.
#[cfg(not(target_arch = "x86_64"))]
fn i386_ioctl(fd: RawFd, command: u64) -> String {
    // SAFETY: the kernel reads nothing at a null pointer.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, fd, command, 0) };
    Errno::result(result).map_or_else(|errno| format!("{errno:?}"), |_| "ok".to_owned())
}

/// A container with a volume at `/data`, and with what the test program needs.
fn container(harness: &Runc, seccomp: Seccomp, keeps_projects: bool) -> ContainerSpec {
    let data = harness.scratch().join("data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("file"), "").unwrap();
    let mut spec = spec_of(harness, "box", Program::Hello);
    spec.args = vec!["/program".into(), ATTEMPTS.into()];
    spec.security = Security { seccomp, keeps_projects, ..spec.security };
    spec.mounts = vec![Mount::new(data, "/data", false), Mount::new(std::env::current_exe().unwrap(), "/program", true)];
    let libraries = ["/lib", "/lib64"].into_iter().filter(|dir| Path::new(dir).is_dir());
    spec.mounts.extend(libraries.map(|dir| Mount::new(dir, dir, true)));
    spec
}

/// What the container's output says of an attempt.
fn of<'a>(lines: &'a [String], name: &str) -> &'a str {
    lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_else(|| panic!("{name}: {lines:?}"))
}

const READS: [&str; 3] = ["get-flags", "get-attributes", "close-on-exec"];
const CHANGES: [&str; 6] = ["set-attributes", "set-attributes-upper", "set-flags", "set-flags-32", "set-attributes-i386", "set-flags-i386"];

/// All kinds of profiles. Those of an administrator allow `ioctl`, one by default and one by a rule.
fn profiles() -> [(&'static str, Seccomp); 4] {
    let profile = |default: &str, rule: serde_json::Value| {
        let architectures = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"];
        Seccomp::Profile(json!({ "defaultAction": default, "architectures": architectures, "syscalls": [rule] }))
    };
    let allows = profile("SCMP_ACT_ALLOW", json!({ "names": ["mkdir"], "action": "SCMP_ACT_ERRNO" }));
    let logs = profile("SCMP_ACT_ALLOW", json!({ "names": ["ioctl"], "action": "SCMP_ACT_LOG" }));
    [("unconfined", Seccomp::Unconfined), ("default", Seccomp::RuntimeDefault), ("allows", allows), ("logs", logs)]
}

#[tokio::test]
async fn a_container_cannot_change_the_projects_of_its_files_whatever_its_profile_is() {
    for (name, profile) in profiles() {
        let harness = Runc::new();
        let is_default = profile == Seccomp::RuntimeDefault;
        let (exit, lines) = run(&harness, &container(&harness, profile, true)).await;
        assert_eq!(exit.code, 0, "{name}: {lines:?}");
        assert!(READS.iter().all(|attempt| of(&lines, attempt) == "ok"), "{name}: {lines:?}");
        assert!(CHANGES.iter().all(|attempt| of(&lines, attempt) == "EPERM"), "{name}: {lines:?}");
        // runc answers for calls that are newer than its default profile.
        let wanted: &[&str] = if is_default { &["EPERM", "ENOSYS"] } else { &["EPERM"] };
        assert!(wanted.contains(&of(&lines, "file-setattr")), "{name}: {lines:?}");
        assert_eq!((of(&lines, "seccomp"), of(&lines, "no-new-privs")), ("2", "0"), "{name}: set-user-ID programs work: {lines:?}");
    }
}

#[tokio::test]
async fn neither_can_a_further_process() {
    let harness = Runc::new();
    let mut spec = container(&harness, Seccomp::Unconfined, true);
    let attempts = std::mem::replace(&mut spec.args, ["/bin/sleep", "1000"].map(str::to_owned).to_vec());
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    for tty in [false, true] {
        let exec = ExecSpec { args: attempts.clone(), tty, ..ExecSpec::default() };
        let mut session = runtime.exec(&spec.id, exec).await.unwrap();
        let mut output = String::new();
        session.stdout.read_to_string(&mut output).await.unwrap();
        let lines: Vec<String> = output.lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(session.exit.await.unwrap(), 0, "{lines:?}");
        assert!(CHANGES.iter().chain(&["file-setattr"]).all(|attempt| of(&lines, attempt) == "EPERM"), "{lines:?}");
    }
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn containers_without_need_have_no_filter() {
    let pod = Pod::new(3);
    for name in ["no quota", "user namespace"] {
        let harness = Runc::new();
        let mut spec = container(&harness, Seccomp::Unconfined, name != "no quota");
        if name == "user namespace" {
            pod.take(&mut spec);
        }
        let (exit, lines) = run(&harness, &spec).await;
        assert_eq!((exit.code, of(&lines, "seccomp")), (0, "0"), "{name}: {lines:?}");
        // What the kernel answers depends on the file system: one without projects does not support them.
        assert!(lines.iter().all(|line| !line.ends_with("EPERM")), "{name}: {lines:?}");
    }
}
