//! Rotation of container logs, as upstream: the file is renamed to `<n>.log.<time>`, the runtime reopens the log, and the
//! oldest files are removed.

use std::io;
use std::path::{Path, PathBuf};

use runtimes_contract::{ContainerId, Runtime, RuntimeError};
use thiserror::Error;

/// Why a log was not rotated.
#[derive(Debug, Error)]
pub(crate) enum RotateError {
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Whether a log has grown to the limit. Blocks.
pub(crate) fn is_due(log: &Path, size_bytes_max: u64) -> Result<bool, RotateError> {
    match std::fs::metadata(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => Ok(other.map_err(failed(log))?.len() >= size_bytes_max),
    }
}

/// Rotates a log.
pub(crate) async fn rotate(runtime: &dyn Runtime, id: &ContainerId, log: &Path, files_max: usize) -> Result<(), RotateError> {
    let stamp = api_clock::now().strftime("%Y%m%d-%H%M%S").to_string();
    let mut rotated = log.as_os_str().to_owned();
    rotated.push(format!(".{stamp}"));
    let rotated = PathBuf::from(rotated);
    tokio::fs::rename(log, &rotated).await.map_err(failed(&rotated))?;
    if let Err(error) = runtime.reopen_log(id).await {
        // The container still writes to the renamed file: give it its name back.
        tokio::fs::rename(&rotated, log).await.map_err(failed(log))?;
        return Err(error.into());
    }
    // The current file counts too.
    let old = rotated_files(log).map_err(failed(log))?;
    for path in old.iter().take(old.len().saturating_sub(files_max.saturating_sub(1))) {
        tokio::fs::remove_file(path).await.map_err(failed(path))?;
    }
    Ok(())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RotateError {
    let path = path.to_owned();
    move |error| RotateError::File { path, error }
}

/// Rotated files of a log, the oldest first.
pub(crate) fn rotated_files(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else { return Ok(Vec::new()) };
    let prefix = format!("{name}.");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
