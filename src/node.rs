//! A node: its parts, the agent that uses them, the rules of Services, and cluster DNS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api_client::informer::Informers;
use api_tasks::Tasks;
use node_agent::{Agent, Certificates, Parts, RunDir, Serving, bootstrap};
use node_images::ImageStore;
use node_logind::Logind;
use node_network::Network;
use runtimes_contract::Runtime;
use runtimes_runc::RuncRuntime;
use runtimes_wasmtime::WasmtimeRuntime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::data_dir::DataDir;
use crate::process::Process;
use crate::{cli, host, images, internal, say};

/// How often the machine's resolvers are read.
const RESOLVERS_PERIOD: Duration = Duration::from_secs(5);

/// Settings of a node.
#[derive(Clone)]
pub struct NodeSettings {
    pub data_dir: DataDir,
    pub ranges: cli::Ranges,
    pub options: cli::NodeOptions,
    pub node_name: String,
    pub node_ip: Ipv4Addr,
    pub dns_ip: Ipv4Addr,
}

impl NodeSettings {
    /// Determines the node's name and addresses from the options and this machine.
    pub fn new(data_dir: DataDir, ranges: cli::Ranges, options: cli::NodeOptions) -> anyhow::Result<Self> {
        let node_name = host::node_name(options.node_name.as_deref())?;
        let (node_ip, dns_ip) = (host::node_ip(options.node_ip)?, ranges.dns_ip()?);
        Ok(Self { data_dir, ranges, options, node_name, node_ip, dns_ip })
    }
}

/// The node's credentials as a client of the API server, and its serving certificate.
pub struct Identity {
    pub client: kube::Client,
    /// The informers of this process.
    pub informers: Informers,
    pub serving: watch::Receiver<Serving>,
    /// The certificates that the node renews itself.
    pub certificates: Option<Arc<Certificates>>,
}

/// `skiff agent`: joins a cluster and runs until a signal.
pub async fn run_alone(options: cli::Agent) -> anyhow::Result<()> {
    let data_dir = options.data_dir.open()?;
    let _lock = data_dir.lock("node")?;
    let process = Process::begin()?;
    let settings = NodeSettings::new(data_dir, options.ranges, options.node)?;
    let token = options.token.map(|token| token.parse()).transpose()?;
    let join = bootstrap::Join {
        server: options.server,
        token,
        node_name: settings.node_name.clone(),
        node_ip: settings.node_ip.into(),
        data_dir: settings.data_dir.dir.clone(),
    };
    process.run(joined(&settings, &join, &process)).await
}

/// Joins and runs the node until a signal.
async fn joined(settings: &NodeSettings, join: &bootstrap::Join, process: &Process) -> anyhow::Result<()> {
    let (tasks, cancel) = (process.tasks.child(), &process.cancel);
    let parts = parts(settings).await?;
    let joined = tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        joined = bootstrap::join(join) => joined.context("joining the cluster")?,
    };
    tasks.own("node-certificate", joined.renewal.run(cancel.clone()));
    let informers = Informers::new(joined.client.clone(), tasks.clone());
    let certificates = Some(joined.certificates);
    let identity = Identity { client: joined.client, informers, serving: joined.serving, certificates };
    start(&tasks, settings, parts, identity, cancel);
    say::ready(&format!("skiff is ready: node {} has joined {}", settings.node_name, join.server));
    cancel.cancelled().await;
    tasks.wait().await;
    Ok(())
}

