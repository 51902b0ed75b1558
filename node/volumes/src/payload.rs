//! Files that change atomically under their readers, in the layout of upstream's atomic writer: real files in a dated
//! directory, `..data` a symbolic link to it that is replaced by one rename, and each visible name a symbolic link through
//! `..data`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::KeyToPath;
use runtimes_host::blocking;

use crate::kind::Context;
use crate::{VolumeError, mount_table, ownership};

/// The link that points at the present content.
const DATA: &str = "..data";
/// Its successor, before the rename.
const DATA_NEXT: &str = "..data_tmp";
/// Upstream's default mode of files.
const MODE: u32 = 0o644;

/// The medium of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// The node's disk.
    Disk,
    /// A tmpfs of its own.
    Memory,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    /// Content.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// The owner, if it is not root.
    pub owner: Option<u32>,
}

/// The files of a volume by relative path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payload {
    files: BTreeMap<PathBuf, File>,
}

/// The permission bits of a `defaultMode` or `mode`.
pub(crate) fn mode(declared: Option<i32>) -> u32 {
    declared.and_then(|mode| u32::try_from(mode).ok()).map_or(MODE, |mode| mode & 0o777)
}

impl Payload {
    /// Adds a file; a later one of the same path wins, as upstream.
    pub fn add(&mut self, path: &str, file: File) -> Result<(), VolumeError> {
        let relative = Path::new(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || !plain || path.starts_with("..") {
            return Err(VolumeError::BadPath(path.to_owned()));
        }
        self.files.insert(relative.to_owned(), file);
        Ok(())
    }

    /// Adds every key of an object, or the keys that `items` lists. `what` is `config` or `secret`.
    pub fn add_items(
        &mut self,
        what: &'static str,
        data: &BTreeMap<String, Vec<u8>>,
        items: Option<&[KeyToPath]>,
        default_mode: u32,
        optional: bool,
    ) -> Result<(), VolumeError> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, bytes) in data {
                self.add(key, File { bytes: bytes.clone(), mode: default_mode, owner: None })?;
            }
            return Ok(());
        };
        for item in items {
            let Some(bytes) = data.get(&item.key) else {
                if optional {
                    continue;
                }
                return Err(VolumeError::NoSuchKey { what, key: item.key.clone() });
            };
            let mode = item.mode.map_or(default_mode, |declared| mode(Some(declared)));
            self.add(&item.path, File { bytes: bytes.clone(), mode, owner: None })?;
        }
        Ok(())
    }
}

/// The present content of a file of the volume; `None` when it does not exist.
pub(crate) fn read(volume: &Path, path: &str) -> Option<Vec<u8>> {
    fs::read(volume.join(DATA).join(path)).ok()
}

/// Creates the volume's directory (with a tmpfs on it) and its content; does nothing when the content is the same already.
pub(crate) async fn write(context: &Context<'_>, volume: PathBuf, medium: Medium, payload: Payload) -> Result<(), VolumeError> {
    let group = context.fs_group();
    blocking(move || {
        fs::create_dir_all(&volume).map_err(VolumeError::io("making", &volume))?;
        if medium == Medium::Memory && !mount_table::is_mount_point(&volume)? {
            mount_table::mount_tmpfs(&volume, None)?;
        }
        if !is_current(&volume, &payload) {
            replace(&volume, &payload, group)?;
        }
        // Also the content of a writer that was killed before it had shown all names.
        show_names(&volume, &payload)
    })
    .await
}

fn is_current(volume: &Path, payload: &Payload) -> bool {
    let data = volume.join(DATA);
    let same = payload.files.iter().all(|(path, file)| fs::read(data.join(path)).is_ok_and(|bytes| bytes == file.bytes));
    same && data.is_dir() && files_below(&data).is_ok_and(|count| count == payload.files.len())
}

fn files_below(dir: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { files_below(&entry.path())? } else { 1 };
    }
    Ok(count)
}

fn replace(volume: &Path, payload: &Payload, group: Option<u32>) -> Result<(), VolumeError> {
    let (next, data) = (volume.join(DATA_NEXT), volume.join(DATA));
    // The files of a writer that was killed may take the space that this one needs.
    let current = fs::read_link(&data).ok();
    sweep_dated(volume, &entries(volume)?, current.as_deref())?;
    let stamp = api_clock::now().strftime("..%Y_%m_%d_%H_%M_%S.%9f").to_string();
    let fresh = volume.join(&stamp);
    let filled = fill(&fresh, payload, group).and_then(|()| {
        remove_if_there(&next)?;
        symlink(&stamp, &next).map_err(VolumeError::io("linking", &next))?;
        fs::rename(&next, &data).map_err(VolumeError::io("replacing", &data))
    });
    if let Err(error) = filled {
        // Each attempt would leave another directory on a full disk. The first error is the one to return.
        if let Err(error) = remove_if_there(&next).and_then(|()| sweep_dated(volume, &entries(volume)?, current.as_deref())) {
            tracing::warn!(volume = %volume.display(), %error, "half-written volume content stays");
        }
        return Err(error);
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(VolumeError::io("removing", path)(error)),
        _ => Ok(()),
    }
}

