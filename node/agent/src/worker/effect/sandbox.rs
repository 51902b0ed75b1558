//! Creates what a Pod's containers need: namespaces, address, volumes, files and cgroup.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use node_network::{HostPort, NetworkError, Protocol};
use node_volumes::VolumeError;
use runtimes_contract::{Resources, RuntimeError, Sandbox};
use runtimes_host::cgroup::Group;
use thiserror::Error;

use super::{Effects, cpus, volume_text};
use crate::container::files::FqdnTooLong;
use crate::container::processes::{self, PauseContainer};
use crate::container::resolv::Cluster;
use crate::container::{self, files, resources};
use crate::devices;
use crate::enforce;
use crate::error::chain;
use crate::layout::PodName;
use crate::reason::Reason;
use crate::record::PodSandbox;
use crate::sysctls;
use crate::user_namespaces::RangeError;
use crate::worker::learn::Report;

/// How long a starting agent may take to learn its Pod range.
const POD_RANGE_WITHIN: Duration = Duration::from_secs(5);

/// The reason of the event then.
const NO_SANDBOX: &str = "FailedCreatePodSandBox";

/// Why a Pod has no sandbox.
#[derive(Debug, Error)]
pub(super) enum SandboxError {
    /// The Pod has settings that this node cannot enforce.
    #[error("{0}")]
    Unsupported(String),
    /// In the API server's words.
    #[error("{}", chain(.0))]
    Api(kube::Error),
    #[error("RuntimeClass \"{0}\" not found")]
    NoRuntimeClass(String),
    #[error("no runtime for \"{0}\" is configured")]
    NoRuntime(String),
    #[error(transparent)]
    HostName(#[from] FqdnTooLong),
    #[error(transparent)]
    UserNamespace(#[from] RangeError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Cgroup(#[from] RuntimeError),
    #[error("starting its pause container")]
    Pause(#[source] RuntimeError),
    #[error("writing {}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("interrupted")]
    Interrupted,
}

impl From<SandboxError> for Reason {
    fn from(error: SandboxError) -> Self {
        Self::new(NO_SANDBOX, format!("Failed to create pod sandbox: {}", chain(&error)))
    }
}

impl Effects {
    /// Namespaces, address, volumes, files and cgroup.
    /// `pause` is the Pod's pause container, if one runs. A Pod with containers that run already is `adopted`. A sandbox `is_new` when an
    /// earlier one has ended. A Pod `resizes` when its cgroups may have other limits than its status.
    pub(crate) async fn prepare(self, pause: Option<PauseContainer>, adopted: bool, is_new: bool, resizes: bool) {
        let result = self.create_sandbox(pause, adopted, is_new, resizes).await;
        // As upstream, an attempt counts once the Pod's volumes are there.
        let counts = !adopted && result.as_ref().err().is_none_or(|fault| fault.reason == NO_SANDBOX);
        if counts {
            self.node.kubelet_metrics.pods.sandbox_started(result.is_ok());
        }
        self.report(Report::Prepared(result)).await;
    }

    async fn create_sandbox(
        &self,
        pause: Option<PauseContainer>,
        adopted: bool,
        is_new: bool,
        resizes: bool,
    ) -> Result<PodSandbox, Reason> {
        let sysctls = if adopted { Vec::new() } else { self.sysctls()? };
        // A sandbox with a pause container ends with it, also while no agent runs, and does not exist before it runs.
        let is_new = is_new || (pause.is_none() && processes::are_shared(&self.pod));
        let class = self.runtime_class(is_new).await?;
        let handler = class.as_ref().map(|class| class.handler.as_str());
        let first_id = self.first_id(handler).await?;
        devices::prepare(&self.pod, &self.node.objects).await?;
        let volumes = async { self.set_up_volumes().await.map_err(|error| Reason::new("FailedMount", volume_text(&error))) };
        // Each task runs to its end, whatever the results of the others are: a dropped one would leave threads that work while
        // the next cleanup runs.
        let (network, volumes, cgroup) = tokio::join!(self.network(first_id), volumes, self.cgroup(adopted, resizes));
        let ((sandbox, ip), volumes_due, ()) = (network?, volumes?, cgroup?);
        node_network::set_sysctls(&sandbox, sysctls).await.map_err(SandboxError::Network)?;
        let (pod, node) = (self.pod.clone(), self.node.clone());
        let written = api_tasks::blocking("node-agent/write-files", move || {
            let config = &node.config;
            let cluster = Cluster { nameservers: &config.cluster_dns, domain: &config.cluster_domain };
            let from = files::NodeFiles { node_name: &config.node_name, resolv_conf: &config.host_resolv_conf, cluster };
            files::write(&pod, ip, &from, &node.layout)
        })
        .await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err((path, error))) => return Err(SandboxError::File { path, error }.into()),
            Err(_) => return Err(SandboxError::Interrupted.into()),
        }
        self.record_class(class.as_ref()).await?;
        // Last, so that no pause container runs in a sandbox that could not be made.
        let pause = self.pause(&sandbox, handler, pause).await.map_err(SandboxError::Pause)?;
        Ok(PodSandbox { sandbox, ip, volumes_due, pause, class })
    }

    /// The node's id of the root of the Pod's user namespace, if the Pod has one. It is recorded on disk.
    async fn first_id(&self, handler: Option<&str>) -> Result<Option<u32>, SandboxError> {
        if !container::has_user_namespace(&self.pod) {
            return Ok(None);
        }
        if let Some(fault) = enforce::user_namespace_fault(handler, &self.node.without_user_namespaces, self.node.parts.runtimes.len()) {
            return Err(SandboxError::Unsupported(fault));
        }
        let (node, uid) = (self.node.clone(), PodName::of(&self.pod).uid);
        let range = api_tasks::blocking("node-agent/user-namespace", move || node.user_namespaces.first_id(&uid)).await;
        Ok(Some(range.map_err(|_| SandboxError::Interrupted)??))
    }

    async fn network(&self, first_id: Option<u32>) -> Result<(Sandbox, IpAddr), SandboxError> {
        let spec = self.pod.spec.as_ref();
        let (mut sandbox, ip) = if files::on_host_network(spec) { self.host_network().await? } else { self.pod_network(first_id).await? };
        if spec.and_then(|spec| spec.host_ipc) == Some(true) {
            sandbox.ipc = None;
        }
        Ok((sandbox, ip))
    }

    /// The node's network and hostname. Shared memory and semaphores stay the Pod's own, as upstream.
    async fn host_network(&self) -> Result<(Sandbox, IpAddr), SandboxError> {
        let uid = PodName::of(&self.pod).uid;
        let ipc = self.node.parts.network.add_host_network_pod(&uid).await?;
        let hostname = self.node.config.node_name.clone();
        Ok((Sandbox { network: None, ipc: Some(ipc), uts: None, user: None, hostname }, self.node.config.node_ip))
    }

    async fn pod_network(&self, first_id: Option<u32>) -> Result<(Sandbox, IpAddr), SandboxError> {
        let hostname = files::kernel_host_name(&self.pod, &self.node.config.cluster_domain)?;
        let ports = host_ports(&self.pod);
        let uid = PodName::of(&self.pod).uid;
        self.pod_range().await;
        let made = self.node.parts.network.add_pod(&uid, &hostname, &ports, first_id).await?;
        Ok((made.sandbox, made.ip))
    }

    /// A new agent gets the node's Pod range after a moment; running Pods must not report a problem until then. If the range is
    /// missing for longer, the network itself reports it.
    async fn pod_range(&self) {
        let mut has_range = self.node.has_pod_range.subscribe();
        if tokio::time::timeout(POD_RANGE_WITHIN, has_range.wait_for(|has_range| *has_range)).await.is_err() {
            tracing::debug!("no Pod range yet");
        }
    }

    /// Creates the Pod's cgroup. That of an adopted Pod keeps its limits of CPU and memory during a resize: an earlier agent may have set
    /// others than the Pod's status has, and the containers may use more than the status allows. The resize sets them.
    async fn cgroup(&self, adopted: bool, resizes: bool) -> Result<(), SandboxError> {
        let Some(cgroups) = self.node.cgroups.clone() else { return Ok(()) };
        let path = self.node.layout.pod_cgroup(resources::qos(&self.pod), &PodName::of(&self.pod).uid);
        let mut limits = Resources { pids_max: Some(self.node.pod_pids_max()), ..resources::of_pod(&self.pod) };
        if self.node.cpu_manager.as_ref().is_some_and(|cpus| cpus.has_exclusive(&PodName::of(&self.pod).uid)) {
            cpus::lift_quota(&mut limits);
        }
        let made = api_tasks::blocking("node-agent/make-cgroup", move || {
            let group = cgroups.group(&path)?;
            if adopted { adopt_cgroup(&group, limits, resizes) } else { group.create(&limits) }
        })
        .await;
        match made {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(SandboxError::Interrupted),
        }
    }

    /// The sysctls for a new sandbox. A Pod that ran before is not admitted again, and the node may allow less than then.
    fn sysctls(&self) -> Result<Vec<(String, String)>, SandboxError> {
        match self.pod.spec.as_ref().and_then(|spec| self.node.config.allowed_unsafe_sysctls.fault(spec)) {
            Some(why) => Err(SandboxError::Unsupported(format!("forbidden sysctl: {why}"))),
            None => Ok(sysctls::of(&self.pod)),
        }
    }

    async fn set_up_volumes(&self) -> Result<Option<Timestamp>, VolumeError> {
        let limit = resources::of_pod(&self.pod).memory_limit_bytes;
        self.node.volumes.set_up(&self.pod, self.node.allocatable(), limit, &self.node.objects).await
    }

    /// Refreshes the volumes.
    pub(crate) async fn refresh(self) {
        let due = match self.set_up_volumes().await {
            Ok(due) => due,
            Err(error) => {
                self.node.note(&self.pod, None, true, "FailedMount", volume_text(&error));
                None
            }
        };
        self.report(Report::Refreshed(due)).await;
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let ports = pod.spec.iter().flat_map(container::all).flat_map(|(_, container)| container.ports.iter().flatten());
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
    ports
        .filter_map(|port| {
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            };
            let host_ip = port.host_ip.as_deref().and_then(|ip| ip.parse().ok()).filter(|ip: &std::net::Ipv4Addr| !ip.is_unspecified());
            Some(HostPort { host_ip, protocol, host_port: number(port.host_port?)?, container_port: number(port.container_port)? })
        })
        .collect()
}

/// Sets the limits of a cgroup whose containers run. Limits of CPU and memory that do not fit what the containers have stay as they are.
fn adopt_cgroup(group: &Group, limits: Resources, resizes: bool) -> Result<(), RuntimeError> {
    let Resources { pids_max, ref huge_pages, .. } = limits;
    let fixed = Resources { pids_max, huge_pages: huge_pages.clone(), ..Resources::default() };
    let used = if resizes || !group.exists() { 0 } else { group.stats()?.working_set_bytes };
    if resizes || limits.memory_limit_bytes.is_some_and(|limit| limit < used) {
        return group.create(&fixed);
    }
    // cgroup v1 rejects a CPU quota below that of a container.
    group.create(&limits).or_else(|error| {
        tracing::warn!(%error, "the cgroup of an adopted Pod keeps its limits");
        group.create(&fixed)
    })
}