/// Opens the node's parts and checks what they need of the machine.
pub async fn parts(settings: &NodeSettings) -> anyhow::Result<Parts> {
    // Flags that contradict each other are rejected before anything starts.
    agent_config(settings, None)?;
    let data_dir = &settings.data_dir;
    // The agent listens only later. If the port is in use, this fails before anything starts.
    let address = kubelet_address(settings);
    drop(std::net::TcpListener::bind(address).with_context(|| format!("listening on {address} (--kubelet-port)"))?);
    let run_dir = settings.options.run_dir.open(data_dir)?;
    let runtimes = runtimes(data_dir, &run_dir)?;
    for runtime in &runtimes {
        runtime.check().await?;
    }
    let unpacking = internal::helper(data_dir, internal::Job::Unpack)?;
    let leftover = unpacking.clone();
    api_tasks::blocking("clear-leftovers", move || internal::clear_leftovers(&leftover)).await??;
    let thresholds = settings.options.eviction.eviction_hard.clone();
    let images = ImageStore::open(&data_dir.at("images"), unpacking)?
        .with_insecure_registries(settings.options.insecure_registry.clone())
        .with_free_min(move |all| thresholds.image_disk_reserved(all));
    let images = images::with_module_check(images, data_dir)?;
    let network = Network::new(node_network::Config {
        prefix: data_dir.prefix.clone(),
        state_dir: run_dir.at("network"),
        node_ip: settings.node_ip.into(),
        cluster_cidr: settings.ranges.cluster_cidr,
        service_cidr: settings.ranges.service_cluster_ip_range,
        dns_ip: settings.dns_ip,
        reserved_ports: vec![settings.options.kubelet_port],
    });
    let shutdowns = shutdowns(data_dir);
    Ok(Parts { runtimes, images: Arc::new(images), network: Arc::new(network.await?), shutdowns })
}

/// Who shuts this machine down. Nodes of several clusters may be on it.
pub fn shutdowns(data_dir: &DataDir) -> Arc<Logind> {
    Arc::new(Logind::new(&data_dir.prefix))
}

/// The runtimes. The first runtime of a kind serves Pods that name none.
pub fn runtimes(data_dir: &DataDir, run_dir: &RunDir) -> anyhow::Result<Vec<Arc<dyn Runtime>>> {
    let wasmtime = WasmtimeRuntime::new(runtimes_wasmtime::Config {
        state_dir: run_dir.at("wasmtime"),
        cache_dir: data_dir.at("compiled"),
        shim: host::beside("skiff-shim-wasmtime")?,
        compiler: internal::helper(data_dir, internal::Job::Compile)?,
    })?;
    let runc = RuncRuntime::new(runtimes_runc::Config {
        state_dir: run_dir.at("runc"),
        shim: host::beside("skiff-shim-runc")?,
        runc: host::on_path("runc"),
    })?;
    Ok(vec![Arc::new(wasmtime), Arc::new(runc)])
}

fn kubelet_address(settings: &NodeSettings) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), settings.options.kubelet_port)
}

