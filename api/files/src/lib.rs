//! Files that are replaced whole. After [`write_atomic`] returns, the file has the new content also after a power cut. [`write_volatile`]
//! is for what belongs to one boot.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The mode of a file that only its owner may read and write.
pub const PRIVATE: u32 = 0o600;

/// Replaces a file. The content is written to a temporary file beside it and synced. Then the temporary file is
/// renamed, and the directory is synced. A reader sees the old content or the new one. A failed write leaves the old
/// content and no other file.
///
/// # Errors
/// The error of the first failed call.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, content, mode, &File::sync_all)?;
    sync_parent(path)
}

/// Replaces a file as [`write_atomic`] does, but without syncs: for state that means nothing after the next boot. The file outlives its
/// writer; a power cut may leave any content.
///
/// # Errors
/// The error of the first failed call.
pub fn write_volatile(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, content, mode, &|_| Ok(()))
}

fn replace(path: &Path, content: &[u8], mode: u32, sync: &dyn Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let temporary = beside(path);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        // A temporary file that is left from a killed process has its old mode.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        sync(&file)
    };
    let written = write().and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The function returns the error of the write, not of the removal.
        let _removed = fs::remove_file(&temporary);
    }
    written
}

/// Renames a file or directory whose content is synced, and syncs the directory.
///
/// # Errors
/// The error of the first failed call.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Syncs the directory of a path, so that the name is as durable as the content.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Creates a directory that only its owner may enter, or sets the mode of an existing one. So files in it need no own
/// protection from other users of the machine.
///
/// # Errors
/// The directory cannot be created, or its mode cannot be set.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // `metadata` follows a link: the target directory must be private.
    if fs::metadata(dir)?.permissions().mode() & 0o7777 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Writer = fn(&Path, &[u8], u32) -> io::Result<()>;
    const WRITERS: [Writer; 2] = [write_atomic, write_volatile];

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("record");
        for (content, write) in [("first", WRITERS[0]), ("second, which is longer", WRITERS[1]), ("third", WRITERS[0])] {
            write(&path, content.as_bytes(), PRIVATE).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("readable"), content);
        }
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn a_temporary_file_of_an_earlier_process_does_not_keep_its_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        fs::write(beside(&path), "left behind").expect("written");
        fs::set_permissions(beside(&path), fs::Permissions::from_mode(0o644)).expect("a file of ours");
        write_atomic(&path, b"secret", PRIVATE).expect("written");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, PRIVATE);
        assert_eq!(fs::read(&path).expect("readable"), b"secret");
    }

    #[test]
    fn a_failed_replacement_keeps_what_was_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("record");
        fs::create_dir(&path).expect("created");
        for write in WRITERS {
            assert!(write(&path, b"x", PRIVATE).is_err());
            assert!(path.is_dir());
            assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "the temporary file is removed");
        }
    }
}
