//! The capacity of a directory, enforced by a project quota of its file system (XFS or ext4): the directory belongs to a project of its
//! own, what is made in it belongs to the same one, and the kernel limits the project's bytes and files. `statfs` in the directory, and so
//! `df` in a container, has the limits.
//!
//! The file system has all state: the number of the project is an attribute of the directory. The directory's flag that new files inherit
//! the project is set last, so a directory without it is not finished.

mod kernel;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::SFlag;
use parking_lot::Mutex;

use self::kernel::Attributes;
use crate::VolumeError;
use crate::tree::{self, Mounts};

/// The projects of volumes are the numbers from here to twice this one. Upstream's kubelet and tools of administrators count from small
/// numbers.
const PROJECT_MIN: u32 = 1 << 30;
/// How many numbers are tried for one directory.
const TRIES_MAX: u32 = 1_000;
/// Projects that other programs have taken without a file in them yet.
const TABLES: [&str; 2] = ["/etc/projects", "/etc/projid"];
/// File systems of this size and larger have one file for so many bytes when `mkfs.ext4` makes them, smaller ones for fewer.
const LARGE_BYTES: u64 = 512 << 20;
const FILE_BYTES: u64 = 16 << 10;
const FILE_BYTES_SMALL: u64 = 4 << 10;
/// The files of the smallest volumes.
const FILES_MIN: u64 = 16;

/// What a project may have; zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    /// In bytes.
    bytes: u64,
    /// Files, directories included.
    files: u64,
}

impl Limits {
    /// As many files as an ext4 file system of that size has. A file without content takes space that the kernel does not count as bytes of
    /// the project.
    fn of_capacity(bytes: u64) -> Self {
        let file_bytes = if bytes < LARGE_BYTES { FILE_BYTES_SMALL } else { FILE_BYTES };
        Self { bytes: bytes.max(1), files: (bytes / file_bytes).max(FILES_MIN) }
    }

    /// Limits are raised only: what the volume's object had a moment ago may be less than what it has, and an administrator may give more.
    fn raised_to(self, wanted: Self) -> Self {
        let raised = |now: u64, wanted: u64| if now == 0 { wanted } else { now.max(wanted) };
        Self { bytes: raised(self.bytes, wanted.bytes), files: raised(self.files, wanted.files) }
    }
}

/// Whether the file system of the directory of all volumes enforces project quotas, and that directory is in no project itself: else a volume
/// could not be renamed.
pub(super) fn is_enforced(dir: &Path) -> Result<bool, VolumeError> {
    let opened = File::open(dir).map_err(VolumeError::io("opening", dir))?;
    Ok(is_enforced_in(&opened, dir)? && !attributes(opened.as_fd(), dir)?.is_inherited())
}

fn is_enforced_in(opened: &File, dir: &Path) -> Result<bool, VolumeError> {
    kernel::is_enforced(opened.as_fd()).map_err(VolumeError::io("reading the quotas of", dir))
}

/// Limits the directory of a volume to that many bytes, if its file system can: an administrator may have mounted one for this volume alone.
/// `name` leads to the number of a project that is tried first; `choosing` is locked while one is chosen. It may be called again, also after
/// a kill in the middle.
pub(super) fn limit(dir: &Path, name: &str, bytes: u64, choosing: &Mutex<()>) -> Result<(), VolumeError> {
    let opened = open_volume(dir)?;
    if !is_enforced_in(&opened, dir)? {
        return Ok(());
    }
    let failed = |error| VolumeError::io("setting the quota of", dir)(error);
    let present = attributes(opened.as_fd(), dir)?;
    let is_own = is_of_volumes(present.project());
    let project = if is_own { present.project() } else { choose(&opened, dir, name, choosing)? };
    let is_finished = is_own && present.is_inherited();
    // The number may have the limits of a volume that is gone until this one is finished.
    let limits = if is_finished { kernel::quota(opened.as_fd(), project).map_err(failed)?.limits } else { Limits::default() };
    let wanted = limits.raised_to(Limits::of_capacity(bytes));
    if wanted != limits {
        kernel::set_limits(opened.as_fd(), project, wanted).map_err(failed)?;
    }
    if is_finished {
        return Ok(());
    }
    // An immutable file is one that somebody has to find.
    let failed_at = |entry: BorrowedFd<'_>, source| {
        let path = fs::read_link(tree::itself(entry));
        VolumeError::Io { doing: "setting the quota project of", path: path.unwrap_or_else(|_| dir.to_owned()), source }
    };
    // What was in the directory before, for example when it was restored from a backup.
    let put_below = || {
        tree::each_below(opened.as_fd(), dir, "counting the files of", Mounts::Left, &|entry| {
            put(entry, project).map_err(|error| failed_at(entry, error))
        })
    };
    put_below()?;
    put(opened.as_fd(), project).map_err(failed)?;
    // A Pod of an earlier version of the node may have made files in the directory before the flag was set.
    put_below()?;
    opened.sync_all().map_err(failed)
}

