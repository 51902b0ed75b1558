//! What is in a directory, entry by entry. Guests may change it in the meantime: each entry is opened once, without following a link, and
//! used through its descriptor, so a file that a guest replaces by a link to a file of the node is not followed.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};

use crate::VolumeError;

/// Directories within directories. Each level has two open files and a frame of the stack until it is done.
pub(crate) const LEVELS_MAX: u32 = 256;

/// How an entry is opened.
pub(crate) fn as_path() -> OFlag {
    OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// What is done about file systems that are mounted in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounts {
    /// They belong to it.
    Entered,
    /// They are left alone.
    Left,
}

/// A path to an open file itself, wherever it is.
pub(crate) fn itself(opened: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", opened.as_raw_fd()).into()
}

/// What an open entry is.
pub(crate) fn kind(entry: BorrowedFd<'_>) -> Result<SFlag, Errno> {
    Ok(SFlag::from_bits_truncate(fstat(entry)?.st_mode) & SFlag::S_IFMT)
}

/// Calls `change`, which returns what an entry is, with each entry below an open directory, directories before what is in them. An entry is
/// open as a path only. Entries that a guest removes in the meantime are left out. `path` and `doing` are for errors.
pub(crate) fn each_below(
    top: BorrowedFd<'_>,
    path: &Path,
    doing: &'static str,
    mounts: Mounts,
    change: &dyn Fn(BorrowedFd<'_>) -> Result<SFlag, VolumeError>,
) -> Result<(), VolumeError> {
    Walk { path, doing, mounts, change }.below(top, 1)
}

impl Mounts {
    fn resolve(self) -> ResolveFlag {
        match self {
            Self::Entered => ResolveFlag::RESOLVE_BENEATH,
            Self::Left => ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV,
        }
    }
}

struct Walk<'w> {
    path: &'w Path,
    doing: &'static str,
    mounts: Mounts,
    change: &'w dyn Fn(BorrowedFd<'_>) -> Result<SFlag, VolumeError>,
}

impl Walk<'_> {
    fn below(&self, dir: BorrowedFd<'_>, level: u32) -> Result<(), VolumeError> {
        for name in fs::read_dir(itself(dir)).map_err(VolumeError::io("listing", self.path))? {
            let name = name.map_err(VolumeError::io("listing", self.path))?.file_name();
            if level == LEVELS_MAX {
                return Err(VolumeError::TooDeep { doing: self.doing, path: self.path.to_owned(), levels_max: LEVELS_MAX });
            }
            let how = OpenHow::new().flags(as_path()).resolve(self.mounts.resolve());
            let entry = match openat2(dir, name.as_os_str(), how) {
                Ok(entry) => entry,
                Err(Errno::ENOENT) => continue,
                Err(Errno::EXDEV) if self.mounts == Mounts::Left => continue,
                Err(errno) => return Err(VolumeError::io("opening an entry of", self.path)(errno.into())),
            };
            if (self.change)(entry.as_fd())? == SFlag::S_IFDIR {
                self.below(entry.as_fd(), level + 1)?;
            }
        }
        Ok(())
    }
}
