//! `hostPath` volumes: a file or directory of the node itself, after the check that its type requires. The kind creates nothing
//! under the Pod's directory, and removes nothing with the Pod.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Volume;
use runtimes_host::blocking;

use crate::VolumeError;
use crate::kind::{Context, VolumeKind};

/// The kind.
pub(crate) struct HostPathVolume;

#[async_trait]
impl VolumeKind for HostPathVolume {
    fn name(&self) -> &'static str {
        "host-path"
    }

    async fn set_up(&self, _context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.host_path else { return Ok(None) };
        let (path, kind) = (PathBuf::from(&wanted.path), wanted.type_.clone().unwrap_or_default());
        blocking(move || check(&path, &kind)).await?;
        Ok(None)
    }

    fn path(&self, _pod_dir: &Path, volume: &Volume) -> PathBuf {
        volume.host_path.as_ref().map(|wanted| PathBuf::from(&wanted.path)).unwrap_or_default()
    }
}

/// Creates or checks the path as its type requires. Without a type a missing directory is created, which upstream leaves to the
/// runtime.
pub(crate) fn check(path: &Path, kind: &str) -> Result<(), VolumeError> {
    let found = fs::metadata(path).ok().map(|metadata| metadata.file_type());
    match (kind, found.is_some()) {
        ("" | "DirectoryOrCreate", false) => {
            fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(VolumeError::io("setting the mode of", path))?;
        }
        ("FileOrCreate", false) => {
            fs::File::create(path).map_err(VolumeError::io("making", path))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(VolumeError::io("setting the mode of", path))?;
        }
        _ => {}
    }
    let is = |test: fn(&fs::FileType) -> bool| fs::metadata(path).is_ok_and(|metadata| test(&metadata.file_type()));
    let (good, wanted) = match kind {
        "" => (true, "path"),
        "DirectoryOrCreate" | "Directory" => (is(fs::FileType::is_dir), "directory"),
        "FileOrCreate" | "File" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(FileTypeExt::is_socket), "socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "block device"),
        _ => (false, "known hostPath type"),
    };
    if good { Ok(()) } else { Err(VolumeError::HostPathType { path: path.to_owned(), wanted }) }
}
