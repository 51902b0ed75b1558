//! Claims whose volume is a block device (`volumeMode: Block`): a container gets the device itself, at a path that it chooses.
//!
//! What the Pod has below its own directory is a symbolic link to the device, as for directories, in a tree of its own: nothing measures
//! or mounts a device.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PersistentVolume, Pod, Volume};
use runtimes_contract::Device;

use crate::error::ClaimFault;
use crate::kind::claim_is_read_only;
use crate::local::NAME;
use crate::{VolumeError, link, spec_volumes};

/// How the containers of a Pod use a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    is_mounted: bool,
    is_device: bool,
}

impl Usage {
    /// Of a volume of the Pod, in all of its containers.
    pub(crate) fn of(pod: &Pod, volume: &str) -> Self {
        let spec = pod.spec.as_ref();
        let usual = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let usual = usual.map(|container| (&container.volume_mounts, &container.volume_devices));
        let added = spec.into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
        let added = added.map(|container| (&container.volume_mounts, &container.volume_devices));
        let (mut is_mounted, mut is_device) = (false, false);
        for (mounts, devices) in usual.chain(added) {
            is_mounted |= mounts.iter().flatten().any(|mount| mount.name == volume);
            is_device |= devices.iter().flatten().any(|device| device.name == volume);
        }
        Self { is_mounted, is_device }
    }

    /// Whether the volume has the mode for that.
    pub(crate) fn check(self, volume: &str, persistent: &PersistentVolume) -> Result<(), ClaimFault> {
        let (mode, field) = match (is_block(persistent), self) {
            (true, Self { is_mounted: true, .. }) => ("Block", "volumeMounts"),
            (false, Self { is_device: true, .. }) => ("Filesystem", "volumeDevices"),
            _ => return Ok(()),
        };
        Err(ClaimFault::Mode { volume: volume.to_owned(), mode, field })
    }
}

/// Whether the volume is a device and not a directory.
pub(crate) fn is_block(persistent: &PersistentVolume) -> bool {
    persistent.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
}

/// Where the link to the device of a volume is, in the layout of upstream's kubelet.
pub(crate) fn device_link(pod_dir: &Path, volume: &Volume) -> PathBuf {
    pod_dir.join("volumeDevices").join(format!("kubernetes.io~{NAME}")).join(&volume.name)
}

/// Checks the device and links to it.
pub(crate) fn connect(persistent: &PersistentVolume, path: &Path, link: &Path) -> Result<(), VolumeError> {
    if persistent.spec.as_ref().is_some_and(|spec| spec.host_path.is_some()) {
        return Err(VolumeError::Unsupported("hostPath has no block devices; use a local volume".to_owned()));
    }
    check(path)?;
    link::make(path, link)
}

fn check(path: &Path) -> Result<(), VolumeError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(()),
        Ok(_) => Err(VolumeError::NotABlockDevice(path.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(VolumeError::NoLocalPath(path.to_owned())),
        Err(error) => Err(VolumeError::io("reading", path)(error)),
    }
}

/// The devices of one container. The volumes must be set up. Blocks.
pub(crate) fn devices(pod_dir: &Path, pod: &Pod, container: &Container) -> Result<Vec<Device>, VolumeError> {
    let device = |wanted: &k8s_openapi::api::core::v1::VolumeDevice| {
        let volume = spec_volumes(pod).iter().find(|volume| volume.name == wanted.name);
        let no_such = || VolumeError::NoSuchVolume { volume: wanted.name.clone(), container: container.name.clone() };
        let volume = volume.ok_or_else(no_such)?;
        let source = link::read(&device_link(pod_dir, volume)).map_err(|error| error.in_volume(&volume.name))?;
        // It may have gone since the Pod was set up, and something else may be at its path.
        check(&source).map_err(|error| error.in_volume(&volume.name))?;
        let access = if claim_is_read_only(volume) { "r" } else { "rwm" };
        Ok(Device { source, target: PathBuf::from(&wanted.device_path), access: access.to_owned() })
    };
    container.volume_devices.iter().flatten().map(device).collect()
}