/// Takes the limits of a directory's project away. The number is free when the last file is gone; its limits would be of no use to anybody.
pub(super) fn release(dir: &Path) -> Result<(), VolumeError> {
    let opened = open_volume(dir)?;
    let project = attributes(opened.as_fd(), dir)?.project();
    if is_of_volumes(project) && is_enforced_in(&opened, dir)? {
        kernel::set_limits(opened.as_fd(), project, Limits::default()).map_err(VolumeError::io("releasing the quota of", dir))?;
    }
    Ok(())
}

/// Puts a directory, and nothing that is in it, into a project that nothing else is in. The directory counts as the project's first file,
/// so nobody else chooses the number.
fn choose(opened: &File, dir: &Path, name: &str, choosing: &Mutex<()>) -> Result<u32, VolumeError> {
    let failed = |error| VolumeError::io("choosing the project of", dir)(error);
    let taken = TABLES.iter().map(|table| table_of_projects(Path::new(table))).collect::<Result<Vec<_>, _>>()?.concat();
    let _alone = choosing.lock();
    for project in candidates(name) {
        if !taken.contains(&project) && kernel::quota(opened.as_fd(), project).map_err(failed)?.is_empty() {
            let attributes = attributes(opened.as_fd(), dir)?;
            kernel::set_attributes(opened.as_fd(), attributes.with_project(project)).map_err(failed)?;
            return Ok(project);
        }
    }
    Err(VolumeError::NoProject(dir.to_owned()))
}

/// Puts a file or a directory into a project, with what will be made in it. Links, pipes, sockets and device nodes have no content.
/// Returns what the entry is.
fn put(entry: BorrowedFd<'_>, project: u32) -> io::Result<SFlag> {
    let kind = tree::kind(entry)?;
    if kind != SFlag::S_IFDIR && kind != SFlag::S_IFREG {
        return Ok(kind);
    }
    // The entry is open as a path only.
    let opened = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(tree::itself(entry))?;
    let present = kernel::attributes(opened.as_fd())?;
    let wanted = if kind == SFlag::S_IFDIR { present.with_project(project).inherited() } else { present.with_project(project) };
    if wanted != present {
        kernel::set_attributes(opened.as_fd(), wanted)?;
    }
    Ok(kind)
}

/// A link is not followed.
fn open_volume(dir: &Path) -> Result<File, VolumeError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags.bits()).open(dir).map_err(VolumeError::io("opening", dir))
}

fn attributes(opened: BorrowedFd<'_>, dir: &Path) -> Result<Attributes, VolumeError> {
    kernel::attributes(opened).map_err(VolumeError::io("reading the attributes of", dir))
}

fn is_of_volumes(project: u32) -> bool {
    (PROJECT_MIN..2 * PROJECT_MIN).contains(&project)
}

/// The numbers to try for a volume: one of the last eight digits of its name, and the following ones.
fn candidates(name: &str) -> impl Iterator<Item = u32> {
    let digits = name.chars().rev().filter_map(|character| character.to_digit(16));
    let first = digits.take(8).fold(0_u32, |number, digit| (number << 4) | digit);
    (0..TRIES_MAX).map(move |step| PROJECT_MIN | (first.wrapping_add(step) & (PROJECT_MIN - 1)))
}

/// The numbers in a table of projects: lines of `NUMBER:PATH` or `NAME:NUMBER`.
fn table_of_projects(table: &Path) -> Result<Vec<u32>, VolumeError> {
    match fs::read(table) {
        Ok(bytes) => Ok(numbers(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(VolumeError::io("reading", table)(error)),
    }
}

fn numbers(table: &str) -> Vec<u32> {
    let lines = table.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split(':')).filter_map(|field| field.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_as_many_files_as_a_file_system_of_its_size() {
        let limits = |bytes, files| Limits { bytes, files };
        assert_eq!(Limits::of_capacity(1 << 30), limits(1 << 30, 65_536));
        assert_eq!(Limits::of_capacity(64 << 20), limits(64 << 20, 16_384));
        assert_eq!(Limits::of_capacity(0), limits(1, 16), "zero would be no limit");
        assert_eq!(Limits::of_capacity(u64::MAX).bytes, u64::MAX);
        let (small, large) = (limits(10, 10), limits(20, 20));
        assert_eq!((small.raised_to(large), large.raised_to(small), Limits::default().raised_to(small)), (large, large, small));
        assert_eq!(limits(0, 30).raised_to(small), limits(10, 30));
    }

    #[test]
    fn a_project_has_a_number_that_other_programs_do_not_use() {
        let first = |name: &str| candidates(name).next().expect("one");
        assert_ne!(first("pvc-0a1b2c3d-0000-4000-8000-000000000001"), first("pvc-0a1b2c3d-0000-4000-8000-000000000002"));
        let all: Vec<u32> = candidates("pvc-0000-ffff-ffff").collect();
        assert_eq!((all.len(), all.iter().all(|&project| is_of_volumes(project))), (1_000, true));
        assert!(!is_of_volumes(0) && !is_of_volumes(1_048_577) && !is_of_volumes(u32::MAX));
        assert_eq!(numbers("# 5:/x\n10:/srv/a\n11:/srv/12\n"), [10, 11]);
        assert_eq!(numbers("volume1048577:1048577\nname:x\n\n"), [1_048_577]);
    }
}
