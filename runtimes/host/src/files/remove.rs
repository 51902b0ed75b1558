//! Removes what a guest has made. A container can nest directories as deeply as its disk allows, deeper than the stack and the
//! number of file descriptors allow, so the standard library's recursion cannot be used here.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, RenameFlags, ResolveFlag, openat2, renameat2};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The levels that are entered, each with one open directory. Deeper directories are moved up first.
const LEVELS_MAX: u32 = 64;

/// Removes a file, or a directory with everything below it, with a bounded number of stack frames and descriptors. It follows
/// no symbolic link and enters no other file system. A tree that another process removes at the same time is no error; one that
/// did not exist is [`io::ErrorKind::NotFound`].
///
/// # Errors
/// What the kernel says; a part of the tree is gone then.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    let how = OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC);
    let mut removal = Removal { top: openat2(nix::fcntl::AT_FDCWD, path, how)?.into(), moved: 0 };
    let mut moved_before = None;
    // Directories that were moved up may be behind the position at which the directory was being read.
    while moved_before != Some(removal.moved) {
        moved_before = Some(removal.moved);
        let top = removal.top.try_clone()?;
        removal.empty(&top, 1)?;
    }
    fs::remove_dir(path)
}

struct Removal {
    top: File,
    /// Directories that were moved to the top.
    moved: u64,
}

impl Removal {
    fn empty(&mut self, dir: &File, level: u32) -> io::Result<()> {
        for entry in fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))? {
            let entry = entry?;
            let name = entry.file_name();
            let is_dir = match entry.file_type() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                kind => kind?.is_dir(),
            };
            match (is_dir, level < LEVELS_MAX) {
                (false, _) => gone(unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir))?,
                (true, true) => self.remove_dir(dir, &name, level)?,
                (true, false) => self.move_up(dir, &name)?,
            }
        }
        Ok(())
    }

    fn remove_dir(&mut self, parent: &File, name: &OsStr, level: u32) -> io::Result<()> {
        let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
        let how = OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(inside);
        match openat2(parent, name, how) {
            Err(Errno::ENOENT) => return Ok(()),
            opened => self.empty(&opened?.into(), level + 1)?,
        }
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            // Another process still writes there: the last removal returns the error.
            Err(Errno::ENOTEMPTY) => Ok(()),
            removed => gone(removed),
        }
    }

    /// The guest may have used the name; a later one is free.
    fn move_up(&mut self, parent: &File, name: &OsStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let to = format!("..removed-{}", self.moved);
            match renameat2(parent, name, &self.top, to.as_str(), RenameFlags::RENAME_NOREPLACE) {
                Err(Errno::EEXIST) => {}
                moved => return gone(moved),
            }
        }
    }
}

fn gone(done: nix::Result<()>) -> io::Result<()> {
    match done {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::fcntl::openat;
    use nix::sys::stat::{Mode, mkdirat};

    use super::*;

    /// Directories within directories: no path is long enough to name the last.
    fn nest(dir: &Path, depth: u32) {
        let mut at = File::open(dir).unwrap();
        for level in 0..depth {
            mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            if level % 50 == 0 {
                File::create(format!("/proc/self/fd/{}/f", at.as_raw_fd())).unwrap();
            }
            at = openat(&at, "d", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).unwrap().into();
        }
    }

    #[test]
    fn a_tree_deeper_than_any_stack_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("wide")).unwrap();
        for name in ["..removed-1", "..removed-2", "wide/x"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        nest(&root, 10_000);
        nest(&root.join("wide/x"), 200);
        let small = std::thread::Builder::new().stack_size(256 << 10);
        small.spawn(move || remove_tree(&root)).unwrap().join().unwrap().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        symlink(&outside, root.join("way")).unwrap();
        symlink("/nowhere", root.join("dangling")).unwrap();
        remove_tree(&root).unwrap();
        symlink(&outside, &root).unwrap();
        remove_tree(&root).unwrap();
        assert_eq!(remove_tree(&root).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(outside.join("kept").exists());
    }
}
