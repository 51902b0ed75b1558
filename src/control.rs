//! The control plane: store, API server, scheduler and controllers. They start in this order and stop in reverse order.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api_auth::{Pki, PkiConfig, PkiError};
use api_client::fence::{Clients, Fence};
use api_client::informer::Informers;
use api_client::lease::Election;
use api_model::meta;
use api_model::request::UserInfo;
use api_server::{LeaderLease, Server};
use api_store::Store;
use api_tasks::Tasks;
use sched_controllers::{Account, ScaledObjectMetrics, SigningError, SigningRequest};
use sched_scheduler::KubeSchedulerConfiguration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::data_dir::DataDir;
use crate::process::Process;
use crate::{access, admin, cli, external_metrics, plugins, pod_ranges, store};

/// Names of scheduler and controllers: upstream's, because clients read in `managedFields` who wrote a field.
const SCHEDULER: &str = "kube-scheduler";
const MANAGER: &str = "kube-controller-manager";
/// How long scheduler and controllers may take to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Settings of a control plane.
pub struct ControlPlane {
    pub data_dir: DataDir,
    pub ranges: cli::Ranges,
    pub options: cli::ControlPlane,
    /// This machine's address.
    pub node_ip: Ipv4Addr,
    /// What the controllers tell the API server.
    scaled_object_metrics: ScaledObjectMetrics,
}

impl ControlPlane {
    /// The settings of a control plane of that data directory.
    pub fn new(data_dir: DataDir, ranges: cli::Ranges, options: cli::ControlPlane, node_ip: Ipv4Addr) -> Self {
        Self { data_dir, ranges, options, node_ip, scaled_object_metrics: ScaledObjectMetrics::default() }
    }
}

/// A running control plane.
pub struct Running {
    pub pki: Arc<Pki>,
    pub server: Arc<Server>,
    /// The URL of the API server for nodes.
    pub url: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The informers of this process.
    pub informers: Informers,
    data_dir: DataDir,
    store: Arc<dyn Store>,
    tasks: Tasks,
    /// Stops the whole process, scheduler and controllers included.
    cancel: CancellationToken,
}

impl Running {
    /// A client in this process for a user. `agent` is the program that acts for the user.
    pub fn client(&self, user: UserInfo, agent: &'static str) -> kube::Client {
        client(&self.server, user, agent, None)
    }

    /// The data directory.
    pub fn data_dir(&self) -> &DataDir {
        &self.data_dir
    }

    /// A client with all rights.
    pub fn admin(&self) -> kube::Client {
        self.client(UserInfo::new("system:admin", &["system:masters"]), "skiff")
    }

    /// Stops scheduler and controllers, then the server, then the store, and cancels the whole process. Tasks that end
    /// after the cancellation do not count as failed, so they do not hide the reason for the stop.
    pub async fn stop(self) {
        self.cancel.cancel();
        self.server.shutdown().await;
        if tokio::time::timeout(DRAIN_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("scheduler or controllers did not end in time");
        }
        self.store.close().await;
    }
}

/// Starts everything; returns when the API server accepts requests.
pub async fn start(control: &ControlPlane, process: &Process) -> anyhow::Result<Running> {
    let options = &control.options;
    let scheduler = scheduler_config(control)?;
    // Bind the port first, so that nothing changes if the port is in use.
    let address = SocketAddr::new(options.bind_address, options.secure_port);
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address} (--bind-address, --secure-port)"))?;
    let pki = Arc::new(Pki::open(&control.data_dir.at("pki"), &pki_config(control)?).context("opening the cluster's keys")?);
    let store = store::open(&control.data_dir, &options.etcd).await?;
    let server = Server::start(server_config(control, Arc::clone(&pki))?, Arc::clone(&store)).await.context("starting the API server")?;
    let server = Arc::new(server);
    let tasks = process.tasks.child();
    let serve = Arc::clone(&server);
    tasks.own("api-server", async move { serve.serve(listener).await.context("the API server ended") });
    let (kubeconfig, admin) = admin::write(&control.data_dir, options, &pki)?;
    let url = format!("https://{}:{}", advertised(control), options.secure_port);
    let cancel = process.cancel.clone();
    tasks.own("admin-certificate", admin.run(api_clock::now, cancel.clone()));
    let informers = Informers::new(client(&server, account(Account::Manager), MANAGER, None), tasks.clone());
    start_parts(control, scheduler, &pki, &server, &informers, &cancel, &tasks)?;
    Ok(Running { pki, server, url, kubeconfig, informers, data_dir: control.data_dir.clone(), store, tasks, cancel })
}

