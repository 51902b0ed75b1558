//! The volumes of a Pod as directories and files of the node. The input is a Pod and a [`Source`] of the objects that its
//! volumes name; the output is the paths that containers mount ([`Volumes::mounts`]). One file a volume kind, each behind
//! [`kind::VolumeKind`]. The crate does not call the API and does not know runtimes; its caller decides when to set up, refresh
//! and tear down.
//!
//! Everything of a Pod is under `<root>/<Pod UID>/`, in the layout of upstream's kubelet: `volumes/kubernetes.io~<kind>/<name>`
//! `volumeDevices/kubernetes.io~local-volume/<name>` and `volume-subpaths/<name>/<container>/<index>`. So what a killed agent left is found by UID alone.

mod block;
mod config_map;
mod downward;
mod empty_dir;
mod error;
mod host_path;
mod huge_pages;
mod image;
pub mod kind;
mod kinds;
mod link;
mod local;
mod mount_table;
mod ownership;
mod payload;
mod persistent;
mod projected;
mod secret;
mod shared_read;
mod source;
mod sub_path;
mod tree;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PersistentVolume, Pod, Volume, VolumeMount};
use runtimes_contract::{Device, Mount, Propagation};
use runtimes_host::blocking;

pub use downward::{FieldError, metadata_field, resource_field};
pub use error::{ClaimFault, VolumeError};
pub use source::{Source, SourceError, Token, TokenAsk};

use crate::empty_dir::EmptyDirVolume;
use crate::kind::{Context, VolumeKind as _};
use crate::kinds::kind_of_volume;
use crate::local::Local;
use crate::persistent::PersistentVolumeKind;

/// The node's amounts for containers without limits, which `resourceFieldRef` uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes of memory, without those of huge pages.
    pub memory_bytes: i64,
    /// Bytes of local storage.
    pub ephemeral_storage_bytes: i64,
}

/// A `subPathExpr` names a variable that the container does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable(pub String);

/// The volumes of all Pods of a node, under one directory.
#[derive(Clone, Debug)]
pub struct Volumes {
    root: PathBuf,
    local: Local,
}

impl Volumes {
    /// Volumes under `root`, which is created when it is first needed. `local` has the directories of the volumes that Skiff's
    /// provisioner made; `records` has a file for each of them and is not on the same disk, if `local` has one of its own.
    pub fn new(root: impl Into<PathBuf>, local: impl Into<PathBuf>, records: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { local: Local::new(local.into(), records.into(), root.clone()), root }
    }

