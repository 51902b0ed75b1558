//! Mounts tmpfs and huge pages, unmounts, and reads from the kernel what is mounted where.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::VolumeError;
use crate::shared_read::SharedRead;

/// The mounts that this process sees. The kernel writes the table anew for each reader, mount by mount.
const TABLE: &str = "/proc/self/mountinfo";

/// Pods that come and go together read the table together.
static READS: SharedRead = SharedRead::new();

/// Mount points at or below a directory, in the order they were mounted.
pub(crate) fn below(dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
    let table = Path::new(TABLE);
    let text = READS.fresh(|| std::fs::read(table)).map_err(VolumeError::io("reading", table))?;
    let real = match std::fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(VolumeError::io("resolving", dir))?,
    };
    Ok(text.split(|byte| *byte == b'\n').filter_map(mount_point).filter(|point| point.starts_with(&real)).collect())
}

/// Whether something is mounted exactly there.
pub(crate) fn is_mount_point(path: &Path) -> Result<bool, VolumeError> {
    let attributes = match rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        other => other.map_err(|errno| VolumeError::io("reading the attributes of", path)(errno.into()))?,
    };
    if attributes.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(attributes.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // A kernel before 5.8.
    let real = std::fs::canonicalize(path).map_err(VolumeError::io("resolving", path))?;
    Ok(below(path)?.contains(&real))
}

/// Mounts an empty tmpfs, without devices and without programs that change their user; without a size the kernel's default (half of memory) holds.
pub(crate) fn mount_tmpfs(at: &Path, size_bytes: Option<u64>) -> Result<(), VolumeError> {
    let options = size_bytes.map_or_else(|| "mode=0755".to_owned(), |size| format!("mode=0755,size={size}"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options.as_str())).map_err(|errno| failed("mounting tmpfs on", at, errno))
}

/// Mounts files of huge pages, without devices and without programs that change their user. The kernel takes whole pages of the size,
/// none of a lower one; without a size, only the machine's number of pages bounds the files.
pub(crate) fn mount_huge_pages(at: &Path, page_bytes: u64, size_bytes: Option<u64>) -> Result<(), VolumeError> {
    let pages = format!("mode=0755,pagesize={page_bytes}");
    let options = size_bytes.map_or_else(|| pages.clone(), |size| format!("{pages},size={size}"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("nodev"), at, Some("hugetlbfs"), flags, Some(options.as_str())).map_err(|errno| failed("mounting hugetlbfs on", at, errno))
}

/// Mounts shared memory as containers find it: of 64 MiB, anyone may write, nothing is run from it.
pub(crate) fn mount_shared_memory(at: &Path) -> Result<(), VolumeError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("shm"), at, Some("tmpfs"), flags, Some("mode=1777,size=65536k"))
        .map_err(|errno| failed("mounting shared memory on", at, errno))
}

/// Bind-mounts `source` at `at`, without the mounts below it, as upstream. The new mount has private propagation: otherwise a
/// mount that came along with it (or later, from the original) would be unmounted on the machine itself when this one is
/// unmounted.
pub(crate) fn bind(source: &Path, at: &Path) -> Result<(), VolumeError> {
    mount(Some(source), at, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|errno| failed("binding onto", at, errno))?;
    mount(None::<&str>, at, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>).map_err(|errno| failed("making a private mount of", at, errno))
}

/// Unmounts lazily: processes keep the files that they have open. A path without a mount is no error.
pub(crate) fn unmount(at: &Path) -> Result<(), VolumeError> {
    match umount2(at, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => Ok(()),
        Err(errno) => Err(failed("unmounting", at, errno)),
    }
}

fn failed(doing: &'static str, path: &Path, errno: nix::errno::Errno) -> VolumeError {
    VolumeError::io(doing, path)(errno.into())
}

/// The fifth field of a line, with its octal escapes undone. By hand, because procfs-core 0.18 keeps the escapes and rejects the
/// whole table if one mount point is not UTF-8, which a guest can cause.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(unescape(OsStr::from_bytes(field).as_bytes()))))
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'\\').then(|| tail.get(..3)).flatten().and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mount_points_with_spaces() {
        let line = b"36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mount_point(b""), None);
    }
}
