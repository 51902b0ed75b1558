//! Ephemeral containers (`kubectl debug`): the fields that they have in common with other containers. Pure.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

/// The ephemeral containers of a Pod.
pub(crate) fn list(pod: &Pod) -> impl Iterator<Item = &EphemeralContainer> {
    pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten())
}

/// The container without its target. The API server rejects ephemeral containers with probes, hooks, ports or resources.
pub(crate) fn as_container(container: &EphemeralContainer) -> Container {
    let EphemeralContainer {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        target_container_name: _,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    } = container.clone();
    Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    }
}

/// The container whose processes an ephemeral container is to see (`targetContainerName`).
pub(crate) fn target_name<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let container = list(pod).find(|container| container.name == name)?;
    container.target_container_name.as_deref().filter(|target| !target.is_empty())
}
