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

/// Rotates a log that has grown over the limit.
pub(crate) async fn rotate(
    runtime: &dyn Runtime,
    id: &ContainerId,
    log: &Path,
    size_bytes_max: u64,
    files_max: usize,
) -> Result<(), RotateError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| RotateError::File { path, error }
    };
    let size = match tokio::fs::metadata(log).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed(log))?.len(),
    };
    if size < size_bytes_max {
        return Ok(());
    }
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
