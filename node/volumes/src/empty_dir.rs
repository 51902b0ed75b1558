//! `emptyDir` volumes: a directory on the node's disk that anyone may write, or a tmpfs of bounded
//! size.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use api_model::quantity;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume};
use runtimes_host::blocking;

use crate::kind::{Context, VolumeKind};
use crate::{VolumeError, mount_table, ownership};

/// All users may write: containers of one Pod may run as different users.
const MODE: u32 = 0o777;
/// Written beside a finished volume: ownership is set once, not at each refresh.
const READY_SUFFIX: &str = ".ready";

/// The kind.
pub(crate) struct EmptyDirVolume;

#[async_trait]
impl VolumeKind for EmptyDirVolume {
    fn name(&self) -> &'static str {
        "empty-dir"
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.empty_dir else { return Ok(None) };
        let path = self.path(&context.pod_dir, volume);
        let ready = path.with_file_name(format!(".{}{READY_SUFFIX}", volume.name));
        let in_memory = match wanted.medium.as_deref().unwrap_or_default() {
            "" => None,
            "Memory" => Some(size_limit(context, wanted)?),
            other => return Err(VolumeError::Unsupported(format!("emptyDir medium {other}"))),
        };
        let group = context.fs_group();
        blocking(move || {
            let mounted = in_memory.is_none() || mount_table::is_mount_point(&path)?;
            if mounted && ready.exists() && path.exists() {
                return Ok(None);
            }
            fs::create_dir_all(&path).map_err(VolumeError::io("making", &path))?;
            if let Some(size_bytes) = in_memory.filter(|_| !mounted) {
                mount_table::mount_tmpfs(&path, size_bytes)?;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).map_err(VolumeError::io("setting the mode of", &path))?;
            if let Some(group) = group {
                ownership::give_to_group(&path, group, false)?;
            }
            fs::write(&ready, []).map_err(VolumeError::io("writing", &ready))?;
            Ok(None)
        })
        .await
    }
}

/// Whether a volume is an `emptyDir` on the node's disk.
pub(crate) fn is_on_disk(volume: &Volume) -> bool {
    volume.empty_dir.as_ref().is_some_and(|source| source.medium.as_deref().unwrap_or_default().is_empty())
}

/// As upstream, the least of `sizeLimit`, what the Pod's cgroup may use, and what all Pods of the node may use.
fn size_limit(context: &Context<'_>, wanted: &EmptyDirVolumeSource) -> Result<Option<u64>, VolumeError> {
    let bytes = |text: &str| {
        quantity::value(text).map(|value| u64::try_from(value).unwrap_or(0)).map_err(|error| VolumeError::BadField(error.to_string()))
    };
    let declared = wanted.size_limit.as_ref().map(|limit| bytes(&limit.0)).transpose()?;
    let of_node = u64::try_from(context.allocatable.memory_bytes).ok();
    Ok([declared, context.memory_limit_bytes, of_node].into_iter().flatten().filter(|limit| *limit > 0).min())
}
