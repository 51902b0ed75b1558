//! The directory of state that belongs to one boot: container records, runc's state, sockets, process
//! ids, namespaces, addresses of Pods. It lies on a tmpfs as a rule (`/run/skiff/<name>`), as in other
//! runtimes: the kernel takes it away with the processes that it describes, and no power cut tears it.
//!
//! In come the node's data directory and the directory that is wanted; out comes the directory to use,
//! of which nothing is older than this boot. A boot is known by the kernel's `boot_id`, written into the
//! directory. What an earlier boot left is removed unread, here and where earlier versions kept it (the
//! data directory itself). Containers of this boot that an earlier agent recorded elsewhere run on where
//! they are: their shims hold open files there, so that place stays in use until the next boot.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use node_volumes::unmount_below;
use runtimes_host::files::{PRIVATE, remove_tree, sync_parent, write_atomic};
use runtimes_host::process::boot_id;
use runtimes_shim::record::PidRecord;

use crate::error::{AgentError, chain};

/// What is kept in it, a directory each. Nothing else there is ever touched.
const PARTS: [&str; 3] = ["network", "runc", "wasmtime"];
/// The parts that hold container records, below `containers/<id>`.
const RUNTIMES: [&str; 2] = ["runc", "wasmtime"];
/// The file that says whose the directory is and since which boot.
const OWNER: &str = "boot";
/// The link in the data directory that leads to it.
const LINK: &str = "run";
/// Longest pid record; see `runtimes_shim::state`.
const RECORD_LEN_MAX: u64 = 32 * 1024;

/// A node's directory for this boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
    data_dir: PathBuf,
}

impl RunDir {
    /// Finds or makes it, and removes what an earlier boot left. The caller keeps other agents of the same
    /// data directory out. Blocks.
    ///
    /// # Errors
    /// [`AgentError::RunDirTaken`] when another node's containers run there; [`AgentError::Io`] when it
    /// cannot be made. What an earlier boot left elsewhere and cannot be removed is no error.
    pub fn open(data_dir: &Path, wanted: &Path) -> Result<Self, AgentError> {
        let boot = boot_id().map_err(failed("reading", Path::new("/proc/sys/kernel/random/boot_id")))?;
        Self::of_boot(data_dir, wanted, &boot)
    }

    fn of_boot(data_dir: &Path, wanted: &Path, boot: &str) -> Result<Self, AgentError> {
        let last = fs::read_link(data_dir.join(LINK)).ok().filter(|last| owner(last).is_some_and(|owner| owner.is_node(data_dir)));
        let mut others: Vec<PathBuf> = last.into_iter().chain([data_dir.to_owned()]).collect();
        others.retain(|dir| dir != wanted);
        let path = others.iter().find(|dir| is_in_use(dir, boot)).cloned();
        let path = path.inspect(|path| tracing::info!(path = %path.display(), "containers of this boot are recorded here; the run directory changes at the next boot"));
        let path = path.unwrap_or_else(|| wanted.to_owned());
        for other in others.iter().filter(|other| **other != path) {
            if let Err(error) = (Self { path: other.clone(), data_dir: data_dir.to_owned() }).remove() {
                tracing::warn!(dir = %other.display(), error = chain(&error), "what an earlier boot left is not removed");
            }
        }
        let run_dir = Self { path, data_dir: data_dir.to_owned() };
        if run_dir.path != data_dir {
            run_dir.claim(boot)?;
        }
        Ok(run_dir)
    }

    /// A part of it.
    pub fn at(&self, part: &str) -> PathBuf {
        debug_assert!(PARTS.contains(&part), "{part} is not cleared");
        self.path.join(part)
    }

