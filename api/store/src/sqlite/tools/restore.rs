//! Putting a backup back.
//!
//! Clients remember revisions of the state that is replaced. Were the log to go on where the backup
//! ends, it would give these numbers to other writes: a watch that resumes from one would miss what
//! happened since the backup, and never know. So the restored log goes on beyond every revision that
//! can have been handed out, and has no history: whoever comes with an older revision is told that it
//! is too old (410 Gone) and lists anew. Objects keep the revisions that they had in the backup.
//!
//! The present database says how far its log is, but it may be gone, and the same backup may be restored
//! a second time. So the clock counts too: a log that is started later is started further on.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use api_files::sync_parent;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::super::open::{self, failed};
use super::super::{signed, unsigned, wal};
use super::{Backup, beside, check, close, copy, io, open_existing, refused};
use crate::{Revision, StoreError};

/// How far the log jumps: more than a server writes between a backup and its restoring. The number is
/// the one that etcd's own tool is documented with.
const JUMP: Revision = 1_000_000_000;
/// Revisions for each second of the clock: more than a server writes in a second.
const REVISIONS_PER_SECOND: Revision = 100_000;

/// Replaces a database by a backup of it. The present one, if any, is kept beside it as `….replaced`.
/// `now` is the time of the restore.
///
/// # Errors
/// [`StoreError::InUse`] while a server runs on it, [`StoreError::File`] when the backup is damaged or the
/// present database cannot be read, [`StoreError::Newer`] when a newer version made the backup; then
/// nothing has changed.
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

/// Where the restored log goes on: where the clock says, which is beyond where an earlier restore began and what a
/// server has written since. A clock that is behind what was handed out says nothing; a jump has to do then. The jump is
/// not added to the clock: a later restore that knows nothing of this one would begin before it.
fn first_revision(handed_out: Revision, now: SystemTime) -> Revision {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let by_the_clock = seconds.saturating_mul(REVISIONS_PER_SECOND);
    if by_the_clock > handed_out { by_the_clock } else { handed_out.saturating_add(JUMP) }
}

/// Brings everything of the present database into its one file; answers its revision, or `None` when there
/// is no database. What cannot be read is not touched: its write-ahead log may hold answered writes, which
/// its owner decides about.
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
        // Closing the last connection moves the write-ahead log into the file.
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
    // Both are of the old file and without content since it was settled: SQLite leaves them where another
    // process has the old file open.
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
