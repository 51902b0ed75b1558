//! The kubelet's role: it registers the Node, runs the Pods that are bound to it and reports their status to the API server.
//! The input is Pods (a watch on `spec.nodeName`); the output is calls to runtimes, images, network and volumes, and Pod
//! status. One serial worker a Pod decides the next step (`worker::plan`, pure) from the Pod's record (`record`); only its
//! status writer writes Pod status. Containers outlive this process, and a new process adopts them.
//!
//! The crate does not know how a runtime works, never binds Pods, and has no state of its own except files named after the
//! Pod's UID.

mod action;
mod admit;
mod app_armor;
mod backoff;
mod block_devices;
pub mod bootstrap;
mod certificates;
mod cleanup;
mod config;
mod container;
mod cpu_manager;
mod cpu_rates;
mod device_plugins;
mod devices;
mod disk_usages;
mod duration;
mod enforce;
mod error;
mod eviction;
mod eviction_manager;
mod fair_queue;
mod health;
mod hooks;
mod housekeeping;
mod image_gc;
mod kubelet_metrics;
mod layout;
mod leftovers;
mod logs;
mod machine;
mod machine_usage;
mod measured;
mod node;
mod node_shutdown;
mod objects;
mod parts;
mod pod_groups;
mod pod_range;
mod pods;
mod priority;
mod probe;
mod probe_results;
mod qos_classes;
mod reason;
mod record;
mod register;
mod remove;
mod requests;
mod resize;
mod routes;
mod run_dir;
mod server;
mod shutdown_grace_periods;
mod static_pods;
mod stats;
mod status;
mod sysctls;
mod termination;
#[cfg(test)]
mod tests;
mod traffic;
mod user_namespaces;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api_client::events::Recorder;
use api_client::informer::{Informer, Informers};
use api_tasks::{Pulse, Tasks};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use node_device_plugins::DevicePlugins;
use node_volumes::Volumes;
use runtimes_contract::{Resources, Runtime};
use runtimes_host::cgroup::Cgroups;
use runtimes_host::files::{PRIVATE, private_dir, write_atomic};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use app_armor::AppArmorPaths;
pub use certificates::Certificates;
pub use config::{Config, PODS_MAX, Serving};
pub use cpu_manager::{
    CpuManagerConfig, CpuManagerError, CpuManagerPolicy, CpuPolicyOptions, CpuSet, CpuSetError, Reservation, ReservationError,
};
pub use error::AgentError;
pub use eviction::{MinimumReclaim, SoftAmounts, SoftGracePeriods, ThresholdError, Thresholds};
pub use parts::{Images, Networks, Parts, Shutdowns};
pub use run_dir::RunDir;
pub use shutdown_grace_periods::{PriorityGracePeriods, ShutdownGracePeriodError, ShutdownGracePeriods};
pub use sysctls::{AllowedSysctls, SysctlPatternError};

use crate::app_armor::AppArmor;
use crate::cpu_manager::CpuManager;
use crate::cpu_rates::CpuRates;
use crate::disk_usages::DiskUsages;
use crate::error::chain;
use crate::fair_queue::{FairQueue, QueueLimits};
use crate::health::Health;
use crate::kubelet_metrics::KubeletMetrics;
use crate::layout::Layout;
use crate::leftovers::Leftovers;
use crate::machine::Machine;
use crate::measured::measured;
use crate::node::{Directory, Node};
use crate::objects::Objects;
use crate::pods::{Inputs, Manager};
use crate::register::Registrar;
use crate::termination::Termination;
use crate::user_namespaces::UserNamespaces;

/// Orders to end a Pod that may wait for the Pod manager.
const TERMINATIONS_MAX: usize = 16;

/// The node agent.
pub struct Agent;

