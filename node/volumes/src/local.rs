//! The directories of volumes that Skiff's own provisioner made: one a PersistentVolume, named like it, below one directory of
//! the node. A directory is made when the first Pod uses its volume, or when its capacity is raised, and removed when the provisioner says
//! that the claim is gone.
//!
//! Each directory has a record, an empty file in another directory, from before the first container writes until the removal. A directory
//! that has a record and does not exist was lost, for example because its disk is not mounted. It is not made anew: a database would start
//! empty.

mod project_quota;
mod removal;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api_model::local_path::{PROVISIONER, is_volume_name};
use api_model::storage::PROVISIONED_BY;
use k8s_openapi::api::core::v1::PersistentVolume;
use parking_lot::Mutex;
use runtimes_host::{Keyed, blocking, files};
use tokio::time::timeout;

use crate::VolumeError;

/// The directory of the links to volumes, in the layout of upstream's kubelet.
pub(crate) const NAME: &str = "local-volume";
/// WASM guests and containers of any user may write, as with Rancher's local-path provisioner.
const MODE: u32 = 0o777;
/// Prefix of a directory that is not made completely.
const MAKING: &str = ".making-";

/// The directories of volumes, their records, and the links of the Pods that use them.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    dir: PathBuf,
    records: PathBuf,
    /// The directory of all Pods.
    pods: PathBuf,
    /// The paths that a Pod is being connected to, or that a removal looks at. What one tenant has in a volume takes time, which must not
    /// keep the Pods of others waiting.
    path_locks: Arc<Keyed<PathBuf, Mutex<()>>>,
    /// The number of a project of quotas is chosen for one directory at a time.
    choosing: Arc<Mutex<()>>,
    /// One removal at a time.
    pub(crate) removal: Arc<tokio::sync::Mutex<()>>,
}

impl Local {
    pub(crate) fn new(dir: PathBuf, records: PathBuf, pods: PathBuf) -> Self {
        Self { dir, records, pods, path_locks: Arc::default(), choosing: Arc::default(), removal: Arc::default() }
    }

    /// Whether Skiff's provisioner made the volume. Such a volume has the directory of its name and no other path: a compromised node may
    /// have chosen the path, and another node must not follow it.
    pub(crate) fn is_provisioned(&self, volume: &PersistentVolume, path: &Path) -> Result<bool, VolumeError> {
        let by = volume.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PROVISIONED_BY));
        if by.is_none_or(|by| by != PROVISIONER) {
            return Ok(false);
        }
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let is_local = volume.spec.as_ref().is_some_and(|spec| spec.local.is_some() && spec.host_path.is_none());
        if is_local && is_volume_name(name) && path == self.dir.join(name) {
            return Ok(true);
        }
        Err(VolumeError::ForeignPath { volume: name.to_owned(), path: path.to_owned() })
    }

    /// The lock to connect a Pod to a path, or to remove what is there.
    pub(crate) fn path_lock(&self, path: &Path) -> Arc<Mutex<()>> {
        self.path_locks.get(path, Mutex::default)
    }

    /// Makes the directory of a volume, unless it exists, limits what may be in it, and makes its record. The caller has locked the path.
    /// Blocks.
    pub(crate) fn make(&self, name: &str, capacity_bytes: u64) -> Result<(), VolumeError> {
        let path = self.dir.join(name);
        let is_recorded = self.is_recorded(name)?;
        if !is_directory(&path)? {
            if is_recorded {
                return Err(VolumeError::Lost(path));
            }
            // Complete or not there: after a kill in between, nobody takes a directory with too narrow a mode for a finished one.
            let making = self.dir.join(format!("{MAKING}{name}"));
            fs::create_dir_all(&making).map_err(VolumeError::io("making", &making))?;
            fs::set_permissions(&making, fs::Permissions::from_mode(MODE)).map_err(VolumeError::io("setting the mode of", &making))?;
            // Durable before the record is: after a power cut, a record must not speak of a directory that was never there.
            files::rename(&making, &path).map_err(VolumeError::io("making", &path))?;
        }
        if self.enforces_capacity()? {
            project_quota::limit(&path, name, capacity_bytes, &self.choosing)?;
        }
        if is_recorded { Ok(()) } else { self.write_record(name) }
    }

    /// Whether the capacity of volumes that are made now is enforced. Blocks.
    pub(crate) fn enforces_capacity(&self) -> Result<bool, VolumeError> {
        project_quota::is_enforced(&self.dir)
    }

    /// Makes the directory of a volume with that capacity, or raises that of the directory that exists. It refuses with
    /// [`VolumeError::Busy`] while somebody else works on the directory, and after [`removal::WAIT_MAX`], when the work goes on.
    pub(crate) async fn grow(&self, name: &str, capacity_bytes: u64) -> Result<(), VolumeError> {
        let (local, owned) = (self.clone(), name.to_owned());
        let growing = blocking(move || {
            let path_lock = local.path_lock(&local.dir.join(&owned));
            // The Pod may take long, and the provisioner comes again.
            let Some(_guard) = path_lock.try_lock() else { return Err(VolumeError::Busy(local.dir.join(&owned))) };
            local.make(&owned, capacity_bytes)
        });
        timeout(removal::WAIT_MAX, growing).await.unwrap_or_else(|_| Err(VolumeError::Busy(self.dir.join(name))))
    }

    /// Whether a Pod of this node has a link to the path.
    pub(crate) fn is_used(&self, path: &Path) -> Result<bool, VolumeError> {
        for pod in entries(&self.pods)? {
            for link in entries(&pod.join("volumes").join(format!("kubernetes.io~{}", NAME)))? {
                if fs::read_link(&link).is_ok_and(|target| target == path) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn record(&self, name: &str) -> PathBuf {
        self.records.join(name)
    }

    fn is_recorded(&self, name: &str) -> Result<bool, VolumeError> {
        let record = self.record(name);
        record.try_exists().map_err(VolumeError::io("reading", &record))
    }

    fn write_record(&self, name: &str) -> Result<(), VolumeError> {
        files::private_dir(&self.records).map_err(VolumeError::io("making", &self.records))?;
        let record = self.record(name);
        files::write_atomic(&record, &[], files::PRIVATE).map_err(VolumeError::io("writing", &record))
    }

    /// Durable on return.
    fn remove_record(&self, name: &str) -> Result<(), VolumeError> {
        let record = self.record(name);
        match fs::remove_file(&record).and_then(|()| files::sync_parent(&record)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(VolumeError::io("removing", &record)(error)),
            _ => Ok(()),
        }
    }
}

/// Whether there is a directory; a link to one is none.
fn is_directory(path: &Path) -> Result<bool, VolumeError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(true),
        Ok(_) => Err(VolumeError::LocalType),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(VolumeError::io("reading", path)(error)),
    }
}

/// The paths in a directory; none if it does not exist.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
    match fs::read_dir(dir) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(VolumeError::io("listing", dir))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(VolumeError::io("listing", dir)(error)),
    }
}
