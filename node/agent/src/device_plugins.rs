//! The devices of plugins that a Pod requests. The device manager gives them to its containers when the Pod is admitted, takes them back
//! when none of its containers is left, and gets them ready before each start.

use std::collections::BTreeMap;

use api_model::quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use node_device_plugins::{ContainerRequest, PodRequest, is_extended_resource};

use crate::admit::Rejection;
use crate::container::{self, Role};
use crate::layout::PodName;
use crate::node::Node;

/// Gives the containers of a Pod their devices. A Pod of which containers are left from an earlier agent has its devices, and is not ended
/// for want of them. May be repeated.
pub(crate) async fn allocate(node: &Node, pod: &Pod, has_containers: bool) -> Result<(), Rejection> {
    let request = pod_request(pod);
    if request.containers.iter().all(|container| container.limits.is_empty()) {
        return Ok(());
    }
    let Err(error) = node.device_plugins.allocate(&request, has_containers).await else { return Ok(()) };
    // The words of upstream's topology manager, which asks for devices.
    let (reason, message) = ("UnexpectedAdmissionError", format!("Allocate failed due to {error}, which is unexpected"));
    if has_containers {
        node.note(pod, None, true, reason, message);
        return Ok(());
    }
    Err(Rejection { reason: reason.to_owned(), message })
}

/// The extended resources of a Pod.
pub(crate) fn pod_request(pod: &Pod) -> PodRequest {
    let containers = pod.spec.iter().flat_map(container::all);
    let containers = containers.map(|(role, container)| container_request(role, container));
    PodRequest { uid: PodName::of(pod).uid, containers: containers.collect() }
}

/// The extended resources of a container. Requests are the same as limits: extended resources are not overcommitted.
pub(crate) fn container_request(role: Role, container: &Container) -> ContainerRequest {
    let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
    let extended = limits.filter(|(name, _)| is_extended_resource(name));
    let number = |text: &str| quantity::value(text).ok().and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
    let limits: BTreeMap<String, u64> = extended.map(|(name, quantity)| (name.clone(), number(&quantity.0))).collect();
    ContainerRequest { name: container.name.clone(), ends_first: role == Role::Init, limits }
}
