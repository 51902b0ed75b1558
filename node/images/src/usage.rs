//! What the images take on the disk: their blobs and unpacked layers, without what containers have written. A layer never changes once its
//! directory has its name, so each is measured once.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use runtimes_host::disk::{Budget, Disk, below};

/// The time for one layer, and for the blobs.
const MEASURED_WITHIN: Duration = Duration::from_secs(60);

/// The layers that have been measured, by the names of their directories.
#[derive(Debug, Default)]
pub(crate) struct LayerUsages {
    by_layer: Mutex<HashMap<OsString, Disk>>,
    last: Mutex<Option<Disk>>,
}

impl LayerUsages {
    /// The use of a store's directory. While another call measures it, that of the last call; `None` if there was none. Blocks.
    pub(crate) fn measure(&self, store: &Path) -> io::Result<Option<Disk>> {
        let Some(mut by_layer) = self.by_layer.try_lock() else { return Ok(*self.last.lock()) };
        let mut sum = measured(&store.join("blobs"))?;
        let mut present = HashSet::new();
        for entry in fs::read_dir(store.join("layers"))? {
            let entry = entry?;
            let usage = match by_layer.get(&entry.file_name()) {
                Some(usage) => *usage,
                None => measured(&entry.path())?,
            };
            // A layer without inodes is one that was removed meanwhile.
            if usage.inodes > 0 {
                present.insert(entry.file_name());
                by_layer.insert(entry.file_name(), usage);
            }
            sum = sum.plus(usage);
        }
        by_layer.retain(|layer, _| present.contains(layer));
        *self.last.lock() = Some(sum);
        Ok(Some(sum))
    }
}

/// The use at and below a directory. Of files that are too many or too deep to be measured, those that were met count.
fn measured(dir: &Path) -> io::Result<Disk> {
    let mut budget = Budget::new(MEASURED_WITHIN);
    let usage = below(dir, &mut budget);
    match budget.fault.filter(|fault| !fault.is_of_the_files()) {
        Some(fault) => Err(io::Error::other(format!("{}: {fault}", dir.display()))),
        None => Ok(usage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store with a blob of 1 MiB and these layers of 2 MiB each.
    fn store(layers: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("blobs/sha256")).expect("made");
        fs::create_dir_all(dir.path().join("layers")).expect("made");
        fs::write(dir.path().join("blobs/sha256/a"), vec![1; 1 << 20]).expect("written");
        for layer in layers {
            add(dir.path(), layer);
        }
        dir
    }

    fn add(store: &Path, layer: &str) {
        let dir = store.join("layers").join(layer);
        fs::create_dir_all(dir.join("usr/bin")).expect("made");
        fs::write(dir.join("usr/bin/tool"), vec![1; 2 << 20]).expect("written");
        fs::hard_link(dir.join("usr/bin/tool"), dir.join("again")).expect("linked");
        std::os::unix::fs::symlink("/", dir.join("out")).expect("linked");
    }

    #[test]
    fn blobs_and_layers_count_and_links_do_not() {
        let dir = store(&["one", "two"]);
        fs::create_dir_all(dir.path().join("mounts/c/upper")).expect("made");
        fs::write(dir.path().join("mounts/c/upper/log"), vec![1; 8 << 20]).expect("written");
        let usage = LayerUsages::default().measure(dir.path()).expect("measured").expect("alone");
        assert!((5 << 20..6 << 20).contains(&usage.bytes), "{usage:?}");
        // Two directories and a blob; of each layer three directories, a file and a symbolic link.
        assert_eq!(usage.inodes, 3 + 2 * 5);
    }

    #[test]
    fn a_layer_is_measured_once_and_forgotten_when_it_is_gone() {
        let (dir, usages) = (store(&["one", "two"]), LayerUsages::default());
        let measure = || usages.measure(dir.path()).expect("measured").map(|usage| usage.bytes >> 20);
        assert_eq!(measure(), Some(5));
        fs::write(dir.path().join("layers/one/more"), vec![1; 4 << 20]).expect("written");
        assert_eq!(measure(), Some(5), "a layer does not change");
        fs::remove_dir_all(dir.path().join("layers/two")).expect("removed");
        add(dir.path(), "three");
        assert_eq!(measure(), Some(5));
        fs::remove_dir_all(dir.path().join("layers/one")).expect("removed");
        assert_eq!((measure(), usages.by_layer.lock().len()), (Some(3), 1));
        let _other = usages.by_layer.lock();
        assert_eq!(measure(), Some(3), "another call measures: the last sum");
    }

    #[test]
    fn a_layer_that_is_too_deep_counts_as_far_as_it_is_entered() {
        let dir = store(&["one"]);
        let deepest = (0..200).fold(dir.path().join("layers/deep"), |dir, _| dir.join("d"));
        fs::create_dir_all(&deepest).expect("made");
        let usage = LayerUsages::default().measure(dir.path()).expect("measured").expect("alone");
        assert!((3 << 20..4 << 20).contains(&usage.bytes) && usage.inodes > 100, "{usage:?}");
    }
}
