//! Atomic writes of key files: a temporary file beside the target, fsync, rename, fsync of the directory. A kill or a
//! power cut leaves the old or the new content, never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::PkiError;

/// The mode of a file.
#[derive(Clone, Copy)]
pub enum Mode {
    /// Certificates: 0644.
    Public,
    /// Keys: 0600.
    Secret,
}

/// Creates the directory and its parents, accessible by the owner only.
pub fn make_directory(path: &Path) -> Result<(), PkiError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| failed("create", path, source))
}

/// The content, or `None` where there is no such file.
pub fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path, source)),
    }
}

/// Replaces the content of a file.
pub fn write(path: &Path, content: &str, mode: Mode) -> Result<(), PkiError> {
    let mode = match mode {
        Mode::Public => 0o644,
        Mode::Secret => 0o600,
    };
    let temporary = path.with_extension("tmp");
    write_and_sync(&temporary, content, mode).map_err(|source| failed("write", &temporary, source))?;
    fs::rename(&temporary, path).map_err(|source| failed("rename into place", path, source))?;
    match path.parent() {
        Some(directory) => File::open(directory).and_then(|d| d.sync_all()).map_err(|source| failed("sync", directory, source)),
        None => Ok(()),
    }
}

fn write_and_sync(path: &Path, content: &str, mode: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    // Opening a temporary file that a kill left behind does not change its mode.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

fn failed(action: &'static str, path: &Path, source: std::io::Error) -> PkiError {
    PkiError::File { action, path: path.to_owned(), source }
}
