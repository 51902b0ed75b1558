//! The compile cache: one directory of machine code that the node maps and runs, so it trusts only files that it wrote itself.
//! A file is named by the module's digest and everything that shapes the code; it must belong to root alone, and its length and
//! hash must be those in the note beside it.
//!
//! A confined process compiles ([`crate::serve_compile`]): it gets the module and an empty file, both open, and nothing else.
//! The name of the file, and whether it gets one, is decided here. So a module that breaks the compiler can change its own code
//! only.
//!
//! A module is compiled once, however many containers start with it at the same time; when no caller waits for it any more, its
//! compilation is stopped. As many compilations run at once as there are cores, small modules before large ones.
//!
//! A large module is compiled without optimization, so that its first container starts soon. Its optimized code is made later, at a
//! low priority ([`Cache::work_in_background`]), and used by the next start. Both codes have names of their own.
//!
//! When the cache is too large, the code that was not used for the longest time is removed; a running shim keeps what it has mapped.

mod background;
mod backlog;
mod fingerprints;
mod look;
mod make;
mod sweep;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use runtimes_contract::{Preparation, RuntimeError};
use runtimes_host::files::private_dir;
use runtimes_host::helper::{Helper, Refused, Slots};
use runtimes_host::{Keyed, blocking};
use sha2::{Digest as _, Sha256};

use crate::compile::{LARGE_FROM, LONG_FROM, Optimization, Purpose, QUICK_FROM, Question, engine, fingerprint, hex, machine_bytes};
use crate::kind::{Abi, Kind};
use crate::settings::CodeSettings;
use backlog::Backlog;
use fingerprints::Fingerprints;
use look::{Checked, Look};
pub use look::{Identity, hashed};
pub use make::Fresh;
use make::Source;

/// The bytes of machine code in the cache.
const BYTES_MAX: u64 = 4 << 30;

/// A module of the image store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredModule {
    /// Its file.
    pub file: PathBuf,
    /// `sha256:…` of the file.
    pub digest: String,
    /// Those of its container. They shape the code, so it has a name of its own.
    pub settings: CodeSettings,
}

impl StoredModule {
    /// The name of its code.
    fn key(&self, fingerprint: &str) -> String {
        let CodeSettings { proposals, has_fuel } = &self.settings;
        let proposals: String = proposals.iter().map(|proposal| format!("\n{proposal}")).collect();
        let fuel = if *has_fuel { "\nfuel" } else { "" };
        hex(&Sha256::digest(format!("{}\n{fingerprint}{proposals}{fuel}", self.digest)))
    }
}

/// Machine code on disk, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// The file that the shim maps.
    pub path: PathBuf,
    /// How it is run.
    pub kind: Kind,
    /// What the engine that runs it must have.
    pub abi: Abi,
    /// How fast it is.
    pub optimization: Optimization,
    /// How long it took to compile.
    pub took: Duration,
}

impl Artifact {
    /// What the shim has to know of it.
    pub fn shim_args(&self) -> [OsString; 3] {
        [self.path.clone().into(), self.kind.to_string().into(), self.abi.to_string().into()]
    }
}

/// Machine code of a module of containers in a cache on disk, as its note says; it was not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledModule {
    /// Bytes of machine code.
    pub bytes: u64,
    /// Whether it is optimized.
    pub is_optimized: bool,
    /// How long it took to compile.
    pub took: Duration,
}

/// The machine code that a node's next container with a module starts with; `None` when it has to be compiled. Blocks.
///
/// # Errors
/// When this CPU cannot run WebAssembly.
pub fn compiled_module(dir: &Path, digest: &str) -> Result<Option<CompiledModule>, RuntimeError> {
    let module = StoredModule { file: PathBuf::new(), digest: digest.to_owned(), settings: CodeSettings::default() };
    for optimization in [Optimization::Full, Optimization::None] {
        let fingerprint = fingerprint_of(&Question { purpose: Purpose::Container, optimization, settings: CodeSettings::default() })?;
        let look = Look::new(dir, &module.key(&fingerprint), optimization);
        if let Some(note) = look.note_of_present() {
            let took = Duration::from_millis(note.took_ms);
            return Ok(Some(CompiledModule { bytes: note.len, is_optimized: optimization == Optimization::Full, took }));
        }
    }
    Ok(None)
}

/// What machine code depends on, beside its module, which decides the ABI.
fn fingerprint_of(question: &Question) -> Result<String, RuntimeError> {
    match engine(question, Abi::Sync) {
        Ok(engine) => Ok(fingerprint(&engine)),
        Err(error) if question.settings.proposals.is_empty() => {
            Err(RuntimeError::Missing(format!("this CPU or kernel cannot run WebAssembly: {error:#}")))
        }
        Err(error) => Err(RuntimeError::Unsupported(format!("proposals of WebAssembly on this machine: {error:#}"))),
    }
}

/// The cache of one node. A clone is the same cache.
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

/// What a compilation needs, which may outlive the call that started it.
struct Inner {
    dir: PathBuf,
    purpose: Purpose,
    fingerprints: Fingerprints,
    compiler: Helper,
    slots: Slots,
    machine_bytes: u64,
    cores: usize,
    checked: Checked,
    /// Modules that cannot be compiled, by their key.
    refused: Refused,
    /// The code of modules that are looked up or compiled now, by the key of their optimized code.
    first_codes: Keyed<String, FirstCode>,
    /// Modules that wait for their optimized code.
    backlog: Backlog,
}

/// The result for all callers with the same module. It ends when the last of them drops it.
type FirstCode = Shared<BoxFuture<'static, Result<Artifact, RuntimeError>>>;