impl Agent {
    /// Runs the node until cancelled; containers continue to run then.
    ///
    /// # Errors
    /// When the node cannot begin, or when one of its background tasks fails: its Lease is not renewed any more then,
    /// but containers go on running, and the next start takes them up.
    pub async fn run(
        client: kube::Client,
        informers: &Informers,
        config: Config,
        parts: Parts,
        cancel: CancellationToken,
    ) -> Result<(), AgentError> {
        for runtime in &parts.runtimes {
            let failed = |error| AgentError::Runtime { handler: runtime.handler(), message: chain(&error) };
            runtime.check().await.map_err(failed)?;
        }
        let cancel = cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let tasks = Tasks::new(cancel.clone());
        let (terminations, ordered) = mpsc::channel(TERMINATIONS_MAX);
        let node = Arc::new(make_node(client, informers, config, parts, terminations, &tasks)?);
        let server = server::Server::bind(node.clone()).await?;
        let port = server.as_ref().map_or(0, server::Server::port);
        let health = Arc::new(Health::starting());
        node.note_node(false, "Starting", "Starting kubelet.");
        if let Some(server) = server {
            tasks.own("node-agent/server", server.run(cancel.clone()));
        }
        if let Some(address) = node.config.healthz {
            tasks.own("node-agent/healthz", server::serve_health(node.clone(), address, cancel.clone()));
        }
        tasks.own("node-agent/routes", routes::run(node.clone(), health.clone(), cancel.clone()));
        tasks.own("node-agent/registrar", Registrar::new(node.clone(), health.clone(), port).run(cancel.clone()));
        // Nothing that looks at containers begins before.
        let listed = tokio::select! {
            leftovers = Leftovers::until_listed(&node, &health) => Some(leftovers),
            () = cancel.cancelled() => None,
            failure = tasks.failed() => return Err(failure.into()),
        };
        if let Some(leftovers) = listed {
            leftovers.bind_to_cpus(&node);
            own_tasks(&node, &health, &tasks, &cancel);
            own_pod_manager(&node, leftovers, ordered, &tasks, &cancel).await?;
        }
        tokio::select! {
            () = cancel.cancelled() => {}
            failure = tasks.failed() => return Err(failure.into()),
        }
        tasks.wait().await;
        Ok(())
    }

    /// Removes every container, mount, volume, cgroup and namespace of the node; needs no API server
    /// and may be repeated.
    pub async fn remove_all(config: &Config, parts: &Parts) -> Result<(), AgentError> {
        remove::all(config, parts).await
    }
}

/// The tasks of the node beside its server, its registration and its Pods.
fn own_tasks(node: &Arc<Node>, health: &Arc<Health>, tasks: &Tasks, cancel: &CancellationToken) {
    tasks.own("node-agent/housekeeping", housekeeping::run(node.clone(), cancel.clone()));
    if let Some(cgroups) = node.cgroups.clone() {
        tasks.own("node-agent/qos-classes", qos_classes::run(node.clone(), cgroups, cancel.clone()));
    }
    if node.cpu_manager.is_some() {
        tasks.own("node-agent/cpu-manager", bind_to_cpus(node.clone(), cancel.clone()));
    }
    if node.config.device_plugin_dir.is_some() {
        tasks.own("node-agent/device-plugins", node_device_plugins::run(node.device_plugins.clone(), cancel.clone()));
    }
    tasks.own("node-agent/eviction", eviction_manager::node_pressure::run(node.clone(), cancel.clone()));
    tasks.own("node-agent/local-storage", eviction_manager::local_storage::run(node.clone(), cancel.clone()));
    if !node.config.shutdown_grace_periods.is_empty() {
        tasks.own("node-agent/node-shutdown", node_shutdown::run(node.clone(), health.clone(), cancel.clone()));
    }
    tasks.own("node-agent/background-work", background_work(node.clone(), cancel.clone()));
    tasks.own("node-agent/requests", requests::Reporter::new(node.clone()).run(cancel.clone()));
}

/// The Pods of the node, from the API and from its files. `terminations` are the orders to end one.
async fn own_pod_manager(
    node: &Arc<Node>,
    leftovers: Leftovers,
    terminations: mpsc::Receiver<Termination>,
    tasks: &Tasks,
    cancel: &CancellationToken,
) -> Result<(), AgentError> {
    let own = format!("spec.nodeName={}", node.config.node_name);
    let pods = Informer::start_untrimmed(Api::all(node.client.clone()), "pods of this node", &own, tasks);
    let (mirrored, wanted) = watch::channel(None);
    tasks.own("node-agent/mirror-pods", static_pods::mirrors::run(node.clone(), wanted, pods.changes(), cancel.clone()));
    let manifests = manifests(node, tasks, cancel).await?;
    let inputs = Inputs { terminations, manifests, mirrored };
    tasks.own("node-agent/pod-manager", Manager::new(node.clone(), leftovers, inputs, cancel.clone()).run(pods.changes()));
    Ok(())
}

