//! The write-ahead log beside a database. It may hold answered writes that are nowhere else.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Result};
use std::path::{Path, PathBuf};

/// What a database file begins with: <https://www.sqlite.org/fileformat2.html#magic_header_string>.
const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// The log's name.
pub(super) fn path(database: &Path) -> PathBuf {
    database.with_extension("db-wal")
}

/// A log that cannot be looked at counts as one with content.
pub(super) fn has_content(log: &Path) -> bool {
    match std::fs::metadata(log) {
        Ok(meta) => meta.len() > 0,
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Whether SQLite would delete a log with content: it does so when it closes a file that is no database, or when it
/// opens an empty one.
pub(super) fn would_be_deleted(database: &Path) -> Result<bool> {
    Ok(has_content(&path(database)) && !has_header(database)?)
}

/// A database has its header before its log.
fn has_header(database: &Path) -> Result<bool> {
    let mut header = [0; HEADER.len()];
    match File::open(database).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => Ok(header == *HEADER),
        Err(error) if [ErrorKind::NotFound, ErrorKind::UnexpectedEof].contains(&error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}
