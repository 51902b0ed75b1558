//! The kernel's calls for project quotas. Libraries for quotas have users and groups only.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};

use super::Limits;

/// The kernel's names and numbers, of `<linux/quota.h>`, `<linux/dqblk_xfs.h>` and `<linux/fs.h>`.
const PRJQUOTA: u32 = 2;
const Q_XGETQSTAT: u32 = 0x5805;
const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
const FS_QUOTA_PDQ_ENFD: u16 = 1 << 5;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;
/// `QIF_LIMITS`: the limits of bytes and of files count.
const QIF_LIMITS: u32 = 0b101;
/// The unit of a limit in bytes, and the most of them: ext4 takes less than 2^63 bytes.
const BLOCK_BYTES: u64 = 1_024;
const BLOCKS_MAX: u64 = (1 << 53) - 1;

/// The beginning of the kernel's `struct fs_quota_stat`, and room for the rest.
#[derive(Default)]
#[repr(C, align(8))]
struct FsQuotaStat {
    version: i8,
    flags: u16,
    rest: [u64; 16],
}

/// The kernel's `struct if_dqblk`.
#[derive(Default)]
#[repr(C)]
struct IfDqblk {
    /// Limits, in units of [`BLOCK_BYTES`].
    bytes_hard: u64,
    bytes_soft: u64,
    /// Use, in bytes.
    bytes: u64,
    files_hard: u64,
    files_soft: u64,
    files: u64,
    bytes_grace: u64,
    files_grace: u64,
    /// Which of the fields count.
    valid: u32,
}

/// What the kernel has about a project.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quota {
    pub(super) limits: Limits,
    bytes: u64,
    files: u64,
}

impl Quota {
    /// Whether no file is in the project.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.files == 0
    }
}

/// The kernel's `struct fsxattr`: attributes of a file. Those that have no name here are written as they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Attributes {
    flags: u32,
    sizes: [u32; 2],
    project: u32,
    rest: [u32; 3],
}

const GET_ATTRIBUTES: rustix::ioctl::Opcode = opcode::read::<Attributes>(b'X', 31);
const SET_ATTRIBUTES: rustix::ioctl::Opcode = opcode::write::<Attributes>(b'X', 32);

impl Attributes {
    pub(super) fn project(&self) -> u32 {
        self.project
    }

    /// Whether new files in the directory belong to its project.
    pub(super) fn is_inherited(&self) -> bool {
        self.flags & FS_XFLAG_PROJINHERIT != 0
    }

    pub(super) fn with_project(self, project: u32) -> Self {
        Self { project, ..self }
    }

    pub(super) fn inherited(self) -> Self {
        Self { flags: self.flags | FS_XFLAG_PROJINHERIT, ..self }
    }
}

/// Whether the limits of projects are enforced on the file system of an open file, and this process may set them. A kernel or a file system
/// without quotas enforces none.
pub(super) fn is_enforced(opened: BorrowedFd<'_>) -> io::Result<bool> {
    let mut state = FsQuotaStat::default();
    // SAFETY: the kernel writes a `struct fs_quota_stat`, for which this one has room.
    match unsafe { quotactl(opened, Q_XGETQSTAT, 0, &raw mut state) } {
        Ok(()) if state.flags & FS_QUOTA_PDQ_ENFD == 0 => Ok(false),
        // The state is for everybody, the quotas are not: in a user namespace, a node can neither read nor set them.
        Ok(()) => match quota(opened, 0) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            answer => answer.map(|_| true),
        },
        // The last one: a filter of the container in which the node runs.
        Err(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV | Errno::ESRCH | Errno::ENOTBLK | Errno::EPERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The limits and the use of a project.
pub(super) fn quota(opened: BorrowedFd<'_>, project: u32) -> io::Result<Quota> {
    let mut quota = IfDqblk::default();
    // SAFETY: the kernel writes a `struct if_dqblk`, which this one is.
    match unsafe { quotactl(opened, Q_GETQUOTA, project, &raw mut quota) } {
        Ok(()) => {}
        // XFS has no entry for a project that was never used.
        Err(Errno::ENOENT) => return Ok(Quota::default()),
        Err(errno) => return Err(errno.into()),
    }
    let limits = Limits { bytes: quota.bytes_hard.saturating_mul(BLOCK_BYTES), files: quota.files_hard };
    Ok(Quota { limits, bytes: quota.bytes, files: quota.files })
}

/// Sets the limits of a project; zero is none.
pub(super) fn set_limits(opened: BorrowedFd<'_>, project: u32, limits: Limits) -> io::Result<()> {
    let bytes_hard = limits.bytes.div_ceil(BLOCK_BYTES).min(BLOCKS_MAX);
    let mut quota = IfDqblk { bytes_hard, files_hard: limits.files, valid: QIF_LIMITS, ..IfDqblk::default() };
    // SAFETY: the kernel reads a `struct if_dqblk`, which this one is.
    Ok(unsafe { quotactl(opened, Q_SETQUOTA, project, &raw mut quota) }?)
}

/// The attributes of an open file; all zero on a file system without such attributes.
pub(super) fn attributes(opened: BorrowedFd<'_>) -> io::Result<Attributes> {
    // SAFETY: the command writes a `struct fsxattr`, which `Attributes` is.
    match unsafe { ioctl(opened, Getter::<GET_ATTRIBUTES, Attributes>::new()) } {
        Err(error) if matches!(error.raw_os_error(), libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
            Ok(Attributes::default())
        }
        answer => Ok(answer?),
    }
}

/// Sets the attributes of an open file.
pub(super) fn set_attributes(opened: BorrowedFd<'_>, attributes: Attributes) -> io::Result<()> {
    // SAFETY: the command reads a `struct fsxattr`, which `Attributes` is.
    Ok(unsafe { ioctl(opened, Setter::<SET_ATTRIBUTES, Attributes>::new(attributes)) }?)
}

/// The call that takes an open file. The other one takes the path of the file system's device, which this mount namespace may not have.
///
/// # Safety
///
/// `structure` must be what the kernel reads or writes for the command.
unsafe fn quotactl<T>(opened: BorrowedFd<'_>, command: u32, id: u32, structure: *mut T) -> Result<(), Errno> {
    let command = (command << 8) | PRJQUOTA;
    // SAFETY: the descriptor is open. The caller answers for the structure.
    Errno::result(unsafe { libc::syscall(libc::SYS_quotactl_fd, opened.as_raw_fd(), command, id, structure) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<Attributes>(), size_of::<IfDqblk>()), (28, 72));
        assert_eq!((GET_ATTRIBUTES, SET_ATTRIBUTES), (0x801c_581f, 0x401c_5820));
    }
}
