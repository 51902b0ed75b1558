//! A mount namespace that has nothing of the node. A process that begins with a copy of the node's mount namespace pays for each mount
//! in it, when it makes the copy and when it drops it, and a node has several mounts for each Pod. A process that begins with a copy of
//! this one does not.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::chdir;

use crate::confine::{enter_working_dir, make_mounts_private, mount_empty};

/// A mount namespace with a root that nobody may write. The root has one empty file. The namespace exists as long as this value.
#[derive(Debug)]
pub struct EmptyMounts {
    namespace: File,
}

impl EmptyMounts {
    /// Makes it on a thread of its own. `dir` is any directory; nothing happens to it outside of the new namespace. `file` is the name of
    /// the file, on which another one can be mounted in a copy. Blocks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make(dir: &Path, file: &str) -> io::Result<Self> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            // The new root will have no /proc.
            let namespace = File::open("/proc/thread-self/ns/mnt")?;
            make_mounts_private()?;
            mount_empty(dir, &[file])?;
            chdir(dir)?;
            enter_working_dir()?;
            Ok(Self { namespace })
        };
        let ended = |_| Err(io::Error::other("the thread that makes the mount namespace has ended"));
        std::thread::scope(|scope| scope.spawn(make).join().unwrap_or_else(ended))
    }

    /// The path by which another process of this user opens the namespace.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd()))
    }

    /// Moves the calling thread into a copy of the namespace at such a path, which may be changed. Files stay open. The thread must share
    /// its root and its working directory with no other one.
    ///
    /// # Errors
    /// When the namespace is gone, or the kernel refuses.
    pub fn enter_copy(path: &Path) -> io::Result<()> {
        let namespace = File::open(path)?;
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread sees that ends with its answer.
    fn in_thread<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(move || {
            // Threads share the root until then.
            unshare(CloneFlags::CLONE_FS).expect("a root of its own");
            look()
        })
        .join()
        .expect("an answer")
    }

    #[test]
    fn a_copy_is_empty_and_changes_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let empty = EmptyMounts::make(dir.path(), "file").expect("a mount namespace");
        let names = || std::fs::read_dir("/").map(|entries| entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect::<Vec<_>>());
        for _ in 0..2 {
            let path = empty.path();
            let seen = in_thread(move || {
                EmptyMounts::enter_copy(&path)?;
                let before = names()?;
                let written = std::fs::write("/other", "").map_err(|error| error.kind());
                mount_empty(Path::new("/"), &[])?;
                Ok::<_, io::Error>((before, written))
            });
            assert_eq!(seen.expect("an answer"), (vec!["file".into()], Err(io::ErrorKind::ReadOnlyFilesystem)));
        }
        assert!(names().is_ok_and(|names| names.len() > 1), "the mounts of the others are as before");
    }
}
