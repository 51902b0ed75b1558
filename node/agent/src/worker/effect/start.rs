//! Creates and starts one instance of a container.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use node_device_plugins::ContainerDevices;
use node_images::Image;
use node_volumes::UnknownVariable;
use runtimes_contract::{ContainerId, Content, ContentKind, Mount, Processes, Runtime, RuntimeError, User};
use runtimes_host::blocking;
use thiserror::Error;
use tokio::time::timeout;

use super::{Effects, devices, volume_text};
use crate::cleanup;
use crate::container::processes::{self, ProcessesError, TargetInstance};
use crate::container::resources::InstanceResources;
use crate::container::spec::Ingredients;
use crate::container::wasm_settings::{self, WasmSettings};
use crate::container::{self, ConfigError, Role, env, runtime_choice, security, spec};
use crate::enforce;
use crate::error::chain;
use crate::layout::{PodName, container_id, spec_hash};
use crate::reason::Reason;
use crate::record::{ExitedInstance, PodSandbox, RunningInstance};
use crate::static_pods::Origin;
use crate::worker::learn::{Report, StartFault};
use crate::worker::plan::GRACE_SECONDS;

/// How long a start may go on once its Pod is to end.
const START_GOES_ON: Duration = Duration::from_secs(10);
/// How long a container waits for the file system of volumes, which it may not use at all.
const FILE_SYSTEM_ANSWERS: Duration = Duration::from_secs(2);

/// The next instance of a container.
pub(crate) struct NextInstance {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) image: Arc<Image>,
    pub(crate) sandbox: PodSandbox,
    /// The container whose processes it sees.
    pub(crate) target: Option<TargetInstance>,
    /// The id of the instance before.
    pub(crate) leftover: Option<String>,
}

impl Effects {
    /// Creates and starts the next instance of a container, then frees the resources of the one before.
    pub(crate) async fn start(self, next: NextInstance) {
        let Some((role, container)) = container::find_any(&self.pod, &next.name) else { return };
        let result = self.begin(role, &container, &next).await;
        let NextInstance { name, attempt, leftover, .. } = next;
        let runs = result.is_ok();
        let fault = result.as_ref().err().map(StartFault::code);
        if fault != Some(None) {
            self.node.kubelet_metrics.pods.container_started(role, fault.flatten().map_or(Ok(()), Err));
        }
        self.bound(&container_id(&PodName::of(&self.pod).uid, &name, attempt), runs).await;
        self.report(Report::Started(name.clone(), result)).await;
        if let Some(id) = leftover.map(ContainerId)
            && let Err(error) = cleanup::remove_everywhere(&self.node, &id).await
        {
            tracing::warn!(container = %id, error = chain(&error), "container not removed");
        }
        if runs {
            cleanup::forget_old_files(&self.node, &PodName::of(&self.pod), &name, attempt).await;
        }
    }