fn start_parts(
    control: &ControlPlane,
    scheduler: Option<sched_scheduler::Config>,
    pki: &Arc<Pki>,
    server: &Arc<Server>,
    informers: &Informers,
    cancel: &CancellationToken,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    if let Some(config) = scheduler {
        let (users, informers, cancel) = (Arc::clone(server), informers.clone(), cancel.clone());
        let clients = Clients::new(move |fence| client(&users, user("system:kube-scheduler"), SCHEDULER, fence));
        tasks
            .own("scheduler", async move { sched_scheduler::run(clients, informers, config, cancel).await.context("the scheduler ended") });
    }
    let (mut config, cancel) = (controllers_config(control, Arc::clone(pki))?, cancel.clone());
    let (informers, accounts) = (informers.clone(), Arc::clone(server));
    config.accounts = Some(Arc::new(move |name, fence: Option<&Fence>| client(&accounts, account(name), MANAGER, fence)));
    tasks.own("controllers", async move { sched_controllers::run(informers, config, cancel).await.context("the controllers ended") });
    Ok(())
}

/// The scheduler's settings; `None` when it does not run.
fn scheduler_config(control: &ControlPlane) -> anyhow::Result<Option<sched_scheduler::Config>> {
    let (options, flag) = (&control.options, "--scheduler-config");
    let mut config = sched_scheduler::Config { election: election(control, SCHEDULER), ..sched_scheduler::Config::default() };
    if let Some(path) = &options.scheduler_config {
        if !options.scheduler {
            bail!("{flag} needs --scheduler=true");
        }
        let text = access::read(flag, path)?;
        config.configuration = KubeSchedulerConfiguration::parse(&text).with_context(|| access::reading(flag, path))?;
        if config.configuration.has_external_plugins() {
            config.external_plugins = Some(plugins::open(&control.data_dir)?);
        }
        config.file = Some(path.clone());
    }
    Ok(options.scheduler.then_some(config))
}

/// The user of a part of the control plane.
fn user(name: &str) -> UserInfo {
    UserInfo::new(name, &["system:authenticated"])
}

/// The user of a controller: each has its own ServiceAccount, as upstream's controllers have.
fn account(account: Account) -> UserInfo {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    match account {
        Account::Manager => user("system:kube-controller-manager"),
        Account::Named(name) => UserInfo::new(format!("system:serviceaccount:kube-system:{name}"), &groups),
    }
}

fn client(server: &Server, user: UserInfo, agent: &'static str, fence: Option<&Fence>) -> kube::Client {
    let service = server.client(user).with_agent(agent);
    match fence {
        None => kube::Client::new(service, "default"),
        Some(fence) => kube::Client::new(fence.around(service.under_lease(leader_lease(fence))), "default"),
    }
}

fn leader_lease(fence: &Fence) -> LeaderLease {
    LeaderLease {
        namespace: fence.namespace().to_owned(),
        name: fence.name().to_owned(),
        holder_identity: fence.identity().to_owned(),
        lease_transitions: fence.transitions(),
    }
}

/// A control plane with its own store is the only one, so it needs no election. Of several with a shared store, one
/// works.
fn election(control: &ControlPlane, name: &str) -> Option<Election> {
    let is_shared = !control.options.etcd.etcd_servers.is_empty();
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    is_shared.then(|| Election::new(name, &format!("{host}_{}", meta::new_uid())))
}

