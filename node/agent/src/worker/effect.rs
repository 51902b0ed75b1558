//! What a worker's steps do to the world. Each is a task that ends with one report; none decides what
//! comes next. Ending an instance is in [`stop`], giving it other limits in [`resize`], freeing what there was in [`free`].

mod free;
mod resize;
mod stop;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use node_images::{Image, ImageError};
use node_network::{HostPort, Protocol};
use node_volumes::VolumeError;
use runtimes_contract::{ContainerId, Content, ContentKind, Mount, Resources, Runtime, RuntimeError, Sandbox};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) use stop::Deadline;

use super::learn::{Report, StartFault};
use crate::action;
use crate::cleanup;
use crate::container::probes::ProbeKind;
use crate::container::resolv::Cluster;
use crate::container::spec::Ingredients;
use crate::container::{self, ConfigError, env, files, pull, resources, runtime_choice, security, spec};
use crate::enforce;
use crate::error::chain;
use crate::hooks;
use crate::layout::{PodName, container_id, spec_hash};
use crate::logs;
use crate::node::Node;
use crate::probe;
use crate::record::{Alive, Ended, Ground};

/// Wait after a runtime could not say how a container ended.
const WAIT_RETRY: Duration = Duration::from_secs(1);
/// How long a starting agent may take to learn its Pod range.
const POD_RANGE_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a termination message, and of the log's end that stands in for one.
const MESSAGE_LEN_MAX: usize = 4_096;
const FALLBACK_LEN_MAX: usize = 2_048;
const FALLBACK_LINES_MAX: usize = 80;

/// Does things for one Pod.
#[derive(Clone)]
pub(crate) struct Effects {
    pub(crate) node: Arc<Node>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) reports: mpsc::Sender<Report>,
    /// Cancelled when the Pod is to end: what only a start needs is not waited for then.
    pub(crate) ending: CancellationToken,
}

impl Effects {
    async fn report(&self, report: Report) {
        if self.reports.send(report).await.is_err() {
            tracing::debug!("the worker has ended");
        }
    }

    /// Namespaces, address, volumes, files and cgroup.
    pub(crate) async fn prepare(self) {
        let result = self.make_base().await;
        self.report(Report::Prepared(result)).await;
    }

    async fn make_base(&self) -> Result<Ground, (&'static str, String)> {
        if let Some(fault) = enforce::sandbox_fault(&self.pod) {
            return Err(sandbox_failed(fault));
        }
        let class = self.runtime_class().await.map_err(sandbox_failed)?;
        let network = async { self.network().await.map_err(sandbox_failed) };
        let volumes = async {
            let set_up = self.node.volumes.set_up(&self.pod, self.node.allocatable(), &self.node.objects).await;
            set_up.map_err(|error| ("FailedMount", volume_text(&error)))
        };
        // Each goes on to its end, whatever becomes of the others: one that is dropped in the middle leaves
        // threads at work behind the back of whoever cleans up next.
        let (network, volumes, cgroup) = tokio::join!(network, volumes, self.cgroup());
        let ((sandbox, ip), volumes_due, ()) = (network?, volumes?, cgroup?);
        let sysctls = node_network::set_sysctls(&sandbox, enforce::sysctls_of(&self.pod)).await;
        sysctls.map_err(|error| sandbox_failed(chain(&error)))?;
        let (pod, node) = (self.pod.clone(), self.node.clone());
        let written = api_tasks::blocking("node-agent/write-files", move || {
            let config = &node.config;
            let cluster = Cluster { nameservers: &config.cluster_dns, domain: &config.cluster_domain };
            let from = files::NodeFiles { node_name: &config.node_name, resolv_conf: &config.host_resolv_conf, cluster };
            files::write(&pod, ip, &from, &node.layout)
        })
        .await;
        match written {
            Ok(Ok(())) => Ok(Ground { sandbox, ip, volumes_due, class }),
            Ok(Err((path, error))) => Err(sandbox_failed(format!("writing {}: {error}", path.display()))),
            Err(_) => Err(sandbox_failed("interrupted".to_owned())),
        }
    }

