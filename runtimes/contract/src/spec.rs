//! The values that pass between the node agent and a runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{OutboundHost, RedisServer, WasmProposal};

/// The identity of a container on this node: the agent makes it from Pod UID, container name and attempt. Safe as a file name
/// and as a cgroup name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(pub String);

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The namespaces that a Pod's containers share, pinned as files; no process keeps them alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Network namespace; `None` is the node's own (`hostNetwork`).
    pub network: Option<PathBuf>,
    /// IPC namespace; `None` is the node's own.
    pub ipc: Option<PathBuf>,
    /// UTS namespace (hostname); `None` is the node's own.
    pub uts: Option<PathBuf>,
    /// User namespace, which owns the others; `None` is the node's own.
    #[serde(default)]
    pub user: Option<UserNamespace>,
    /// The Pod's hostname.
    pub hostname: String,
}

/// The number of ids in a user namespace of a Pod, upstream's default.
pub const USER_NAMESPACE_IDS: u32 = 65_536;

/// A user namespace: the ids from 0 to [`USER_NAMESPACE_IDS`] inside are as many ids of the node, the same for users and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserNamespace {
    /// Where it is pinned.
    pub path: PathBuf,
    /// The node's id of its id 0.
    pub first_id: u32,
}

impl UserNamespace {
    /// The node's id of an id in the namespace. `None` when the namespace does not have it.
    pub fn id_on_node(&self, id: u32) -> Option<u32> {
        (id < USER_NAMESPACE_IDS).then(|| self.first_id.checked_add(id)).flatten()
    }
}

/// The processes that a container sees and may signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processes {
    /// Its own: it has a PID namespace of its own.
    #[default]
    Own,
    /// Those of another container of the runtime, whose PID namespace it joins. That container must be running; its end is
    /// the end of both.
    OfContainer(ContainerId),
    /// Those of the node.
    OfNode,
}

/// The kind of content that a runtime runs and an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContentKind {
    /// A WASM module or component.
    Wasm,
    /// A Linux root file system.
    Linux,
}

/// The content to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// A WASM module or component (binary format) in the image store.
    Wasm {
        /// The file.
        module: PathBuf,
        /// `sha256:…` of the file: the key of the compile cache.
        digest: String,
    },
    /// A mounted, writable root file system. Its files have the ids of the sandbox's user namespace, if it has one.
    Linux {
        /// The path at which it is mounted.
        rootfs: PathBuf,
    },
    /// Nothing: the container is a process of the runtime's own that waits until it is killed and reaps. Linux containers that
    /// share its processes ([`Processes::OfContainer`]) come and go, and their PID namespace stays.
    Pause,
}

impl Content {
    /// Its kind.
    pub fn kind(&self) -> ContentKind {
        match self {
            Self::Wasm { .. } => ContentKind::Wasm,
            Self::Linux { .. } | Self::Pause => ContentKind::Linux,
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
    /// Whether writes fail.
    pub read_only: bool,
    /// Whether writes fail also in what is mounted below the source. Only with `read_only`.
    #[serde(default)]
    pub recursive_read_only: bool,
    /// Whether no program in it can be run.
    #[serde(default)]
    pub no_exec: bool,
    /// Which later mounts below it are visible on both sides.
    #[serde(default)]
    pub propagation: Propagation,
    /// Whether its files have the ids of the sandbox's user namespace already. Those of any other mount have the node's, and the
    /// runtime maps them.
    #[serde(default)]
    pub ids_mapped: bool,
}

impl Mount {
    /// No later mount below it is visible on the other side, and programs in it can be run.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>, read_only: bool) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
            read_only,
            recursive_read_only: false,
            no_exec: false,
            propagation: Propagation::Private,
            ids_mapped: false,
        }
    }
}

/// Whether later mounts below a mount are visible on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// None are.
    #[default]
    Private,
    /// The container sees the node's mounts.
    FromNode,
    /// Each sees the other's.
    BothWays,
}

/// A device of the node that the container may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Absolute path on the node of a block or character device.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    /// What the container may do with it: letters of `rwm` (read, write, make further nodes of it).
    pub access: String,
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