    /// The directory of everything of a Pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root.join(uid)
    }

    /// The Pod's `emptyDir` volumes on the node's disk, with the directory of each.
    pub fn empty_dirs(&self, pod: &Pod) -> Vec<(String, PathBuf)> {
        let Ok(dir) = uid(pod).map(|uid| self.pod_dir(uid)) else { return Vec::new() };
        let on_disk = spec_volumes(pod).iter().filter(|volume| empty_dir::is_on_disk(volume));
        on_disk.map(|volume| (volume.name.clone(), EmptyDirVolume.path(&dir, volume))).collect()
    }

    /// The directory of one `emptyDir` volume of the Pod, on the disk or in memory; `None` when the Pod has no such volume.
    pub fn empty_dir(&self, pod: &Pod, name: &str) -> Option<PathBuf> {
        let volume = spec_volumes(pod).iter().find(|volume| volume.name == name && volume.empty_dir.is_some())?;
        Some(EmptyDirVolume.path(&self.pod_dir(uid(pod).ok()?), volume))
    }

    /// The Pod's volumes that are claims, with what is behind each. Those that are not set up yet are missing. Blocks.
    pub fn claims(&self, pod: &Pod) -> Vec<ClaimVolume> {
        let Ok(dir) = uid(pod).map(|uid| self.pod_dir(uid)) else { return Vec::new() };
        let claims = spec_volumes(pod).iter().filter(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
        let behind = |volume: &Volume| {
            let path = PersistentVolumeKind.target(PersistentVolumeKind.path(&dir, volume)).ok()?;
            Some(ClaimVolume { volume: volume.name.clone(), claim: persistent::claim_name(pod, volume).0, path })
        };
        claims.filter_map(behind).collect()
    }

    /// The `image` volumes that a container mounts, with the directory of each.
    pub fn images<'a>(&self, pod: &'a Pod, container: &Container) -> Vec<(&'a Volume, PathBuf)> {
        let Ok(dir) = uid(pod).map(|uid| self.pod_dir(uid)) else { return Vec::new() };
        let is_mounted = |volume: &Volume| container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name);
        let images = spec_volumes(pod).iter().filter(|volume| volume.image.is_some() && is_mounted(volume));
        images.map(|volume| (volume, image::ImageVolume.path(&dir, volume))).collect()
    }

    /// Sets up each volume of the Pod, or updates it; idempotent, also after a kill in the middle. Returns when to call it
    /// again at the latest because a token must be rotated. The failure of one volume does not stop the others: a ConfigMap
    /// that was deleted must not stop the rotation of a running Pod's token. The error is the first one. `memory_limit_bytes` is the limit
    /// of the Pod's cgroup.
    pub async fn set_up(
        &self,
        pod: &Pod,
        allocatable: Allocatable,
        memory_limit_bytes: Option<u64>,
        source: &dyn Source,
    ) -> Result<Option<Timestamp>, VolumeError> {
        let context = Context::new(self.pod_dir(uid(pod)?), pod, allocatable, memory_limit_bytes, source, self.local.clone());
        let (mut again, mut failed): (Option<Timestamp>, Option<VolumeError>) = (None, None);
        for volume in spec_volumes(pod) {
            match set_up_one(&context, volume).await {
                Ok(next) => {
                    again = match (again, next) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(again), Err)
    }

    /// The mounts of one container, parents before children. The volumes must be set up. `expand` replaces `$(NAME)` in a
    /// `subPathExpr`, or returns the unknown name.
    pub async fn mounts(
        &self,
        pod: &Pod,
        container: &Container,
        expand: &(dyn Fn(&str) -> Result<String, UnknownVariable> + Sync),
    ) -> Result<Vec<Mount>, VolumeError> {
        let dir = self.pod_dir(uid(pod)?);
        let mut mounts = Vec::new();
        for (index, wanted) in container.volume_mounts.iter().flatten().enumerate() {
            let volume = spec_volumes(pod)
                .iter()
                .find(|volume| volume.name == wanted.name)
                .ok_or_else(|| VolumeError::NoSuchVolume { volume: wanted.name.clone(), container: container.name.clone() })?;
            let kind = kind_of_volume(volume)?;
            let path = kind.path(&dir, volume);
            let path = blocking(move || kind.target(path)).await.map_err(|error| error.in_volume(&volume.name))?;
            let sub = sub_path_of(wanted, expand)?;
            let source = match sub {
                None => path,
                Some(sub) => {
                    let at = dir.join("volume-subpaths").join(&volume.name).join(&container.name).join(index.to_string());
                    blocking(move || sub_path::bind(&path, &sub, &at)).await.map_err(|error| error.in_volume(&volume.name))?
                }
            };
            let read_only = wanted.read_only.unwrap_or(false) || kind.read_only(volume);
            let propagation = match wanted.mount_propagation.as_deref() {
                Some("HostToContainer") => Propagation::FromNode,
                Some("Bidirectional") => Propagation::BothWays,
                _ => Propagation::Private,
            };
            let recursive_read_only = read_only && asks_for_recursive_read_only(wanted);
            let mount = Mount::new(source, &wanted.mount_path, read_only);
            mounts.push(Mount { propagation, recursive_read_only, no_exec: kind.no_exec(), ids_mapped: kind.ids_mapped(), ..mount });
        }
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }

    /// The block devices of one container. The volumes must be set up.
    pub async fn devices(&self, pod: &Pod, container: &Container) -> Result<Vec<Device>, VolumeError> {
        if container.volume_devices.iter().flatten().next().is_none() {
            return Ok(Vec::new());
        }
        let (dir, pod, container) = (self.pod_dir(uid(pod)?), pod.clone(), container.clone());
        blocking(move || block::devices(&dir, &pod, &container)).await
    }

    /// The shared memory of a Pod, one for all its containers, because they share one IPC namespace. The first call creates it.
    pub async fn shared_memory(&self, uid: &str) -> Result<PathBuf, VolumeError> {
        /// Containers of one Pod start at the same time; two mounts would be two memories.
        static MOUNTING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
        let at = self.pod_dir(uid).join("shm");
        blocking(move || {
            let _alone = MOUNTING.lock();
            std::fs::create_dir_all(&at).map_err(VolumeError::io("making", &at))?;
            if !mount_table::is_mount_point(&at)? {
                mount_table::mount_shared_memory(&at)?;
            }
            Ok(at)
        })
        .await
    }

    /// Whether the capacity of the volumes that Skiff's provisioner makes is enforced. Their directory must exist. Blocks.
    pub fn enforces_capacity(&self) -> Result<bool, VolumeError> {
        self.local.enforces_capacity()
    }

    /// Sees to it that a volume that Skiff's provisioner made has a directory with the capacity of the object, where capacities are enforced.
    /// A limit that is higher already stays. It refuses while a Pod is being connected to the volume. What takes longer than 20 s goes on
    /// after the error.
    pub async fn grow_local(&self, volume: PersistentVolume) -> Result<(), VolumeError> {
        persistent::grow(volume, self.local.clone()).await
    }

    /// Removes the directory of a volume that Skiff's provisioner made, by the volume's name. Returns whether there was one. It
    /// refuses while a Pod of this node uses it. A removal that takes longer than 20 s goes on after the error.
    pub async fn remove_local(&self, name: &str) -> Result<bool, VolumeError> {
        self.local.remove(name).await
    }

    /// Unmounts and removes everything of a Pod; no error when it has nothing.
    pub async fn tear_down(&self, uid: &str) -> Result<(), VolumeError> {
        let dir = self.pod_dir(uid);
        if uid.is_empty() || uid.contains(['/', '\0']) || uid.starts_with('.') {
            return Err(VolumeError::NotAUid(uid.to_owned()));
        }
        blocking(move || remove_tree(&dir)).await
    }

    /// The UIDs of Pods that have something here.
    pub async fn pods(&self) -> Result<Vec<String>, VolumeError> {
        let root = self.root.clone();
        blocking(move || {
            let entries = match std::fs::read_dir(&root) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
                other => other.map_err(VolumeError::io("listing", &root))?,
            };
            let mut uids = Vec::new();
            for entry in entries {
                let entry = entry.map_err(VolumeError::io("listing", &root))?;
                uids.extend(entry.file_name().into_string().ok());
            }
            uids.sort();
            Ok(uids)
        })
        .await
    }
}

