//! `subPath`: one file or directory inside a volume, mounted on its own. The guest writes the volume's content, so a symbolic
//! link in it may point anywhere, and may be replaced while it is read. The kernel resolves the path and does not let it leave
//! the volume (`openat2`, `RESOLVE_BENEATH`); the open directory is then bind-mounted to a path of ours, so nothing is resolved
//! twice.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, mkdirat};

use crate::{VolumeError, mount_table, tree};

/// Mode of directories that a subPath needs and the volume lacks.
const MODE: Mode = Mode::from_bits_truncate(0o755);

/// Bind-mounts `volume`/`sub` at `at` and returns `at`; creates missing directories. An existing bind mount stays.
pub(crate) fn bind(volume: &Path, sub: &Path, at: &Path) -> Result<PathBuf, VolumeError> {
    if sub.is_absolute() || sub.components().any(|part| matches!(part, Component::ParentDir)) {
        return Err(VolumeError::Escapes(sub.to_owned()));
    }
    if at.exists() && mount_table::is_mount_point(at)? {
        return Ok(at.to_owned());
    }
    let found = open_beneath(volume, sub)?;
    if tree::kind(found.as_fd()).map_err(|errno| refused(sub, errno))? == SFlag::S_IFDIR {
        fs::create_dir_all(at).map_err(VolumeError::io("making", at))?;
    } else {
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent).map_err(VolumeError::io("making", parent))?;
        }
        fs::File::create(at).map_err(VolumeError::io("making", at))?;
    }
    mount_table::bind(&tree::itself(found.as_fd()), at)?;
    Ok(at.to_owned())
}

/// Opens the path without following anything out of the volume, making directories on the way.
fn open_beneath(volume: &Path, sub: &Path) -> Result<OwnedFd, VolumeError> {
    let mut at: OwnedFd = fs::File::open(volume).map_err(VolumeError::io("opening", volume))?.into();
    match open(&at, sub) {
        Err(Errno::ENOENT) => {}
        other => return other.map_err(|errno| refused(sub, errno)),
    }
    for part in sub.components().filter(|part| matches!(part, Component::Normal(_))) {
        let name = Path::new(part.as_os_str());
        at = match open(&at, name) {
            Err(Errno::ENOENT) => {
                match mkdirat(&at, name, MODE) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(refused(sub, errno)),
                }
                open(&at, name).map_err(|errno| refused(sub, errno))?
            }
            other => other.map_err(|errno| refused(sub, errno))?,
        };
    }
    Ok(at)
}

fn open(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let how =
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(dir.as_fd(), path, how)
}

fn refused(sub: &Path, errno: Errno) -> VolumeError {
    match errno {
        Errno::EXDEV | Errno::ELOOP => VolumeError::Escapes(sub.to_owned()),
        other => VolumeError::io("opening the subPath", sub)(other.into()),
    }
}
