//! The command line. Flags carry upstream's names where the thing exists upstream.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use ipnet::Ipv4Net;

use crate::access::Access;
use crate::data_dir::DataDir;
use crate::duration;
use crate::logging::Format;

/// Kubernetes for WebAssembly and OCI workloads in one binary.
#[derive(Parser)]
#[command(name = "skiff", version)]
pub struct Cli {
    /// What is logged, for example `info` or `warn,node_agent=debug`.
    #[arg(long, global = true, default_value = "warn", env = "SKIFF_LOG")]
    pub log: String,
    /// How it is logged: lines for people, or a JSON object a line.
    #[arg(long, global = true, value_enum, default_value = "text", env = "SKIFF_LOG_FORMAT")]
    pub log_format: Format,
    /// What to do.
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
    /// Look after the node's images, also while the node runs.
    #[command(subcommand)]
    Image(Image),
    /// Look after the database of a control plane that does not use etcd.
    #[command(subcommand)]
    Db(Db),
    /// Look after the tokens by which nodes join, while the server runs.
    #[command(subcommand)]
    Token(Token),
    /// Print the version.
    Version,
}

/// Where everything is kept.
#[derive(Args, Clone)]
pub struct DataDirArgs {
    /// Directory that holds everything of this cluster on this machine.
    #[arg(long, default_value = "/var/lib/skiff")]
    pub data_dir: PathBuf,
}

impl DataDirArgs {
    /// Opens the directory, and creates it if it does not exist.
    pub fn open(&self) -> anyhow::Result<DataDir> {
        DataDir::open(&self.data_dir).with_context(|| format!("using --data-dir {}", self.data_dir.display()))
    }
}

