//! `persistentVolumeClaim` and `ephemeral` volumes: the directory (or file) of the node behind the claim's PersistentVolume, of
//! source `hostPath` or `local`. Those that are devices are in [`block`].
//!
//! What the Pod has below its own directory is a symbolic link to it. The link is made once: a running Pod needs neither claim
//! nor API server any more, and the links say which Pods use a directory.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use api_model::quantity;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use runtimes_host::blocking;

use crate::block::{self, Usage};
use crate::error::ClaimFault;
use crate::kind::{self, Context, VolumeKind};
use crate::local::{Local, NAME};
use crate::{VolumeError, host_path, link, ownership};

const NANO: u128 = 1_000_000_000;

/// The kind.
pub(crate) struct PersistentVolumeKind;

#[async_trait]
impl VolumeKind for PersistentVolumeKind {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let link = self.path(&context.pod_dir, volume);
        let device_link = block::device_link(&context.pod_dir, volume);
        // Through the link: what it leads to must exist.
        let present = [link.clone(), device_link.clone()];
        if blocking(move || Ok::<_, VolumeError>(present.iter().any(|link| link.exists()))).await? {
            return Ok(None);
        }
        let persistent = resolve(context, volume).await?;
        let path = path_of(&persistent)?;
        if let Some(required) = persistent.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref())
            && !context.source.selects_node(required)
        {
            return Err(VolumeError::NodeAffinity(name_of(&persistent).to_owned()));
        }
        if block::is_block(&persistent) {
            blocking(move || block::connect(&persistent, &path, &device_link)).await?;
            return Ok(None);
        }
        let local = context.local.clone();
        let group = context.fs_group().filter(|_| !kind::claim_is_read_only(volume)).map(|group| (group, context.fs_group_on_mismatch()));
        blocking(move || connect(&persistent, &path, &link, &local, group)).await?;
        Ok(None)
    }

    fn read_only(&self, volume: &Volume) -> bool {
        kind::claim_is_read_only(volume)
    }

    fn target(&self, path: PathBuf) -> Result<PathBuf, VolumeError> {
        link::read(&path)
    }
}

fn name_of(volume: &PersistentVolume) -> &str {
    volume.metadata.name.as_deref().unwrap_or_default()
}

/// The claim's name, and whether it must be the Pod's own.
pub(crate) fn claim_name(pod: &Pod, volume: &Volume) -> (String, bool) {
    match &volume.persistent_volume_claim {
        Some(claim) => (claim.claim_name.clone(), false),
        None => (format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name), true),
    }
}

/// The PersistentVolume behind a volume of the Pod; upstream's checks and words.
async fn resolve(context: &Context<'_>, volume: &Volume) -> Result<PersistentVolume, VolumeError> {
    let namespace = context.namespace();
    let (claim_name, is_own) = claim_name(context.pod, volume);
    let failed = |fault: ClaimFault| VolumeError::Claim {
        volume: volume.name.clone(),
        namespace: namespace.to_owned(),
        claim: claim_name.clone(),
        fault: Box::new(fault),
    };
    let claim = context.source.claim(namespace, &claim_name).await.map_err(|source| failed(ClaimFault::Fetch(source)))?;
    let name = check_claim(&claim).map_err(failed)?;
    if is_own && !owns(context.pod, &claim) {
        let pod = format!("{namespace}/{}", context.pod.metadata.name.as_deref().unwrap_or_default());
        return Err(failed(ClaimFault::NotOwner { claim: format!("{namespace}/{claim_name}"), pod }));
    }
    let persistent = context.source.volume(&name).await;
    let persistent = persistent.map_err(|source| failed(ClaimFault::FetchVolume { volume: name.clone(), source }))?;
    check_volume(&persistent, &claim)
        .and_then(|()| Usage::of(context.pod, &volume.name).check(&volume.name, &persistent))
        .map_err(failed)?;
    Ok(persistent)
}

/// The name of the claim's volume, if it is bound.
fn check_claim(claim: &PersistentVolumeClaim) -> Result<String, ClaimFault> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(ClaimFault::Deleting);
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err(ClaimFault::NotBound);
    }
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    name.filter(|name| !name.is_empty()).ok_or(ClaimFault::NoVolumeName)
}

