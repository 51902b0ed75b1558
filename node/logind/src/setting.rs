//! The file in which a node says how long locks may delay a shutdown (`logind.conf(5)`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::LogindError;

/// The directory of the machine's own settings.
const DIR: &str = "/etc/systemd/logind.conf.d";
/// Everybody may read the settings of logind.
const PUBLIC: u32 = 0o644;

/// One file.
pub(crate) struct Setting {
    path: PathBuf,
}

impl Setting {
    pub(crate) fn new(name: &str) -> Self {
        Self { path: Path::new(DIR).join(format!("{name}.conf")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) async fn write(&self, delay: Duration) -> Result<(), LogindError> {
        let text = text(delay);
        self.change("node-logind/write-setting", move |path| {
            std::fs::create_dir_all(DIR)?;
            api_files::write_atomic(path, text.as_bytes(), PUBLIC)
        })
        .await
    }

    /// Succeeds when there is no such file.
    pub(crate) async fn remove(&self) -> Result<(), LogindError> {
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        self.change("node-logind/remove-setting", move |path| match std::fs::remove_file(path) {
            Err(error) if !absent(&error) => Err(error),
            _ => Ok(()),
        })
        .await
    }

    async fn change(&self, task: &'static str, change: impl FnOnce(&Path) -> io::Result<()> + Send + 'static) -> Result<(), LogindError> {
        let path = self.path.clone();
        let changed = api_tasks::blocking(task, move || change(&path)).await;
        let changed = changed.unwrap_or_else(|_| Err(io::Error::other("the change was interrupted")));
        changed.map_err(|source| LogindError::Setting { path: self.path.clone(), source })
    }
}

/// logind's unit is the second.
fn text(delay: Duration) -> String {
    let seconds = delay.as_millis().div_ceil(1_000);
    format!("# Skiff has written this file because of its flags --shutdown-grace-period*.\n[Login]\nInhibitDelayMaxSec={seconds}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_a_whole_one() {
        assert!(text(Duration::from_millis(29_001)).ends_with("[Login]\nInhibitDelayMaxSec=30\n"));
    }
}
