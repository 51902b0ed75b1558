//! The write-ahead log beside a database. It may hold acknowledged writes that are not in the database yet.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Result};
use std::path::{Path, PathBuf};

/// The first bytes of a database file: <https://www.sqlite.org/fileformat2.html#magic_header_string>.
const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// The path of the log.
pub(super) fn path(database: &Path) -> PathBuf {
    database.with_extension("db-wal")
}

/// Whether the log has content. A log that cannot be read counts as one with content.
pub(super) fn has_content(log: &Path) -> bool {
    match std::fs::metadata(log) {
        Ok(meta) => meta.len() > 0,
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Whether SQLite would delete a log with content. SQLite does so when it closes a file that is no database, and when
/// it opens an empty file.
pub(super) fn would_be_deleted(database: &Path) -> Result<bool> {
    Ok(has_content(&path(database)) && !has_header(database)?)
}

/// Whether the file has the header of a database. SQLite writes the header before its log.
fn has_header(database: &Path) -> Result<bool> {
    let mut header = [0; HEADER.len()];
    match File::open(database).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => Ok(header == *HEADER),
        Err(error) if [ErrorKind::NotFound, ErrorKind::UnexpectedEof].contains(&error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}