impl User {
    /// All groups, the user's own one first: with it alone among them, a process that changes its group stays in it.
    pub fn all_groups(&self) -> Vec<u32> {
        let own = self.gid.unwrap_or(0);
        std::iter::once(own).chain(self.groups.iter().copied().filter(|group| *group != own)).collect()
    }
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
    /// The CPUs on which its processes may run, as the kernel lists them (`0-3,8`); `None` leaves that to the runtime.
    #[serde(default)]
    pub cpuset_cpus: Option<String>,
    /// The bytes of huge pages that its processes may have, by the bytes of a page; none of other sizes. `None` sets no limit.
    #[serde(default)]
    pub huge_pages: Option<BTreeMap<u64, u64>>,
}

/// The container's privileges beyond the default.
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
    /// The system calls that it may make, unless it is privileged.
    #[serde(default)]
    pub seccomp: Seccomp,
    /// The AppArmor profile of its processes, which is loaded. `None` is none.
    #[serde(default)]
    pub app_armor: Option<String>,
    /// Whether all of `/proc`, and of `/sys` what is hidden otherwise, can be seen and written. Only with a user namespace of the sandbox, which is what protects the node then.
    #[serde(default)]
    pub unmasked_proc: bool,
    /// Whether it cannot move files between the projects of a file system's quotas, unless it is privileged. In the node's user namespace,
    /// the kernel lets the owner of a file do so.
    #[serde(default)]
    pub keeps_projects: bool,
}

/// The system calls that a container may make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    /// Those of the runtime's own profile.
    #[default]
    RuntimeDefault,
    /// All. A runtime that cannot run without its own profile returns [`RuntimeError::Unsupported`].
    Unconfined,
    /// Those of this profile, in the form of the OCI runtime spec's `linux.seccomp`. A runtime that has only its own returns
    /// [`RuntimeError::Unsupported`].
    ///
    /// [`RuntimeError::Unsupported`]: crate::RuntimeError::Unsupported
    Profile(serde_json::Value),
}

/// How a `wasi:http/proxy` component is served. `None` is the runtime's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpSettings {
    /// The requests that it handles at once.
    pub concurrency: Option<u32>,
    /// How long its guest may take to begin an answer, and from one part of it to the next, in s.
    pub answer_timeout_s: Option<u32>,
    /// How long a request may take in all, in s.
    pub request_timeout_s: Option<u32>,
    /// The requests that one instance handles, one after the other.
    pub instance_requests: Option<u32>,
    /// How long an instance that may handle another request waits for it, in s.
    pub instance_idle_s: Option<u32>,
    /// Whether instances come from a pool, which is fast and bounds what one of them may have.
    pub pooling: Option<bool>,
}

