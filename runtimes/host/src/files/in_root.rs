//! Opening paths that a guest may have made.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// How often a path is looked up when directories are renamed meanwhile.
const LOOKUPS_MAX: usize = 64;

/// Opens a path below a directory as if the directory were the root: links and `..` end there, as in the root of a container. An empty path
/// is the directory.
///
/// # Errors
/// Those of `openat2`; `EAGAIN` when directories of the machine are renamed all the time.
pub fn open_in_root(root: impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // The kernel cannot follow `..` while any directory of the machine is renamed.
    for _ in 1..LOOKUPS_MAX {
        match openat2(&root, path, how) {
            Err(Errno::EAGAIN) => {}
            opened => return opened,
        }
    }
    openat2(&root, path, how)
}
