//! Putting a backup back.
//!
//! Clients remember revisions of the state that is replaced. Were the log to go on where the backup
//! ends, it would give these numbers to other writes: a watch that resumes from one would miss what
//! happened since the backup, and never know. So the restored log goes on beyond every revision that
//! can have been handed out, and has no history: whoever comes with an older revision is told that it
//! is too old (410 Gone) and lists anew. Objects keep the revisions that they had in the backup.

use std::path::Path;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::super::open::{self, failed};
use super::super::{signed, unsigned};
use super::{Backup, beside, check, close, copy, io, open_existing, refused, sync_directory};
use crate::{Revision, StoreError};

/// How far the log jumps: more than a server writes between a backup and its restoring. The number is
/// the one that etcd's own tool is documented with.
const JUMP: Revision = 1_000_000_000;

/// Replaces a database by a backup of it. The present one, if any, is kept beside it as `….replaced`.
///
/// # Errors
/// [`StoreError::InUse`] while a server runs on it, [`StoreError::File`] when the backup is damaged,
/// [`StoreError::Newer`] when a newer version made it; then nothing has changed.
pub async fn restore(from: &Path, path: &Path) -> Result<Backup, StoreError> {
    let lock = open::lock(path)?;
    let health = check(from).await?;
    if let Some(problem) = health.problems.first() {
        return Err(refused(from, &format!("is damaged: {problem}")));
    }
    let present = settle(path).await;
    let revision = health.revision.max(present.unwrap_or_default()).saturating_add(JUMP);
    let restoring = beside(path, "restoring");
    let mut backup = open_existing(from).await?;
    copy(&mut backup, from, &restoring).await?;
    close(backup, from).await?;
    let mut restored = open_existing(&restoring).await?;
    let started = start_history(&mut restored, revision).await;
    started.map_err(|source| failed(&restoring, "preparing", source))?;
    close(restored, &restoring).await?;
    let bytes = std::fs::metadata(&restoring).map_err(|source| io("reading", &restoring, source))?.len();
    replace(&restoring, path).map_err(|source| io("replacing", path, source))?;
    drop(lock);
    Ok(Backup { revision, entries: health.entries, bytes })
}

/// Brings everything of the present database into its one file; answers its revision. It may be just
/// what is wrong that it cannot be read: then it is put aside as it is.
async fn settle(path: &Path) -> Option<Revision> {
    let settled = async {
        let mut present = open_existing(path).await.ok()?;
        let head = sqlx::query_scalar::<_, i64>(open::HEAD).fetch_one(&mut present).await.ok();
        // Closing the last connection moves the write-ahead log into the file.
        let closed = present.close().await;
        head.filter(|_| closed.is_ok())
    };
    settled.await.map(unsigned)
}

/// Keeps what is current and nothing else, and has the log go on from that revision.
async fn start_history(database: &mut SqliteConnection, revision: Revision) -> Result<(), sqlx::Error> {
    let mut transaction = database.begin().await?;
    for statement in
        ["DELETE FROM log WHERE revision IN (SELECT previous FROM log WHERE previous IS NOT NULL)", "DELETE FROM log WHERE value IS NULL"]
    {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    sqlx::query("UPDATE meta SET value = ? WHERE name = 'compacted'").bind(signed(revision)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    sqlx::query("VACUUM").execute(database).await.map(drop)
}

/// At every moment there is a whole database of that name, the old one or the new one.
fn replace(restoring: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::File::open(restoring)?.sync_all()?;
    if path.exists() {
        let replaced = beside(path, "replaced");
        remove_if_there(&replaced)?;
        std::fs::hard_link(path, &replaced)?;
    }
    // They belong to the old file and would be read into the new one.
    for extension in ["db-wal", "db-shm"] {
        remove_if_there(&path.with_extension(extension))?;
    }
    std::fs::rename(restoring, path)?;
    sync_directory(path)
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