    async fn begin(&self, role: Role, container: &Container, next: &NextInstance) -> Result<RunningInstance, StartFault> {
        let NextInstance { attempt, image, sandbox, .. } = next;
        let attempt = *attempt;
        let config_fault = |error: ConfigError| unmade("CreateContainerConfigError", error.0);
        let class = sandbox.class.as_ref().map(|class| (class.name.as_str(), class.handler.as_str()));
        let reference = container.image.as_deref().unwrap_or_default();
        let runtime = runtime_choice::choose(&self.node.parts, class, reference, image.kind).map_err(config_fault)?;
        runtime_choice::check_abilities(&self.pod, container, image.kind).map_err(config_fault)?;
        if sandbox.sandbox.user.is_some()
            && let Some(fault) = enforce::user_namespace_fault(Some(runtime.handler()), &self.node.without_user_namespaces, 0)
        {
            return Err(unmade("CreateContainerConfigError", fault));
        }
        enforce::check_mounts(container, self.node.recursive_read_only).map_err(config_fault)?;
        if role == Role::Ephemeral {
            enforce::check_added(container, enforce::has_selinux()).map_err(|error| unmade("CreateContainerError", error.0))?;
        }
        let processes = self.processes(image.kind, sandbox, next.target.as_ref());
        let processes = processes.map_err(|error| unmade("CreateContainerError", error.to_string()))?;
        let devices = self.plugin_devices(role, container, image.kind, sandbox).await?;
        let variables = self.variables(container, sandbox).await.map_err(config_fault)?;
        let variables = devices::under(variables, &devices);
        let expand = |text: &str| expand_path(text, &variables);
        let volumes = self.node.volumes.mounts(&self.pod, container, &expand).await;
        let mut volumes = volumes.map_err(|error| unmade("CreateContainerConfigError", volume_text(&error)))?;
        volumes.iter_mut().for_each(|mount| mount.recursive_read_only &= self.node.recursive_read_only);
        let volumes = self.with_shared_memory(sandbox, image.kind, volumes).await?;
        let id = container_id(&PodName::of(&self.pod).uid, &container.name, attempt);
        let content = self.node.parts.images.mount(image, &id.0, sandbox.sandbox.user.as_ref()).await;
        let content = content.map_err(|error| unmade("CreateContainerError", chain(&error)))?;
        let volumes = devices::with_mounts(self.with_image_files(container, image, &id, volumes), &devices);
        let made = self.make(container, next, &runtime, processes, content, variables, volumes, devices).await;
        if made.is_err()
            && let Err(error) = cleanup::remove_container(&self.node, runtime.handler(), &id).await
        {
            tracing::warn!(container = %id, error = chain(&error), "half-made container not removed");
        }
        let user = made?;
        self.node.note(&self.pod, Some(&container.name), false, "Created", "Container created");
        let started_in_time = match self.until_hopeless(runtime.start(&id)).await {
            Some(started) => started,
            // What runs without having said so is ended as any other; the rest is removed with the Pod.
            None => runtime.signal(&id, 0).await.map_err(|_| hopeless()),
        };
        if let Err(error) = started_in_time {
            return Err(self.not_started(id, image, user, error));
        }
        self.node.note(&self.pod, Some(&container.name), false, "Started", "Container started");
        let resources = self.pod.spec.as_ref().map(|spec| InstanceResources::of(spec, container)).unwrap_or_default();
        Ok(started(id, runtime.handler().to_owned(), attempt, image, container, resources, user))
    }

    /// Whether containers must not take files out of the quota projects of volumes, or put them into one. It concerns also those that have no
    /// volume: their other files may be on the same file system, and Pods pass open files to each other. In case of doubt, also while the
    /// file system does not answer, they must not. WebAssembly has no such calls.
    async fn keeps_projects(&self, kind: ContentKind) -> bool {
        let volumes = self.node.volumes.clone();
        let enforced = timeout(FILE_SYSTEM_ANSWERS, blocking(move || volumes.enforces_capacity()));
        kind == ContentKind::Linux && enforced.await.map_or(true, |enforced| enforced.unwrap_or(true))
    }

    /// Waits for a start. `None` when the start takes too long after its Pod is to end.
    async fn until_hopeless<T>(&self, start: impl Future<Output = T>) -> Option<T> {
        let hopeless = async {
            self.ending.cancelled().await;
            tokio::time::sleep(START_GOES_ON).await;
        };
        tokio::select! {
            biased;
            started = start => Some(started),
            () = hopeless => None,
        }
    }

    /// A Linux container of a Pod with an IPC namespace of its own has the Pod's `/dev/shm`, unless it mounts something else
    /// there.
    async fn with_shared_memory(&self, sandbox: &PodSandbox, kind: ContentKind, mut volumes: Vec<Mount>) -> Result<Vec<Mount>, StartFault> {
        let target = Path::new("/dev/shm");
        let wanted = sandbox.sandbox.ipc.is_some() && kind == ContentKind::Linux;
        if wanted && !volumes.iter().any(|mount| mount.target == target) {
            let made = self.node.volumes.shared_memory(&PodName::of(&self.pod).uid).await;
            let source = made.map_err(|error| unmade("CreateContainerError", volume_text(&error)))?;
            volumes.push(Mount::new(source, target, false));
        }
        Ok(volumes)
    }

    /// The files of a WASM image are its guest's root, unless a volume is mounted there.
    fn with_image_files(&self, container: &Container, image: &Image, id: &ContainerId, mut volumes: Vec<Mount>) -> Vec<Mount> {
        let root = Path::new("/");
        let files = if volumes.iter().any(|mount| mount.target == root) { None } else { self.guest_files(image, id) };
        if let Some(files) = files {
            let mount = Mount::new(files, root, security::privileges(container).read_only_root);
            volumes.push(Mount { ids_mapped: true, ..mount });
        }
        volumes
    }