/// Creates a dated directory with all files.
fn fill(fresh: &Path, payload: &Payload, group: Option<u32>) -> Result<(), VolumeError> {
    fs::create_dir(fresh).map_err(VolumeError::io("making", fresh))?;
    fs::set_permissions(fresh, fs::Permissions::from_mode(0o755)).map_err(VolumeError::io("setting the mode of", fresh))?;
    for (path, file) in &payload.files {
        write_file(&fresh.join(path), file)?;
    }
    match group {
        Some(group) => ownership::give_to_group(fresh, group, true),
        None => Ok(()),
    }
}

fn write_file(path: &Path, file: &File) -> Result<(), VolumeError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(VolumeError::io("making", parent))?;
    }
    fs::write(path, &file.bytes).map_err(VolumeError::io("writing", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(file.mode)).map_err(VolumeError::io("setting the mode of", path))?;
    if let Some(owner) = file.owner {
        std::os::unix::fs::chown(path, Some(owner), None).map_err(VolumeError::io("setting the owner of", path))?;
    }
    Ok(())
}

/// The first part of each path is a link through `..data`.
fn visible(payload: &Payload) -> BTreeSet<PathBuf> {
    payload.files.keys().filter_map(|path| path.components().next()).map(|first| PathBuf::from(first.as_os_str())).collect()
}

/// Links each name through `..data`, and removes all other names and what `..data` left.
fn show_names(volume: &Path, payload: &Payload) -> Result<(), VolumeError> {
    let entries = entries(volume)?;
    let links = entries.iter().filter(|entry| !entry.is_dir && !entry.is_hidden());
    let (wanted, linked) = (visible(payload), links.map(|entry| entry.name.clone()).collect::<BTreeSet<_>>());
    for name in wanted.difference(&linked) {
        let link = volume.join(name);
        match symlink(Path::new(DATA).join(name), &link) {
            // A directory that is not ours has the name.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(VolumeError::io("linking", &link)(error)),
            _ => {}
        }
    }
    sweep_dated(volume, &entries, fs::read_link(volume.join(DATA)).ok().as_deref())?;
    linked.difference(&wanted).try_for_each(|name| remove_if_there(&volume.join(name)))
}

/// What is in a volume's directory.
struct Entry {
    name: PathBuf,
    is_dir: bool,
}

impl Entry {
    /// Whether it belongs to the layout, not to the content.
    fn is_hidden(&self) -> bool {
        self.name.as_os_str().as_encoded_bytes().starts_with(b"..")
    }
}

fn entries(volume: &Path) -> Result<Vec<Entry>, VolumeError> {
    let listing = fs::read_dir(volume).map_err(VolumeError::io("listing", volume))?;
    let entries = listing.map(|entry| {
        let entry = entry.map_err(VolumeError::io("listing", volume))?;
        let is_dir = entry.file_type().map_err(VolumeError::io("reading", &entry.path()))?.is_dir();
        Ok(Entry { name: PathBuf::from(entry.file_name()), is_dir })
    });
    entries.collect()
}

/// Removes all dated directories but one: those that `..data` left, and those of a writer that was killed.
fn sweep_dated(volume: &Path, entries: &[Entry], current: Option<&Path>) -> Result<(), VolumeError> {
    for old in entries.iter().filter(|entry| entry.is_dir && entry.is_hidden() && current != Some(&entry.name)) {
        let path = volume.join(&old.name);
        runtimes_host::files::remove_tree(&path).map_err(VolumeError::io("removing", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount, umount};

    use super::*;

    fn payload(bytes: usize) -> Payload {
        let file = File { bytes: vec![b'x'; bytes], mode: 0o644, owner: None };
        Payload { files: BTreeMap::from([(PathBuf::from("deep/settings"), file)]) }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).expect("lists").map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_full_disk_keeps_the_old_content_and_nothing_half_written() {
        let dir = tempfile::tempdir().expect("a directory");
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some("size=256k")).expect("mounted");
        replace(dir.path(), &payload(1_000), None).expect("fits");
        show_names(dir.path(), &payload(1_000)).expect("linked");
        let before = names(dir.path());
        for _ in 0..3 {
            let error = replace(dir.path(), &payload(1 << 20), None).expect_err("does not fit");
            assert!(error.to_string().contains("writing"), "{error}");
            assert_eq!(names(dir.path()), before);
        }
        // The state that a writer leaves when it is killed in the middle: the next one needs the space.
        let dead = dir.path().join("..2026_01_01_00_00_00.000000000");
        fs::create_dir(&dead).expect("made");
        fs::write(dead.join("settings"), vec![0; 180 << 10]).expect("written");
        replace(dir.path(), &payload(100 << 10), None).expect("fits once the rest is gone");
        show_names(dir.path(), &payload(100 << 10)).expect("linked");
        assert_eq!(read(dir.path(), "deep/settings").map(|bytes| bytes.len()), Some(100 << 10));
        assert_eq!(names(dir.path()).len(), before.len());
        umount(dir.path()).expect("unmounted");
    }
}