/// A volume of a Pod that is a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimVolume {
    /// The volume's name in the Pod.
    pub volume: String,
    /// The name of the PersistentVolumeClaim, in the Pod's namespace.
    pub claim: String,
    /// The directory or file of the node.
    pub path: PathBuf,
}

/// Whether the files of a volume are huge pages, which only memory maps can write.
pub fn is_of_huge_pages(volume: &Volume) -> bool {
    volume.empty_dir.as_ref().and_then(|source| source.medium.as_deref()).is_some_and(huge_pages::is_medium)
}

/// Whether what is mounted below a volume shall be read-only in the container too, if the node can.
pub fn asks_for_recursive_read_only(mount: &VolumeMount) -> bool {
    matches!(mount.recursive_read_only.as_deref(), Some("Enabled" | "IfPossible"))
}

async fn set_up_one(context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
    let kind = kind_of_volume(volume)?;
    kind.set_up(context, volume).await.map_err(|error| error.in_volume(&volume.name))
}

/// The parts of a Pod's directory, and how far below each the mounts of volumes are.
const LEVELS_OF_MOUNTS: [(&str, usize); 4] = [("volumes", 2), ("volumeDevices", 2), ("volume-subpaths", 3), ("shm", 0)];

/// Unmounts what is mounted below a Pod's directory, then removes the directory. Never enters a mount.
fn remove_tree(dir: &Path) -> Result<(), VolumeError> {
    // The kernel writes a table of all mounts of the node, so it is read only when something is mounted deeper.
    LEVELS_OF_MOUNTS.iter().try_for_each(|(part, level)| unmount_at(&dir.join(part), *level))?;
    match remove_if_present(dir) {
        Err(error) if matches!(error.raw_os_error(), Some(nix::libc::EXDEV | nix::libc::EBUSY)) => {}
        done => return done.map_err(VolumeError::io("removing", dir)),
    }
    unmount_below(dir)?;
    if let Some(left) = mount_table::below(dir)?.first() {
        return Err(VolumeError::StillMounted(left.clone()));
    }
    remove_if_present(dir).map_err(VolumeError::io("removing", dir))
}

fn remove_if_present(dir: &Path) -> std::io::Result<()> {
    match runtimes_host::files::remove_tree(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Unmounts what is mounted at that level below a directory. The levels above are directories that only this crate writes.
fn unmount_at(dir: &Path, level: usize) -> Result<(), VolumeError> {
    let Some(level_below) = level.checked_sub(1) else { return mount_table::unmount(dir) };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => return Ok(()),
        other => other.map_err(VolumeError::io("listing", dir))?,
    };
    entries.into_iter().try_for_each(|entry| unmount_at(&entry.map_err(VolumeError::io("listing", dir))?.path(), level_below))
}

/// Unmounts what is mounted at or below a directory, the deepest first. Blocks.
pub fn unmount_below(dir: &Path) -> Result<(), VolumeError> {
    mount_table::below(dir)?.iter().rev().try_for_each(|mount| mount_table::unmount(mount))
}

fn sub_path_of(
    wanted: &VolumeMount,
    expand: &(dyn Fn(&str) -> Result<String, UnknownVariable> + Sync),
) -> Result<Option<PathBuf>, VolumeError> {
    let text = match (&wanted.sub_path_expr, &wanted.sub_path) {
        (Some(expression), _) if !expression.is_empty() => {
            expand(expression).map_err(|UnknownVariable(name)| VolumeError::UnknownVariable(name))?
        }
        (_, Some(path)) => path.clone(),
        _ => String::new(),
    };
    Ok(Some(text).filter(|text| !text.is_empty()).map(PathBuf::from))
}

fn spec_volumes(pod: &Pod) -> &[Volume] {
    pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
}

fn uid(pod: &Pod) -> Result<&str, VolumeError> {
    pod.metadata.uid.as_deref().filter(|uid| !uid.is_empty()).ok_or_else(|| VolumeError::NotAUid(String::new()))
}

#[cfg(test)]
mod tests;
