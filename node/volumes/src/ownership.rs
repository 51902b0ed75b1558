//! `fsGroup`: everything in a volume belongs to the group, which may read it (and write it unless the
//! volume is read-only), and new files inherit it.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OpenHow, openat2};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Gid, fchownat};

use crate::VolumeError;
use crate::tree::{self, Mounts};

/// Upstream's masks: the permissions that the group gets in addition.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const DIRECTORY: u32 = 0o2110;
/// The permissions, the two bits that change the user and the group of a program, and the sticky bit.
const PERMISSIONS: u32 = 0o7777;

/// Whether the top of a tree has the group and its permissions already: then everything in it has, for
/// `fsGroupChangePolicy: OnRootMismatch`.
pub(crate) fn is_given(path: &Path, group: u32) -> Result<bool, VolumeError> {
    let metadata = fs::metadata(path).map_err(VolumeError::io("reading", path))?;
    let wanted = READ_WRITE | DIRECTORY;
    Ok(metadata.gid() == group && metadata.permissions().mode() & wanted == wanted)
}

/// Changes the group of a tree. The group of symbolic links themselves is changed; they are never followed. As upstream, file systems
/// that are mounted in it belong to it.
pub(crate) fn give_to_group(path: &Path, group: u32, read_only: bool) -> Result<(), VolumeError> {
    let top = openat2(AT_FDCWD, path, OpenHow::new().flags(tree::as_path()));
    let top = top.map_err(|errno| VolumeError::io("opening", path)(errno.into()))?;
    let access = if read_only { READ_ONLY } else { READ_WRITE };
    let change = Change { path, group: Gid::from_raw(group), access };
    if change.apply(top.as_fd())? == SFlag::S_IFDIR {
        tree::each_below(top.as_fd(), path, "setting the group of", Mounts::Entered, &|entry| change.apply(entry))?;
    }
    Ok(())
}

/// What is changed in a tree.
struct Change<'p> {
    /// The top of the tree, for errors.
    path: &'p Path,
    group: Gid,
    access: u32,
}

impl Change<'_> {
    /// Changes one entry; returns what it is.
    fn apply(&self, entry: BorrowedFd<'_>) -> Result<SFlag, VolumeError> {
        fchownat(entry, "", None, Some(self.group), AtFlags::AT_EMPTY_PATH).map_err(|errno| self.failed("setting the group of", errno))?;
        // After the change of the group, which takes away the bits that change the user.
        let mode = fstat(entry).map_err(|errno| self.failed("reading", errno))?.st_mode;
        let kind = SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFLNK {
            return Ok(kind);
        }
        let directory = if kind == SFlag::S_IFDIR { DIRECTORY } else { 0 };
        let mode = (mode & PERMISSIONS) | self.access | directory;
        fs::set_permissions(tree::itself(entry), fs::Permissions::from_mode(mode))
            .map_err(VolumeError::io("setting the mode of", self.path))?;
        Ok(kind)
    }

    fn failed(&self, doing: &'static str, errno: Errno) -> VolumeError {
        VolumeError::io(doing, self.path)(errno.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::{chown, symlink};

    use nix::fcntl::{OFlag, openat};
    use nix::sys::stat::{Mode, mkdirat};

    use super::*;

    const GROUP: u32 = 4_321;

    /// Directories within directories, with names that are as long as names can be.
    fn nest(dir: &Path, depth: u32) -> OwnedFd {
        let mut at: OwnedFd = File::open(dir).expect("a directory").into();
        let name = "d".repeat(255);
        for _ in 0..depth {
            mkdirat(&at, name.as_str(), Mode::S_IRWXU).expect("a directory");
            at = openat(&at, name.as_str(), OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).expect("it");
        }
        at
    }

    #[test]
    fn a_tree_that_no_path_can_name_is_given() {
        let dir = tempfile::tempdir().expect("a directory");
        let deepest = nest(dir.path(), 60);
        give_to_group(dir.path(), GROUP, false).expect("given");
        let metadata = fstat(&deepest).expect("its metadata");
        assert_eq!((metadata.st_gid, metadata.st_mode & PERMISSIONS), (GROUP, 0o2770));
        let deep = tempfile::tempdir().expect("a directory");
        nest(deep.path(), 255);
        give_to_group(deep.path(), GROUP, false).expect("given");
        let deeper = tempfile::tempdir().expect("a directory");
        nest(deeper.path(), 256);
        let refused = give_to_group(deeper.path(), GROUP, false).expect_err("too deep");
        assert!(matches!(refused, VolumeError::TooDeep { levels_max: 256, .. }), "{refused}");
    }

    #[test]
    fn a_file_that_becomes_a_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, link, hosts) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("hosts"));
        for (path, mode) in [(&file, 0o600), (&hosts, 0o600)] {
            fs::write(path, "").expect("writing");
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        }
        symlink(&hosts, &link).expect("a link");
        chown(&hosts, None, Some(7)).expect("a group");
        let state = |path: &Path| {
            let metadata = fs::symlink_metadata(path).expect("its metadata");
            (metadata.gid(), metadata.permissions().mode() & PERMISSIONS)
        };
        give_to_group(&link, GROUP, false).expect("given");
        assert_eq!((state(&link).0, state(&hosts)), (GROUP, (7, 0o600)));

        // The guest replaces the file after it was opened.
        let opened = openat2(AT_FDCWD, &file, OpenHow::new().flags(tree::as_path())).expect("it");
        let moved = dir.path().join("moved");
        fs::rename(&file, &moved).expect("moved");
        symlink(&hosts, &file).expect("a link");
        Change { path: dir.path(), group: Gid::from_raw(GROUP), access: READ_WRITE }.apply(opened.as_fd()).expect("given");
        assert_eq!((state(&moved), state(&hosts)), ((GROUP, 0o660), (7, 0o600)));
    }
}
