//! The compile cache: one directory of machine code that the node maps and runs, so it trusts only files that it wrote itself.
//! A file is named by the module's digest and everything that shapes the code; it must belong to root alone, and its length and
//! hash must be those in the note beside it.
//!
//! A confined process compiles ([`crate::serve_compile`]): it gets the module and an empty file, both open, and nothing else.
//! The name of the file, and whether it gets one, is decided here. So a module that breaks the compiler can change its own code
//! only.
//!
//! A module is compiled once, however many containers start with it at the same time; when no caller waits for it any more, its
//! compilation is stopped. As many compilations run at once as there are cores, small modules before large ones. When the cache
//! is too large, the code that was not used for the longest time is removed; a running shim keeps what it has mapped.

mod make;
mod sweep;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use runtimes_contract::RuntimeError;
use runtimes_host::blocking;
use runtimes_host::files::private_dir;
use runtimes_host::helper::{Helper, Refused, Slots};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex as AsyncMutex;

use crate::compile::{LARGE_FROM, Purpose, engine, fingerprint, hex, machine_bytes};
use crate::kind::Kind;

/// The bytes of machine code in the cache.
const BYTES_MAX: u64 = 4 << 30;

/// Machine code on disk, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// The file that the shim maps.
    pub path: PathBuf,
    /// How it is run.
    pub kind: Kind,
}

/// The cache of one node.
pub struct Cache {
    dir: PathBuf,
    purpose: Purpose,
    fingerprint: String,
    compiler: Helper,
    slots: Slots,
    machine_bytes: u64,
    cores: usize,
    state: Arc<Mutex<CacheState>>,
    /// Modules that cannot be compiled, by their key.
    refused: Refused,
}

/// What this process has found out.
#[derive(Default)]
struct CacheState {
    /// One lock for each key that is being looked up or compiled.
    busy: HashMap<String, Arc<AsyncMutex<()>>>,
    /// Files whose hash was right, as they were then.
    checked: HashMap<String, (Identity, Kind)>,
}

/// Changes when a file is written to or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

/// The note beside an artifact.
#[derive(Serialize, Deserialize)]
struct Note {
    kind: Kind,
    len: u64,
    sha256: String,
}

impl Cache {
    /// Opens or creates the directory. It must belong to root and be writable by root only.
    pub fn open(dir: &Path, compiler: Helper, purpose: Purpose) -> Result<Self, RuntimeError> {
        let doing = || format!("making the compile cache {}", dir.display());
        private_dir(dir).map_err(RuntimeError::io(doing()))?;
        let engine =
            engine(purpose).map_err(|error| RuntimeError::Missing(format!("this CPU or kernel cannot run WebAssembly: {error:#}")))?;
        make::clear(dir).map_err(RuntimeError::io(format!("clearing the compile cache {}", dir.display())))?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Self {
            dir: dir.to_owned(),
            purpose,
            fingerprint: fingerprint(&engine),
            compiler,
            slots: Slots::new(cores, LARGE_FROM),
            machine_bytes: machine_bytes(),
            cores,
            state: Arc::default(),
            refused: Refused::default(),
        })
    }

    /// The machine code of a module, compiled now if necessary. A caller that drops the future stops the compilation; the next
    /// caller that waits for the same module starts it again.
    pub async fn artifact(&self, module: &Path, digest: &str) -> Result<Artifact, RuntimeError> {
        let key = hex(&Sha256::digest(format!("{digest}\n{}", self.fingerprint)));
        let busy = self.state.lock().busy.entry(key.clone()).or_default().clone();
        let _forgetting = Forgetting(&self.state);
        let _alone = busy.lock_owned().await;
        // After the wait: another caller may have compiled the same module meanwhile and found out what it is.
        if let Some(why) = self.refused.why(&key, Instant::now()) {
            return Err(RuntimeError::BadContent(why));
        }
        let look = Look { dir: self.dir.clone(), key: key.clone(), state: self.state.clone() };
        let found = {
            let look = look.clone();
            blocking(move || look.find()).await?
        };
        match found {
            Some(artifact) => Ok(artifact),
            None => self.make(look, module).await,
        }
    }
}

/// Removes locks without holders and waiters, also when their caller gave up.
struct Forgetting<'a>(&'a Mutex<CacheState>);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        // The map has one handle; a second one means that a caller waits.
        self.0.lock().busy.retain(|_, lock| Arc::strong_count(lock) > 1);
    }
}

/// One key of the cache, on a blocking thread.
#[derive(Clone)]
struct Look {
    dir: PathBuf,
    key: String,
    state: Arc<Mutex<CacheState>>,
}

impl Look {
    fn code(&self) -> PathBuf {
        self.dir.join(format!("{}.cwasm", self.key))
    }

    fn note(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.key))
    }

    /// The artifact, if it exists and is ours. A damaged or foreign one is removed.
    fn find(&self) -> Result<Option<Artifact>, RuntimeError> {
        let path = self.code();
        let identity = match identity(&path) {
            Ok(identity) => identity,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return self.distrust(&error.to_string()),
            Err(error) => return Err(RuntimeError::io(format!("reading {}", path.display()))(error)),
        };
        if let Some((as_checked, kind)) = self.state.lock().checked.get(&self.key).copied()
            && as_checked == identity
        {
            sweep::note_use(&self.note());
            return Ok(Some(Artifact { path, kind }));
        }
        let note: Option<Note> = fs::read(self.note()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(note) = note else { return self.distrust("it has no note") };
        let (_, sha256) = File::open(&path).and_then(hashed).map_err(RuntimeError::io(format!("reading {}", path.display())))?;
        if note.len != identity.len || note.sha256 != sha256 {
            return self.distrust("it is not what was written");
        }
        self.state.lock().checked.insert(self.key.clone(), (identity, note.kind));
        sweep::note_use(&self.note());
        Ok(Some(Artifact { path, kind: note.kind }))
    }

    fn distrust(&self, why: &str) -> Result<Option<Artifact>, RuntimeError> {
        tracing::warn!(file = %self.code().display(), why, "removing a compiled module that cannot be trusted");
        for path in [self.code(), self.note()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RuntimeError::io(format!("removing {}", path.display()))(error));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// A file's length and hash, without having it in memory: machine code may have gigabytes.
fn hashed(mut file: File) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    let len = io::copy(&mut file, &mut hasher)?;
    Ok((len, hex(&hasher.finalize())))
}

/// The identity of a file, if it belongs to root alone.
fn identity(path: &Path) -> io::Result<Identity> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a file that only we can write"));
    }
    Ok(Identity { device: meta.dev(), inode: meta.ino(), len: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) })
}

#[cfg(test)]
mod tests;
