//! One name in the cache: whether there is code of that name, and whether it may be trusted. On a blocking thread.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use runtimes_contract::RuntimeError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Artifact, sweep};
use crate::compile::{Optimization, hex};
use crate::kind::{Abi, Kind};

/// Files whose hash was right, as they were then, with their notes.
pub(super) type Checked = Arc<Mutex<HashMap<String, (Identity, Note)>>>;

/// The most files that are remembered.
const CHECKED_MAX: usize = 4_096;

/// Changes when a file is written to or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Of a file's present state.
    pub fn of(meta: &fs::Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino(), len: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) }
    }
}

/// The note beside an artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) kind: Kind,
    /// Earlier versions had one ABI.
    #[serde(default)]
    pub(super) abi: Abi,
    pub(super) len: u64,
    pub(super) sha256: String,
    /// How long it took to compile.
    #[serde(default)]
    pub(super) took_ms: u64,
    /// The key of better code of the same module. When it is there, this code is not used any more.
    #[serde(default)]
    pub(super) superseded_by: Option<String>,
}

/// One key of the cache.
#[derive(Clone)]
pub(super) struct Look {
    pub(super) dir: PathBuf,
    pub(super) key: String,
    pub(super) optimization: Optimization,
    /// The key of the module's optimized code, if this is not it.
    pub(super) superseded_by: Option<String>,
    pub(super) checked: Checked,
}

impl Look {
    /// Alone: what it checks is forgotten with it.
    pub(super) fn new(dir: &Path, key: &str, optimization: Optimization) -> Self {
        Self { dir: dir.to_owned(), key: key.to_owned(), optimization, superseded_by: None, checked: Checked::default() }
    }

    pub(super) fn code(&self) -> PathBuf {
        self.dir.join(format!("{}.cwasm", self.key))
    }

    pub(super) fn note(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.key))
    }

    /// Whether there is code with a note. It is not read.
    pub(super) fn is_present(&self) -> bool {
        self.code().exists() && self.note().exists()
    }

    /// The note of code that is there.
    pub(super) fn note_of_present(&self) -> Option<Note> {
        if self.is_present() { self.read_note() } else { None }
    }

    /// A note that cannot be read belongs to no trusted code.
    fn read_note(&self) -> Option<Note> {
        fs::read(self.note()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }

    /// The artifact, if it exists and is ours. A damaged or foreign one is removed.
    pub(super) fn find(&self) -> Result<Option<Artifact>, RuntimeError> {
        let path = self.code();
        let identity = match identity(&path) {
            Ok(identity) => identity,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return self.distrust(&error.to_string()),
            Err(error) => return Err(RuntimeError::io(format!("reading {}", path.display()))(error)),
        };
        if let Some(artifact) = self.unchanged(identity) {
            sweep::note_use(&self.note());
            return Ok(Some(artifact));
        }
        let Some(note) = self.read_note() else { return self.distrust("it has no note") };
        let (_, sha256) = File::open(&path).and_then(hashed).map_err(RuntimeError::io(format!("reading {}", path.display())))?;
        if note.len != identity.len || note.sha256 != sha256 {
            return self.distrust("it is not what was written");
        }
        let artifact = self.remember(identity, note);
        sweep::note_use(&self.note());
        Ok(Some(artifact))
    }

    /// The artifact, whose file is what its note says.
    pub(super) fn remember(&self, identity: Identity, note: Note) -> Artifact {
        let artifact = self.artifact(&note);
        let mut checked = self.checked.lock();
        if checked.len() >= CHECKED_MAX {
            // Whatever is used again is hashed again.
            checked.clear();
        }
        checked.insert(self.key.clone(), (identity, note));
        artifact
    }

    /// The artifact, if it was checked before and is the same file.
    fn unchanged(&self, identity: Identity) -> Option<Artifact> {
        let checked = self.checked.lock();
        let (as_checked, note) = checked.get(&self.key)?;
        (*as_checked == identity).then(|| self.artifact(note))
    }

    fn artifact(&self, note: &Note) -> Artifact {
        let took = Duration::from_millis(note.took_ms);
        Artifact { path: self.code(), kind: note.kind, abi: note.abi, optimization: self.optimization, took }
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

/// The length and hash of what a reader has, without having it in memory: machine code may have gigabytes.
pub fn hashed(mut reader: impl Read) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    let len = io::copy(&mut reader, &mut hasher)?;
    Ok((len, hex(&hasher.finalize())))
}

/// The identity of a file, if it belongs to root alone.
pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a file that only we can write"));
    }
    Ok(Identity::of(&meta))
}
