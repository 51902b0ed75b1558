//! `fsGroup`: everything in a volume belongs to the group, which may read it (and write it unless the
//! volume is read-only), and new files inherit it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use crate::VolumeError;

/// Upstream's masks: the permissions that the group gets in addition.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const DIRECTORY: u32 = 0o2110;

/// Whether the top of a tree has the group and its permissions already: then everything in it has, for
/// `fsGroupChangePolicy: OnRootMismatch`.
pub(crate) fn is_given(path: &Path, group: u32) -> Result<bool, VolumeError> {
    let metadata = fs::metadata(path).map_err(VolumeError::io("reading", path))?;
    let wanted = READ_WRITE | DIRECTORY;
    Ok(metadata.gid() == group && metadata.permissions().mode() & wanted == wanted)
}

/// Changes the group of a tree. The group of symbolic links themselves is changed; they are never followed.
pub(crate) fn give_to_group(path: &Path, group: u32, read_only: bool) -> Result<(), VolumeError> {
    lchown(path, None, Some(group)).map_err(VolumeError::io("setting the group of", path))?;
    let metadata = fs::symlink_metadata(path).map_err(VolumeError::io("reading", path))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let access = if read_only { READ_ONLY } else { READ_WRITE };
    let directory = if metadata.is_dir() { DIRECTORY } else { 0 };
    let mode = metadata.permissions().mode() | access | directory;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(VolumeError::io("setting the mode of", path))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(VolumeError::io("listing", path))? {
            let entry = entry.map_err(VolumeError::io("listing", path))?;
            give_to_group(&entry.path(), group, read_only)?;
        }
    }
    Ok(())
}