    /// Removes it, and what leads to it. What the parts hold must be freed before.
    pub fn remove(&self) -> Result<(), AgentError> {
        clear(&self.path)?;
        for file in [self.path.join(OWNER), self.data_dir.join(LINK)] {
            remove_file(&file).map_err(failed("removing", &file))?;
        }
        if self.path == self.data_dir {
            return Ok(());
        }
        // The one above is shared with other nodes of the machine, and goes with the last of them.
        for dir in [Some(self.path.as_path()), self.path.parent().filter(|parent| parent.ends_with("skiff"))].into_iter().flatten() {
            match fs::remove_dir(dir) {
                Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                    return Err(failed("removing", dir)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes it this node's for this boot.
    fn claim(&self, boot: &str) -> Result<(), AgentError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed("making", &self.path))?;
        let file = self.path.join(OWNER);
        let wanted = Owner { boot: boot.to_owned(), data_dir: self.data_dir.display().to_string() };
        let found = owner(&self.path);
        if found.as_ref() != Some(&wanted) {
            if let Some(other) = found.filter(|found| !found.is_node(&self.data_dir) && is_in_use(&self.path, boot)) {
                return Err(AgentError::RunDirTaken { path: self.path.clone(), owner: other.data_dir });
            }
            clear(&self.path)?;
            write_atomic(&file, wanted.encode().as_bytes(), PRIVATE).map_err(failed("writing", &file))?;
        }
        self.link()
    }

    /// Remembers where it is, for an agent that is given another one, and for people.
    fn link(&self) -> Result<(), AgentError> {
        let link = self.data_dir.join(LINK);
        if fs::read_link(&link).is_ok_and(|to| to == self.path) {
            return Ok(());
        }
        let fresh = self.data_dir.join(format!("{LINK}.new"));
        let made = remove_file(&fresh).and_then(|()| symlink(&self.path, &fresh)).and_then(|()| fs::rename(&fresh, &link));
        made.and_then(|()| sync_parent(&link)).map_err(failed("linking", &link))
    }
}

/// Whose a run directory is.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    boot: String,
    data_dir: String,
}

impl Owner {
    fn encode(&self) -> String {
        format!("boot {}\ndata-dir {}\nend\n", self.boot, self.data_dir)
    }

    /// `None` when the text is not whole.
    fn decode(text: &str) -> Option<Self> {
        let (boot, rest) = text.strip_prefix("boot ")?.split_once("\ndata-dir ")?;
        Some(Self { boot: boot.to_owned(), data_dir: rest.strip_suffix("\nend\n")?.to_owned() })
    }

    fn is_node(&self, data_dir: &Path) -> bool {
        Path::new(&self.data_dir) == data_dir
    }
}

/// Whose a directory is; `None` when nobody says so in whole.
fn owner(dir: &Path) -> Option<Owner> {
    fs::read_to_string(dir.join(OWNER)).ok().and_then(|text| Owner::decode(&text))
}

/// Whether a container or a Pod's namespace of this boot is recorded there.
fn is_in_use(dir: &Path, boot: &str) -> bool {
    let started = RUNTIMES.iter().flat_map(|part| entries(&dir.join(part).join("containers")));
    let pinned = entries(&dir.join("network/ns"));
    started.into_iter().any(|container| is_of_boot(&container.join("pid"), boot))
        || pinned.into_iter().any(|pod| is_mounted(&pod.join("net")))
}

/// What cannot be listed has no entries.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn is_of_boot(record: &Path, boot: &str) -> bool {
    use std::io::Read as _;
    let mut text = String::new();
    let read = fs::File::open(record).and_then(|file| file.take(RECORD_LEN_MAX).read_to_string(&mut text));
    read.is_ok() && PidRecord::decode(&text).is_some_and(|record| record.shim.boot_id == boot)
}

/// Whether something is mounted there: its device differs from its parent's.
fn is_mounted(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.dev());
    matches!((device(path), path.parent().map(device)), (Ok(own), Some(Ok(parents))) if own != parents)
}

/// Removes the parts, whatever is in them: nothing of it is read.
fn clear(dir: &Path) -> Result<(), AgentError> {
    for part in PARTS.map(|part| dir.join(part)) {
        if fs::symlink_metadata(&part).is_err() {
            continue;
        }
        tracing::info!(dir = %part.display(), "removing what an earlier boot left");
        unmount_below(&part).map_err(|error| AgentError::Remove(chain(&error)))?;
        remove_tree(&part).map_err(failed("removing", &part))?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AgentError {
    let path = path.to_owned();
    move |source| AgentError::Io { doing, path, source }
}

#[cfg(test)]
mod tests;