impl Cache {
    /// Opens or creates the directory. It must belong to root and be writable by root only.
    pub fn open(dir: &Path, compiler: Helper, purpose: Purpose) -> Result<Self, RuntimeError> {
        let doing = || format!("making the compile cache {}", dir.display());
        private_dir(dir).map_err(RuntimeError::io(doing()))?;
        let fingerprints = Fingerprints::new(purpose)?;
        make::clear(dir).map_err(RuntimeError::io(format!("clearing the compile cache {}", dir.display())))?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let inner = Inner {
            dir: dir.to_owned(),
            purpose,
            fingerprints,
            compiler,
            slots: Slots::new(cores, LARGE_FROM),
            machine_bytes: machine_bytes(),
            cores,
            checked: Checked::default(),
            refused: Refused::default(),
            first_codes: Keyed::default(),
            backlog: Backlog::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The compilation that [`Cache::artifact`] would do now, without the check of the code that is there.
    pub async fn preparation(&self, module: &StoredModule) -> Result<Option<Preparation>, RuntimeError> {
        let looks = self.inner.looks(module)?;
        let is_present = blocking(move || Ok::<_, RuntimeError>(looks.iter().any(Look::is_present))).await?;
        if is_present || self.inner.refusal(module)?.is_some() {
            return Ok(None);
        }
        let bytes = Source::open(module).await?.len;
        Ok(Some(Preparation { bytes, takes_long: bytes >= LONG_FROM }))
    }

    /// The machine code of a module, compiled now if necessary. A caller that drops the future stops the compilation unless others
    /// wait for it; the next caller starts it again.
    pub async fn artifact(&self, module: &StoredModule) -> Result<Artifact, RuntimeError> {
        let key = self.inner.look(module, Optimization::Full)?.key;
        let first_code = self.inner.first_codes.get(&key, || {
            let (inner, module) = (self.inner.clone(), module.clone());
            async move { inner.first_code(&module).await }.boxed().shared()
        });
        FirstCode::clone(&first_code).await
    }

    /// The machine code of a module that was compiled before. An error when the module cannot be compiled.
    pub async fn compiled(&self, module: &StoredModule) -> Result<Option<Artifact>, RuntimeError> {
        match self.inner.refusal(module)? {
            Some(why) => Err(RuntimeError::BadContent(why)),
            None => find(self.inner.looks(module)?).await,
        }
    }

    /// A new file on the cache's disk for a module that is in no store; removed when dropped.
    pub fn module_file(&self) -> Result<(Fresh, File), RuntimeError> {
        Fresh::new(&self.inner.dir, "program")
    }

    /// The same as [`Cache::artifact`], for the start of a tenant's container: if the code is not optimized, the optimized code is made later.
    pub async fn artifact_for(&self, module: &StoredModule, tenant: &str) -> Result<Artifact, RuntimeError> {
        let artifact = self.artifact(module).await?;
        if artifact.optimization == Optimization::None {
            self.inner.backlog.add(tenant, module.clone());
        }
        Ok(artifact)
    }

    /// Makes the optimized code of modules that have been started without, one after another; never returns.
    pub async fn work_in_background(&self) {
        match self.inner.work_in_background().await {}
    }
}

impl Inner {
    async fn first_code(&self, module: &StoredModule) -> Result<Artifact, RuntimeError> {
        if let Some(why) = self.refusal(module)? {
            return Err(RuntimeError::BadContent(why));
        }
        if let Some(artifact) = find(self.looks(module)?).await? {
            return Ok(artifact);
        }
        let source = Source::open(module).await?;
        let look = self.look(module, self.first_optimization(source.len))?;
        let made = self.make(&look, source, make::Priority::Usual).await;
        if let Err(RuntimeError::BadContent(why)) = &made {
            self.refused.add(&look.key, why, Instant::now());
        }
        made
    }

    /// The optimization of the code that a module's first container runs.
    fn first_optimization(&self, len: u64) -> Optimization {
        match self.purpose {
            Purpose::Container if len >= QUICK_FROM => Optimization::None,
            Purpose::Container | Purpose::Plugin => Optimization::Full,
        }
    }

    /// The names that a module's code may have, the best code first.
    fn looks(&self, module: &StoredModule) -> Result<[Look; 2], RuntimeError> {
        Ok([self.look(module, Optimization::Full)?, self.look(module, Optimization::None)?])
    }

    fn look(&self, module: &StoredModule, optimization: Optimization) -> Result<Look, RuntimeError> {
        let key = |optimization| Ok::<_, RuntimeError>(module.key(&self.fingerprints.get(optimization, &module.settings)?));
        let superseded_by = if optimization == Optimization::None { Some(key(Optimization::Full)?) } else { None };
        Ok(Look { superseded_by, checked: self.checked.clone(), ..Look::new(&self.dir, &key(optimization)?, optimization) })
    }

    /// Why a module is rejected, if it must not be compiled now.
    fn refusal(&self, module: &StoredModule) -> Result<Option<String>, RuntimeError> {
        let now = Instant::now();
        Ok(self.looks(module)?.iter().find_map(|look| self.refused.why(&look.key, now)))
    }
}

/// The first code that is there.
async fn find(looks: [Look; 2]) -> Result<Option<Artifact>, RuntimeError> {
    blocking(move || {
        for look in looks {
            if let Some(artifact) = look.find()? {
                return Ok(Some(artifact));
            }
        }
        Ok(None)
    })
    .await
}

#[cfg(test)]
mod tests;
