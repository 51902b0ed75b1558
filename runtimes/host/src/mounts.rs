//! Mounts that are not attached anywhere yet, their attributes, and the attributes of all mounts below a path: open_tree(2),
//! fsopen(2), move_mount(2) (Linux 5.2) and mount_setattr(2) (Linux 5.12). A mount namespace without mounts of the node.

mod empty;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use thiserror::Error;

pub use empty::EmptyMounts;

/// No descriptor. A kernel that has the call and lets us use it reports that.
const NO_DIR: libc::c_int = -1;

/// The file system behind a mount has no such mounts; upstream's words.
#[derive(Debug, Error)]
#[error("failed to set MOUNT_ATTR_IDMAP on {}: {} (maybe the filesystem used doesn't support idmap mounts on this kernel?)", .path.display(), .errno.desc())]
pub struct IdMapError {
    path: PathBuf,
    errno: Errno,
}

/// Whether the kernel has the call.
pub fn have_recursive_attributes() -> bool {
    let wanted = attributes(libc::MOUNT_ATTR_RDONLY);
    set(NO_DIR, c"relative", libc::AT_RECURSIVE, &wanted).is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
}

/// Makes the mount at an absolute path, and all mounts below it, read-only.
pub fn make_read_only(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    set(libc::AT_FDCWD, &path, libc::AT_RECURSIVE, &attributes(libc::MOUNT_ATTR_RDONLY))
}

/// A copy of a mount (with `AT_RECURSIVE` also of those below) from this path on, which is not attached: there is nothing above
/// it to walk to. The path begins at `dir`.
pub fn detached(dir: BorrowedFd<'_>, path: &CStr, flags: libc::c_uint) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | flags;
    // SAFETY: a descriptor and a path that live through the call; the result is a new descriptor or -1.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) };
    let tree = i32::try_from(tree).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(tree) })
}

/// A copy of the mount at an absolute path that is not attached, with all mounts below it if `recursive`.
pub fn detached_at(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    detached(AT_FDCWD, &path, if recursive { libc::AT_RECURSIVE.cast_unsigned() } else { 0 })
}

/// An empty file system in memory that is not attached, with options of tmpfs(5) and attributes (`MOUNT_ATTR_…`).
pub fn detached_tmpfs(options: &[(&CStr, &CStr)], attributes: u64) -> io::Result<OwnedFd> {
    detached_new(c"tmpfs", options, attributes)
}

/// A mount of procfs of its own for the present PID namespace, which is not attached.
pub fn detached_proc() -> io::Result<OwnedFd> {
    detached_new(c"proc", &[], libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC)
}

fn detached_new(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> io::Result<OwnedFd> {
    let take = |result: libc::c_long| {
        let fd = i32::try_from(result).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel just made it for us.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: a name that lives through the call; the result is a new descriptor or -1.
    let context = take(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    let configure = |command: u32, name: *const libc::c_char, value: *const libc::c_char| {
        // SAFETY: a descriptor, and names and values that live through the call, or none.
        Errno::result(unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, name, value, 0) })
    };
    for (name, value) in options {
        configure(libc::FSCONFIG_SET_STRING, name.as_ptr(), value.as_ptr())?;
    }
    configure(libc::FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
    // SAFETY: a descriptor and numbers; the result is a new descriptor or -1.
    take(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), libc::FSMOUNT_CLOEXEC, attributes) })
}

/// Attaches a copy of a mount at a path that exists.
pub fn attach(tree: &OwnedFd, target: &Path) -> io::Result<()> {
    let path = CString::new(target.as_os_str().as_bytes())?;
    // SAFETY: a descriptor and paths that live through the call.
    let moved = unsafe {
        let from = tree.as_raw_fd();
        libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), libc::AT_FDCWD, path.as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH)
    };
    if moved == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Adds attributes (`MOUNT_ATTR_…`) to a copy of a mount, if `recursive` also to those below it.
pub fn add_attributes(tree: &OwnedFd, added: u64, recursive: bool) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    set(tree.as_raw_fd(), c"", flags, &attributes(added))
}

/// Maps the ids of a copy of a mount that was never attached: a file of the user N belongs to the user that is N in the user namespace,
/// and a file that this user makes is N's. The mounts below it stay as they are. `source` is for the error.
pub fn map_ids(tree: &OwnedFd, user_namespace: impl AsFd, source: &Path) -> Result<(), IdMapError> {
    let fd = user_namespace.as_fd().as_raw_fd();
    let wanted = libc::mount_attr { userns_fd: u64::from(fd.cast_unsigned()), ..attributes(libc::MOUNT_ATTR_IDMAP) };
    let mapped = set(tree.as_raw_fd(), c"", libc::AT_EMPTY_PATH, &wanted);
    mapped.map_err(|error| IdMapError { path: source.to_owned(), errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()) })
}

fn attributes(added: u64) -> libc::mount_attr {
    libc::mount_attr { attr_set: added, attr_clr: 0, propagation: 0, userns_fd: 0 }
}

fn set(dir: libc::c_int, path: &CStr, flags: libc::c_int, wanted: &libc::mount_attr) -> io::Result<()> {
    let wanted = std::ptr::from_ref(wanted);
    // SAFETY: a path and a structure of the given size that live through the call.
    let done = unsafe { libc::syscall(libc::SYS_mount_setattr, dir, path.as_ptr(), flags, wanted, size_of::<libc::mount_attr>()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_that_runs_this_has_the_call() {
        assert!(have_recursive_attributes());
    }
}
