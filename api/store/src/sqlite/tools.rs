//! Tools for the database file: a backup, also while the server runs; a restore while the server is stopped; and a
//! check of the file.

mod restore;

use std::path::Path;

use api_files::sync_parent;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::open::{self, failed};
use super::{unsigned, wal};
use crate::{Revision, StoreError};

pub use restore::restore;

/// The maximum of problems in a report.
const PROBLEMS_MAX: usize = 20;

/// The content of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The revision of the backup.
    pub revision: Revision,
    /// The number of current entries.
    pub entries: u64,
    /// The size in bytes.
    pub bytes: u64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The last revision.
    pub revision: Revision,
    /// The oldest revision from which a watch may resume.
    pub compacted: Revision,
    /// The number of current entries.
    pub entries: u64,
    /// The bytes of their keys and values.
    pub live_bytes: u64,
    /// The number of rows of history.
    pub history: u64,
    /// The size of the database file, without the write-ahead log.
    pub bytes: u64,
    /// The unused bytes of the file.
    pub free_bytes: u64,
    /// The problems; empty if the database is intact.
    pub problems: Vec<String>,
}

/// Copies a database at one revision to a new file, also while a server uses the database. The copy is checked and
/// flushed to disk before it gets its name.
///
/// # Errors
/// [`StoreError::File`] if there is no database or the new file exists; or the error of SQLite.
pub async fn backup(path: &Path, to: &Path) -> Result<Backup, StoreError> {
    if to.exists() {
        return Err(refused(to, "exists already; a backup does not replace a file"));
    }
    let mut database = open_existing(path).await?;
    let partial = beside(to, "partial");
    let copied = copy_checked(&mut database, path, &partial).await;
    close(database, path).await?;
    let health = match copied {
        Ok(health) => health,
        Err(error) => {
            // An incomplete copy is no backup.
            let _removed = std::fs::remove_file(&partial);
            return Err(error);
        }
    };
    // A hard link fails if the name exists. A rename would replace a file that another process created meanwhile.
    let named = std::fs::hard_link(&partial, to).and_then(|()| std::fs::remove_file(&partial));
    named.and_then(|()| sync_parent(to)).map_err(|source| io("naming", to, source))?;
    Ok(Backup { revision: health.revision, entries: health.entries, bytes: health.bytes })
}

/// Checks whether a database or a backup is intact, also while a server uses it.
///
/// # Errors
/// [`StoreError::File`] if the file is no database of Skiff; or the error of SQLite.
pub async fn check(path: &Path) -> Result<Health, StoreError> {
    let mut database = open_existing(path).await?;
    let health = examine(&mut database).await.map_err(|source| failed(path, "reading", source));
    close(database, path).await?;
    health
}

async fn copy_checked(database: &mut SqliteConnection, path: &Path, to: &Path) -> Result<Health, StoreError> {
    copy(database, path, to).await?;
    let health = check(to).await?;
    match health.problems.first() {
        None => Ok(health),
        Some(problem) => Err(refused(path, &format!("is damaged, so that a copy of it is no good: {problem}"))),
    }
}

/// Copies in one transaction, without unused pages. The copy is on disk when this returns.
async fn copy(database: &mut SqliteConnection, path: &Path, to: &Path) -> Result<(), StoreError> {
    // The file is created first, with its mode, so that no other user can ever read it. SQLite treats an empty file as
    // a new database.
    let _left_over = std::fs::remove_file(to);
    open::create_private(to)?;
    let into = to.to_str().ok_or_else(|| refused(to, "has a name that is not UTF-8"))?;
    let copied = sqlx::query("VACUUM INTO ?").bind(into).execute(database).await;
    copied.map_err(|source| failed(path, "copying", source))?;
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(|source| io("flushing", to, source))
}

/// Opens a database of Skiff for reading. This changes nothing.
async fn open_existing(path: &Path) -> Result<SqliteConnection, StoreError> {
    if !path.exists() {
        return Err(refused(path, "does not exist"));
    }
    if wal::would_be_deleted(path).map_err(|source| io("reading", path, source))? {
        return Err(refused(path, "is not a database"));
    }
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false).disable_statement_logging();
    let no_database = |source| match not_a_database(&source) {
        true => refused(path, "is not a database"),
        false => failed(path, "opening", source),
    };
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(no_database)?;
    let schema = sqlx::query_scalar::<_, i64>("PRAGMA user_version").fetch_one(&mut connection).await.map_err(no_database)?;
    if schema > open::SCHEMA {
        return Err(StoreError::Newer { path: path.display().to_string(), found: schema, known: open::SCHEMA });
    }
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('log', 'meta')";
    let tables = sqlx::query_scalar::<_, i64>(tables).fetch_one(&mut connection).await.map_err(no_database)?;
    if schema < 1 || tables != 2 {
        return Err(refused(path, "is not a database of skiff"));
    }
    Ok(connection)
}

