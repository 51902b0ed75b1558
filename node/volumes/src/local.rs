//! The directories of volumes that Skiff's own provisioner made: one a PersistentVolume, named like it, below one directory of
//! the node. A directory is made when the first Pod uses its volume, and removed when the provisioner says that the claim is gone.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api_model::local_path::{PROVISIONER, is_volume_name};
use api_model::storage::PROVISIONED_BY;
use k8s_openapi::api::core::v1::PersistentVolume;
use parking_lot::{Mutex, MutexGuard};
use runtimes_host::files;

use crate::VolumeError;

/// The directory of the links to volumes, in the layout of upstream's kubelet.
pub(crate) const NAME: &str = "local-volume";
/// WASM guests and containers of any user may write, as with Rancher's local-path provisioner.
const MODE: u32 = 0o777;
/// Prefix of a directory that is not made completely.
const MAKING: &str = ".making-";
/// Prefix of a directory that is being removed.
const REMOVING: &str = ".removing-";

/// The directories of volumes, and the links of the Pods that use them.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    dir: PathBuf,
    /// The directory of all Pods.
    pods: PathBuf,
    /// A directory is not removed while a Pod is connected to it.
    alone: Arc<Mutex<()>>,
}

impl Local {
    pub(crate) fn new(dir: PathBuf, pods: PathBuf) -> Self {
        Self { dir, pods, alone: Arc::default() }
    }

    /// Nobody else makes or removes directories or links until the guard is dropped. Blocks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.alone.lock()
    }

    /// Makes the directory of a volume of Skiff's provisioner, unless it exists. A local volume of somebody else must exist.
    pub(crate) fn make_if_provisioned(&self, volume: &PersistentVolume, path: &Path) -> Result<(), VolumeError> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let by = volume.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PROVISIONED_BY));
        let is_ours = by.is_some_and(|by| by == PROVISIONER) && is_volume_name(name) && path == self.dir.join(name);
        if !is_ours || path.exists() {
            return Ok(());
        }
        // Complete or not there: after a kill in between, nobody takes a directory with too narrow a mode for a finished one.
        let making = self.dir.join(format!("{MAKING}{name}"));
        fs::create_dir_all(&making).map_err(VolumeError::io("making", &making))?;
        fs::set_permissions(&making, fs::Permissions::from_mode(MODE)).map_err(VolumeError::io("setting the mode of", &making))?;
        fs::rename(&making, path).map_err(VolumeError::io("making", path))
    }

    /// Removes the directory of a volume with its content. No error when there is none. Blocks.
    pub(crate) fn remove(&self, name: &str) -> Result<(), VolumeError> {
        if !is_volume_name(name) {
            return Err(VolumeError::NotAVolume(name.to_owned()));
        }
        let (path, removing) = (self.dir.join(name), self.dir.join(format!("{REMOVING}{name}")));
        let _alone = self.lock();
        if self.is_used(&path)? {
            return Err(VolumeError::InUse(path));
        }
        // What an earlier attempt left.
        remove_tree(&removing)?;
        match fs::rename(&path, &removing) {
            Ok(()) => remove_tree(&removing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(VolumeError::io("removing", &path)(error)),
        }
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

fn remove_tree(dir: &Path) -> Result<(), VolumeError> {
    match files::remove_tree(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(VolumeError::io("removing", dir)(error)),
        _ => Ok(()),
    }
}