    async fn runtime_class(&self) -> Result<Option<(String, String)>, String> {
        let class = self.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.clone()).filter(|class| !class.is_empty());
        let Some(class) = class else { return Ok(None) };
        let handler = self.node.objects.handler(&class).await.map_err(|error| chain(&error))?;
        let handler = handler.ok_or_else(|| format!("RuntimeClass \"{class}\" not found"))?;
        if self.node.parts.by_handler(&handler).is_none() {
            return Err(format!("no runtime for \"{handler}\" is configured"));
        }
        Ok(Some((class, handler)))
    }

    async fn network(&self) -> Result<(Sandbox, IpAddr), String> {
        let spec = self.pod.spec.as_ref();
        let (mut sandbox, ip) = if files::on_host_network(spec) { self.host_network().await? } else { self.pod_network().await? };
        if spec.and_then(|spec| spec.host_ipc) == Some(true) {
            sandbox.ipc = None;
        }
        Ok((sandbox, ip))
    }

    /// The node's network and hostname. Shared memory and semaphores stay the Pod's own, as upstream.
    async fn host_network(&self) -> Result<(Sandbox, IpAddr), String> {
        let uid = PodName::of(&self.pod).uid;
        let ipc = self.node.parts.network.add_host_network_pod(&uid).await.map_err(|error| chain(&error))?;
        let hostname = self.node.config.node_name.clone();
        Ok((Sandbox { network: None, ipc: Some(ipc), uts: None, hostname }, self.node.config.node_ip))
    }

    async fn pod_network(&self) -> Result<(Sandbox, IpAddr), String> {
        let (hostname, _) = files::host_name(&self.pod, &self.node.config.cluster_domain);
        let ports = host_ports(&self.pod);
        let uid = PodName::of(&self.pod).uid;
        self.pod_range().await;
        let made = self.node.parts.network.add_pod(&uid, &hostname, &ports).await.map_err(|error| chain(&error))?;
        Ok((made.sandbox, made.ip))
    }

    /// An agent that has just begun learns the node's Pod range in a moment; Pods that run already need
    /// not complain until then. Without a range for longer the network itself says what is missing.
    async fn pod_range(&self) {
        let mut known = self.node.has_pod_range.subscribe();
        if tokio::time::timeout(POD_RANGE_WITHIN, known.wait_for(|known| *known)).await.is_err() {
            tracing::debug!("no Pod range yet");
        }
    }

    async fn cgroup(&self) -> Result<(), (&'static str, String)> {
        let Some(cgroups) = self.node.cgroups.clone() else { return Ok(()) };
        let path = self.node.layout.pod_cgroup(resources::qos(&self.pod), &PodName::of(&self.pod).uid);
        let limits = Resources { pids_max: Some(self.node.pod_pids_max()), ..resources::of_pod(&self.pod) };
        let made = api_tasks::blocking("node-agent/make-cgroup", move || cgroups.group(&path)?.create(&limits)).await;
        match made {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(sandbox_failed(chain(&error))),
            Err(_) => Err(sandbox_failed("interrupted".to_owned())),
        }
    }

    /// Looks at the volumes again.
    pub(crate) async fn refresh(self) {
        let due = match self.node.volumes.set_up(&self.pod, self.node.allocatable(), &self.node.objects).await {
            Ok(due) => due,
            Err(error) => {
                self.node.note(&self.pod, None, true, "FailedMount", volume_text(&error));
                None
            }
        };
        self.report(Report::Refreshed(due)).await;
    }

    /// The image of a container, and the slow part of its first start.
    pub(crate) async fn pull(self, name: String) {
        let Some((_, container)) = container::find(&self.pod, &name) else { return };
        let result = self.fetch(container).await;
        self.report(Report::Pulled(name, result)).await;
    }

    async fn fetch(&self, container: &Container) -> Result<Arc<Image>, (&'static str, String)> {
        let reference = container.image.as_deref().unwrap_or_default();
        let policy = pull::policy(container.image_pull_policy.as_deref(), reference);
        let present = self.node.parts.images.get(reference).await.map_err(|error| image_fault(&error))?;
        let note = |reason: &'static str, message: String| self.node.note(&self.pod, Some(&container.name), false, reason, message);
        if let Some(image) = present.filter(|_| policy != node_images::PullPolicy::Always) {
            note("Pulled", format!("Container image \"{reference}\" already present on machine"));
            return Ok(Arc::new(image));
        }
        if policy == node_images::PullPolicy::Never {
            let never = ImageError::NeverPull { image: reference.to_owned() };
            return Err(image_fault(&never));
        }
        note("Pulling", format!("Pulling image \"{reference}\""));
        let asked = Instant::now();
        let auth = self.credentials().await;
        let _permit = self.node.pulls.acquire(&PodName::of(&self.pod).namespace).await;
        let began = Instant::now();
        let image = self.node.parts.images.pull(reference, policy, &auth).await.map_err(|error| image_fault(&error))?;
        let (took, waited) = (began.elapsed(), asked.elapsed());
        note(
            "Pulled",
            format!(
                "Successfully pulled image \"{reference}\" in {took:.3?} ({waited:.3?} including waiting). Image size: {} bytes.",
                image.size_bytes
            ),
        );
        Ok(Arc::new(image))
    }

    async fn credentials(&self) -> Vec<node_images::RegistryAuth> {
        let secrets = self.pod.spec.as_ref().and_then(|spec| spec.image_pull_secrets.clone()).unwrap_or_default();
        let names: Vec<String> = secrets.into_iter().map(|secret| secret.name).filter(|name| !name.is_empty()).collect();
        let namespace = PodName::of(&self.pod).namespace;
        let found = self.node.objects.pull_secrets(&namespace, &names).await;
        found.iter().flat_map(pull::credentials).collect()
    }

    /// Makes and starts the next instance of a container, then frees what the one before it held.
    pub(crate) async fn start(self, name: String, attempt: u32, image: Arc<Image>, ground: Ground, leftover: Option<String>) {
        let Some((_, container)) = container::find(&self.pod, &name) else { return };
        let result = self.begin(container, attempt, &image, &ground).await;
        let runs = result.is_ok();
        self.report(Report::Started(name.clone(), result)).await;
        if let Some(id) = leftover.map(ContainerId)
            && let Err(error) = cleanup::remove_everywhere(&self.node, &id).await
        {
            tracing::warn!(container = %id, error, "container not removed");
        }
        if runs {
            cleanup::forget_old_files(&self.node, &PodName::of(&self.pod), &name, attempt).await;
        }
    }

    async fn begin(&self, container: &Container, attempt: u32, image: &Image, ground: &Ground) -> Result<Alive, StartFault> {
        let config_fault = |error: ConfigError| StartFault::Unmade("CreateContainerConfigError", error.0);
        let class = ground.class.as_ref().map(|(class, handler)| (class.as_str(), handler.as_str()));
        let reference = container.image.as_deref().unwrap_or_default();
        let runtime = runtime_choice::choose(&self.node.parts, class, reference, image.kind).map_err(config_fault)?;
        runtime_choice::check_abilities(container, image.kind).map_err(config_fault)?;
        enforce::check_mounts(container).map_err(config_fault)?;
        let variables = self.variables(container, ground).await.map_err(config_fault)?;
        let expand = |text: &str| expand_path(text, &variables);
        let volumes = self.node.volumes.mounts(&self.pod, container, &expand).await;
        let volumes = volumes.map_err(|error| StartFault::Unmade("CreateContainerConfigError", volume_text(&error)))?;
        let volumes = self.with_shared_memory(ground, image.kind, volumes).await?;
        let id = container_id(&PodName::of(&self.pod).uid, &container.name, attempt);
        let content = self.node.parts.images.mount(image, &id.0).await;
        let content = content.map_err(|error| StartFault::Unmade("CreateContainerError", chain(&error)))?;
        let made = self.make(container, attempt, image, ground, &runtime, content, variables, volumes).await;
        if made.is_err()
            && let Err(error) = cleanup::remove_container(&self.node, runtime.handler(), &id).await
        {
            tracing::warn!(container = %id, error, "half-made container not removed");
        }
        made?;
        self.node.note(&self.pod, Some(&container.name), false, "Created", "Container created");
        if let Err(error) = runtime.start(&id).await {
            return Err(self.not_started(id, image, error));
        }
        self.node.note(&self.pod, Some(&container.name), false, "Started", "Container started");
        Ok(Alive {
            id,
            handler: runtime.handler().to_owned(),
            attempt,
            started_at: Timestamp::now(),
            image_id: spec::image_id(image),
            hash: spec_hash(container),
            resources: container.resources.clone().unwrap_or_default(),
            startup_ok: container.startup_probe.is_none(),
            readiness_ok: container.readiness_probe.is_none(),
            hooked: container.lifecycle.as_ref().is_none_or(|lifecycle| lifecycle.post_start.is_none()),
            condemned: None,
            stopping: false,
            replaced: false,
        })
    }

    /// A Linux container of a Pod with an IPC namespace of its own has the Pod's `/dev/shm`, unless it
    /// mounts something else there.
    async fn with_shared_memory(&self, ground: &Ground, kind: ContentKind, mut volumes: Vec<Mount>) -> Result<Vec<Mount>, StartFault> {
        let target = Path::new("/dev/shm");
        let wanted = ground.sandbox.ipc.is_some() && kind == ContentKind::Linux;
        if wanted && !volumes.iter().any(|mount| mount.target == target) {
            let made = self.node.volumes.shared_memory(&PodName::of(&self.pod).uid).await;
            let source = made.map_err(|error| StartFault::Unmade("CreateContainerError", volume_text(&error)))?;
            volumes.push(Mount::new(source, target, false));
        }
        Ok(volumes)
    }

    async fn variables(&self, container: &Container, ground: &Ground) -> Result<std::collections::BTreeMap<String, String>, ConfigError> {
        let services = self.node.objects.services().await;
        let sources = env::Sources {
            objects: &self.node.objects,
            services: &services,
            pod_ips: &[ground.ip],
            host_ips: &[self.node.config.node_ip],
            allocatable: self.node.allocatable(),
        };
        env::variables(&self.pod, container, &sources).await
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, which has just worked each of them out")]
    async fn make(
        &self,
        container: &Container,
        attempt: u32,
        image: &Image,
        ground: &Ground,
        runtime: &Arc<dyn Runtime>,
        content: Content,
        variables: std::collections::BTreeMap<String, String>,
        volumes: Vec<Mount>,
    ) -> Result<(), StartFault> {
        let user = security::user(&self.pod, container, &image.config.user, &content);
        let user = user.map_err(|error| StartFault::Unmade("CreateContainerConfigError", error.0))?;
        let seccomp = security::seccomp(&self.pod, container, content.kind(), &self.node.layout.seccomp_profiles());
        let seccomp = seccomp.map_err(|error| StartFault::Unmade("CreateContainerError", error.0))?;
        let grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(super::plan::GRACE_SECONDS);
        let machine = &self.node.machine;
        let from = Ingredients {
            attempt,
            image,
            content,
            sandbox: &ground.sandbox,
            variables,
            volumes,
            user,
            seccomp,
            grace_seconds: grace,
            memory_bytes: machine.memory_bytes,
            oom_score_adj_min: machine.oom_score_adj,
        };
        let mut spec = spec::build(&self.pod, container, &self.node.layout, from);
        spec.probe_token = self.node.probe_token(&spec.id);
        if spec.args.is_empty() {
            return Err(StartFault::Unmade("CreateContainerError", "no command specified".to_owned()));
        }
        let termination = self.node.layout.termination_log(&PodName::of(&self.pod).uid, &container.name, attempt);
        make_files(&spec.log_path, &termination).await.map_err(|message| StartFault::Unmade("CreateContainerError", message))?;
        let fault = |error: RuntimeError| StartFault::Unmade("CreateContainerError", chain(&error));
        // A module may compile for minutes; a Pod that ends does not wait for that.
        let preparing = async {
            let _permit = self.node.preparations.acquire(&PodName::of(&self.pod).namespace).await;
            runtime.prepare(&spec.content).await
        };
        match self.ending.run_until_cancelled(preparing).await {
            Some(prepared) => prepared.map_err(fault)?,
            None => return Err(StartFault::Ending),
        }
        match runtime.create(&spec).await {
            Err(RuntimeError::Exists(_)) => {
                runtime.remove(&spec.id).await.map_err(fault)?;
                runtime.create(&spec).await.map_err(fault)
            }
            other => other.map_err(fault),
        }
    }

    /// It was made and did not start: upstream's `StartError`.
    fn not_started(&self, id: ContainerId, image: &Image, error: RuntimeError) -> StartFault {
        let now = Timestamp::now();
        StartFault::Ended(Ended {
            id: Some(id.0),
            image_id: spec::image_id(image),
            exit_code: 128,
            signal: None,
            reason: "StartError".to_owned(),
            message: chain(&error),
            started_at: None,
            finished_at: now,
            replaced: false,
        })
    }

    /// Runs the postStart hook.
    pub(crate) async fn post_start(self, name: String, alive: Alive) {
        let Some((_, container)) = container::find(&self.pod, &name) else { return };
        let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) else { return };
        let result = hooks::run(&self.node, &self.pod, container, handler, &alive).await;
        self.report(Report::Hooked(name, alive.attempt, result.map_err(|message| format!("PostStartHook failed: {message}")))).await;
    }

    /// Waits for an instance's end and reads what it left to say.
    pub(crate) async fn wait(self, name: String, alive: Alive) {
        let Some(runtime) = self.node.parts.by_handler(&alive.handler).cloned() else { return };
        let ended = loop {
            match runtime.wait(&alive.id).await {
                Ok(exit) => {
                    let message = self.last_words(&name, alive.attempt, exit.code).await;
                    break Ended::from_exit(&alive.id, &alive.image_id, Some(alive.started_at), &exit, message);
                }
                Err(RuntimeError::NotFound(_)) => {
                    break Ended::lost(Some(alive.id.0.clone()), alive.image_id.clone(), Some(alive.started_at), Timestamp::now());
                }
                Err(error) => {
                    tracing::warn!(container = %alive.id, error = chain(&error), "waiting for the container's end failed");
                    tokio::time::sleep(WAIT_RETRY).await;
                }
            }
        };
        self.report(Report::Exited(name, alive.attempt, ended)).await;
    }

    /// The termination message, or the end of the log where the container asks for that.
    pub(crate) async fn last_words(&self, name: &str, attempt: u32, code: i32) -> String {
        let names = PodName::of(&self.pod);
        let path = self.node.layout.termination_log(&names.uid, name, attempt);
        let text = api_tasks::blocking("node-agent/last-words", move || logs::head(&path, MESSAGE_LEN_MAX))
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        let policy = container::find(&self.pod, name).and_then(|(_, container)| container.termination_message_policy.as_deref());
        if !text.is_empty() || code == 0 || policy != Some("FallbackToLogsOnError") {
            return text;
        }
        let log = self.node.layout.log(&names, name, attempt);
        let tail = api_tasks::blocking("node-agent/last-words", move || logs::tail_text(&log, FALLBACK_LINES_MAX, FALLBACK_LEN_MAX)).await;
        tail.ok().flatten().unwrap_or_default()
    }

    /// Runs one probe until cancelled; reports each change of its verdict.
    pub(crate) async fn probe(self, name: String, kind: ProbeKind, probe: Probe, alive: Alive, ip: IpAddr, cancel: CancellationToken) {
        let Some((_, container)) = container::find(&self.pod, &name) else { return };
        let target = action::Target { node: &self.node, container, alive: &alive, ip };
        let work = async {
            let mut tally = probe::Tally::new(&probe, kind, alive.readiness_ok);
            let mut rounds = probe::Rounds::new(&probe, alive.started_at);
            loop {
                rounds.next().await;
                let outcome = probe::once(&target, &probe).await;
                if let Err(message) = &outcome {
                    self.node.note(&self.pod, Some(&name), true, "Unhealthy", format!("{} probe failed: {message}", kind.words()));
                }
                if let Some(success) = tally.count(outcome.is_ok()) {
                    self.report(Report::Probed { name: name.clone(), attempt: alive.attempt, kind, success }).await;
                }
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }
}

/// The log's directory, and an empty termination log.
async fn make_files(log: &Path, termination: &Path) -> Result<(), String> {
    for parent in [log, termination].into_iter().filter_map(Path::parent) {
        tokio::fs::create_dir_all(parent).await.map_err(|error| format!("making {}: {error}", parent.display()))?;
    }
    let failed = |error: std::io::Error| format!("making {}: {error}", termination.display());
    tokio::fs::write(termination, []).await.map_err(failed)?;
    // Whoever the container runs as may write it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    tokio::fs::set_permissions(termination, mode).await.map_err(failed)
}

fn expand_path(text: &str, variables: &std::collections::BTreeMap<String, String>) -> Result<String, String> {
    let missing = std::cell::RefCell::new(None);
    let expanded = env::expand(text, &|name| {
        let value = variables.get(name).cloned();
        if value.is_none() {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        value
    });
    missing.into_inner().map_or(Ok(expanded), Err)
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

fn sandbox_failed(message: String) -> (&'static str, String) {
    ("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {message}"))
}

/// Volume errors say all that lies under them themselves.
fn volume_text(error: &VolumeError) -> String {
    error.to_string()
}

fn image_fault(error: &ImageError) -> (&'static str, String) {
    let reason = match error {
        ImageError::InvalidName { .. } => "InvalidImageName",
        ImageError::NeverPull { .. } => "ErrImageNeverPull",
        _ => "ErrImagePull",
    };
    (reason, chain(error))
}