    /// Where the files of a WASM image are mounted for a container.
    fn guest_files(&self, image: &Image, id: &ContainerId) -> Option<PathBuf> {
        let layer = image.has_guest_files().then(|| self.node.parts.images.writable_layer(&id.0));
        layer.flatten().map(|layer| layer.merged)
    }

    /// Where the files of an image are mounted for a container.
    fn image_files(&self, content: &Content, image: &Image, id: &ContainerId) -> Option<PathBuf> {
        match content {
            Content::Linux { rootfs } => Some(rootfs.clone()),
            Content::Wasm { .. } => self.guest_files(image, id),
            Content::Pause => None,
        }
    }

    async fn variables(&self, container: &Container, sandbox: &PodSandbox) -> Result<BTreeMap<String, String>, ConfigError> {
        // As upstream, a static Pod does not wait for the API.
        let services = match self.origin {
            Origin::Api => self.node.objects.services().await,
            Origin::File => self.node.objects.listed_services(),
        };
        let sources = env::Sources {
            objects: &self.node.objects,
            services: &services,
            pod_ips: &[sandbox.ip],
            host_ips: &[self.node.config.node_ip],
            allocatable: self.node.allocatable(),
            volumes: &self.node.volumes,
        };
        env::variables(&self.pod, container, &sources).await
    }

    /// The settings of a container that starts now: those of its Pod's RuntimeClass at this moment, and those of its Pod.
    fn wasm_settings(&self, sandbox: &PodSandbox, kind: ContentKind) -> Result<WasmSettings, ConfigError> {
        let class = sandbox.class.as_ref().map(|class| {
            let present = self.node.objects.cached_class(&class.name);
            let settings = present.map_or_else(|| class.wasm_settings.clone(), |present| wasm_settings::annotations(&present.metadata));
            (class.name.as_str(), settings)
        });
        wasm_settings::read(&self.pod, class, kind)
    }