fn check_volume(persistent: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), ClaimFault> {
    let (name, spec) = (name_of(persistent).to_owned(), persistent.spec.as_ref());
    let Some(reference) = spec.and_then(|spec| spec.claim_ref.as_ref()) else { return Err(ClaimFault::NoReference(name)) };
    if reference.uid != claim.metadata.uid {
        let uid = |uid: &Option<String>| uid.clone().unwrap_or_default();
        return Err(ClaimFault::OtherClaim { volume: name, refers_to: uid(&reference.uid), claim: uid(&claim.metadata.uid) });
    }
    Ok(())
}

fn owns(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let controller = claim.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// The path on the node that a volume stands for.
fn path_of(persistent: &PersistentVolume) -> Result<PathBuf, VolumeError> {
    let spec = persistent.spec.clone().unwrap_or_default();
    let (kind, path) = match (spec.host_path, spec.local) {
        (Some(host), _) => ("host-path", host.path),
        (None, Some(local)) => (NAME, local.path),
        (None, None) => return Err(VolumeError::Unsupported(format!("the source of PersistentVolume {}", name_of(persistent)))),
    };
    if spec.mount_options.is_some_and(|options| !options.is_empty()) {
        return Err(VolumeError::MountOptions { volume: name_of(persistent).to_owned(), kind });
    }
    let path = PathBuf::from(path);
    // The rules of volumes reject such a path; a node does not rely on that.
    if !path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(VolumeError::BadVolumePath(path.display().to_string()));
    }
    Ok(path)
}

/// Makes or checks the directory and links to it. What is on the disk, or behind a mount, may keep this Pod waiting, and others of the
/// same volume, but not those of other volumes.
fn connect(persistent: &PersistentVolume, path: &Path, link: &Path, local: &Local, group: Option<(u32, bool)>) -> Result<(), VolumeError> {
    let is_provisioned = local.is_provisioned(persistent, path)?;
    if let Some(host) = persistent.spec.as_ref().and_then(|spec| spec.host_path.as_ref()) {
        host_path::check(path, host.type_.as_deref().unwrap_or_default())?;
        return link::make(path, link);
    }
    if !is_provisioned {
        check_local(path)?;
    }
    let path_lock = local.path_lock(path);
    let _guard = path_lock.lock();
    if is_provisioned {
        local.make(name_of(persistent), capacity_bytes(persistent)?)?;
    }
    // As upstream, the first Pod sets the group, and others that use the directory at the same time do not change it.
    if let Some((group, on_mismatch)) = group
        && !local.is_used(path)?
        && !(on_mismatch && ownership::is_given(path, group)?)
    {
        ownership::give_to_group(path, group, false)?;
    }
    link::make(path, link)
}

/// Makes the directory of a volume of the provisioner, unless it exists, with the volume's present capacity. A Pod that was connected to the
/// volume as it was before then cannot leave a smaller limit behind.
pub(crate) async fn grow(persistent: PersistentVolume, local: Local) -> Result<(), VolumeError> {
    let path = path_of(&persistent)?;
    if !local.is_provisioned(&persistent, &path)? {
        return Err(VolumeError::NotAVolume(name_of(&persistent).to_owned()));
    }
    let capacity = capacity_bytes(&persistent)?;
    local.grow(name_of(&persistent), capacity).await
}

/// In bytes, rounded up.
fn capacity_bytes(persistent: &PersistentVolume) -> Result<u64, VolumeError> {
    let capacity = persistent.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let nano = capacity.and_then(|capacity| u128::try_from(quantity::nano(&capacity.0).ok()?).ok());
    let bytes = nano.map(|nano| u64::try_from(nano.div_ceil(NANO)).unwrap_or(u64::MAX));
    bytes.ok_or_else(|| VolumeError::Capacity { volume: name_of(persistent).to_owned() })
}

/// A local volume is a directory; a block device would have to be mounted first.
fn check_local(path: &Path) -> Result<(), VolumeError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(metadata) if metadata.file_type().is_block_device() => {
            Err(VolumeError::Unsupported(format!("a file system on the block device {}", path.display())))
        }
        Ok(_) => Err(VolumeError::LocalType),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(VolumeError::NoLocalPath(path.to_owned())),
        Err(error) => Err(VolumeError::io("reading", path)(error)),
    }
}
