//! What a container runtime promises to the node agent: the trait [`Runtime`] and plain value types. The crate does not know
//! Pods, probes, restarts or the API; the agent translates. `runtimes-battery` has the tests that every runtime passes,
//! `runtimes-host` what a runtime needs of the machine, `runtimes-shim` what is common to runtimes whose containers are shims.

mod error;
mod outbound;
mod proposals;
mod redis;
mod spec;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

pub use error::RuntimeError;
pub use outbound::OutboundHost;
pub use proposals::WasmProposal;
pub use redis::{RedisServer, RedisUrlError};
pub use spec::{
    ContainerId, ContainerSpec, ContainerState, ContainerStatus, Content, ContentKind, Device, ExecSpec, Exit, HttpRequests, HttpSettings,
    Mount, Processes, Propagation, Resources, Sandbox, Seccomp, Security, Stats, TENANT_LABEL, TerminalSize, USER_NAMESPACE_IDS, User,
    UserNamespace,
};

/// Runs containers. One implementation a RuntimeClass handler.
///
/// Promises, checked by the battery:
/// - a container outlives the process that started it: a new `Runtime` over the same state
///   directory lists it, waits for it, and learns its exit code, whoever was its parent;
/// - `create` leaves either a whole container or nothing; twice with one id is
///   [`RuntimeError::Exists`];
/// - `remove` may be called at any time, any number of times, and on half-made containers: it kills
///   what runs and frees cgroup, mounts and state, in that order, and not the log file;
/// - nothing blocks the calling thread.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// The RuntimeClass handler this is, for example `runc`.
    fn handler(&self) -> &'static str;

    /// The kind of content that it runs.
    fn runs(&self) -> ContentKind;

    /// Checks the features of the machine that the runtime needs (kernel features, tools). The error names what is missing and
    /// what to install.
    async fn check(&self) -> Result<(), RuntimeError>;

    /// Whether the runtime and the kernel make mounts read-only with all that is mounted below
    /// ([`Mount::recursive_read_only`]). Final after [`Runtime::check`] has succeeded.
    fn mounts_recursively_read_only(&self) -> bool;

    /// Whether containers can have the ids of a user namespace ([`Sandbox::user`]), also on the files of mounts from these directories.
    /// The error says what is missing. Blocks for a moment.
    fn supports_user_namespaces(&self, dirs: &[&Path]) -> Result<(), RuntimeError>;

    /// The slow part of a container's first start that [`Runtime::prepare`] would do now. `None` when nothing of it is left to do,
    /// or when the content was rejected and is not tried again yet.
    async fn preparation(&self, spec: &ContainerSpec) -> Result<Option<Preparation>, RuntimeError>;

    /// Does the slow part of a container's first start ahead of time (compiles a module), and returns how long that took, whoever it
    /// was done for; idempotent. Callers with the same content share the work. It ends when the last of them drops the future. Work
    /// that can wait until after the start is done later in a fair order of tenants, by [`Runtime::work_in_background`].
    async fn prepare(&self, spec: &ContainerSpec, tenant: &str) -> Result<Duration, RuntimeError>;

    /// Does the work that `prepare` left for later, at a low priority, and never returns. A process calls it once. Without it
    /// containers start all the same.
    async fn work_in_background(&self) {
        std::future::pending().await
    }

    /// Prepares a container for its start. No code of the guest has run yet.
    async fn create(&self, spec: &ContainerSpec) -> Result<(), RuntimeError>;

    /// Runs a created container; returns once its process runs. When the future is dropped, the start may go on; `remove` ends what it
    /// has begun.
    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Sends a signal to the container's first process. It is no error when the process has ended.
    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError>;

    /// Waits until the container has ended, however long that takes. Cancel-safe.
    async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError>;

    /// Frees everything of a container; see the promises above.
    async fn remove(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Every container of this runtime's state directory, also incomplete ones.
    async fn list(&self) -> Result<Vec<ContainerStatus>, RuntimeError>;

    /// Sets the CPUs on which the processes of a started container may run ([`Resources::cpuset_cpus`]), also those that run already.
    /// It is no error when the container has ended.
    async fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError>;

    /// Makes the container write to a new file at its log path after the old one was renamed.
    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Makes what [`Runtime::exec`] with the same arguments needs and what may take long. No process is started.
    async fn prepare_exec(&self, _id: &ContainerId, _exec: &ExecSpec) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Runs a further process in a running container.
    async fn exec(&self, id: &ContainerId, exec: ExecSpec) -> Result<ExecSession, RuntimeError>;

    /// Attaches to the stdio of a running container's own process: its output from now on, and its stdin if that is requested
    /// and the container has one. Any number of clients may be attached; all get the whole output.
    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError>;

    /// The container's present use.
    async fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError>;

    /// The present use of several containers. A container whose use cannot be read is left out.
    async fn list_stats(&self, ids: &[ContainerId]) -> HashMap<ContainerId, Stats> {
        let mut all = HashMap::new();
        for id in ids {
            all.extend(self.stats(id).await.ok().map(|stats| (id.clone(), stats)));
        }
        all
    }

    /// The container's HTTP requests. `None` when its runtime does not serve them itself. Cheap: it is read every few seconds.
    async fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError>;
}

/// The slow part of a first start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Bytes of what is prepared: of the module.
    pub bytes: u64,
    /// Whether it may take so long that whoever waits for the container wants to read why.
    pub takes_long: bool,
}

/// The header with which a probe sends the container's `probe_token`. A runtime that serves requests itself answers probes even
/// under load, and removes the header.
pub const PROBE_HEADER: &str = "skiff-probe";

/// The highest [`HttpSettings::concurrency`].
pub const HTTP_CONCURRENCY_MAX: u32 = 1_024;

/// The highest timeouts of [`HttpSettings`], in s: a day.
pub const HTTP_TIMEOUT_MAX_S: u32 = 86_400;

/// The highest [`HttpSettings::instance_requests`].
pub const HTTP_INSTANCE_REQUESTS_MAX: u32 = 1_000_000;

/// The highest [`HttpSettings::instance_idle_s`].
pub const HTTP_INSTANCE_IDLE_MAX_S: u32 = 3_600;

/// The highest [`ContainerSpec::fuel`].
pub const FUEL_MAX: u64 = i64::MAX.unsigned_abs();

/// A process that [`Runtime::exec`] started. Dropping it kills the process unless [`ExecSpec::outlives_session`].
pub struct ExecSession {
    /// The process' stdin; dropping it closes stdin. `None` when it was not requested.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// From the process' stdout (with a terminal: from the terminal).
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The process' stderr; `None` with a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// New sizes of the terminal.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// Resolves to the exit code when the process has ended; 128 + signal when a signal ended it.
    pub exit: futures_exit::ExitFuture,
}

/// A client of [`Runtime::attach`]. Dropping it leaves the container as it is.
pub struct AttachSession {
    /// The container's stdin; dropping it ends stdin for a container whose stdin is for one client only. `None` when it was not
    /// requested.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// The container's stdout (with a terminal: the terminal), which ends with the container.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The container's stderr; `None` with a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// New sizes of the terminal.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
}

/// The future type of [`ExecSession::exit`].
pub mod futures_exit {
    use std::future::Future;
    use std::pin::Pin;

    use crate::RuntimeError;

    /// Resolves to an exit code.
    pub type ExitFuture = Pin<Box<dyn Future<Output = Result<i32, RuntimeError>> + Send>>;
}