/// The static Pods of the node's files. They are read once before the Pods of the API are, so that the containers of static Pods do not
/// count as leftovers.
async fn manifests(node: &Arc<Node>, tasks: &Tasks, cancel: &CancellationToken) -> Result<watch::Receiver<Vec<Arc<Pod>>>, AgentError> {
    let (pods, receiver) = watch::channel(Vec::new());
    let Some(path) = node.config.pod_manifest_path.clone() else { return Ok(receiver) };
    let mut files = static_pods::files::Manifests::new(path, node.config.node_name.clone());
    let read = api_tasks::blocking("node-agent/read-manifests", move || {
        let reading = files.read(api_clock::now());
        (files, reading)
    });
    let (files, reading) = read.await.map_err(|_| AgentError::Interrupted)?;
    let reporter = node.clone();
    let complain = move |complaint: String| reporter.note_node(true, "InvalidStaticPod", complaint);
    static_pods::files::report(&reading, &complain);
    pods.send_replace(reading.pods);
    tasks.own("node-agent/manifests", static_pods::files::run(files, pods, complain, cancel.clone()));
    Ok(receiver)
}

/// Why there is no policy `static` on some machines.
const NO_CPUSETS: &str = "the policy static needs the cgroup controller cpuset, which this machine does not have beside its other \
                          controllers; check the kernel command line for cgroup_disable, or use --cpu-manager-policy=none";

/// The highest number of modules that are prepared at one time, of those that take long and of the others. Of the modules that must
/// be compiled, no namespace puts more than these into the compiler's own queue.
const PREPARATIONS: QueueLimits = QueueLimits { all: 64, of_namespace: 2, slow: 0, slow_after: Duration::from_secs(3_600) };

/// The highest number of pulls at one time: at most three quarters of them for one namespace, and three times as many slow
/// ones.
fn pull_limits(pulls_max: usize) -> QueueLimits {
    let all = pulls_max.max(2);
    QueueLimits { all, of_namespace: (all * 3 / 4).max(1), slow: all * 3, slow_after: Duration::from_secs(60) }
}

/// The work that runtimes left for later, until cancelled.
async fn background_work(node: Arc<Node>, cancel: CancellationToken) {
    let work = async {
        futures::future::join_all(node.parts.runtimes.iter().map(|runtime| runtime.work_in_background())).await;
        // A node without runtimes has no such work, and goes on.
        std::future::pending::<()>().await;
    };
    cancel.run_until_cancelled(work).await;
}

/// Keeps the containers on their CPUs, until cancelled.
async fn bind_to_cpus(node: Arc<Node>, cancel: CancellationToken) {
    if let Some(cpus) = &node.cpu_manager {
        cpus.run(&node.parts, node.config.cpu_manager.reconcile_period, cancel).await;
    }
}

/// The secret of this node's probes. Containers that an earlier agent started have tokens derived from it.
fn probe_key(layout: &Layout) -> Result<String, AgentError> {
    let path = layout.probe_key();
    let failed = |doing| {
        let path = path.clone();
        move |source| AgentError::Io { doing, path, source }
    };
    match std::fs::read_to_string(&path) {
        Ok(key) if !key.is_empty() => return Ok(key),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("reading")(error)),
        _ => {}
    }
    let key = [(); 4].map(|()| api_model::meta::new_uid()).concat();
    write_atomic(&path, key.as_bytes(), PRIVATE).map_err(failed("writing"))?;
    Ok(key)
}

/// The runtimes that cannot run Pods with user namespaces on this machine, each with the reason.
fn without_user_namespaces(parts: &Parts, layout: &Layout) -> BTreeMap<&'static str, String> {
    let (pods, images) = (layout.pods(), parts.images.dir());
    let dirs: Vec<&Path> = [Some(pods.as_path()), images.as_deref()].into_iter().flatten().collect();
    let fault = |runtime: &Arc<dyn Runtime>| Some((runtime.handler(), chain(&runtime.supports_user_namespaces(&dirs).err()?)));
    let faults: BTreeMap<_, _> = parts.runtimes.iter().filter_map(fault).collect();
    for (handler, why) in &faults {
        tracing::info!(handler, why, "no Pod with hostUsers: false can use this runtime");
    }
    faults
}

