//! The file in which a node says how long locks may delay a shutdown (`logind.conf(5)`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::LogindError;

/// The directory of the machine's own settings.
const DIR: &str = "/etc/systemd/logind.conf.d";
/// Everybody may read the settings of logind.
const PUBLIC: u32 = 0o644;

/// The setting of one node.
pub(crate) struct Setting {
    node: String,
}

impl Setting {
    pub(crate) fn new(node: &str) -> Self {
        Self { node: node.to_owned() }
    }

    /// Replaces the node's file; returns the path of the new one.
    pub(crate) async fn write(&self, delay: Duration) -> Result<PathBuf, LogindError> {
        let seconds = seconds(delay);
        let (file, node) = (Path::new(DIR).join(name(seconds, &self.node)), self.node.clone());
        let written = file.clone();
        change("node-logind/write-setting", move || {
            std::fs::create_dir_all(DIR)?;
            api_files::write_atomic(&file, text(seconds).as_bytes(), PUBLIC)?;
            remove_all_but(Some(&file), &node)
        })
        .await?;
        Ok(written)
    }

    /// Succeeds when there is no such file.
    pub(crate) async fn remove(&self) -> Result<(), LogindError> {
        let node = self.node.clone();
        change("node-logind/remove-setting", move || remove_all_but(None, &node)).await
    }
}

async fn change(task: &'static str, change: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), LogindError> {
    let changed = api_tasks::blocking(task, change).await;
    let changed = changed.unwrap_or_else(|_| Err(io::Error::other("the change was interrupted")));
    changed.map_err(|source| LogindError::Setting { path: DIR.into(), source })
}

/// Removes the files of a node, but for one.
fn remove_all_but(spared: Option<&Path>, node: &str) -> io::Result<()> {
    let entries = match std::fs::read_dir(DIR) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if is_of(&entry.file_name().to_string_lossy(), node) && spared != Some(path.as_path()) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// logind's unit is the second.
fn seconds(delay: Duration) -> u128 {
    delay.as_millis().div_ceil(1_000)
}

/// The last file in the order of their names counts for logind, so that of several nodes the longest delay does.
fn name(seconds: u128, node: &str) -> String {
    format!("99-skiff-{seconds:010}-{node}.conf")
}

fn is_of(file: &str, node: &str) -> bool {
    let rest = file.strip_prefix("99-skiff-").and_then(|rest| rest.strip_suffix(".conf"));
    rest.and_then(|rest| rest.split_once('-')).is_some_and(|(_, of)| of == node)
}

fn text(seconds: u128) -> String {
    format!("# Skiff has written this file because of its flags --shutdown-grace-period*.\n[Login]\nInhibitDelayMaxSec={seconds}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_delay_of_a_machine_is_the_last_file() {
        assert_eq!(seconds(Duration::from_millis(29_001)), 30);
        assert!(text(30).ends_with("[Login]\nInhibitDelayMaxSec=30\n"));
        let (short, long) = (name(30, "skiff"), name(600, "sk12ab"));
        assert_eq!(short, "99-skiff-0000000030-skiff.conf");
        assert!(short < long);
        assert!(is_of(&short, "skiff") && is_of(&long, "sk12ab"));
        for other in [&long, "99-skiff-skiff.conf", "99-kubelet.conf", "0000000030-skiff.conf"] {
            assert!(!is_of(other, "skiff"), "{other}");
        }
    }
}