    /// Pod and target decide.
    fn processes(&self, kind: ContentKind, sandbox: &PodSandbox, target: Option<&TargetInstance>) -> Result<Processes, ProcessesError> {
        let target = target.map(|target| {
            let runtime = self.node.parts.by_handler(&target.handler);
            (target, runtime.map_or(kind, |runtime| runtime.runs()))
        });
        processes::processes(&self.pod, kind, sandbox.pause.as_ref(), target)
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, which has just worked each of them out")]
    async fn make(
        &self,
        container: &Container,
        next: &NextInstance,
        runtime: &Arc<dyn Runtime>,
        processes: Processes,
        content: Content,
        variables: BTreeMap<String, String>,
        volumes: Vec<Mount>,
        plugin_devices: ContainerDevices,
    ) -> Result<User, StartFault> {
        let NextInstance { attempt, image, sandbox, .. } = next;
        let attempt = *attempt;
        let files = self.image_files(&content, image, &container_id(&PodName::of(&self.pod).uid, &container.name, attempt));
        let user = security::user(&self.pod, container, &image.config.user, content.kind(), files.as_deref());
        let user = user.map_err(|error| unmade("CreateContainerConfigError", error.0))?;
        let seccomp = security::seccomp(&self.pod, container, content.kind(), &self.node.layout.seccomp_profiles());
        let seccomp = seccomp.map_err(|error| unmade("CreateContainerError", error.0))?;
        let app_armor = self.node.app_armor.profile(&self.pod, container).await;
        let app_armor = app_armor.map_err(|error| unmade("CreateContainerError", chain(&error)))?;
        let keeps_projects = self.keeps_projects(content.kind()).await;
        let settings = self.wasm_settings(sandbox, content.kind());
        let settings = settings.map_err(|error| unmade("CreateContainerConfigError", error.0))?;
        let grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(GRACE_SECONDS);
        let machine = &self.node.machine;
        let from = Ingredients {
            attempt,
            image,
            content,
            sandbox: &sandbox.sandbox,
            processes,
            variables,
            volumes,
            user,
            seccomp,
            app_armor,
            keeps_projects,
            grace_seconds: grace,
            memory_bytes: machine.memory_bytes,
            oom_score_adj_min: machine.oom_score_adj,
        };
        let mut spec = spec::build(&self.pod, container, &self.node.layout, from);
        spec.probe_token = self.node.probe_token(&spec.id);
        let devices = self.node.volumes.devices(&self.pod, container).await;
        spec.devices = devices.map_err(|error| unmade("CreateContainerConfigError", volume_text(&error)))?;
        devices::add(&mut spec, plugin_devices);
        settings.apply(&mut spec).map_err(|error| unmade("CreateContainerConfigError", error.0))?;
        if spec.args.is_empty() {
            return Err(unmade("CreateContainerError", "no command specified".to_owned()));
        }
        let termination = self.node.layout.termination_log(&PodName::of(&self.pod).uid, &container.name, attempt);
        make_files(&spec.log_path, &termination).await.map_err(|error| unmade("CreateContainerError", chain(&error)))?;
        let fault = |error: RuntimeError| unmade("CreateContainerError", chain(&error));
        // A module may compile for minutes; a Pod that ends does not wait for that.
        match self.ending.run_until_cancelled(self.prepare_content(container, runtime, &spec)).await {
            Some(prepared) => prepared.map_err(fault)?,
            None => return Err(StartFault::Ending),
        }
        // Last: others wait for a start that has begun on shared CPUs.
        let binding = self.bind(&mut spec, &container.name, runtime.handler());
        self.ending.run_until_cancelled(binding).await.ok_or(StartFault::Ending)?;
        match runtime.create(&spec).await {
            Err(RuntimeError::NoTarget(_)) if processes::are_shared(&self.pod) => return Err(StartFault::NoSandbox),
            Err(RuntimeError::Exists(_)) => {
                runtime.remove(&spec.id).await.map_err(fault)?;
                runtime.create(&spec).await.map_err(fault)?;
            }
            other => other.map_err(fault)?,
        }
        Ok(spec.user)
    }

    /// It was created and did not start: upstream's `StartError`.
    fn not_started(&self, id: ContainerId, image: &Image, user: User, error: RuntimeError) -> StartFault {
        let now = api_clock::now();
        StartFault::Ended(ExitedInstance {
            id: Some(id.0),
            image_id: spec::image_id(image),
            exit_code: 128,
            signal: None,
            reason: "StartError".to_owned(),
            message: chain(&error),
            user: Some(user),
            started_at: None,
            finished_at: now,
            replaced: false,
        })
    }
}

/// The error of a start that was given up.
fn hopeless() -> RuntimeError {
    let message = format!("it still hung {} s after the Pod was to end", START_GOES_ON.as_secs());
    RuntimeError::Tool { tool: "the start", message }
}

/// An instance that has just begun to run.
fn started(
    id: ContainerId,
    handler: String,
    attempt: u32,
    image: &Image,
    container: &Container,
    resources: InstanceResources,
    user: User,
) -> RunningInstance {
    RunningInstance {
        id,
        handler,
        attempt,
        started_at: api_clock::now(),
        image_id: spec::image_id(image),
        hash: spec_hash(container),
        resources,
        user,
        startup_ok: container.startup_probe.is_none(),
        readiness_ok: container.readiness_probe.is_none(),
        hooked: container.lifecycle.as_ref().is_none_or(|lifecycle| lifecycle.post_start.is_none()),
        condemned: None,
        stopping: false,
        replaced: false,
    }
}

pub(super) fn unmade(reason: &'static str, message: impl Into<String>) -> StartFault {
    StartFault::Unmade(Reason::new(reason, message))
}

/// A file of a container could not be written.
#[derive(Debug, Error)]
#[error("making {}: {error}", .path.display())]
struct FileError {
    path: PathBuf,
    error: io::Error,
}

/// The log's directory, and an empty termination log.
async fn make_files(log: &Path, termination: &Path) -> Result<(), FileError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| FileError { path, error }
    };
    for parent in [log, termination].into_iter().filter_map(Path::parent) {
        tokio::fs::create_dir_all(parent).await.map_err(failed(parent))?;
    }
    tokio::fs::write(termination, []).await.map_err(failed(termination))?;
    // Any user of the container may write it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    tokio::fs::set_permissions(termination, mode).await.map_err(failed(termination))
}

fn expand_path(text: &str, variables: &BTreeMap<String, String>) -> Result<String, UnknownVariable> {
    let missing = std::cell::RefCell::new(None);
    let expanded = env::expand(text, &|name| {
        let value = variables.get(name).cloned();
        if value.is_none() {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        value
    });
    missing.into_inner().map_or(Ok(expanded), |name| Err(UnknownVariable(name)))
}