/// Whether the file system of local volumes enforces their capacity. The answer is for administrators; whether a volume
/// is limited is decided when a Pod uses it.
fn enforces_capacity(volumes: &Volumes) -> bool {
    let is_enforced = volumes.enforces_capacity().unwrap_or_else(|error| {
        tracing::warn!(error = chain(&error), "it is unclear whether the capacity of local volumes is enforced");
        false
    });
    if !is_enforced {
        tracing::info!("the capacity of local volumes is not enforced: their file system has no project quotas, or they are off");
    }
    is_enforced
}

fn make_node(
    client: kube::Client,
    informers: &Informers,
    config: Config,
    parts: Parts,
    terminations: mpsc::Sender<Termination>,
    tasks: &Tasks,
) -> Result<Node, AgentError> {
    let layout = Layout::new(&config.data_dir, &config.prefix);
    let kubelet_metrics = Arc::new(KubeletMetrics::default());
    let parts = measured(parts, &kubelet_metrics);
    for path in [layout.kubelet(), layout.pods(), layout.logs(), layout.local_volumes()] {
        private_dir(&path).map_err(|source| AgentError::Io { doing: "making", path, source })?;
    }
    let cgroups = if config.cgroups { Some(Cgroups::detect().map_err(|error| AgentError::Cgroups(chain(&error)))?) } else { None };
    let machine = Machine::read(&config.data_dir, &config.sys_dir, &config.proc_dir, &config.huge_pages_dir);
    if let Some(cgroups) = &cgroups {
        machine.warn_of_unlimited_huge_pages(cgroups);
    }
    machine.check_reservation(config.reserved)?;
    let cpu_manager = CpuManager::open(&config.cpu_manager, config.reserved.0, &config.sys_dir, layout.cpu_manager_state())?;
    if cpu_manager.is_some() && cgroups.as_ref().is_some_and(|cgroups| !cgroups.has_cpusets()) {
        return Err(AgentError::CpuManager(NO_CPUSETS.to_owned()));
    }
    let device_plugins = node_device_plugins::Config {
        dir: config.device_plugin_dir.clone(),
        state_file: layout.device_plugin_allocations(),
        boot_id: machine.boot_id.clone(),
    };
    let device_plugins = DevicePlugins::open(device_plugins).map_err(|error| AgentError::DevicePlugins(chain(&error)))?;
    if let Some(cgroups) = &cgroups {
        // Whatever Pods do, the node has processes left to end them.
        let limits = Resources { pids_max: Some(machine.all_pods_pids_max()), ..Resources::default() };
        let made = cgroups.group(&layout.cgroup_root()).and_then(|group| group.create(&limits));
        made.map_err(|error| AgentError::Cgroups(chain(&error)))?;
    }
    let volumes = Volumes::new(layout.pods(), layout.local_volumes(), layout.local_volume_records());
    Ok(Node {
        objects: Objects::new(client.clone(), informers, &config.node_name),
        recorder: Recorder::new(client.clone(), "kubelet", Some(&config.node_name), tasks),
        enforces_capacity: enforces_capacity(&volumes),
        volumes,
        machine,
        pulls: FairQueue::new(pull_limits(config.pulls_max)),
        preparations: FairQueue::new(PREPARATIONS),
        long_preparations: FairQueue::new(PREPARATIONS),
        probe_key: probe_key(&layout)?,
        directory: Directory::default(),
        has_pod_range: watch::Sender::new(false),
        pulse: Pulse::default(),
        pressure: watch::Sender::new(eviction_manager::initial_pressure(&config, &parts)),
        shutting_down: AtomicBool::new(false),
        terminations,
        disk_usages: DiskUsages::default(),
        cpu_rates: CpuRates::default(),
        cpu_manager,
        device_plugins: Arc::new(device_plugins),
        app_armor: AppArmor::detect(config.app_armor.clone()),
        kubelet_metrics,
        user_namespaces: UserNamespaces::open(layout.pods(), config.pods_max).map_err(|source| AgentError::Io {
            doing: "reading",
            path: layout.pods(),
            source,
        })?,
        without_user_namespaces: without_user_namespaces(&parts, &layout),
        recursive_read_only: parts.runtimes.iter().all(|runtime| runtime.mounts_recursively_read_only()),
        cgroups,
        layout,
        client,
        config,
        parts,
    })
}
