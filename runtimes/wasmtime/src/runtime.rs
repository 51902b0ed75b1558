//! The agent's half: implements the contract with the compile cache, the state directory and shims.

mod exec;
mod program;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use runtimes_contract::{
    AttachSession, ContainerId, ContainerSpec, ContainerStatus, Content, ContentKind, ExecSession, ExecSpec, Exit, HttpRequests,
    Preparation, Processes, Resources, Runtime, RuntimeError, Seccomp, Stats,
};
use runtimes_host::blocking;
use runtimes_host::helper::Helper;
use runtimes_host::mounts::{EmptyMounts, have_recursive_attributes};
use runtimes_shim::exec::Permits;
use runtimes_shim::launch::{PidNamespace, launch};
use runtimes_shim::shims::Shims;
use runtimes_shim::state::open_log;

use crate::CODE;
use crate::cache::{Artifact, Cache, StoredModule};
use crate::compile::Purpose;
use crate::settings::CodeSettings;
use crate::user::{node_ids, owner};
use program::Programs;

/// The threads of one container: the shim has about a hundred when all of its helpers are busy on a machine of many cores. As many are for
/// further guests.
const THREADS_MAX: i64 = 256;
/// Further guests of one container that may outlive their sessions: each has at least two threads, and memory of the container.
const OUTLIVING_MAX: usize = 16;

/// The paths of a [`WasmtimeRuntime`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Its containers' records.
    pub state_dir: PathBuf,
    /// Compiled modules; may be shared by several runtimes of one machine.
    pub cache_dir: PathBuf,
    /// The binary `skiff-shim-wasmtime`.
    pub shim: PathBuf,
    /// Starts a program that calls [`crate::serve_compile`].
    pub compiler: Helper,
}

/// Runs WASM modules and components, each in a shim of its own.
pub struct WasmtimeRuntime {
    shims: Shims,
    cache: Cache,
    shim: PathBuf,
    /// Where shims begin.
    empty_mounts: EmptyMounts,
    permits: Permits,
    programs: Programs,
}

impl WasmtimeRuntime {
    /// Opens the directories; existing containers are known at once.
    pub fn new(config: Config) -> Result<Self, RuntimeError> {
        let cache = Cache::open(&config.cache_dir, config.compiler, Purpose::Container)?;
        let (permits, programs) = (Permits::new(OUTLIVING_MAX), Programs::new(cache.clone()));
        let shims = Shims::open(&config.state_dir)?;
        let empty_mounts = EmptyMounts::make(&config.state_dir, CODE).map_err(RuntimeError::io("making an empty mount namespace"))?;
        Ok(Self { shims, cache, shim: config.shim, empty_mounts, permits, programs })
    }

    async fn artifact(&self, spec: &ContainerSpec) -> Result<Artifact, RuntimeError> {
        self.cache.artifact(&module(spec)?).await
    }
}

/// The module that a container runs.
fn module(spec: &ContainerSpec) -> Result<StoredModule, RuntimeError> {
    match &spec.content {
        Content::Wasm { module, digest, .. } => {
            Ok(StoredModule { file: module.clone(), digest: digest.clone(), settings: CodeSettings::of(spec) })
        }
        Content::Linux { .. } | Content::Pause => {
            Err(RuntimeError::BadContent("runtime handler wasmtime runs WebAssembly, but the image holds a Linux root file system".into()))
        }
    }
}

