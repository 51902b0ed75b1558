//! Compiles a module that is not in the cache, and names the result.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use runtimes_contract::RuntimeError;
use runtimes_host::blocking;
use runtimes_host::files::{self, PRIVATE, write_atomic};
use runtimes_host::helper::{Fault, HelperError, Job};
use runtimes_host::process::ProcessRef;

use super::look::{Look, Note, hashed, identity};
use super::{Artifact, BYTES_MAX, Inner, StoredModule, sweep};
use crate::compile::{ANSWER_LEN_MAX, Answer, MODULE_LEN_MAX, Question, bounds, low_priority, one_line};
use crate::settings::CodeSettings;

/// Ends the name of a file that is being written; before it stands the writer ([`ProcessRef::encode_name`]).
const FRESH: &str = "new";

/// Which other work a compilation gives way to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// A container waits for it.
    Usual,
    /// It can wait for all other work of the machine.
    Low,
}

/// A module's file, and the settings that shape its code.
pub(super) struct Source {
    file: File,
    pub(super) len: u64,
    settings: CodeSettings,
}

impl Source {
    pub(super) async fn open(module: &StoredModule) -> Result<Self, RuntimeError> {
        let (path, settings, reading) = (module.file.clone(), module.settings.clone(), format!("reading {}", module.file.display()));
        let opened = blocking(move || {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            Ok::<_, io::Error>(Self { file, len, settings })
        });
        opened.await.map_err(RuntimeError::io(reading))
    }
}

impl Inner {
    /// Compiles a module and stores the result. [`RuntimeError::BadContent`] when the same module would fail again.
    pub(super) async fn make(&self, look: &Look, source: Source, priority: Priority) -> Result<Artifact, RuntimeError> {
        let Source { file, len, settings } = source;
        if len > MODULE_LEN_MAX {
            return Err(RuntimeError::BadContent(format!("the WebAssembly file has {len} bytes; at most {MODULE_LEN_MAX} are compiled")));
        }
        let _slot = match priority {
            Priority::Usual => Some(self.slots.acquire(len).await),
            Priority::Low => None,
        };
        let (fresh, code) = Fresh::new(&look.dir, &look.key)?;
        let bounds = bounds(len, self.machine_bytes, self.cores);
        let (compiler, bounds) = match priority {
            Priority::Usual => (self.compiler.clone(), bounds),
            Priority::Low => (self.compiler.clone().with_low_priority(), low_priority(bounds)),
        };
        let question = Question { purpose: self.purpose, optimization: look.optimization, settings };
        let fingerprint = self.fingerprints.get(question.optimization, &question.settings)?;
        let job = Job { root: &self.dir, bounds, question, files: vec![OwnedFd::from(file), OwnedFd::from(code)] };
        let begun = Instant::now();
        let answer: Answer = compiler.run(job).await.map_err(failed)?;
        if answer.fingerprint != fingerprint {
            return Err(RuntimeError::Missing("the program that compiles is of another version, or this CPU is another one than when the node started; start the node again".into()));
        }
        let (look, took) = (look.clone(), begun.elapsed());
        blocking(move || {
            let made = look.store(&fresh, &answer, took)?;
            if let Err(error) = sweep::sweep(&look.dir, &look.key, BYTES_MAX, SystemTime::now()) {
                tracing::warn!(dir = %look.dir.display(), %error, "compiled modules not swept");
            }
            Ok(made)
        })
        .await
    }
}

fn failed(error: HelperError) -> RuntimeError {
    match error {
        HelperError::Fault(Fault::Content(why)) => RuntimeError::BadContent(one_line(&why, ANSWER_LEN_MAX)),
        error if error.is_inputs_fault() => {
            RuntimeError::BadContent(one_line(&format!("the WebAssembly module cannot be compiled: {error}"), ANSWER_LEN_MAX))
        }
        error => RuntimeError::io("compiling a WebAssembly module")(io::Error::other(error)),
    }
}

impl Look {
    /// Writes the note, then renames the code. A kill or power failure between leaves a note alone, which [`clear`] removes.
    fn store(&self, fresh: &Fresh, answer: &Answer, took: Duration) -> Result<Artifact, RuntimeError> {
        let store = || -> io::Result<Artifact> {
            let code = File::open(&fresh.0)?;
            code.sync_all()?;
            let (len, sha256) = hashed(code)?;
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let &Answer { kind, abi, .. } = answer;
            let note = Note { kind, abi, len, sha256, took_ms, superseded_by: self.superseded_by.clone() };
            // The note first: code without its note is not believed.
            write_atomic(&self.note(), &serde_json::to_vec(&note)?, PRIVATE)?;
            files::rename(&fresh.0, &self.code())?;
            Ok(self.remember(identity(&self.code())?, note))
        };
        store().map_err(RuntimeError::io(format!("writing {}", self.code().display())))
    }
}

/// A file that has no name in the cache yet; removed when dropped.
pub struct Fresh(PathBuf);

impl Fresh {
    pub(super) fn new(dir: &Path, name: &str) -> Result<(Self, File), RuntimeError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let writer = ProcessRef::current().map_err(RuntimeError::io("reading /proc/self/stat"))?;
        let path = dir.join(format!("{name}-{number}.{}.{FRESH}", writer.encode_name()));
        let file = create(&path).map_err(RuntimeError::io(format!("making {}", path.display())))?;
        Ok((Self(path), file))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
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

/// Removes what processes that have ended left: incomplete files, and notes whose code was never renamed. Call it before the cache writes.
/// The lock of the data directory keeps other writers out; what belongs to one that lives all the same stays, but for a note that is being
/// written.
pub(super) fn clear(dir: &Path) -> io::Result<()> {
    let (mut in_work, mut notes) = (HashSet::new(), Vec::new());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(FRESH) => match key_of_living(&path) {
                Some(key) => drop(in_work.insert(key)),
                None => sweep::remove(&path)?,
            },
            Some("json") => notes.push(path),
            _ => {}
        }
    }
    // Between the two renames of a writer its incomplete file is there. The code is looked for last: it may have been renamed meanwhile.
    let is_in_work = |note: &Path| note.file_stem().and_then(|key| key.to_str()).is_some_and(|key| in_work.contains(key));
    let is_lost = |note: &&PathBuf| !is_in_work(note) && !note.with_extension("cwasm").exists();
    notes.iter().filter(is_lost).try_for_each(|note| sweep::remove(note))
}

/// The key of an incomplete file whose writer lives. Earlier versions named only the writer's pid.
fn key_of_living(path: &Path) -> Option<String> {
    let (name, writer) = path.file_stem()?.to_str()?.rsplit_once('.')?;
    let (key, _number) = name.rsplit_once('-')?;
    ProcessRef::is_alive_by_name(writer).then(|| key.to_owned())
}
