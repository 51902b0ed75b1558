//! Measures the files below a directory that a guest may change at the same time. The walk follows no symbolic link, opens each
//! directory relative to its parent, and stays on one file system. Depth, number of entries and time have bounds. When a bound
//! is reached, the result holds what was counted so far and names the bound.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata, ReadDir};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, fstat};

/// The highest number of entries that are counted with one budget.
const ENTRIES_MAX: u64 = 1_000_000;
/// The deepest directory that is entered; each level has two open file descriptors.
const DEPTH_MAX: usize = 128;
/// The bytes of a block in the kernel's file status.
const BLOCK: u64 = 512;

/// Use of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl Disk {
    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

impl std::iter::Sum for Disk {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::plus)
    }
}

/// Why the result may be too small.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Immeasurable {
    /// There are more entries than are counted.
    #[error("there are more than {ENTRIES_MAX} files")]
    TooMany,
    /// A directory is deeper than is entered.
    #[error("directories are nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// The time of the budget was over.
    #[error("the time was over")]
    TooSlow,
    /// The system failed.
    #[error("something could not be read")]
    Unreadable,
}

impl Immeasurable {
    /// Whether the files are the cause, and not the machine.
    pub fn is_of_the_files(&self) -> bool {
        matches!(self, Self::TooMany | Self::TooDeep)
    }
}

/// The budget of one measurement, and the faults it met.
pub struct Budget {
    entries: u64,
    until: Instant,
    /// Files with several names that were counted: device and inode.
    counted: HashSet<(u64, u64)>,
    /// The fault that counts, if there was one.
    pub fault: Option<Immeasurable>,
}

impl Budget {
    /// For a measurement within this time.
    pub fn new(within: Duration) -> Self {
        Self { entries: ENTRIES_MAX, until: Instant::now() + within, counted: HashSet::new(), fault: None }
    }

    /// Whether the budget allows one more entry.
    pub fn spend(&mut self) -> bool {
        if self.entries == 0 {
            self.meets(Immeasurable::TooMany);
        } else if Instant::now() >= self.until {
            self.meets(Immeasurable::TooSlow);
        } else {
            self.entries -= 1;
            return true;
        }
        false
    }

    /// A fault that the files cause outranks one of the machine.
    pub fn meets(&mut self, fault: Immeasurable) {
        if self.fault.as_ref().is_none_or(|met| !met.is_of_the_files()) {
            self.fault = Some(fault);
        }
    }

    /// The bytes of a file, counted once for all its names.
    pub fn count(&mut self, file: &Metadata) -> Disk {
        let several = !file.is_dir() && file.nlink() != 1;
        if several && !self.counted.insert((file.dev(), file.ino())) {
            return Disk::default();
        }
        Disk { bytes: file.blocks().saturating_mul(BLOCK), inodes: 1 }
    }
}

/// An open directory, and its entries that are not counted yet.
struct Level {
    dir: OwnedFd,
    entries: ReadDir,
}

impl Level {
    /// `None` when it is on another file system.
    fn open(above: impl AsFd, name: &OsStr, device: Option<u64>) -> io::Result<Option<Self>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let dir = openat(above, name, flags, Mode::empty())?;
        if device.is_some_and(|device| fstat(&dir).is_ok_and(|found| found.st_dev != device)) {
            return Ok(None);
        }
        // The standard library lists by path alone; this path is the descriptor's own.
        let entries = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
        Ok(Some(Self { dir, entries }))
    }
}

