//! The system calls that would take a file out of its project, or change the project's limits. A project quota limits a volume by the
//! project of its files, and new files inherit the project of their directory. In the node's user namespace, the owner of a file may change
//! its project and may stop the inheritance: a container would escape the limit. In any other user namespace, the kernel forbids both.
//!
//! The shim installs this filter before it calls runc, so that the container inherits the filter and gets EPERM. The container's own
//! seccomp profile comes on top; the kernel applies the strictest answer. A rule in the profile would not be enough, for three reasons:
//! - A profile names system calls. runc skips a name that its libseccomp does not have, as Debian's does not have `file_setattr`, and a
//!   profile that allows by default then allows the call.
//! - libseccomp ignores a condition on `ioctl` when another rule allows `ioctl` without one, as the default profile does.
//! - The profile may be the administrator's, with any actions.

use std::ffi::OsString;
use std::io;

use nix::errno::Errno;
use runtimes_contract::ContainerSpec;

/// The argument of the shim for a container that needs the filter.
pub const FLAG: &str = "project-quota";

/// `FS_IOC_FSSETXATTR`, `FS_IOC_SETFLAGS` and `FS_IOC32_SETFLAGS`.
const COMMANDS: [u32; 3] = [0x401c_5820, 0x4008_6602, 0x4004_6602];
/// `quotactl_fd`, with which a container that has `CAP_SYS_ADMIN` would raise its limit, and `file_setattr`. New calls have one number
/// everywhere.
const QUOTACTL_FD: u32 = 443;
const FILE_SETATTR: u32 = 469;
/// The flag of x32 in the number of a system call.
const X32: u32 = 0x4000_0000;

/// A kernel ABI, and its numbers of the system calls.
struct Abi {
    /// `AUDIT_ARCH_…`.
    architecture: u32,
    ioctl: &'static [u32],
    quotactl: &'static [u32],
}

const ABIS: [Abi; 5] = [
    // x86_64 and x32. Kernels before 5.4 accept the numbers of one with the flag of the other.
    Abi { architecture: 0xc000_003e, ioctl: &[16, 514, X32 | 16, X32 | 514], quotactl: &[179, X32 | 179] },
    // i386.
    Abi { architecture: 0x4000_0003, ioctl: &[54], quotactl: &[131] },
    // aarch64.
    Abi { architecture: 0xc000_00b7, ioctl: &[29], quotactl: &[60] },
    // arm.
    Abi { architecture: 0x4000_0028, ioctl: &[54], quotactl: &[131] },
    // riscv64.
    Abi { architecture: 0xc000_00f3, ioctl: &[29], quotactl: &[60] },
];

/// The bytes of the kernel's `struct seccomp_data` that the filter reads, by their offset.
#[derive(Clone, Copy)]
enum Field {
    Number = 0,
    Architecture = 4,
    /// The lower half of the second argument on these machines, which are all little-endian. The kernel ignores the upper half of
    /// `ioctl`'s command.
    Command = 24,
}

/// `BPF_LD | BPF_W | BPF_ABS`.
const LOAD: u16 = 0x20;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`.
const END: u16 = 0x06;

const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();

/// Whether a container must not take files out of their projects, and could. The rights of a privileged container have no limit.
pub fn needs_filter(spec: &ContainerSpec) -> bool {
    spec.security.keeps_projects && spec.sandbox.user.is_none() && !spec.security.privileged
}

/// [`FLAG`] for a container that needs the filter.
pub(crate) fn flag(spec: &ContainerSpec) -> Option<OsString> {
    needs_filter(spec).then(|| FLAG.into())
}

/// The filter, as a BPF program. It allows all other calls of the listed ABIs and denies every call of any other ABI, whose numbers mean
/// other calls.
pub fn filter() -> Vec<libc::sock_filter> {
    let forbidden = ABIS.iter().flat_map(|abi| {
        let of_abi = (Field::Architecture, &[abi.architecture][..]);
        let ioctl = rule(&[of_abi, (Field::Number, abi.ioctl), (Field::Command, &COMMANDS)], EPERM);
        ioctl.into_iter().chain(rule(&[of_abi, (Field::Number, abi.quotactl)], EPERM))
    });
    let everywhere = [QUOTACTL_FD, FILE_SETATTR, X32 | QUOTACTL_FD, X32 | FILE_SETATTR];
    let forbidden = forbidden.chain(rule(&[(Field::Number, &everywhere)], EPERM));
    let architectures = ABIS.map(|abi| abi.architecture);
    let allowed = rule(&[(Field::Architecture, &architectures)], libc::SECCOMP_RET_ALLOW);
    forbidden.chain(allowed).chain([instruction(END, EPERM)]).collect()
}

/// Instructions that return the answer when each field has one of its values, and otherwise continue behind their end.
fn rule(conditions: &[(Field, &[u32])], answer: u32) -> Vec<libc::sock_filter> {
    let mut backwards = vec![instruction(END, answer)];
    for (field, values) in conditions.iter().rev() {
        // A jump counts the instructions that it skips. A rule has fewer than 20.
        let to_end = u8::try_from(backwards.len()).unwrap_or(u8::MAX);
        for (to_next_field, value) in (0..).zip(values.iter().rev()) {
            let otherwise = if to_next_field == 0 { to_end } else { 0 };
            backwards.push(libc::sock_filter { code: JUMP_IF_EQUAL, jt: to_next_field, jf: otherwise, k: *value });
        }
        backwards.push(instruction(LOAD, *field as u32));
    }
    backwards.reverse();
    backwards
}

fn instruction(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Applies a filter to the calling thread and to the programs that it executes, for ever. It allocates no memory, so it may be called
/// between fork and exec.
///
/// # Errors
/// When the thread has no `CAP_SYS_ADMIN`, or the kernel rejects the filter. The thread does not get `no_new_privs`, which would take
/// the rights from set-user-ID programs of the container.
pub fn apply(filter: &[libc::sock_filter]) -> io::Result<()> {
    let len = filter.len().try_into().map_err(|_| Errno::E2BIG)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // The flag: on kernels before 5.16, a filter would otherwise switch a mitigation on that slows the container down.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the program and its instructions live until the call ends, and the kernel only reads them.
    Errno::result(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })?;
    Ok(())
}

#[cfg(test)]
mod tests;
