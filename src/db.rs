//! `skiff db`: copies of the database, and checks of its state.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::bail;
use api_store::{backup, check, restore};

use crate::cli::{DataDirArgs, Db};
use crate::say;
use crate::store::DATABASE;

/// Runs one of the commands and prints the result.
pub async fn run(command: Db) -> anyhow::Result<()> {
    match command {
        Db::Backup { data_dir, file } => {
            let made = backup(&database(&data_dir), &file).await?;
            say::line(format_args!(
                "{} holds {} objects as of revision {} ({} bytes)",
                file.display(),
                made.entries,
                made.revision,
                made.bytes
            ));
            Ok(())
        }
        Db::Restore { data_dir, file } => {
            let path = database(&data_dir);
            let existed = path.exists();
            let restored = restore(&file, &path, SystemTime::now()).await?;
            say::line(format_args!("restored {} objects; the log goes on at revision {}", restored.entries, restored.revision));
            if existed {
                say::line(format_args!("the database that was there is now {}.replaced", path.display()));
            }
            Ok(())
        }
        Db::Check { data_dir, file } => say(&file.unwrap_or_else(|| database(&data_dir))).await,
    }
}

async fn say(path: &Path) -> anyhow::Result<()> {
    let health = check(path).await?;
    for problem in &health.problems {
        say::line(problem);
    }
    if !health.problems.is_empty() {
        bail!("{} is damaged: restore a backup with `skiff db restore`", path.display());
    }
    say::line(format_args!("{} is whole", path.display()));
    say::line(format_args!("revision   {}, watches may resume after {}", health.revision, health.compacted));
    say::line(format_args!("objects    {} of {} bytes", health.entries, health.live_bytes));
    say::line(format_args!("history    {} rows", health.history));
    say::line(format_args!("file       {} bytes, {} of them unused", health.bytes, health.free_bytes));
    Ok(())
}

fn database(data_dir: &DataDirArgs) -> PathBuf {
    data_dir.data_dir.join(DATABASE)
}
