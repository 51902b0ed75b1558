//! The directory of state that belongs to one boot: container records, runc's state, sockets, process ids, namespaces,
//! addresses of Pods. It is normally on a tmpfs (`/run/skiff/<name>`), as in other runtimes: the kernel removes it together
//! with the processes that it describes, and a power cut cannot damage it.
//!
//! The input is the node's data directory and the wanted directory; the output is the directory to use, in which nothing is
//! older than this boot. The kernel's `boot_id`, which is written into the directory, identifies the boot. State of an earlier
//! boot is removed unread, here and where earlier versions kept it (the data directory itself). Containers of this boot that an
//! earlier agent recorded elsewhere stay where they are: their shims have open files there, so that place is used until the
//! next boot.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use node_volumes::unmount_below;
use runtimes_host::files::{PRIVATE, remove_tree, sync_parent, write_atomic};
use runtimes_host::process::boot_id;
use runtimes_shim::record::PidRecord;

use crate::error::{AgentError, chain};

/// Its subdirectories. Nothing else there is ever touched.
const PARTS: [&str; 3] = ["network", "runc", "wasmtime"];
/// The parts that hold container records, below `containers/<id>`.
const RUNTIMES: [&str; 2] = ["runc", "wasmtime"];
/// The file that names the owner of the directory and the boot.
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
    /// Finds or creates the directory, and removes the state of an earlier boot. The caller prevents a second agent on the same
    /// data directory. Blocks.
    ///
    /// # Errors
    /// [`AgentError::RunDirTaken`] when another node's containers run there; [`AgentError::Io`] when it
    /// cannot be made. What an earlier boot left elsewhere and cannot be removed is no error.
    pub fn open(data_dir: &Path, wanted: &Path) -> Result<Self, AgentError> {
        let boot = boot_id().map_err(failed("reading", Path::new("/proc/sys/kernel/random/boot_id")))?;
        Self::of_boot(data_dir, wanted, boot)
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
        if run_dir.path != data_dir || wanted == data_dir {
            run_dir.claim(boot)?;
        }
        Ok(run_dir)
    }

    /// One of its subdirectories.
    pub fn at(&self, part: &str) -> PathBuf {
        debug_assert!(PARTS.contains(&part), "{part} is not cleared");
        self.path.join(part)
    }

    /// Removes it, and the link to it. What the subdirectories contain must be freed before.
    pub fn remove(&self) -> Result<(), AgentError> {
        clear(&self.path)?;
        for file in [self.path.join(OWNER), self.data_dir.join(LINK)] {
            remove_file(&file).map_err(failed("removing", &file))?;
        }
        if self.path == self.data_dir {
            return Ok(());
        }
        // The parent is shared with other nodes of the machine; the last of them removes it.
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

    /// Claims the directory for this node and boot.
    fn claim(&self, boot: &str) -> Result<(), AgentError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed("making", &self.path))?;
        let file = self.path.join(OWNER);
        let wanted = Owner { boot: boot.to_owned(), data_dir: self.data_dir.display().to_string() };
        let found = owner(&self.path);
        if found.as_ref() != Some(&wanted) {
            if let Some(other) = found.filter(|found| !found.is_node(&self.data_dir) && is_in_use(&self.path, boot)) {
                return Err(AgentError::RunDirTaken { path: self.path.clone(), owner: other.data_dir });
            }
            // Earlier versions wrote no such file into the data directory.
            if self.path != self.data_dir || !is_in_use(&self.path, boot) {
                clear(&self.path)?;
            }
            write_atomic(&file, wanted.encode().as_bytes(), PRIVATE).map_err(failed("writing", &file))?;
        }
        if self.path == self.data_dir { Ok(()) } else { self.link() }
    }

    /// Links to it from the data directory, for an agent with another configuration and for users.
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

    /// `None` when the text is not complete.
    fn decode(text: &str) -> Option<Self> {
        let (boot, rest) = text.strip_prefix("boot ")?.split_once("\ndata-dir ")?;
        Some(Self { boot: boot.to_owned(), data_dir: rest.strip_suffix("\nend\n")?.to_owned() })
    }

    fn is_node(&self, data_dir: &Path) -> bool {
        Path::new(&self.data_dir) == data_dir
    }
}

/// The owner of a directory; `None` when its file is missing or not complete.
fn owner(dir: &Path) -> Option<Owner> {
    fs::read_to_string(dir.join(OWNER)).ok().and_then(|text| Owner::decode(&text))
}

/// Whether it has a record of a container or a Pod's namespace of this boot.
fn is_in_use(dir: &Path, boot: &str) -> bool {
    let started = RUNTIMES.iter().flat_map(|part| entries(&dir.join(part).join("containers")));
    let pinned = entries(&dir.join("network/ns"));
    started.into_iter().any(|container| is_of_boot(&container.join("pid"), boot))
        || pinned.into_iter().any(|pod| is_mounted(&pod.join("net")))
}

/// A directory that cannot be listed has no entries.
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

/// Removes the subdirectories without reading their content.
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
