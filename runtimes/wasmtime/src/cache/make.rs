//! Compiles a module that is not in the cache, and names the result.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use runtimes_contract::RuntimeError;
use runtimes_host::blocking;
use runtimes_host::files::{self, PRIVATE, write_atomic};
use runtimes_host::helper::{Fault, HelperError, Job};

use super::{Artifact, BYTES_MAX, Cache, Look, Note, hashed, sweep};
use crate::compile::{Answer, MODULE_LEN_MAX, bounds};

/// Ends the name of a file that is being written; before it stands the writer's pid.
const FRESH: &str = "new";

impl Cache {
    /// Compiles a module and stores the result.
    pub(super) async fn make(&self, look: Look, module: &Path) -> Result<Artifact, RuntimeError> {
        let reading = || format!("reading {}", module.display());
        let opened = {
            let (module, reading) = (module.to_owned(), reading());
            blocking(move || {
                let file = File::open(module).map_err(RuntimeError::io(reading.clone()))?;
                let len = file.metadata().map_err(RuntimeError::io(reading))?.len();
                Ok::<_, RuntimeError>((file, len))
            })
        };
        let (file, len) = opened.await?;
        if len > MODULE_LEN_MAX {
            return Err(self.refuse(&look, format!("the WebAssembly file has {len} bytes; at most {MODULE_LEN_MAX} are compiled")));
        }
        let _slot = self.slots.acquire(len).await;
        let (fresh, code) = Fresh::new(&look)?;
        let bounds = bounds(len, self.machine_bytes, self.cores);
        let job = Job { root: &self.dir, bounds, question: self.purpose, files: vec![OwnedFd::from(file), OwnedFd::from(code)] };
        let answer: Answer = self.compiler.run(job).await.map_err(|error| self.failed(&look, error))?;
        if answer.fingerprint != self.fingerprint {
            return Err(RuntimeError::Missing("the program that compiles is of another version; start the node again".into()));
        }
        let dir = self.dir.clone();
        blocking(move || {
            let made = look.store(&fresh, &answer)?;
            if let Err(error) = sweep::sweep(&dir, &look.key, BYTES_MAX) {
                tracing::warn!(dir = %dir.display(), %error, "compiled modules not swept");
            }
            Ok(made)
        })
        .await
    }

    fn refuse(&self, look: &Look, why: String) -> RuntimeError {
        self.refused.add(&look.key, &why, Instant::now());
        RuntimeError::BadContent(why)
    }

    fn failed(&self, look: &Look, error: HelperError) -> RuntimeError {
        match error {
            HelperError::Fault(Fault::Content(why)) => self.refuse(look, why),
            error if error.is_inputs_fault() => self.refuse(look, format!("the WebAssembly module cannot be compiled: {error}")),
            error => RuntimeError::io("compiling a WebAssembly module")(io::Error::other(error)),
        }
    }
}

impl Look {
    /// Renames the code and writes its note, so that a power failure leaves both or neither.
    fn store(&self, fresh: &Fresh, answer: &Answer) -> Result<Artifact, RuntimeError> {
        let writing = || format!("writing {}", self.code().display());
        let store = || {
            let code = File::open(&fresh.0)?;
            code.sync_all()?;
            let (len, sha256) = hashed(code)?;
            let note = Note { kind: answer.kind, len, sha256 };
            // The note first: code without its note is not believed.
            write_atomic(&self.note(), &serde_json::to_vec(&note)?, PRIVATE)?;
            files::rename(&fresh.0, &self.code())
        };
        store().map_err(RuntimeError::io(writing()))?;
        self.find()?.ok_or_else(|| RuntimeError::io(writing())(io::ErrorKind::NotFound.into()))
    }
}

/// A file that has no name in the cache yet; removed when dropped.
struct Fresh(PathBuf);

impl Fresh {
    fn new(look: &Look) -> Result<(Self, File), RuntimeError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = look.dir.join(format!("{}-{number}.{}.{FRESH}", look.key, std::process::id()));
        let file = create(&path).map_err(RuntimeError::io(format!("making {}", path.display())))?;
        Ok((Self(path), file))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "half-written file stays");
            }
            _ => {}
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(PRIVATE).open(path)
}

/// Removes incomplete files of processes that have ended.
pub(super) fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != FRESH) {
            continue;
        }
        let writer = path.file_stem().and_then(|stem| Path::new(stem).extension()?.to_str()?.parse::<u32>().ok());
        let lives = writer.is_some_and(|pid| pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists());
        if !lives {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
