//! The agent's settings. The binary fills them; nothing here is read from the environment.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Taint;

use crate::app_armor::AppArmorPaths;
use crate::certificates::Certificates;
use crate::cpu_manager::CpuManagerConfig;
use crate::eviction::Thresholds;
use crate::shutdown_grace_periods::ShutdownGracePeriods;
use crate::sysctls::AllowedSysctls;

/// Upstream's default of `--max-pods`.
pub const PODS_MAX: u32 = 110;

/// The agent's settings. [`Config::new`] sets those that have an upstream default.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Node object's name.
    pub node_name: String,
    /// The node's address: `InternalIP`, and `status.hostIP` of its Pods.
    pub node_ip: IpAddr,
    /// The directory of all data of the node.
    pub data_dir: PathBuf,
    /// Short name of this cluster on this machine: the cgroup tree is `skiff/<prefix>`.
    pub prefix: String,
    /// Version reported as `kubeletVersion`, for example `v1.37.0`.
    pub kubelet_version: String,
    /// Version reported as `containerRuntimeVersion`, after `skiff://`.
    pub skiff_version: String,
    /// Labels of the Node beside the well-known ones.
    pub labels: BTreeMap<String, String>,
    /// Taints that the Node registers with.
    pub taints: Vec<Taint>,
    /// The address of the node's HTTPS server; the Node publishes its port. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The server's identity, which may be renewed. Without it there is no server, and so neither logs nor exec.
    pub serving: Option<tokio::sync::watch::Receiver<Serving>>,
    /// The certificates that the node renews itself, for `/metrics`; `None` when somebody else renews them.
    pub certificates: Option<Arc<Certificates>>,
    /// Nameservers for `ClusterFirst`.
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// The node's own resolver file, for `Default` and for the search paths of `ClusterFirst`.
    pub host_resolv_conf: PathBuf,
    /// The directory of the manifests of static Pods, or the file of one (upstream's `--pod-manifest-path`).
    pub pod_manifest_path: Option<PathBuf>,
    /// The highest number of Pods on the node (upstream's `--max-pods`).
    pub pods_max: u32,
    /// Whether somebody has set it: the node then ends when its Pod range has fewer addresses, and otherwise warns.
    pub has_pods_max: bool,
    /// The highest number of processes and threads of one Pod (upstream's `--pod-max-pids`); `None` takes a share of the
    /// machine's.
    pub pod_pids_max: Option<i64>,
    /// The range of Pod addresses; `None` waits for `spec.podCIDR`.
    pub pod_cidr: Option<Ipv4Net>,
    /// CPU and memory that Pods do not get: thousandths of a CPU, bytes.
    pub reserved: (i64, i64),
    /// Which containers have CPUs of their own.
    pub cpu_manager: CpuManagerConfig,
    /// The sysctls that Pods may set beside the safe ones.
    pub allowed_unsafe_sysctls: AllowedSysctls,
    /// Where the machine has AppArmor.
    pub app_armor: AppArmorPaths,
    /// The directory in which device plugins have their sockets; `None` for a node without plugins.
    pub device_plugin_dir: Option<PathBuf>,
    /// The directory in which the kernel shows the machine's CPUs.
    pub sys_dir: PathBuf,
    /// The directory in which the kernel shows the machine's memory and the number of its processes.
    pub proc_dir: PathBuf,
    /// The directory in which the kernel shows its huge pages by size, over all NUMA nodes.
    pub huge_pages_dir: PathBuf,
    /// The duration of the node's Lease.
    pub lease_duration: Duration,
    /// How often the Lease is renewed.
    pub lease_renew: Duration,
    /// The period in which the node checks its own state; changes are written at once.
    pub status_check: Duration,
    /// How often an unchanged status is written.
    pub status_report: Duration,
    /// The highest number of images that the Node reports (upstream's `--node-status-max-images`); `None` reports all.
    pub node_status_images_max: Option<usize>,
    /// The period in which the list of images is read for the report.
    pub image_list_refresh: Duration,
    /// The period in which ConfigMaps and Secrets of running Pods are read again.
    pub volume_refresh: Duration,
    /// The size at which a container's log is rotated, in bytes.
    pub log_size_bytes_max: u64,
    /// The number of log files of one container instance.
    pub log_files_max: usize,
    /// The period in which log sizes, disk use and leftovers are checked.
    pub housekeeping: Duration,
    /// The fullness of the image file system, in percent, at which unused images are removed, and at which the removal stops.
    pub image_gc_percent: (u8, u8),
    /// What must stay free on the node (upstream's `--eviction-hard`, `--eviction-soft` and `--eviction-minimum-reclaim`).
    pub eviction_thresholds: Thresholds,
    /// The longest grace period, in seconds, of a Pod that is evicted for a soft threshold.
    pub eviction_pod_grace_period_max: i64,
    /// How long a pressure condition outlasts its cause (upstream's `--eviction-pressure-transition-period`).
    pub eviction_pressure_transition_period: Duration,
    /// The period in which local storage is compared with its limits, and how long the node waits after an eviction that did
    /// not resolve a threshold.
    pub eviction_monitoring_period: Duration,
    /// How long Pods have to end when the machine shuts down.
    pub shutdown_grace_periods: ShutdownGracePeriods,
    /// Whether Pods get cgroups; off in trials with many nodes on one machine.
    pub cgroups: bool,
    /// The highest number of pulls at one time.
    pub pulls_max: usize,
    /// The address of the health endpoints without TLS; `None` for no such server.
    pub healthz: Option<SocketAddr>,
    /// How long the Pod manager may stand still before the node is not well.
    pub sync_loop_max: Duration,
}