/// Whether the error is SQLite's `SQLITE_NOTADB`.
fn not_a_database(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "26")
}

async fn examine(database: &mut SqliteConnection) -> Result<Health, sqlx::Error> {
    let mut problems: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("PRAGMA integrity_check({PROBLEMS_MAX})"))).fetch_all(&mut *database).await?;
    problems.retain(|problem| problem != "ok");
    if !problems.is_empty() {
        // The numbers of a damaged file would be wrong.
        return Ok(Health { problems, ..Health::unknown() });
    }
    // One transaction, because a server may write meanwhile.
    let mut database = database.begin().await?;
    for (what, query) in RULES {
        let keys: Vec<String> = sqlx::query_scalar(*query).fetch_all(&mut *database).await?;
        problems.extend(keys.into_iter().map(|key| format!("{key}: {what}")));
    }
    problems.truncate(PROBLEMS_MAX);
    let mut number = [0; 7];
    for (number, query) in number.iter_mut().zip(NUMBERS) {
        *number = unsigned(sqlx::query_scalar::<_, i64>(*query).fetch_one(&mut *database).await?);
    }
    database.commit().await?;
    let [revision, compacted, entries, live_bytes, rows, bytes, free_bytes] = number;
    Ok(Health { revision, compacted, entries, live_bytes, history: rows.saturating_sub(entries), bytes, free_bytes, problems })
}

impl Health {
    fn unknown() -> Self {
        Self { revision: 0, compacted: 0, entries: 0, live_bytes: 0, history: 0, bytes: 0, free_bytes: 0, problems: Vec::new() }
    }
}

/// Checks of the content. Each query returns the keys that fail the check, at most [`PROBLEMS_MAX`].
const RULES: &[(&str, &str)] = &[
    (
        "has more than one current value",
        "SELECT key FROM log WHERE value IS NOT NULL AND revision NOT IN (SELECT previous FROM log WHERE previous IS NOT NULL) \
         GROUP BY key HAVING count(*) > 1 LIMIT 20",
    ),
    (
        "a row replaces one of another key",
        "SELECT new.key FROM log new JOIN log old ON new.previous = old.revision WHERE new.key <> old.key LIMIT 20",
    ),
    ("a row replaces a later one", "SELECT key FROM log WHERE previous >= revision OR created > revision LIMIT 20"),
    (
        "a row of history is missing",
        "SELECT key FROM log WHERE previous > (SELECT value FROM meta WHERE name = 'compacted') \
         AND previous NOT IN (SELECT revision FROM log) LIMIT 20",
    ),
];

/// The numbers of [`Health`] in its order. Here, the rows of history include the current rows.
const NUMBERS: &[&str] = &[
    open::HEAD,
    "SELECT value FROM meta WHERE name = 'compacted'",
    "SELECT count(*) FROM log WHERE value IS NOT NULL AND revision NOT IN (SELECT previous FROM log WHERE previous IS NOT NULL)",
    "SELECT coalesce(sum(length(CAST(key AS BLOB)) + length(value)), 0) FROM log \
     WHERE value IS NOT NULL AND revision NOT IN (SELECT previous FROM log WHERE previous IS NOT NULL)",
    "SELECT count(*) FROM log",
    "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
    "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size",
];

async fn close(database: SqliteConnection, path: &Path) -> Result<(), StoreError> {
    database.close().await.map_err(|source| failed(path, "closing", source))
}

/// The temporary name beside a file for an incomplete copy.
fn beside(path: &Path, what: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

fn refused(path: &Path, why: &str) -> StoreError {
    StoreError::File { path: path.display().to_string(), why: why.to_owned() }
}

fn io(doing: &str, path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Backend { doing: format!("{doing} {}", path.display()), source: std::sync::Arc::new(source) }
}

#[cfg(test)]
mod tests;
