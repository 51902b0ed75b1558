//! The command line. Flags carry upstream's names where the thing exists upstream.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use ipnet::Ipv4Net;
use node_agent::AllowedSysctls;

use crate::access::Access;
use crate::autoscaling::Autoscaling;
use crate::cpus::Cpus;
use crate::data_dir::DataDir;
use crate::duration;
use crate::eviction::Eviction;
use crate::logging::Format;
use crate::shutdown::Shutdown;

/// Kubernetes for WebAssembly and OCI workloads in one binary.
#[derive(Parser)]
#[command(name = "skiff", version)]
pub struct Cli {
    /// Log filter, for example `info` or `warn,node_agent=debug`.
    #[arg(long, global = true, default_value = "warn", env = "SKIFF_LOG")]
    pub log: String,
    /// Log format: lines for people, or one JSON object per line.
    #[arg(long, global = true, value_enum, default_value = "text", env = "SKIFF_LOG_FORMAT")]
    pub log_format: Format,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[expect(clippy::large_enum_variant, reason = "a process has one")]
#[derive(Subcommand)]
pub enum Command {
    /// Run a whole cluster in this process: API server, scheduler, controllers, DNS and one node.
    Up(Up),
    /// Run the control plane alone; nodes join it with `skiff agent`.
    Server(Server),
    /// Run a node alone.
    Agent(Agent),
    /// Remove every container, namespace, mount, cgroup and rule that a node of this data directory made.
    Down(Down),
    /// Manage the images of the node, also while the node runs.
    #[command(subcommand)]
    Image(Image),
    /// Manage the database of a control plane that does not use etcd.
    #[command(subcommand)]
    Db(Db),
    /// Manage the tokens with which nodes join, while the server runs.
    #[command(subcommand)]
    Token(Token),
    /// Print the version.
    Version,
}

/// The data directory.
#[derive(Args, Clone)]
pub struct DataDirArgs {
    /// Directory for all data of this cluster on this machine.
    #[arg(long, default_value = "/var/lib/skiff")]
    pub data_dir: PathBuf,
}

impl DataDirArgs {
    /// Opens the directory, and creates it if it does not exist.
    pub fn open(&self) -> anyhow::Result<DataDir> {
        DataDir::open(&self.data_dir).with_context(|| format!("using --data-dir {}", self.data_dir.display()))
    }
}

/// The directory for state of one boot.
#[derive(Args, Clone)]
pub struct RunDir {
    /// Directory for state of one boot: sockets, process IDs, namespaces, the state of runc. It should be
    /// on a tmpfs [default: /run/skiff/NAME; NAME is derived from the data directory].
    #[arg(long)]
    pub run_dir: Option<PathBuf>,
}

impl RunDir {
    /// The run directory of this boot, without anything from an earlier boot. The caller holds the node's lock.
    pub fn open(&self, data_dir: &DataDir) -> anyhow::Result<node_agent::RunDir> {
        let wanted = self.run_dir.clone().unwrap_or_else(|| data_dir.run_dir_default());
        Ok(node_agent::RunDir::open(&data_dir.dir, &std::path::absolute(wanted)?)?)
    }
}

/// Addresses that must be the same for all parts of a cluster.
#[derive(Args, Clone)]
pub struct Ranges {
    /// Range of Pod addresses of the whole cluster.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: Ipv4Net,
    /// Range of Service addresses; the cluster DNS has the tenth address.
    #[arg(long, default_value = "10.96.0.0/12")]
    pub service_cluster_ip_range: Ipv4Net,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
}

impl Ranges {
    /// The cluster DNS address.
    pub fn dns_ip(&self) -> anyhow::Result<std::net::Ipv4Addr> {
        self.service_cluster_ip_range.hosts().nth(9).context("--service-cluster-ip-range has no tenth address for the cluster DNS")
    }
}

/// The API server, the scheduler and the controllers.
#[derive(Args, Clone)]
pub struct ControlPlane {
    /// Port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Address on which the API server listens.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Address at which Pods and nodes reach the API server, if it is not an address of this machine.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    #[command(flatten)]
    pub access: Access,
    /// Additional names and addresses for the certificate of the server.
    #[arg(long, value_delimiter = ',')]
    pub tls_san: Vec<String>,
    /// Admission plugins to turn off.
    #[arg(long, value_delimiter = ',', value_parser = api_server::known_admission_plugin)]
    pub disable_admission_plugins: Vec<String>,
    /// Let nodes show their static Pods as mirror Pods. A node can then be an endpoint of any Service.
    #[arg(long)]
    pub allow_mirror_pods: bool,
    /// Maximum number of read requests in flight.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// Maximum number of write requests in flight; the sum of both is the number of seats that
    /// API Priority and Fairness distributes.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,
    /// Controllers to run: `*` for all, `name` to turn one on, `-name` to turn one off.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Ranges of addresses that triggers of ScaledObjects and ScaledJobs may reach although they are loopback, link-local or an
    /// API server's.
    #[arg(long, value_delimiter = ',')]
    pub triggers_may_reach: Vec<ipnet::IpNet>,
    /// Prefix length of the Pod range of each node, for example 23 for 509 Pods a node. A Node that has a range keeps it.
    #[arg(long, default_value_t = 24)]
    pub node_cidr_mask_size: u8,
    /// Whether to run the scheduler.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub scheduler: bool,
    /// File with the KubeSchedulerConfiguration of the scheduler.
    #[arg(long)]
    pub scheduler_config: Option<PathBuf>,
    /// Seconds without a heartbeat after which a node counts as lost.
    #[arg(long, default_value_t = 40)]
    pub node_monitor_grace_period: u64,
    /// Time to keep an Event after its last change, for example 1h; 0 keeps Events forever.
    #[arg(long, default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,
    /// Interval at which the CPU and memory of nodes and Pods are read for kubectl top and autoscalers, four times as long when nobody asks;
    /// at least 10s, or 0 for never.
    #[arg(long, default_value = "15s", value_parser = duration::parse_resolution)]
    pub metric_resolution: Duration,
    #[command(flatten)]
    pub autoscaling: Autoscaling,
    #[command(flatten)]
    pub etcd: Etcd,
}

/// The etcd servers of the control plane, if it uses etcd.
#[derive(Args, Clone)]
pub struct Etcd {
    /// URLs of etcd servers; several API servers may share them. Without this flag the state is in a
    /// database in the data directory.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// File with the certificate authority of the etcd servers.
    #[arg(long, requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// File with the client certificate for etcd.
    #[arg(long, requires_all = ["etcd_servers", "etcd_keyfile"])]
    pub etcd_certfile: Option<PathBuf>,
    /// File with the key of the client certificate for etcd.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// Time between compactions of etcd, for example 5m; 0 disables compaction.
    #[arg(long, default_value = "5m", value_parser = duration::parse)]
    pub etcd_compaction_interval: Duration,
}

/// A node.
#[derive(Args, Clone)]
pub struct NodeOptions {
    #[command(flatten)]
    pub run_dir: RunDir,
    /// Name of the Node [default: the hostname of this machine].
    #[arg(long)]
    pub node_name: Option<String>,
    /// Address of the node [default: the address of the default route].
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Port of the HTTPS server of the node.
    #[arg(long, default_value_t = 10_250)]
    pub kubelet_port: u16,
    /// Port of the health endpoint of the node, without TLS; 0 disables it.
    #[arg(long, default_value_t = 10_248)]
    pub healthz_port: u16,
    /// Address of the health endpoint of the node.
    #[arg(long, default_value = "127.0.0.1")]
    pub healthz_bind_address: IpAddr,
    /// Labels of the Node, for example a=b,c=d.
    #[arg(long, value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Directory of the manifests of static Pods, or one manifest. `skiff up` then allows mirror Pods; with `skiff server`, see
    /// `--allow-mirror-pods`.
    #[arg(long)]
    pub pod_manifest_path: Option<PathBuf>,
    /// Maximum number of Pods on the node [default: 110].
    #[arg(long)]
    pub max_pods: Option<u32>,
    /// Maximum number of processes and threads of one Pod [default: an eighth of the limit of the kernel].
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    pub pod_max_pids: Option<i64>,
    /// Seconds for which the Lease of the node is valid; the node renews it four times in this time.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub node_lease_duration_seconds: u32,
    /// Seconds between two reports of the node status; the node reports changes at once.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub node_status_update_frequency: u32,
    /// Maximum number of images that the node reports in its status; -1 reports all.
    #[arg(long, default_value_t = 50, allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-1..))]
    pub node_status_max_images: i32,
    #[command(flatten)]
    pub eviction: Eviction,
    /// Percent of disk usage above which the node removes unused images; 100 keeps all images.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_high_threshold: u8,
    /// Percent of disk usage down to which the node removes unused images.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_low_threshold: u8,
    /// Registries that are used without TLS, as host:port.
    #[arg(long, value_delimiter = ',')]
    pub insecure_registry: Vec<String>,
    /// Resolver file for names outside the cluster.
    #[arg(long, default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    #[command(flatten)]
    pub cpus: Cpus,
    /// Sysctls that Pods may set beside the safe ones, as names or as prefixes with a * at the end, for example
    /// kernel.msg*,net.core.somaxconn. Only sysctls of the Pod's network and IPC namespaces are possible.
    #[arg(long, default_value = "")]
    pub allowed_unsafe_sysctls: AllowedSysctls,
    #[command(flatten)]
    pub shutdown: Shutdown,
    /// Directory in which device plugins have their sockets, one for each agent of a machine; empty disables device plugins.
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    pub device_plugin_dir: String,
}

impl NodeOptions {
    /// The directory of device plugins; `None` for a node without them.
    pub fn device_plugin_dir(&self) -> anyhow::Result<Option<PathBuf>> {
        let dir = PathBuf::from(&self.device_plugin_dir);
        if dir.as_os_str().is_empty() {
            return Ok(None);
        }
        anyhow::ensure!(dir.is_absolute(), "--device-plugin-dir {}: it must be an absolute path", dir.display());
        Ok(Some(dir))
    }
}

/// `skiff up`
#[derive(Args, Clone)]
pub struct Up {
    #[command(flatten)]
    pub data_dir: DataDirArgs,
    #[command(flatten)]
    pub ranges: Ranges,
    #[command(flatten)]
    pub control: ControlPlane,
    #[command(flatten)]
    pub node: NodeOptions,
}

/// `skiff server`
#[derive(Args, Clone)]
pub struct Server {
    #[command(flatten)]
    pub data_dir: DataDirArgs,
    #[command(flatten)]
    pub ranges: Ranges,
    #[command(flatten)]
    pub control: ControlPlane,
    /// Lifetime of the token in `node-token`, for example 24h; 0 is forever. The server renews it at a start if it is about to expire.
    #[arg(long, default_value = "24h", value_parser = duration::parse)]
    pub join_token_ttl: Duration,
}

/// `skiff agent`
#[derive(Args, Clone)]
pub struct Agent {
    #[command(flatten)]
    pub data_dir: DataDirArgs,
    #[command(flatten)]
    pub ranges: Ranges,
    #[command(flatten)]
    pub node: NodeOptions,
    /// URL of the API server.
    #[arg(long)]
    pub server: String,
    /// Token from the file `node-token` in the data directory of the server, or from `skiff token create`; needed
    /// for the first start only.
    #[arg(long, env = "SKIFF_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// `skiff down`
#[derive(Args, Clone)]
pub struct Down {
    #[command(flatten)]
    pub data_dir: DataDirArgs,
    #[command(flatten)]
    pub run_dir: RunDir,
}

/// `skiff token …`
#[derive(Subcommand)]
pub enum Token {
    /// Create a token and print it.
    Create {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Lifetime of the token, for example 2h; 0 is forever.
        #[arg(long, default_value = "24h", value_parser = duration::parse)]
        ttl: Duration,
        /// Description of the token.
        #[arg(long, default_value = "")]
        description: String,
        /// Groups of the user of the token, in addition to system:bootstrappers.
        #[arg(long, value_delimiter = ',', default_value = api_auth::bootstrap::JOINING)]
        groups: Vec<String>,
        /// Permitted uses of the token.
        #[arg(long, value_delimiter = ',', default_value = "signing,authentication")]
        usages: Vec<String>,
        /// Print the command with which a node joins.
        #[arg(long)]
        print_join_command: bool,
    },
    /// List tokens, without their secrets.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        data_dir: DataDirArgs,
    },
    /// Delete a token.
    #[command(alias = "rm")]
    Delete {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// ID of the token, or the token itself.
        id: String,
    },
}

/// `skiff image …`
#[derive(Subcommand)]
pub enum Image {
    /// Import a .wasm or .wat file, an OCI layout or a docker-save archive into the store. A WebAssembly module is validated.
    Import {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Name of the image.
        name: String,
        /// The file or directory.
        file: PathBuf,
    },
    /// Show what an image is: of a WebAssembly module its world, proposals, size and compiled size.
    Inspect {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Name or ID of the image.
        name: String,
    },
    /// List the images in the store.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        data_dir: DataDirArgs,
    },
    /// Pull an image from its registry.
    Pull {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Registries that are used without TLS, as host:port.
        #[arg(long, value_delimiter = ',')]
        insecure_registry: Vec<String>,
        /// Name of the image.
        name: String,
    },
    /// Remove an image by name or ID.
    #[command(alias = "remove")]
    Rm {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Name or ID of the image.
        name: String,
    },
}

/// `skiff db …`
#[derive(Subcommand)]
pub enum Db {
    /// Copy the database to a new file, also while the server runs.
    Backup {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// The file to create.
        file: PathBuf,
    },
    /// Replace the database by a backup; the server must not run.
    Restore {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// The backup.
        file: PathBuf,
    },
    /// Check the integrity of the database or of a backup, and print its size; also while the server runs.
    Check {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// A backup to check instead of the database.
        file: Option<PathBuf>,
    },
}
