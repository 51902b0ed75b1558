//! The files of keys and certificates. A kill or a power cut leaves the old or the new content, never a part.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
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

/// The content of a file; `None` if it does not exist.
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
        Mode::Secret => api_files::PRIVATE,
    };
    api_files::write_atomic(path, content.as_bytes(), mode).map_err(|source| failed("write", path, source))
}

fn failed(action: &'static str, path: &Path, source: std::io::Error) -> PkiError {
    PkiError::File { action, path: path.to_owned(), source }
}
