//! Files that survive a power cut: after [`write_atomic`] returns, a reader finds the whole new content
//! under the name, also after the machine lost its power. On a tmpfs the syncs cost nothing.

mod remove;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

pub use remove::remove_tree;

/// Mode of a file that only its owner may read.
pub const PRIVATE: u32 = 0o600;

/// Replaces a file: the content is written beside it and synced, then the name is replaced and synced.
/// A reader sees the old content or the new one. A failed write leaves the old content and nothing else.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = beside(path);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()
    };
    let written = write().and_then(|()| rename(&temporary, path));
    if written.is_err() {
        // The error of the write is the one to report.
        let _removed = fs::remove_file(&temporary);
    }
    written
}

/// Renames a file or directory whose content is synced, and syncs the name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Syncs the directory that holds a name, so that the name is as durable as its content.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Makes a directory that its owner alone may enter, or makes one that is there so: what lies below need not be
/// hidden from the machine's other users one by one.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Followed where it is a link: whoever put the directory elsewhere wants it private there.
    if fs::metadata(dir)?.permissions().mode() & 0o7777 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        for content in ["first", "second, which is longer"] {
            write_atomic(&path, content.as_bytes(), PRIVATE).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replacement_keeps_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        fs::create_dir(&path).unwrap();
        assert!(write_atomic(&path, b"x", PRIVATE).is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the temporary file is removed");
    }
}
