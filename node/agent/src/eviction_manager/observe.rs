//! Reads the signals: three short files of `/proc` and one or two system calls for the file systems, cheap enough for once a
//! second. (The kernel can notify of thresholds only within one cgroup, but a node runs short as a whole.)

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::eviction::signal::Signal;
use crate::eviction::state::{Observation, Observations};
use crate::machine::{Memory, file_system, tasks, tasks_max};

/// The signals of one round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) signals: Observations,
    /// Images and writable layers lie on a file system of their own.
    pub(crate) dedicated_image_fs: bool,
}

/// Reads the signals; a signal that cannot be read is missing. `images` is the directory of the images, if they have one; `proc_dir` has
/// the memory and the processes. Blocks.
pub(crate) fn observe(data_dir: &Path, images: Option<&Path>, proc_dir: &Path) -> Observed {
    let mut signals = Observations::new();
    let mut see = |signal: Signal, available: u64, capacity: u64| {
        // A file system that creates inodes when it needs them reports a total of zero.
        if capacity > 0 {
            signals.insert(signal, Observation { available, capacity });
        }
    };
    let Memory { total, available } = Memory::read(proc_dir);
    see(Signal::MemoryAvailable, available, total);
    if let Some(fs) = file_system(data_dir) {
        see(Signal::NodeFsAvailable, fs.free_bytes, fs.bytes);
        see(Signal::NodeFsInodesFree, fs.free_inodes, fs.inodes);
    }
    let images = images.unwrap_or(data_dir);
    if let Some(fs) = file_system(images) {
        see(Signal::ImageFsAvailable, fs.free_bytes, fs.bytes);
        see(Signal::ImageFsInodesFree, fs.free_inodes, fs.inodes);
    }
    if let (Some(tasks), Some(tasks_max)) = (tasks(proc_dir), tasks_max(proc_dir)) {
        see(Signal::PidAvailable, tasks_max.saturating_sub(tasks), tasks_max);
    }
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let dedicated_image_fs = device(images).zip(device(data_dir)).is_some_and(|(images, data)| images != data);
    Observed { signals, dedicated_image_fs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_shows_every_signal() {
        let dir = tempfile::tempdir().expect("a directory");
        let proc_dir = Path::new("/proc");
        let observed = observe(dir.path(), Some(dir.path()), proc_dir);
        for signal in [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::ImageFsAvailable, Signal::PidAvailable] {
            let observation = observed.signals.get(&signal).expect("it is read");
            assert!(observation.available > 0 && observation.available <= observation.capacity, "{signal:?}: {observation:?}");
        }
        assert!(!observed.dedicated_image_fs);
        assert!(observe(dir.path(), Some(proc_dir), proc_dir).dedicated_image_fs);
    }
}
