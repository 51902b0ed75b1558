//! What the images take on the disk: their blobs and unpacked layers, without what containers have written. A layer never changes once its
//! directory has its name, so each is measured once.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The bytes of a block in the kernel's file status.
const BLOCK: u64 = 512;

/// Use of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageUsage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl ImageUsage {
    fn of_file(found: &Metadata) -> Self {
        Self { bytes: found.blocks().saturating_mul(BLOCK), inodes: 1 }
    }

    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

/// The layers that have been measured, by the names of their directories.
#[derive(Debug, Default)]
pub(crate) struct LayerUsages {
    by_layer: Mutex<HashMap<OsString, ImageUsage>>,
    last: Mutex<Option<ImageUsage>>,
}

impl LayerUsages {
    /// The use of a store's directory. While another call measures it, that of the last call; `None` if there was none. Blocks.
    pub(crate) fn measure(&self, store: &Path) -> io::Result<Option<ImageUsage>> {
        let Some(mut by_layer) = self.by_layer.try_lock() else { return Ok(*self.last.lock()) };
        let mut sum = below(store.join("blobs"))?;
        let mut present = HashSet::new();
        for entry in fs::read_dir(store.join("layers"))? {
            let entry = entry?;
            let usage = match by_layer.get(&entry.file_name()) {
                Some(usage) => *usage,
                None => below(entry.path())?,
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

/// The use of all at and below a directory. What is removed meanwhile does not count.
fn below(root: PathBuf) -> io::Result<ImageUsage> {
    let Some(found) = present(fs::symlink_metadata(&root))? else { return Ok(ImageUsage::default()) };
    let (mut sum, mut linked, mut dirs) = (ImageUsage::of_file(&found), HashSet::new(), vec![root]);
    while let Some(dir) = dirs.pop() {
        for entry in present(fs::read_dir(&dir))?.into_iter().flatten() {
            let entry = entry?;
            // Of a symbolic link, not of what it leads to.
            let Some(found) = present(entry.metadata())? else { continue };
            if found.is_dir() {
                dirs.push(entry.path());
            } else if found.nlink() > 1 && !linked.insert(found.ino()) {
                continue;
            }
            sum = sum.plus(ImageUsage::of_file(&found));
        }
    }
    Ok(sum)
}

fn present<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
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
}