/// Where a node keeps what lives no longer than one boot.
#[derive(Args, Clone)]
pub struct RunDir {
    /// Directory of what belongs to one boot: sockets, process ids, namespaces, runc's state. It should be
    /// on a tmpfs [default: /run/skiff/NAME, NAME following from the data directory].
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

/// Addresses that all parts of a cluster have to agree on.
#[derive(Args, Clone)]
pub struct Ranges {
    /// Pod addresses of the whole cluster.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: Ipv4Net,
    /// Service addresses; the tenth is the cluster DNS'.
    #[arg(long, default_value = "10.96.0.0/12")]
    pub service_cluster_ip_range: Ipv4Net,
    /// The cluster's DNS domain.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
}

impl Ranges {
    /// The cluster DNS address.
    pub fn dns_ip(&self) -> anyhow::Result<std::net::Ipv4Addr> {
        self.service_cluster_ip_range.hosts().nth(9).context("--service-cluster-ip-range has no tenth address for the cluster DNS")
    }
}

/// The API server and what runs beside it.
#[derive(Args, Clone)]
pub struct ControlPlane {
    /// Port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Address the API server listens on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Address that Pods and nodes reach the API server at, when it is not this machine's own.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    #[command(flatten)]
    pub access: Access,
    /// Further names and addresses for the server's certificate.
    #[arg(long, value_delimiter = ',')]
    pub tls_san: Vec<String>,
    /// Admission plugins to turn off.
    #[arg(long, value_delimiter = ',', value_parser = api_server::known_admission_plugin)]
    pub disable_admission_plugins: Vec<String>,
    /// Requests that change nothing, answered at once.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// Requests that change something, answered at once; together with the former, the seats that
    /// priority and fairness deals out.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,
    /// Controllers to run: `*` for all, `name` to turn one on, `-name` to turn one off.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Whether to run the scheduler.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub scheduler: bool,
    /// Seconds without a heartbeat until a node is taken for lost.
    #[arg(long, default_value_t = 40)]
    pub node_monitor_grace_period: u64,
    /// How long an Event is kept after it was last seen, such as 1h; 0 for ever.
    #[arg(long, default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,
    #[command(flatten)]
    pub etcd: Etcd,
}

/// Where the control plane keeps its state, when not in its data directory.
#[derive(Args, Clone)]
pub struct Etcd {
    /// URLs of etcd servers; several API servers may share them. Unless given, the state is kept in a
    /// database in the data directory.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// File of the authority that signed the etcd servers' certificates.
    #[arg(long, requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// File of the certificate that is shown to etcd.
    #[arg(long, requires_all = ["etcd_servers", "etcd_keyfile"])]
    pub etcd_certfile: Option<PathBuf>,
    /// File of that certificate's key.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd begin with.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// Time between compactions of etcd, such as 5m; 0 for none.
    #[arg(long, default_value = "5m", value_parser = duration::parse)]
    pub etcd_compaction_interval: Duration,
}

/// A node.
#[derive(Args, Clone)]
pub struct NodeOptions {
    #[command(flatten)]
    pub run_dir: RunDir,
    /// Name of the Node; this machine's hostname unless given.
    #[arg(long)]
    pub node_name: Option<String>,
    /// Address of the node; that of the default route unless given.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Port of the node's own HTTPS server.
    #[arg(long, default_value_t = 10_250)]
    pub kubelet_port: u16,
    /// Port on which the node says without TLS whether it is well; 0 for none.
    #[arg(long, default_value_t = 10_248)]
    pub healthz_port: u16,
    /// Address of that port.
    #[arg(long, default_value = "127.0.0.1")]
    pub healthz_bind_address: IpAddr,
    /// Labels of the Node: a=b,c=d.
    #[arg(long, value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Most Pods the node takes.
    #[arg(long, default_value_t = 110)]
    pub max_pods: u32,
    /// Most processes and threads of one Pod; an eighth of what the kernel allows by default.
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    pub pod_max_pids: Option<i64>,
    /// Seconds that the node's Lease holds; it is renewed four times as often.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub node_lease_duration_seconds: u32,
    /// Seconds between two looks at the node's own state; changes are reported at once.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub node_status_update_frequency: u32,
    /// What must stay free on the node, as `signal<quantity` or `signal<percent%`: with less, it takes no
    /// further Pods and evicts some. Signals: memory.available, nodefs.available, nodefs.inodesFree,
    /// imagefs.available, imagefs.inodesFree, pid.available.
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%"
    )]
    pub eviction_hard: node_agent::Thresholds,
    /// How much more than that is freed once it was short, as `signal=quantity` or `signal=percent%`.
    #[arg(long, default_value = "")]
    pub eviction_minimum_reclaim: node_agent::MinimumReclaim,
    /// How long a node says that it is under pressure after the pressure has gone.
    #[arg(long, default_value = "5m0s", value_parser = duration::parse)]
    pub eviction_pressure_transition_period: Duration,
    /// Percent of the disk in use at which unused images go; 100 keeps them all.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_high_threshold: u8,
    /// Percent of the disk in use down to which unused images go.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_low_threshold: u8,
    /// Registries that are spoken to without TLS, as host:port.
    #[arg(long, value_delimiter = ',')]
    pub insecure_registry: Vec<String>,
    /// The resolver file for names outside the cluster.
    #[arg(long, default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
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
    /// How long the token in `node-token` is good, such as 24h; 0 for ever. It is made anew at a start when it is about to end.
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
    /// The token that `skiff server` wrote to `node-token` in its data directory, or that `skiff token create` printed; needed
    /// once.
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
    /// Make a token and print it.
    Create {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// How long it is good, such as 2h; 0 for ever.
        #[arg(long, default_value = "24h", value_parser = duration::parse)]
        ttl: Duration,
        /// What it is for.
        #[arg(long, default_value = "")]
        description: String,
        /// Groups that it authenticates as, beside system:bootstrappers.
        #[arg(long, value_delimiter = ',', default_value = api_auth::bootstrap::JOINING)]
        groups: Vec<String>,
        /// What it may be used for.
        #[arg(long, value_delimiter = ',', default_value = "signing,authentication")]
        usages: Vec<String>,
        /// Print the command by which a node joins with it.
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
        /// Its id, or the token itself.
        id: String,
    },
}

/// `skiff image …`
#[derive(Subcommand)]
pub enum Image {
    /// Put a .wasm or .wat file, an OCI layout or a docker-save archive into the store.
    Import {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Name to give it.
        name: String,
        /// The file or directory.
        file: PathBuf,
    },
    /// List the images in the store.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        data_dir: DataDirArgs,
    },
    /// Fetch an image from its registry.
    Pull {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// Registries that are spoken to without TLS, as host:port.
        #[arg(long, value_delimiter = ',')]
        insecure_registry: Vec<String>,
        /// The image's name.
        name: String,
    },
    /// Remove an image by name or id.
    #[command(alias = "remove")]
    Rm {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// The image's name or id.
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
        /// The file to make.
        file: PathBuf,
    },
    /// Replace the database by a backup; the server must not run.
    Restore {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// The backup.
        file: PathBuf,
    },
    /// Say whether the database, or a backup, is whole, and how big it is; also while the server runs.
    Check {
        #[command(flatten)]
        data_dir: DataDirArgs,
        /// A backup, instead of the database.
        file: Option<PathBuf>,
    },
}
