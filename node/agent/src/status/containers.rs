//! `containerStatuses`, `initContainerStatuses` and `ephemeralContainerStatuses`. Pure.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, ContainerUser,
    LinuxContainerUser, Pod, VolumeMount, VolumeMountStatus,
};
use node_volumes::asks_for_recursive_read_only;
use runtimes_contract::User;

use super::time;
use crate::container::{self, Role, ephemeral};
use crate::machine::Host;
use crate::record::{ContainerRecord, ExitedInstance, InstanceState, PodRecord, will_restart};

/// Statuses of init containers (sidecars among them) in the order of the spec, and of the others by name, as upstream.
pub(super) fn statuses(pod: &Pod, pod_record: &PodRecord, host: Host) -> (Vec<ContainerStatus>, Vec<ContainerStatus>) {
    let (mut early, mut main) = (Vec::new(), Vec::new());
    for (role, container) in pod.spec.iter().flat_map(container::all) {
        let Some(record) = pod_record.container(&container.name) else { continue };
        let status = status(pod, pod_record, container, record, host);
        if role == Role::Main { main.push(status) } else { early.push(status) }
    }
    main.sort_by(|one: &ContainerStatus, other| one.name.cmp(&other.name));
    // Each has a kilobyte, and a Pod keeps them.
    early.shrink_to_fit();
    main.shrink_to_fit();
    (early, main)
}

/// Statuses of ephemeral containers by name. As upstream they are never ready, and `started` is not set.
pub(super) fn ephemeral(pod: &Pod, pod_record: &PodRecord, host: Host) -> Vec<ContainerStatus> {
    let records = ephemeral::list(pod).filter_map(|container| Some((container, pod_record.container(&container.name)?)));
    let statuses = records.map(|(container, record)| status(pod, pod_record, &ephemeral::as_container(container), record, host));
    let mut statuses: Vec<_> = statuses.collect();
    statuses.sort_by(|one, other| one.name.cmp(&other.name));
    statuses
}

/// What became of `recursiveReadOnly`. A mount that must have it is in no container of a node that cannot.
fn recursive_read_only(mount: &VolumeMount, host: Host) -> &'static str {
    if host.recursive_read_only && asks_for_recursive_read_only(mount) { "Enabled" } else { "Disabled" }
}

fn has_init(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.init_containers.as_ref().is_some_and(|list| !list.is_empty()))
}

fn status(pod: &Pod, pod_record: &PodRecord, container: &Container, record: &ContainerRecord, host: Host) -> ContainerStatus {
    let (state, last) = states(pod, pod_record, container, record);
    let latest = match &record.run {
        InstanceState::Running(alive) => Some((alive.id.0.clone(), alive.image_id.clone())),
        InstanceState::Ended(ended) | InstanceState::Starting { before: Some(ended) } => {
            Some((ended.id.clone().unwrap_or_default(), ended.image_id.clone()))
        }
        InstanceState::Idle | InstanceState::Starting { before: None } => None,
    };
    let alive = record.alive();
    // An init container is ready when it has ended well; while it runs it is not.
    let ready = match record.role {
        Role::Init => record.ended().is_some_and(ExitedInstance::is_success),
        Role::Sidecar | Role::Main => alive.is_some_and(|alive| alive.ready()),
        Role::Ephemeral => false,
    };
    let (id, image_id) = latest.unwrap_or_default();
    let mounts: Vec<VolumeMountStatus> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: mount.read_only.filter(|read_only| *read_only).map(|_| recursive_read_only(mount, host).to_owned()),
            ..VolumeMountStatus::default()
        })
        .collect();
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id,
        container_id: Some(id).filter(|id| !id.is_empty()).map(|id| format!("skiff://{id}")),
        ready,
        started: (record.role != Role::Ephemeral).then(|| alive.is_some_and(|alive| alive.started())),
        restart_count: i32::try_from(record.reported_restarts()).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: last.map(|ended| ContainerState { terminated: Some(terminated(ended)), ..ContainerState::default() }),
        // After a restart of the agent this field tells which resources the container was allocated.
        resources: alive.map(|alive| alive.resources.own.clone()).or_else(|| container.resources.clone()).or_else(|| Some(<_>::default())),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        volume_mounts: Some(mounts).filter(|mounts| !mounts.is_empty()),
        user: instance_user(record).map(user),
        ..ContainerStatus::default()
    }
}

/// The user of the newest instance, also after its end.
fn instance_user(record: &ContainerRecord) -> Option<&User> {
    let of_end = || record.latest_end().and_then(|ended| ended.user.as_ref());
    record.alive().map(|alive| &alive.user).or_else(of_end)
}

/// The user and groups that an instance began with, the user's own group among them, as container runtimes report it.
fn user(user: &User) -> ContainerUser {
    let id = |id: Option<u32>| id.unwrap_or(0).into();
    let groups = user.all_groups().into_iter().map(i64::from).collect();
    let linux = LinuxContainerUser { uid: id(user.uid), gid: id(user.gid), supplemental_groups: Some(groups) };
    ContainerUser { linux: Some(linux) }
}

fn states<'a>(
    pod: &Pod,
    pod_record: &PodRecord,
    container: &Container,
    record: &'a ContainerRecord,
) -> (ContainerState, Option<&'a ExitedInstance>) {
    let waits_for = |default: &str| match &record.waiting {
        Some(cause) => waiting(&cause.reason, &cause.message),
        None => waiting(default, ""),
    };
    match &record.run {
        InstanceState::Running(alive) => {
            let running = ContainerStateRunning { started_at: Some(time(alive.started_at)) };
            (ContainerState { running: Some(running), ..ContainerState::default() }, record.last.as_ref())
        }
        InstanceState::Ended(ended) | InstanceState::Starting { before: Some(ended) }
            if awaits_next(pod, pod_record, container, record) =>
        {
            (waits_for("ContainerCreating"), Some(ended))
        }
        InstanceState::Ended(ended) | InstanceState::Starting { before: Some(ended) } => {
            (ContainerState { terminated: Some(terminated(ended)), ..ContainerState::default() }, record.last.as_ref())
        }
        InstanceState::Idle | InstanceState::Starting { before: None } => {
            (waits_for(if has_init(pod) { "PodInitializing" } else { "ContainerCreating" }), record.last.as_ref())
        }
    }
}

/// Whether the status of a container that has ended is `waiting`. The API server and an agent that comes back read `terminated`
/// as the result of the container. The end of an instance that the node ended for another one is none.
fn awaits_next(pod: &Pod, pod_record: &PodRecord, container: &Container, record: &ContainerRecord) -> bool {
    match &record.run {
        InstanceState::Ended(ended) => {
            let follows = pod_record.ending_since.is_none() && will_restart(pod, container, record);
            follows && (record.waiting.is_some() || ended.replaced)
        }
        InstanceState::Starting { before } => before.as_ref().is_some_and(|ended| ended.replaced),
        InstanceState::Running(_) | InstanceState::Idle => false,
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let message = Some(message.to_owned()).filter(|message| !message.is_empty());
    ContainerState { waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }), ..ContainerState::default() }
}

fn terminated(ended: &ExitedInstance) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: ended.id.as_ref().map(|id| format!("skiff://{id}")),
        exit_code: ended.exit_code,
        // Upstream's CRI has no signal here, so clients read the exit code alone.
        signal: None,
        reason: Some(ended.reason.clone()),
        message: Some(ended.message.clone()).filter(|message| !message.is_empty()),
        started_at: ended.started_at.map(time),
        finished_at: Some(time(ended.finished_at)),
    }
}