fn server_config(control: &ControlPlane, pki: Arc<Pki>) -> anyhow::Result<api_server::Config> {
    let advertise = SocketAddr::new(advertised(control), control.options.secure_port);
    let mut config = api_server::Config::new(pki, advertise);
    config.service_cluster_ip_range = control.ranges.service_cluster_ip_range;
    config.cluster_domain.clone_from(&control.ranges.cluster_domain);
    config.max_requests_inflight = control.options.max_requests_inflight;
    config.max_mutating_requests_inflight = control.options.max_mutating_requests_inflight;
    config.event_ttl = control.options.event_ttl;
    config.local_volumes = sched_controllers::provisions_local_volumes(&control.options.controllers);
    config.metric_resolution = control.options.metric_resolution;
    config.scaled_objects = sched_controllers::acts_on_scaled_objects(&control.options.controllers);
    config.external_metrics = config.scaled_objects.then(|| external_metrics::of(control.scaled_object_metrics.clone()));
    config.components = vec!["controller-manager".to_owned()];
    config.components.extend(control.options.scheduler.then(|| "scheduler".to_owned()));
    config.disable_admission_plugins.clone_from(&control.options.disable_admission_plugins);
    config.mirror_pods = control.options.allow_mirror_pods;
    control.options.access.apply(&mut config)?;
    Ok(config)
}

/// Names and addresses that no node may have in its certificate.
fn reserved(control: &ControlPlane) -> anyhow::Result<sched_controllers::Reserved> {
    let PkiConfig { names, addresses } = pki_config(control)?;
    Ok(sched_controllers::Reserved { cluster_domain: control.ranges.cluster_domain.clone(), names, addresses, ranges: Vec::new() })
}

fn controllers_config(control: &ControlPlane, pki: Arc<Pki>) -> anyhow::Result<sched_controllers::Config> {
    let root_ca_pem = Some(pki.ca_pem().to_owned());
    let sign = move |request: &SigningRequest| {
        let signed = pki.sign_csr(&request.request_pem, &request.usages, request.duration);
        signed.map_err(|error| match error {
            PkiError::Parse { .. } | PkiError::UnknownUsage(_) => SigningError::Unfit(Box::new(error)),
            _ => SigningError::Failed(Box::new(error)),
        })
    };
    let mut config = sched_controllers::Config {
        controllers: control.options.controllers.clone(),
        cluster_cidr: control.ranges.cluster_cidr,
        node_cidr_mask_size: pod_ranges::checked(control.ranges.cluster_cidr, control.options.node_cidr_mask_size)?,
        service_cidr: Some(control.ranges.service_cluster_ip_range),
        reserved: reserved(control)?,
        root_ca_pem,
        signer: Some(Arc::new(sign)),
        election: election(control, "kube-controller-manager"),
        time_zone: jiff::tz::TimeZone::system(),
        autoscaling: control.options.autoscaling.settings()?,
        triggers_may_reach: control.options.triggers_may_reach.clone(),
        scaled_object_metrics: control.scaled_object_metrics.clone(),
        ..sched_controllers::Config::default()
    };
    config.nodes.grace_period = Duration::from_secs(control.options.node_monitor_grace_period);
    Ok(config)
}

fn pki_config(control: &ControlPlane) -> anyhow::Result<PkiConfig> {
    let mut config = PkiConfig::for_cluster(&control.ranges.cluster_domain);
    let Some(service) = control.ranges.service_cluster_ip_range.hosts().next() else {
        bail!("--service-cluster-ip-range {} has no addresses", control.ranges.service_cluster_ip_range)
    };
    config.addresses.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(service), IpAddr::V4(control.node_ip), advertised(control)]);
    if !control.options.bind_address.is_unspecified() {
        config.addresses.insert(control.options.bind_address);
    }
    if let Ok(name) = nix::unistd::gethostname() {
        config.names.insert(name.to_string_lossy().to_lowercase());
    }
    for san in &control.options.tls_san {
        match san.parse::<IpAddr>() {
            Ok(ip) => drop(config.addresses.insert(ip)),
            Err(_) => drop(config.names.insert(san.clone())),
        }
    }
    Ok(config)
}

/// The address of the server for Pods and nodes.
fn advertised(control: &ControlPlane) -> IpAddr {
    let bound = control.options.bind_address;
    let own = if bound.is_unspecified() || bound.is_loopback() { IpAddr::V4(control.node_ip) } else { bound };
    control.options.advertise_address.unwrap_or(own)
}