/// Everything that a runtime needs to know to make a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Its id.
    pub id: ContainerId,
    /// The agent's own labels (Pod UID, container name, attempt, spec hash). `list` returns them; they mean nothing to the
    /// runtime.
    pub labels: BTreeMap<String, String>,
    /// Namespaces to join.
    pub sandbox: Sandbox,
    /// The processes that it sees. A runtime whose containers cannot share processes returns [`RuntimeError::Unsupported`].
    ///
    /// [`RuntimeError::Unsupported`]: crate::RuntimeError::Unsupported
    #[serde(default)]
    pub processes: Processes,
    /// Cgroup to make for the container, relative to the hierarchy's root, for example
    /// `skiff/3f2a/burstable/pod<uid>/<id>`. Its parent exists.
    pub cgroup: String,
    /// The content to run.
    pub content: Content,
    /// Whole argument vector, `argv[0]` first. Never empty.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Working directory in the container; for WASM a preopened directory or `/`.
    pub working_dir: PathBuf,
    /// Mounts, parents before children.
    pub mounts: Vec<Mount>,
    /// Devices beside those that every container has. A runtime whose containers have none returns [`RuntimeError::Unsupported`].
    ///
    /// [`RuntimeError::Unsupported`]: crate::RuntimeError::Unsupported
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Annotations for an OCI runtime. They mean nothing to other runtimes.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// User and groups.
    pub user: User,
    /// Limits.
    pub resources: Resources,
    /// The order in which the kernel kills when the machine's memory runs out: -1000 never, 1000 before all others.
    #[serde(default)]
    pub oom_score_adj: i32,
    /// The token that the node's probes send in the header [`PROBE_HEADER`](crate::PROBE_HEADER); no other client has it.
    /// Empty: no request counts as a probe.
    #[serde(default)]
    pub probe_token: String,
    /// How a `wasi:http/proxy` component is served.
    #[serde(default)]
    pub http: HttpSettings,
    /// The WebAssembly proposals that its module or component may use beside those that are on by default.
    #[serde(default)]
    pub proposals: BTreeSet<WasmProposal>,
    /// The most fuel that a WebAssembly program may use until it ends, or a `wasi:http/proxy` component for each request. An executed
    /// instruction uses about one. `None` is no bound.
    #[serde(default)]
    pub fuel: Option<u64>,
    /// To whom alone a guest may connect. `None`: the network decides.
    #[serde(default)]
    pub outbound_hosts: Option<Vec<OutboundHost>>,
    /// The Redis server behind the `wasi:keyvalue` of a component. `None` is a store in memory.
    #[serde(default)]
    pub keyvalue_redis: Option<RedisServer>,
    /// Privileges.
    pub security: Security,
    /// File that receives stdout and stderr as CRI log lines
    /// (`2016-10-06T00:17:09.669794202Z stdout F text`); its directory exists.
    pub log_path: PathBuf,
    /// The TCP ports that the container declares, in order. A `wasi:http/proxy` component is served on all of them, or on 8080
    /// when there is none.
    pub ports: Vec<u16>,
    /// Whether stdin stays open; otherwise it is empty.
    pub stdin: bool,
    /// Whether it ends when the first attached client that sends it stops.
    #[serde(default)]
    pub stdin_once: bool,
    /// Whether stdio is a terminal.
    pub tty: bool,
}

/// The state of a container's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, or incomplete, and not started.
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
    /// The runtime's message (a trap, a start error); may be empty.
    pub message: String,
}

/// One container as the runtime has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its id.
    pub id: ContainerId,
    /// The labels of its spec.
    pub labels: BTreeMap<String, String>,
    /// Its state.
    pub state: ContainerState,
    /// The time of its creation, in ms since the epoch.
    pub created_at_ms: u64,
    /// When it was started, in ms since the epoch.
    pub started_at_ms: Option<u64>,
    /// The log path of its spec.
    pub log_path: PathBuf,
    /// The user of its spec.
    pub user: User,
}

/// The label of a container that names its tenant: the namespace of its Pod. What tenants wait for, they get in turns.
pub const TENANT_LABEL: &str = "io.kubernetes.pod.namespace";

/// A further process in a running container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// Argument vector, `argv[0]` first.
    pub args: Vec<String>,
    /// Whether stdin is wanted.
    pub stdin: bool,
    /// Whether stdio is a terminal.
    pub tty: bool,
    /// The process continues to run when its session is dropped, or when the agent ends: its stdin ends, and its further output
    /// stays unread. A client of `kubectl exec` that leaves must not end the process. Otherwise the process is killed with its
    /// session, as probes and hooks need it.
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

/// The use of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CPU time used since its start, in ns.
    pub cpu_ns: u64,
    /// Memory in use, in bytes, page cache included.
    pub memory_bytes: u64,
    /// Memory in use that cannot be reclaimed easily (upstream's working set), in bytes.
    pub working_set_bytes: u64,
    /// Anonymous memory in use, in bytes.
    pub rss_bytes: u64,
    /// Page faults since its start.
    pub page_faults: u64,
    /// Those of the page faults that had to wait for a disk.
    pub major_page_faults: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// The HTTP requests to a container whose runtime serves them itself, since its start. Probes of the node are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpRequests {
    /// Requests that have arrived, with those that were rejected.
    pub received: u64,
    /// Requests that were rejected because the container had no room for them.
    pub rejected: u64,
    /// Requests that have arrived and not ended: they wait, a guest handles them, or their answer is being sent.
    pub in_flight: u64,
}
