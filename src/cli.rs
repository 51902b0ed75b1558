//! The command line. Flags carry upstream's names where the thing exists upstream.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use ipnet::Ipv4Net;

use crate::access::Access;
use crate::place::Place;

/// Kubernetes for WebAssembly and OCI workloads in one binary.
#[derive(Parser)]
#[command(name = "skiff", version)]
pub struct Cli {
    /// What is logged, for example `info` or `warn,node_agent=debug`.
    #[arg(long, global = true, default_value = "warn", env = "SKIFF_LOG")]
    pub log: String,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a whole cluster in this process: API server, scheduler, controllers, DNS and one node.
    Up(Up),
    /// Run the control plane alone; nodes join it with `skiff agent`.
    Server(Server),
    /// Run a node alone.
    Agent(Agent),
    /// Remove every container, namespace, mount, cgroup and rule that a node of this data directory made.
    Down(DataDir),
    /// Look after the node's images, also while the node runs.
    #[command(subcommand)]
    Image(Image),
    /// Print the version.
    Version,
}

/// Where everything is kept.
#[derive(Args, Clone)]
pub struct DataDir {
    /// Directory that holds everything of this cluster on this machine.
    #[arg(long, default_value = "/var/lib/skiff")]
    pub data_dir: PathBuf,
}

impl DataDir {
    /// The directory, made when absent, and the names that follow from it.
    pub fn place(&self) -> anyhow::Result<Place> {
        Place::open(&self.data_dir).with_context(|| format!("using --data-dir {}", self.data_dir.display()))
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
    /// The cluster DNS' address.
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
}

/// A node.
#[derive(Args, Clone)]
pub struct NodeOptions {
    /// Name of the Node; this machine's hostname unless given.
    #[arg(long)]
    pub node_name: Option<String>,
    /// Address of the node; that of the default route unless given.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Port of the node's own HTTPS server.
    #[arg(long, default_value_t = 10_250)]
    pub kubelet_port: u16,
    /// Labels of the Node: a=b,c=d.
    #[arg(long, value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Most Pods the node takes.
    #[arg(long, default_value_t = 110)]
    pub max_pods: u32,
    /// Seconds that the node's Lease holds; it is renewed four times as often.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub node_lease_duration_seconds: u32,
    /// Seconds between two looks at the node's own state; changes are reported at once.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub node_status_update_frequency: u32,
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
    pub data_dir: DataDir,
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
    pub data_dir: DataDir,
    #[command(flatten)]
    pub ranges: Ranges,
    #[command(flatten)]
    pub control: ControlPlane,
}

/// `skiff agent`
#[derive(Args, Clone)]
pub struct Agent {
    #[command(flatten)]
    pub data_dir: DataDir,
    #[command(flatten)]
    pub ranges: Ranges,
    #[command(flatten)]
    pub node: NodeOptions,
    /// URL of the API server.
    #[arg(long)]
    pub server: String,
    /// The token that `skiff server` wrote to `node-token` in its data directory; needed once.
    #[arg(long, env = "SKIFF_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// `skiff image …`
#[derive(Subcommand)]
pub enum Image {
    /// Put a .wasm or .wat file, an OCI layout or a docker-save archive into the store.
    Import {
        #[command(flatten)]
        data_dir: DataDir,
        /// Name to give it.
        name: String,
        /// The file or directory.
        file: PathBuf,
    },
    /// List the images in the store.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// Fetch an image from its registry.
    Pull {
        #[command(flatten)]
        data_dir: DataDir,
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
        data_dir: DataDir,
        /// The image's name or id.
        name: String,
    },
}