/// The agent's settings.
pub fn agent_config(settings: &NodeSettings, serving: Option<watch::Receiver<Serving>>) -> anyhow::Result<node_agent::Config> {
    let mut config =
        node_agent::Config::new(&settings.node_name, settings.node_ip.into(), &settings.data_dir.dir, &settings.data_dir.prefix);
    config.listen = kubelet_address(settings);
    config.serving = serving;
    let (address, port) = (settings.options.healthz_bind_address, settings.options.healthz_port);
    config.healthz = (port != 0).then(|| SocketAddr::new(address, port));
    config.cluster_dns = vec![settings.dns_ip.into()];
    config.cluster_domain.clone_from(&settings.ranges.cluster_domain);
    config.host_resolv_conf.clone_from(&settings.options.resolv_conf);
    config.kubelet_version = api_server::version();
    config.pod_manifest_path.clone_from(&settings.options.pod_manifest_path);
    config.has_pods_max = settings.options.max_pods.is_some();
    config.pods_max = settings.options.max_pods.unwrap_or(config.pods_max);
    config.pod_pids_max = settings.options.pod_max_pids;
    settings.options.cpus.apply(&mut config)?;
    config.allowed_unsafe_sysctls.clone_from(&settings.options.allowed_unsafe_sysctls);
    config.app_armor.in_container = host::in_container();
    config.shutdown_grace_periods = settings.options.shutdown.periods()?;
    config.device_plugin_dir = settings.options.device_plugin_dir()?;
    settings.options.eviction.apply(&mut config)?;
    // Upstream's -1 is no limit.
    config.node_status_images_max = usize::try_from(settings.options.node_status_max_images).ok();
    config.image_gc_percent = (settings.options.image_gc_high_threshold, settings.options.image_gc_low_threshold);
    config.lease_duration = Duration::from_secs(settings.options.node_lease_duration_seconds.into());
    config.lease_renew = config.lease_duration / 4;
    config.status_check = Duration::from_secs(settings.options.node_status_update_frequency.into());
    for label in &settings.options.node_labels {
        let Some((key, value)) = label.split_once('=') else { bail!("--node-labels {label:?}: expected key=value") };
        config.labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(config)
}

/// Starts the agent, the rules of Services, and cluster DNS.
pub fn start(tasks: &Tasks, settings: &NodeSettings, parts: Parts, identity: Identity, cancel: &CancellationToken) {
    let Identity { client, informers, serving, certificates } = identity;
    let (agent_settings, agent_client, agent_informers, stop) = (settings.clone(), client.clone(), informers.clone(), cancel.clone());
    tasks.own("node-agent", async move {
        let config = node_agent::Config { certificates, ..agent_config(&agent_settings, Some(serving))? };
        Agent::run(agent_client, &agent_informers, config, parts, stop).await.context("the node agent ended")
    });
    let proxy = node_proxy::Config {
        prefix: settings.data_dir.prefix.clone(),
        node_name: settings.node_name.clone(),
        node_ip: settings.node_ip.into(),
        cluster_cidr: settings.ranges.cluster_cidr,
        service_cidr: settings.ranges.service_cluster_ip_range,
        reserved_ports: vec![settings.options.kubelet_port],
        exclude: vec![settings.dns_ip],
        min_sync_period: node_proxy::Config::MIN_SYNC_PERIOD,
        activator: None,
    };
    let (proxy_informers, stop) = (informers.clone(), cancel.clone());
    let machine = node_proxy::MachineReader { addresses: node_network::addresses, listening: node_network::listening };
    tasks.own("service-proxy", async move {
        node_proxy::run(client, &proxy_informers, proxy, machine, stop).await.context("the Service proxy ended")
    });
    let resolvers = watch::Sender::new(resolvers(settings));
    let (names, stop) = (dns_config(settings, resolvers.subscribe()), cancel.clone());
    tasks.own("dns", async move { dns::run(&informers, names, stop).await.context("the DNS server ended") });
    let (settings, stop) = (settings.clone(), cancel.clone());
    tasks.own("resolvers", async move {
        stop.run_until_cancelled(follow_resolvers(&settings, &resolvers)).await;
    });
}

/// The machine's resolvers. Without the file there are none; then names outside the cluster are refused.
fn resolvers(settings: &NodeSettings) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(&settings.options.resolv_conf).unwrap_or_default();
    dns::upstreams(&text, &[settings.dns_ip.into()])
}

/// Reads the machine's resolvers again from time to time: they change with its network, and there may have been none at
/// the start.
async fn follow_resolvers(settings: &NodeSettings, resolvers_are: &watch::Sender<Vec<SocketAddr>>) {
    loop {
        tokio::time::sleep(RESOLVERS_PERIOD).await;
        let found = resolvers(settings);
        resolvers_are.send_if_modified(|known| {
            let differs = *known != found;
            *known = found;
            differs
        });
    }
}

fn dns_config(settings: &NodeSettings, upstream: watch::Receiver<Vec<SocketAddr>>) -> dns::Config {
    dns::Config {
        listen: vec![SocketAddr::new(IpAddr::V4(settings.dns_ip), 53)],
        domain: settings.ranges.cluster_domain.clone(),
        ranges: vec![settings.ranges.cluster_cidr.into(), settings.ranges.service_cluster_ip_range.into()],
        upstream,
    }
}