/// The node server's certificate and the CA of its clients, as PEM.
#[derive(Clone)]
pub struct Serving {
    /// Certificate chain.
    pub certificate_pem: String,
    /// Private key.
    pub key_pem: String,
    /// The CA that client certificates must come from.
    pub client_ca_pem: String,
}

impl Serving {
    /// For [`Config::serving`], when it never changes.
    pub fn fixed(self) -> tokio::sync::watch::Receiver<Self> {
        tokio::sync::watch::channel(self).1
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Config {
    /// Upstream's defaults for all but the names.
    pub fn new(node_name: impl Into<String>, node_ip: IpAddr, data_dir: impl Into<PathBuf>, prefix: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            node_ip,
            data_dir: data_dir.into(),
            prefix: prefix.into(),
            kubelet_version: "v1.37.0".to_owned(),
            skiff_version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            listen: SocketAddr::new(node_ip, 10_250),
            serving: None,
            certificates: None,
            cluster_dns: vec![IpAddr::from([10, 96, 0, 10])],
            cluster_domain: "cluster.local".to_owned(),
            host_resolv_conf: PathBuf::from("/etc/resolv.conf"),
            pod_manifest_path: None,
            pods_max: PODS_MAX,
            has_pods_max: false,
            pod_pids_max: None,
            pod_cidr: None,
            reserved: (0, 0),
            cpu_manager: CpuManagerConfig::default(),
            allowed_unsafe_sysctls: AllowedSysctls::default(),
            app_armor: AppArmorPaths::default(),
            device_plugin_dir: None,
            sys_dir: PathBuf::from("/sys/devices/system"),
            proc_dir: PathBuf::from("/proc"),
            huge_pages_dir: PathBuf::from("/sys/kernel/mm/hugepages"),
            lease_duration: Duration::from_secs(40),
            lease_renew: Duration::from_secs(10),
            status_check: Duration::from_secs(10),
            status_report: Duration::from_secs(300),
            node_status_images_max: Some(50),
            image_list_refresh: Duration::from_secs(30),
            volume_refresh: Duration::from_secs(60),
            log_size_bytes_max: 10 << 20,
            log_files_max: 5,
            housekeeping: Duration::from_secs(10),
            image_gc_percent: (85, 80),
            eviction_thresholds: Thresholds::default(),
            eviction_pod_grace_period_max: 0,
            eviction_pressure_transition_period: Duration::from_secs(300),
            eviction_monitoring_period: Duration::from_secs(10),
            shutdown_grace_periods: ShutdownGracePeriods::default(),
            cgroups: true,
            healthz: Some(SocketAddr::from(([127, 0, 0, 1], 10_248))),
            sync_loop_max: Duration::from_secs(15),
            pulls_max: 8,
        }
    }
}
