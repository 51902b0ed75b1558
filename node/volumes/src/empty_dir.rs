//! `emptyDir` volumes: a directory on the node's disk that anyone may write, a tmpfs of bounded size, or huge pages as files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use api_model::quantity;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume};
use runtimes_host::blocking;

use crate::kind::{Context, VolumeKind};
use crate::{VolumeError, huge_pages, mount_table, ownership};

/// All users may write: containers of one Pod may run as different users.
const MODE: u32 = 0o777;
/// Written beside a finished volume: ownership is set once, not at each refresh.
const READY_SUFFIX: &str = ".ready";

/// The kind.
pub(crate) struct EmptyDirVolume;

/// What the files of a volume are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// The node's disk.
    Disk,
    /// Memory, up to a size.
    Memory { size_bytes: Option<u64> },
    /// Huge pages of one size, up to a size.
    HugePages { page_bytes: u64, size_bytes: Option<u64> },
}

impl Medium {
    fn of(context: &Context<'_>, wanted: &EmptyDirVolumeSource) -> Result<Self, VolumeError> {
        match wanted.medium.as_deref().unwrap_or_default() {
            "" => Ok(Self::Disk),
            "Memory" => Ok(Self::Memory { size_bytes: size_limit(context, wanted)? }),
            medium if huge_pages::is_medium(medium) => {
                let page_bytes = huge_pages::page_bytes(medium, context.pod)?;
                let size_bytes = huge_pages::size_bytes(page_bytes, declared_limit(wanted)?, context.pod);
                Ok(Self::HugePages { page_bytes, size_bytes })
            }
            other => Err(VolumeError::Medium(other.to_owned())),
        }
    }

    /// Mounts the file system of the medium, if it has one of its own.
    fn mount(self, at: &Path) -> Result<(), VolumeError> {
        match self {
            Self::Disk => Ok(()),
            Self::Memory { size_bytes } => mount_table::mount_tmpfs(at, size_bytes),
            Self::HugePages { page_bytes, size_bytes } => mount_table::mount_huge_pages(at, page_bytes, size_bytes),
        }
    }
}

#[async_trait]
impl VolumeKind for EmptyDirVolume {
    fn name(&self) -> &'static str {
        "empty-dir"
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.empty_dir else { return Ok(None) };
        let path = self.path(&context.pod_dir, volume);
        let ready = path.with_file_name(format!(".{}{READY_SUFFIX}", volume.name));
        let medium = Medium::of(context, wanted)?;
        let group = context.fs_group();
        blocking(move || {
            let mounted = medium == Medium::Disk || mount_table::is_mount_point(&path)?;
            if mounted && ready.exists() && path.exists() {
                return Ok(None);
            }
            fs::create_dir_all(&path).map_err(VolumeError::io("making", &path))?;
            if !mounted {
                medium.mount(&path)?;
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

/// The volume's own limit; 0 is none.
fn declared_limit(wanted: &EmptyDirVolumeSource) -> Result<Option<u64>, VolumeError> {
    let Some(limit) = &wanted.size_limit else { return Ok(None) };
    let bytes = quantity::value(&limit.0).map_err(|error| VolumeError::BadField(error.to_string()))?;
    Ok(u64::try_from(bytes).ok().filter(|bytes| *bytes > 0))
}

/// As upstream, the least of `sizeLimit`, what the Pod's cgroup may use, and what all Pods of the node may use.
fn size_limit(context: &Context<'_>, wanted: &EmptyDirVolumeSource) -> Result<Option<u64>, VolumeError> {
    let declared = declared_limit(wanted)?;
    let of_node = u64::try_from(context.allocatable.memory_bytes).ok();
    Ok([declared, context.memory_limit_bytes, of_node].into_iter().flatten().filter(|limit| *limit > 0).min())
}