#[async_trait]
impl Runtime for WasmtimeRuntime {
    fn handler(&self) -> &'static str {
        "wasmtime"
    }

    fn runs(&self) -> ContentKind {
        ContentKind::Wasm
    }

    fn mounts_recursively_read_only(&self) -> bool {
        have_recursive_attributes()
    }

    fn supports_user_namespaces(&self, dirs: &[&Path]) -> Result<(), RuntimeError> {
        self.shims.check_user_namespaces(dirs)
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        let shim = self.shim.clone();
        blocking(move || {
            if nix::unistd::access(&shim, nix::unistd::AccessFlags::X_OK).is_err() {
                return Err(RuntimeError::Missing(format!(
                    "{} cannot be executed; it is built and installed beside skiff",
                    shim.display()
                )));
            }
            match runtimes_host::process::Pidfd::open(std::process::id().cast_signed()) {
                Ok(_) => Ok(()),
                Err(error) => Err(RuntimeError::Missing(format!("the kernel has no pidfd_open ({error}); Linux 5.4 or newer is needed"))),
            }
        })
        .await
    }

    async fn preparation(&self, spec: &ContainerSpec) -> Result<Option<Preparation>, RuntimeError> {
        self.cache.preparation(&module(spec)?).await
    }

    async fn prepare(&self, spec: &ContainerSpec, tenant: &str) -> Result<Duration, RuntimeError> {
        self.cache.artifact_for(&module(spec)?, tenant).await.map(|artifact| artifact.took)
    }

    async fn work_in_background(&self) {
        self.cache.work_in_background().await;
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<(), RuntimeError> {
        if spec.security.seccomp != Seccomp::RuntimeDefault {
            return Err(RuntimeError::Unsupported("a WebAssembly container runs under the seccomp profile of its shim".into()));
        }
        if spec.processes != Processes::Own {
            return Err(RuntimeError::Unsupported("a WebAssembly container has no processes that it could share".into()));
        }
        if !spec.devices.is_empty() {
            return Err(RuntimeError::Unsupported("a WebAssembly container has no devices".into()));
        }
        node_ids(spec)?;
        self.artifact(spec).await?;
        let shims = self.shims.clone();
        let spec = spec.clone();
        blocking(move || create(&shims, &spec)).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let shims = self.shims.clone();
        let owned = id.clone();
        let made = blocking(move || shims.startable(&owned)).await?;
        // The cache may have been swept since `create`.
        let artifact = self.artifact(&made.spec).await?;
        let group = self.shims.group(&made.spec)?;
        let dir = self.shims.state.dir(id);
        let mut args: Vec<OsString> = vec![dir.clone().into(), self.empty_mounts.path().into()];
        args.extend(artifact.shim_args());
        launch(&self.shim, args, &dir, Some(group), PidNamespace::Own).await
    }

    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError> {
        self.shims.signal(id, signal).await
    }

    async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError> {
        self.shims.wait(id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let shims = self.shims.clone();
        let id = id.clone();
        blocking(move || remove(&shims, &id)).await
    }

    async fn list(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        self.shims.list().await
    }

    async fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError> {
        self.shims.set_cpus(id, cpus).await
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let state = self.shims.state.clone();
        let owned = id.clone();
        let made = blocking(move || state.made(&owned)).await?;
        self.shims.reopen_log(id, Some(owner(&made.spec)?)).await
    }

    async fn prepare_exec(&self, id: &ContainerId, exec: &ExecSpec) -> Result<(), RuntimeError> {
        self.prepare_further(id, exec).await
    }

    async fn exec(&self, id: &ContainerId, exec: ExecSpec) -> Result<ExecSession, RuntimeError> {
        self.start_further(id, &exec).await
    }

    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError> {
        self.shims.attach(id, stdin).await
    }

    async fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError> {
        self.shims.stats(id).await
    }

    async fn list_stats(&self, ids: &[ContainerId]) -> HashMap<ContainerId, Stats> {
        self.shims.list_stats(ids).await
    }

    async fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        self.shims.http_requests(id).await
    }
}

fn create(shims: &Shims, spec: &ContainerSpec) -> Result<(), RuntimeError> {
    let group = shims.group(spec)?;
    shims.state.create(spec)?;
    let threads = spec.resources.pids_max.map_or(THREADS_MAX, |max| max.min(THREADS_MAX));
    // The shim's filter of system calls maps no huge pages. A group for them is for those that map a volume of them.
    let huge_pages = spec.resources.huge_pages.clone().filter(|pages| !pages.is_empty());
    let limits = Resources { pids_max: Some(threads), huge_pages, ..spec.resources.clone() };
    let made = owner(spec).and_then(|owner| open_log(&spec.log_path, Some(owner))).and_then(|_| group.create(&limits));
    if made.is_err() {
        // Removes the rest of a container that could not be created; the first error is returned.
        if let Err(error) = remove(shims, &spec.id) {
            tracing::warn!(container = %spec.id, %error, "clearing away a half-made container");
        }
    }
    made
}

fn remove(shims: &Shims, id: &ContainerId) -> Result<(), RuntimeError> {
    match shims.state.made(id) {
        Ok(made) => shims.kill_and_free(id, &made.spec)?,
        // Incomplete: it has no cgroup yet.
        Err(RuntimeError::NotFound(_)) => {}
        Err(_) => shims.kill_recorded(id)?,
    }
    match shims.forget(id) {
        // An id that is not a valid container id does not exist.
        Err(RuntimeError::Unsupported(_)) => Ok(()),
        result => result,
    }
}
