//! Attributes of a mount and of all mounts below it, by mount_setattr(2) (Linux 5.12).

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// No descriptor. A kernel that has the call and lets us use it reports that.
const NO_DIR: libc::c_int = -1;

/// Whether the kernel has the call.
pub fn have_recursive_attributes() -> bool {
    set(NO_DIR, Path::new("relative"), libc::MOUNT_ATTR_RDONLY).is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
}

/// Makes the mount at an absolute path, and all mounts below it, read-only.
pub fn make_read_only(path: &Path) -> io::Result<()> {
    set(libc::AT_FDCWD, path, libc::MOUNT_ATTR_RDONLY)
}

fn set(dir: libc::c_int, path: &Path, attributes: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: a path and a structure of the given size that live through the call.
    let done =
        unsafe { libc::syscall(libc::SYS_mount_setattr, dir, path.as_ptr(), libc::AT_RECURSIVE, &raw const wanted, size_of_val(&wanted)) };
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