/// The bytes at and below a directory; nothing when it does not exist. Blocks.
pub fn below(root: &Path, budget: &mut Budget) -> Disk {
    let opened = fs::symlink_metadata(root).and_then(|found| Ok((Level::open(AT_FDCWD, root.as_os_str(), None)?, found)));
    let (mut levels, device, mut sum) = match opened {
        Ok((level, found)) => (Vec::from_iter(level), found.dev(), budget.count(&found)),
        Err(error) => {
            missed(&error, budget);
            return Disk::default();
        }
    };
    while let Some(level) = levels.last_mut() {
        let entry = match level.entries.next() {
            None => {
                levels.pop();
                continue;
            }
            Some(Err(error)) => {
                missed(&error, budget);
                levels.pop();
                continue;
            }
            Some(Ok(entry)) => entry,
        };
        if !budget.spend() {
            break;
        }
        // Both are relative to the open directory and follow no link.
        let looked = entry.metadata().and_then(|found| {
            let enter = found.is_dir() && found.dev() == device;
            Ok((found, if enter { Level::open(&level.dir, &entry.file_name(), Some(device))? } else { None }))
        });
        match looked {
            Ok((found, _)) if found.dev() != device => {}
            Ok((found, below)) => {
                sum = sum.plus(budget.count(&found));
                if below.is_some() && levels.len() >= DEPTH_MAX {
                    budget.meets(Immeasurable::TooDeep);
                } else {
                    levels.extend(below);
                }
            }
            Err(error) => missed(&error, budget),
        }
    }
    sum
}

/// An entry that was removed or replaced after it was listed is no fault.
fn missed(error: &io::Error, budget: &mut Budget) {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
    if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) {
        tracing::debug!(%error, "local storage not measured whole");
        budget.meets(Immeasurable::Unreadable);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn measured(root: &Path, mut budget: Budget) -> (Disk, Option<Immeasurable>) {
        (below(root, &mut budget), budget.fault)
    }

    #[test]
    fn files_are_counted_once_and_links_are_not_followed() {
        let (dir, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        fs::write(elsewhere.path().join("big"), vec![1; 4 << 20]).expect("written");
        fs::create_dir_all(dir.path().join("a/b")).expect("made");
        fs::write(dir.path().join("a/b/file"), vec![1; 1 << 20]).expect("written");
        let (alone, fault) = measured(dir.path(), Budget::new(LONG));
        assert!(alone.bytes >= 1 << 20 && alone.bytes < 2 << 20, "{alone:?}");
        assert_eq!((alone.inodes, fault), (4, None));
        fs::hard_link(dir.path().join("a/b/file"), dir.path().join("a/again")).expect("linked");
        symlink(elsewhere.path(), dir.path().join("a/out")).expect("linked");
        symlink(elsewhere.path().join("big"), dir.path().join("a/b/out")).expect("linked");
        symlink("/", dir.path().join("root")).expect("linked");
        let (linked, fault) = measured(dir.path(), Budget::new(LONG));
        assert_eq!((linked.inodes, fault), (7, None), "each link is an inode");
        assert!(linked.bytes < 2 << 20, "{linked:?}");
        let through = dir.path().join("root");
        assert_eq!(measured(&through, Budget::new(LONG)), (Disk::default(), None), "nor is the first");
        assert_eq!(measured(&dir.path().join("none"), Budget::new(LONG)), (Disk::default(), None));
    }

    #[test]
    fn holes_take_no_room() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::File::create(dir.path().join("sparse")).expect("made").set_len(1 << 40).expect("sized");
        assert!(measured(dir.path(), Budget::new(LONG)).0.bytes < 1 << 20);
    }

    #[test]
    fn every_bound_ends_the_walk_and_is_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("one"), vec![1; 1 << 20]).expect("written");
        assert_eq!(measured(dir.path(), Budget::new(Duration::ZERO)).1, Some(Immeasurable::TooSlow));
        assert_eq!(measured(dir.path(), Budget { entries: 0, ..Budget::new(LONG) }).1, Some(Immeasurable::TooMany));
        let deepest = (0..DEPTH_MAX + 20).fold(dir.path().to_owned(), |dir, _| dir.join("d"));
        fs::create_dir_all(&deepest).expect("made");
        let (sum, fault) = measured(dir.path(), Budget::new(LONG));
        assert_eq!(fault, Some(Immeasurable::TooDeep));
        assert!(sum.bytes >= 1 << 20, "what was met until then stands: {sum:?}");
        let mut budget = Budget::new(LONG);
        budget.meets(Immeasurable::TooDeep);
        budget.meets(Immeasurable::TooSlow);
        assert_eq!(budget.fault, Some(Immeasurable::TooDeep));
    }
}
