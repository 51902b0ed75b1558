//! Removes the directory of a volume. The directory gets another name first, so that nobody waits for the time that its content takes;
//! a killed removal goes on with the next request for the same volume.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api_model::local_path::is_volume_name;
use runtimes_host::{blocking, files};
use tokio::time::timeout;

use super::{Local, entries, project_quota};
use crate::VolumeError;

/// Prefix of a directory that is being removed; its volume's name, a dot and a number that is used once follow.
const REMOVING: &str = ".removing-";
/// How long the requester waits, less than the provisioner does. The work goes on.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);

impl Local {
    /// Removes the directory of a volume with its content. Returns whether there was one.
    pub(crate) async fn remove(&self, name: &str) -> Result<bool, VolumeError> {
        if !is_volume_name(name) {
            return Err(VolumeError::NotAVolume(name.to_owned()));
        }
        let removing = async {
            let alone = Arc::clone(&self.removal).lock_owned().await;
            let (local, name) = (self.clone(), name.to_owned());
            blocking(move || {
                let _alone = alone;
                local.remove_now(&name)
            })
            .await
        };
        timeout(WAIT_MAX, removing).await.unwrap_or_else(|_| Err(VolumeError::NotRemovedYet(self.dir.join(name))))
    }

    fn remove_now(&self, name: &str) -> Result<bool, VolumeError> {
        self.set_aside(name)?;
        let left = self.set_aside_before(name)?;
        for one in &left {
            if let Err(error) = project_quota::release(one) {
                tracing::warn!(error = %error, "the limits of a volume's project stay");
            }
            remove_tree(one)?;
        }
        Ok(!left.is_empty())
    }

    /// Renames the directory, unless a Pod uses it, and removes its record. The record goes before the content does: after a kill in
    /// between, the renamed directory says that the removal began.
    fn set_aside(&self, name: &str) -> Result<(), VolumeError> {
        let path = self.dir.join(name);
        let path_lock = self.path_lock(&path);
        let Some(_guard) = path_lock.try_lock() else { return Err(VolumeError::Busy(path)) };
        if self.is_used(&path)? {
            return Err(VolumeError::InUse(path));
        }
        let before = self.set_aside_before(name)?;
        let aside = self.dir.join(format!("{REMOVING}{name}.{}", api_model::meta::new_uid()));
        match fs::rename(&path, &aside) {
            Ok(()) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(VolumeError::io("removing", &path)(error)),
            Err(_) if before.is_empty() && self.is_recorded(name)? => return Err(VolumeError::Lost(path)),
            Err(_) => {}
        }
        self.remove_record(name)
    }

    /// What this removal or an earlier one renamed.
    fn set_aside_before(&self, name: &str) -> Result<Vec<PathBuf>, VolumeError> {
        let prefix = format!("{REMOVING}{name}.");
        let is_of_volume = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix));
        Ok(entries(&self.dir)?.into_iter().filter(is_of_volume).collect())
    }
}

fn remove_tree(dir: &Path) -> Result<(), VolumeError> {
    match files::remove_tree(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(VolumeError::io("removing", dir)(error)),
        _ => Ok(()),
    }
}
