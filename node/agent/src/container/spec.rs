//! Builds the runtime's container spec from the values that the other modules computed. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};
use node_images::Image;
use runtimes_contract::{ContainerSpec, Content, HttpSettings, Mount, Processes, Resources, Sandbox, Seccomp, Security, User};

use super::resources::StartResources;
use super::{command, env, files, resources, security};
use crate::layout::{Layout, PAUSE, PodName, container_id, label, pause_id, spec_hash};

/// The default path of a container's termination message.
const TERMINATION_PATH: &str = "/dev/termination-log";
/// Upstream's for pause containers.
const PAUSE_OOM_SCORE_ADJ: i32 = -998;

/// What the spec is made from, beside Pod and container.
pub(crate) struct Ingredients<'a> {
    pub(crate) attempt: u32,
    pub(crate) image: &'a Image,
    pub(crate) content: Content,
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) processes: Processes,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) volumes: Vec<Mount>,
    pub(crate) user: User,
    pub(crate) seccomp: Seccomp,
    pub(crate) app_armor: Option<String>,
    /// Whether it must not take files out of the quota projects of volumes.
    pub(crate) keeps_projects: bool,
    pub(crate) grace_seconds: i64,
    /// Memory of the machine.
    pub(crate) memory_bytes: u64,
    /// The least `oom_score_adj` that a container may have.
    pub(crate) oom_score_adj_min: i32,
}

/// The spec of one instance of a container.
pub(crate) fn build(pod: &Pod, container: &Container, layout: &Layout, from: Ingredients<'_>) -> ContainerSpec {
    let names = PodName::of(pod);
    let id = container_id(&names.uid, &container.name, from.attempt);
    let config = &from.image.config;
    let list = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let args = command::arguments(&list(&container.command), &list(&container.args), config, &from.variables);
    let labels = labels(pod, &names, container, &from);
    let mut mounts = files::mounts(&names.uid, layout, &from.volumes);
    mounts.extend(from.volumes);
    let termination = termination_path(container);
    if !mounts.iter().any(|mount| mount.target == termination) {
        let source = layout.termination_log(&names.uid, &container.name, from.attempt);
        mounts.push(Mount::new(source, termination, false));
    }
    mounts.sort_by_key(|mount| mount.target.components().count());
    let directory = container.working_dir.as_deref().filter(|dir| !dir.is_empty());
    let directory = directory.or(Some(config.working_dir.as_str()).filter(|dir| !dir.is_empty())).unwrap_or("/");
    let ports = container.ports.iter().flatten().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    ContainerSpec {
        cgroup: format!("{}/{id}", layout.pod_cgroup(resources::qos(pod), &names.uid)),
        labels,
        sandbox: from.sandbox.clone(),
        processes: from.processes,
        content: from.content,
        args,
        env: env::whole(&config.env, &from.sandbox.hostname, from.variables),
        working_dir: PathBuf::from(directory),
        mounts,
        devices: Vec::new(),
        annotations: BTreeMap::new(),
        user: from.user,
        resources: resources::of_container(pod, container),
        probe_token: String::new(),
        http: Default::default(),
        proposals: Default::default(),
        fuel: None,
        outbound_hosts: None,
        keyvalue_redis: None,
        oom_score_adj: resources::oom_score_adj(pod, container, from.memory_bytes).max(from.oom_score_adj_min),
        security: Security {
            seccomp: from.seccomp,
            app_armor: from.app_armor,
            keeps_projects: from.keeps_projects,
            ..security::privileges(container)
        },
        log_path: layout.log(&names, &container.name, from.attempt),
        ports: ports.filter_map(|port| u16::try_from(port.container_port).ok()).collect(),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        id,
    }
}

/// The spec of a Pod's pause container, with upstream's weight, and upstream's last place in the kernel's choice when memory runs
/// out.
pub(crate) fn pause(pod: &Pod, sandbox: &Sandbox, layout: &Layout, oom_score_adj_min: i32) -> ContainerSpec {
    let names = PodName::of(pod);
    let id = pause_id(&names.uid);
    let labels = [
        (label::POD_UID, names.uid.clone()),
        (label::POD_NAME, names.name),
        (label::POD_NAMESPACE, names.namespace),
        (label::CONTAINER, PAUSE.to_owned()),
        // It does nothing that would take time to end.
        (label::GRACE, "0".to_owned()),
    ];
    ContainerSpec {
        cgroup: format!("{}/{id}", layout.pod_cgroup(resources::qos(pod), &names.uid)),
        id,
        labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        sandbox: sandbox.clone(),
        processes: Processes::Own,
        content: Content::Pause,
        args: vec!["/pause".to_owned()],
        env: Vec::new(),
        working_dir: PathBuf::from("/"),
        mounts: Vec::new(),
        devices: Vec::new(),
        annotations: BTreeMap::new(),
        user: User::default(),
        resources: Resources { cpu_shares: Some(resources::shares(0)), ..Resources::default() },
        probe_token: String::new(),
        http: HttpSettings::default(),
        proposals: Default::default(),
        fuel: None,
        outbound_hosts: None,
        keyvalue_redis: None,
        oom_score_adj: PAUSE_OOM_SCORE_ADJ.max(oom_score_adj_min),
        security: Security::default(),
        log_path: PathBuf::new(),
        ports: Vec::new(),
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

/// The path of the termination log in a container.
pub(crate) fn termination_path(container: &Container) -> PathBuf {
    PathBuf::from(container.termination_message_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(TERMINATION_PATH))
}

fn labels(pod: &Pod, names: &PodName, container: &Container, from: &Ingredients<'_>) -> BTreeMap<String, String> {
    let start = pod.spec.as_ref().map(|spec| StartResources::of(spec, container).to_label());
    let pairs = [
        (label::POD_UID, names.uid.clone()),
        (label::POD_NAME, names.name.clone()),
        (label::POD_NAMESPACE, names.namespace.clone()),
        (label::CONTAINER, container.name.clone()),
        (label::ATTEMPT, from.attempt.to_string()),
        (label::HASH, spec_hash(container)),
        (label::RESOURCES, start.unwrap_or_default()),
        (label::IMAGE, container.image.clone().unwrap_or_default()),
        (label::IMAGE_ID, image_id(from.image)),
        (label::GRACE, from.grace_seconds.to_string()),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `imageID` in a container's status: the name by digest where the image came from a registry.
pub(crate) fn image_id(image: &Image) -> String {
    image.digests.first().cloned().unwrap_or_else(|| image.id.clone())
}
