//! The compile cache: one directory of machine code that may be mapped and run, so nothing is
//! believed that we did not write. A file is named by the module's digest and everything that shapes
//! the code; it must be root's alone, and its length and hash must be those in the note beside it.
//!
//! A module is compiled once, however many containers start with it at the same time, and at most
//! [`COMPILES_MAX`] compile at once. What was not used for the longest time goes when there is too much;
//! a shim that runs keeps what it has mapped.

mod sweep;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use runtimes_contract::files::{PRIVATE, write_atomic};
use runtimes_contract::{RuntimeError, blocking};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use wasmtime::Engine;

use crate::compile::{Complaint, MODULE_LEN_MAX, compile, engine, fingerprint, hex};
use crate::kind::Kind;

/// Bytes of machine code that are kept.
const BYTES_MAX: u64 = 4 << 30;
/// Compilations at once; each uses all cores by itself.
const COMPILES_MAX: usize = 2;
/// Complaints that are remembered, so that a restarting Pod does not compile a bad image again.
const COMPLAINTS_MAX: usize = 256;

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
    engine: Engine,
    fingerprint: String,
    compiles: Arc<Semaphore>,
    known: Arc<Mutex<Known>>,
}

/// What this process has found out.
#[derive(Default)]
struct Known {
    /// One lock a key that is being looked up or compiled.
    busy: HashMap<String, Arc<AsyncMutex<()>>>,
    /// Files whose hash was right, as they were then.
    checked: HashMap<String, (Identity, Kind)>,
    /// Images that cannot be run.
    complaints: HashMap<String, Complaint>,
}

/// Changes when somebody writes to or replaces a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

/// What is noted beside an artifact.
#[derive(Serialize, Deserialize)]
struct Note {
    kind: Kind,
    len: u64,
    sha256: String,
}

impl Cache {
    /// Opens or makes the directory. It must belong to root and be writable by nobody else.
    pub fn open(dir: &Path) -> Result<Self, RuntimeError> {
        let doing = || format!("making the compile cache {}", dir.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(RuntimeError::io(doing()))?;
        fs::set_permissions(dir, PermissionsExt::from_mode(0o700)).map_err(RuntimeError::io(doing()))?;
        let engine = engine().map_err(|error| RuntimeError::Missing(format!("this CPU or kernel cannot run WebAssembly: {error:#}")))?;
        Ok(Self {
            dir: dir.to_owned(),
            fingerprint: fingerprint(&engine),
            engine,
            compiles: Arc::new(Semaphore::new(COMPILES_MAX)),
            known: Arc::default(),
        })
    }

    /// The machine code of a module, compiled now if need be. A caller that gives up leaves the
    /// compilation running, for the next one.
    pub async fn artifact(&self, module: &Path, digest: &str) -> Result<Artifact, RuntimeError> {
        let key = hex(&Sha256::digest(format!("{digest}\n{}", self.fingerprint)));
        if let Some(complaint) = self.known.lock().complaints.get(&key) {
            return Err(RuntimeError::BadContent(complaint.to_string()));
        }
        let busy = self.known.lock().busy.entry(key.clone()).or_default().clone();
        let alone = busy.clone().lock_owned().await;
        let look = Look { dir: self.dir.clone(), key: key.clone(), known: self.known.clone() };
        let found = {
            let look = look.clone();
            blocking(move || look.find()).await?
        };
        let result = match found {
            Some(artifact) => {
                drop(alone);
                Ok(artifact)
            }
            None => {
                let turn = self.compiles.clone().acquire_owned().await.map_err(|_| closed())?;
                let (engine, module) = (self.engine.clone(), module.to_owned());
                blocking(move || {
                    let _until_done = (turn, alone);
                    look.make(&engine, &module)
                })
                .await
            }
        };
        drop(busy);
        // The map holds one handle; a second one means somebody waits.
        self.known.lock().busy.retain(|_, lock| Arc::strong_count(lock) > 1);
        result
    }
}

/// One key of the cache, on a blocking thread.
#[derive(Clone)]
struct Look {
    dir: PathBuf,
    key: String,
    known: Arc<Mutex<Known>>,
}

impl Look {
    fn code(&self) -> PathBuf {
        self.dir.join(format!("{}.cwasm", self.key))
    }

    fn note(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.key))
    }

    /// The artifact, if it is there and ours. One that is torn or foreign is removed.
    fn find(&self) -> Result<Option<Artifact>, RuntimeError> {
        let path = self.code();
        let identity = match identity(&path) {
            Ok(identity) => identity,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return self.distrust(&error.to_string()),
            Err(error) => return Err(RuntimeError::io(format!("reading {}", path.display()))(error)),
        };
        if let Some((as_checked, kind)) = self.known.lock().checked.get(&self.key).copied()
            && as_checked == identity
        {
            sweep::note_use(&self.note());
            return Ok(Some(Artifact { path, kind }));
        }
        let note: Option<Note> = fs::read(self.note()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(note) = note else { return self.distrust("it has no note") };
        let bytes = fs::read(&path).map_err(RuntimeError::io(format!("reading {}", path.display())))?;
        if note.len != identity.len || note.sha256 != hex(&Sha256::digest(&bytes)) {
            return self.distrust("it is not what was written");
        }
        self.known.lock().checked.insert(self.key.clone(), (identity, note.kind));
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

    fn make(&self, engine: &Engine, module: &Path) -> Result<Artifact, RuntimeError> {
        let reading = || format!("reading {}", module.display());
        let len = fs::metadata(module).map_err(RuntimeError::io(reading()))?.len();
        if len > MODULE_LEN_MAX {
            return Err(RuntimeError::BadContent(Complaint::TooLarge(len).to_string()));
        }
        let bytes = fs::read(module).map_err(RuntimeError::io(reading()))?;
        let compiled = compile(engine, &bytes);
        drop(bytes);
        release_memory();
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(complaint) => {
                let error = RuntimeError::BadContent(complaint.to_string());
                let mut known = self.known.lock();
                if known.complaints.len() >= COMPLAINTS_MAX {
                    known.complaints.clear();
                }
                known.complaints.insert(self.key.clone(), complaint);
                return Err(error);
            }
        };
        let note = Note { kind: compiled.kind, len: compiled.code.len() as u64, sha256: hex(&Sha256::digest(&compiled.code)) };
        let writing = || format!("writing {}", self.code().display());
        let noted = serde_json::to_vec(&note).map_err(io::Error::other).map_err(RuntimeError::io(writing()))?;
        // The note first: code without its note is not believed.
        write_atomic(&self.note(), &noted, PRIVATE).map_err(RuntimeError::io(writing()))?;
        write_atomic(&self.code(), &compiled.code, PRIVATE).map_err(RuntimeError::io(writing()))?;
        let made = self.find()?.ok_or_else(|| RuntimeError::io(writing())(io::ErrorKind::NotFound.into()))?;
        if let Err(error) = sweep::sweep(&self.dir, &self.key, BYTES_MAX) {
            tracing::warn!(dir = %self.dir.display(), %error, "compiled modules not swept");
        }
        Ok(made)
    }
}

/// Who a file is, if it is root's alone.
fn identity(path: &Path) -> io::Result<Identity> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a file that only we can write"));
    }
    Ok(Identity { device: meta.dev(), inode: meta.ino(), len: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) })
}

/// Compiling takes up to hundreds of MiB for a moment; glibc would keep them.
fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: returns free pages to the kernel; touches nothing in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn closed() -> RuntimeError {
    RuntimeError::io("compiling")(io::ErrorKind::Interrupted.into())
}

#[cfg(test)]
mod tests;
