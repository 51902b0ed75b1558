//! Restores a backup.
//!
//! Clients remember revisions of the replaced state. If the log continued at the end of the backup, it would give these
//! revisions to other writes. A watch that resumes from such a revision would then miss the writes since the backup
//! without notice. So the restored log continues beyond every revision that clients can have received, and has no
//! history. A client with an older revision gets the error that it is too old (410 Gone) and lists again. Objects keep
//! their revisions of the backup.
//!
//! The present database has the end of its log. But it may be lost, and the same backup may be restored a second time.
//! So the clock counts too: a log that starts later starts at a greater revision.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use api_files::sync_parent;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::super::open::{self, failed};
use super::super::{signed, unsigned, wal};
use super::{Backup, beside, check, close, copy, io, open_existing, refused};
use crate::{Revision, StoreError};

/// How far the log jumps: more revisions than a server writes between a backup and its restore. The documentation of
/// etcd's own tool has the same number.
const JUMP: Revision = 1_000_000_000;
/// Revisions for each second of the clock: more than a server writes in a second.
const REVISIONS_PER_SECOND: Revision = 100_000;

/// Replaces a database by a backup of it. An existing database is kept beside it as `….replaced`. `now` is the time of
/// the restore.
///
/// # Errors
/// [`StoreError::InUse`] while a server uses the database, [`StoreError::File`] if the backup is damaged or the present
/// database cannot be read, [`StoreError::Newer`] if a newer version wrote the backup. Then nothing has changed.
pub async fn restore(from: &Path, path: &Path, now: SystemTime) -> Result<Backup, StoreError> {
    let lock = open::lock(path)?;
    let health = check(from).await?;
    if let Some(problem) = health.problems.first() {
        return Err(refused(from, &format!("is damaged: {problem}")));
    }
    let present = settle(path).await?;
    let revision = first_revision(health.revision.max(present.unwrap_or_default()), now);
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

/// The first revision of the restored log: the revision of the clock, which is beyond the start of an earlier restore
/// and the writes since. If the clock is behind the present log, the first revision is a jump beyond that log. The jump
/// is not added to the clock: a later restore that does not know of this one would start before it.
fn first_revision(handed_out: Revision, now: SystemTime) -> Revision {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let by_the_clock = seconds.saturating_mul(REVISIONS_PER_SECOND);
    if by_the_clock > handed_out { by_the_clock } else { handed_out.saturating_add(JUMP) }
}

/// Moves everything of the present database into its one file. Returns the revision, or `None` if there is no database.
/// A database that cannot be read is not changed: its write-ahead log may contain acknowledged writes, and its owner
/// must decide.
async fn settle(path: &Path) -> Result<Option<Revision>, StoreError> {
    let log = wal::path(path);
    if !path.exists() {
        return match log.exists() {
            true => Err(refused(&log, "is the write-ahead log of a database that is not there; move it away, then restore again")),
            false => Ok(None),
        };
    }
    let read = async {
        let mut present = open_existing(path).await?;
        let head = sqlx::query_scalar::<_, i64>(open::HEAD).fetch_one(&mut present).await;
        // SQLite moves the write-ahead log into the file when the last connection closes.
        close(present, path).await?;
        head.map(unsigned).map_err(|source| failed(path, "reading", source))
    };
    let advice = format!("move it and {} away, then restore again", log.display());
    let head = read.await.map_err(|error| refused(path, &format!("cannot be read and is kept ({error}); {advice}")))?;
    if wal::has_content(&log) {
        return Err(refused(path, &format!("has a write-ahead log that another process uses, or that cannot be moved into it; {advice}")));
    }
    Ok(Some(head))
}

/// Deletes everything but the current rows, and makes the log continue at `revision`.
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

/// At every moment there is a whole database with that name, the old one or the new one.
fn replace(restoring: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::File::open(restoring)?.sync_all()?;
    if path.exists() {
        let replaced = beside(path, "replaced");
        remove_if_there(&replaced)?;
        std::fs::hard_link(path, &replaced)?;
    }
    // Both belong to the old file and are empty since `settle`. SQLite leaves them if another process has the old file
    // open.
    for beside in [wal::path(path), path.with_extension("db-shm")] {
        remove_if_there(&beside)?;
    }
    std::fs::rename(restoring, path)?;
    sync_parent(path)
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
