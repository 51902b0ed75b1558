//! The symbolic links below a Pod's directory to what is behind its claims: directories and devices of the node.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::VolumeError;

/// Makes a link, in place of an earlier one.
pub(crate) fn make(path: &Path, link: &Path) -> Result<(), VolumeError> {
    let parent = link.parent().unwrap_or(link);
    fs::create_dir_all(parent).map_err(VolumeError::io("making", parent))?;
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(VolumeError::io("removing", link)(error)),
        _ => {}
    }
    symlink(path, link).map_err(VolumeError::io("linking", link))
}

/// Where a link leads to.
pub(crate) fn read(link: &Path) -> Result<PathBuf, VolumeError> {
    fs::read_link(link).map_err(VolumeError::io("reading the link", link))
}
