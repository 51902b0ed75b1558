//! The values that pass between the node agent and a runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Names a container on this node for ever: the agent makes it from Pod UID, container name and
/// attempt. Safe as a file name and as a cgroup name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(pub String);

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The namespaces that a Pod's containers share, pinned as files; no process holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Network namespace; `None` is the node's own (`hostNetwork`).
    pub network: Option<PathBuf>,
    /// IPC namespace; `None` is the node's own.
    pub ipc: Option<PathBuf>,
    /// UTS namespace (hostname); `None` is the node's own.
    pub uts: Option<PathBuf>,
    /// The Pod's hostname.
    pub hostname: String,
}

/// What kind of content a runtime runs and an image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContentKind {
    /// A WASM module or component.
    Wasm,
    /// A Linux root file system.
    Linux,
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// A WASM module or component (binary format) in the image store.
    Wasm {
        /// The file.
        module: PathBuf,
        /// `sha256:…` of the file: the key of the compile cache.
        digest: String,
    },
    /// A mounted, writable root file system.
    Linux {
        /// Where it is mounted.
        rootfs: PathBuf,
    },
}

impl Content {
    /// Its kind.
    pub fn kind(&self) -> ContentKind {
        match self {
            Self::Wasm { .. } => ContentKind::Wasm,
            Self::Linux { .. } => ContentKind::Linux,
        }
    }
}

/// A directory or file of the node shown to the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path on the node; exists.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Which of the mounts that are made below it later are seen on both sides.
    #[serde(default)]
    pub propagation: Propagation,
}

impl Mount {
    /// One that shares nothing of what is mounted below it later.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>, read_only: bool) -> Self {
        Self { source: source.into(), target: target.into(), read_only, propagation: Propagation::Private }
    }
}

/// Whether mounts that are made below a mount later are seen on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// None are.
    #[default]
    Private,
    /// The container sees those of the node.
    FromNode,
    /// Each sees the other's.
    BothWays,
}

/// Numbers that the container's process runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id; `None` is the runtime's default (root for Linux content, nobody for WASM).
    pub uid: Option<u32>,
    /// Group id; `None` as for `uid`.
    pub gid: Option<u32>,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Limits, in the kernel's units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Hard memory limit in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// CPU weight as cgroup v1 shares (2 to 262,144).
    pub cpu_shares: Option<u64>,
    /// CPU time allowed in each period, in µs.
    pub cpu_quota_us: Option<i64>,
    /// The period, in µs.
    pub cpu_period_us: Option<u64>,
    /// Most processes and threads.
    pub pids_max: Option<i64>,
}

/// What the container may do beyond the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// All capabilities, all devices, no seccomp.
    pub privileged: bool,
    /// Root file system mounted read-only.
    pub read_only_root: bool,
    /// `no_new_privs` is set.
    pub no_new_privileges: bool,
    /// Capabilities added to the default set, without `CAP_`; `ALL` is all.
    pub capabilities_add: Vec<String>,
    /// Capabilities dropped from the default set, without `CAP_`; `ALL` is all.
    pub capabilities_drop: Vec<String>,
    /// Which system calls it may make, unless it is privileged.
    #[serde(default)]
    pub seccomp: Seccomp,
}

/// Which system calls a container may make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    /// Those of the runtime's own profile.
    #[default]
    RuntimeDefault,
    /// All, where the runtime can do without a profile; a WASM container keeps its shim's.
    Unconfined,
    /// Those of this profile, in the form of the OCI runtime spec's `linux.seccomp`. [`RuntimeError::Unsupported`] from
    /// a runtime that has only its own.
    ///
    /// [`RuntimeError::Unsupported`]: crate::RuntimeError::Unsupported
    Profile(serde_json::Value),
}

/// Everything that a runtime needs to know to make a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Its id.
    pub id: ContainerId,
    /// The agent's own words about it (Pod UID, container name, attempt, spec hash); given back by
    /// `list`, meaningless to the runtime.
    pub labels: BTreeMap<String, String>,
    /// Namespaces to join.
    pub sandbox: Sandbox,
    /// Cgroup to make for the container, relative to the hierarchy's root, for example
    /// `skiff/3f2a/burstable/pod<uid>/<id>`. Its parent exists.
    pub cgroup: String,
    /// What to run.
    pub content: Content,
    /// Whole argument vector, `argv[0]` first. Never empty.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Working directory in the container; for WASM a preopened directory or `/`.
    pub working_dir: PathBuf,
    /// Mounts, parents before children.
    pub mounts: Vec<Mount>,
    /// User and groups.
    pub user: User,
    /// Limits.
    pub resources: Resources,
    /// Whom the kernel ends first when the machine's memory runs out: -1000 never, 1000 before all others.
    #[serde(default)]
    pub oom_score_adj: i32,
    /// What the node's probes show in the header [`PROBE_HEADER`](crate::PROBE_HEADER) to be known for probes; nobody else
    /// has it. Empty: none is known.
    #[serde(default)]
    pub probe_token: String,
    /// Privileges.
    pub security: Security,
    /// File that receives stdout and stderr as CRI log lines
    /// (`2016-10-06T00:17:09.669794202Z stdout F text`); its directory exists.
    pub log_path: PathBuf,
    /// TCP ports that the container declares, in order; a `wasi:http/proxy` component is served on
    /// the first, or on 8080 when there is none.
    pub ports: Vec<u16>,
    /// Whether stdin is kept open; otherwise it is empty.
    pub stdin: bool,
    /// Whether it ends when the first attached client that sends it stops.
    #[serde(default)]
    pub stdin_once: bool,
    /// Whether stdio is a terminal.
    pub tty: bool,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, or half made, and not started.
    Created,
    /// Its first process runs.
    Running {
        /// That process, in the node's own pid namespace.
        pid: i32,
    },
    /// Ended.
    Exited(Exit),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + signal when a signal ended it, also when `kill -9` took the shim.
    pub code: i32,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Whether the memory limit did it.
    pub oom_killed: bool,
    /// When it ended, in ms since the epoch.
    pub finished_at_ms: u64,
    /// What the runtime has to say about it (a trap's message, a start error); may be empty.
    pub message: String,
}

/// One container as the runtime knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its id.
    pub id: ContainerId,
    /// The labels of its spec.
    pub labels: BTreeMap<String, String>,
    /// Where it is.
    pub state: ContainerState,
    /// When it was made, in ms since the epoch.
    pub created_at_ms: u64,
    /// When it was started, in ms since the epoch.
    pub started_at_ms: Option<u64>,
    /// The log path of its spec.
    pub log_path: PathBuf,
}

/// A further process in a running container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// Argument vector, `argv[0]` first.
    pub args: Vec<String>,
    /// Whether stdin is wanted.
    pub stdin: bool,
    /// Whether stdio is a terminal.
    pub tty: bool,
    /// The process runs on when its session is dropped, or when the agent ends: its stdin ends, and what it writes
    /// from then on waits unread. A client of `kubectl exec` that leaves must not end what it began. Otherwise the
    /// process is killed with its session, as probes and hooks want it.
    pub outlives_session: bool,
}

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// What a container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CPU time used since its start, in ns.
    pub cpu_ns: u64,
    /// Memory in use, in bytes, page cache included.
    pub memory_bytes: u64,
    /// Memory in use that cannot be reclaimed easily (upstream's working set), in bytes.
    pub working_set_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
}
