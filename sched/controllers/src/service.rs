//! What both endpoint controllers need of Services and Pods: which Pods a Service selects, which port of a Pod serves it,
//! which Pods belong in its endpoints, and which Services a change concerns.

use std::net::IpAddr;
use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sched_framework::is_sidecar;

use crate::context::ControllerContext;
use crate::work::WorkQueue;
use crate::{meta, pods};

/// Marks the endpoints of a Service without a cluster IP.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The informers of Services and Pods. Each change adds the Services that it concerns to the queue.
pub fn feed(context: &mut ControllerContext, queue: &Arc<WorkQueue<ObjectKey>>) -> (Informer<Service>, Informer<Pod>) {
    let services =
        context.feed(queue, |change: &Change<Service>| change.latest().map(|s| ObjectKey::from(&s.metadata)).into_iter().collect());
    let of_pods = services.clone();
    let pods = context.feed(queue, move |change: &Change<Pod>| concerned(change, &of_pods));
    (services, pods)
}

/// The Service's selector; `None` for a Service without one, and for `ExternalName`, which has no endpoints.
pub fn selector(service: &Service) -> Option<api_model::selector::Selector> {
    let spec = service.spec.as_ref()?;
    let labels = spec.selector.as_ref().filter(|labels| !labels.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then(|| meta::selector_of(labels))
}

/// Whether the Service is headless (`clusterIP: None`).
pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// Whether Pods that are not ready count as ready for this Service.
pub fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// The Service's ports.
pub fn ports(service: &Service) -> &[ServicePort] {
    service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default()
}

/// The protocol of a port.
pub fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The Pod's port behind a Service's port; `None` when the Pod has no container port of that name.
pub fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => named_port(pod, name, protocol(port)),
    }
}

fn named_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let mut all = spec.containers.iter().chain(sidecars).flat_map(ports);
    all.find(|port| port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol)
        .map(|port| port.container_port)
}

/// Whether a Pod belongs in endpoints: it has an address and has not ended. A Pod that is being deleted belongs there only
/// with `include_terminating`.
pub fn belongs(pod: &Pod, include_terminating: bool) -> bool {
    !pods::is_terminal(pod) && !addresses(pod).is_empty() && (include_terminating || !meta::is_deleting(&pod.metadata))
}

/// The Pod's addresses.
pub fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).filter(|ip| !ip.is_empty()).collect();
    if all.is_empty() { status.pod_ip.as_deref().filter(|ip| !ip.is_empty()).into_iter().collect() } else { all }
}

/// The Pod's address of the Service's family, if endpoints may have it. Nodes write the addresses of their Pods. The
/// API server would reject all endpoints of the Service because of one forbidden address.
pub fn address_of_family<'a>(pod: &'a Pod, family: &str) -> Option<&'a str> {
    let is_fit = |address: &&str| address.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6() == (family == "IPv6") && is_of_one_machine(ip));
    addresses(pod).into_iter().find(is_fit)
}

/// Whether an address is not local to the machine or to a link, and not a multicast or broadcast address.
fn is_of_one_machine(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !is_local && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
}

/// The Pod's name in DNS below the name of the Service, if it has one.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_ref().filter(|name| !name.is_empty())?;
    (spec.subdomain == service.metadata.name).then(|| hostname.clone())
}

/// The reference by which an endpoint names its Pod.
pub fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The Services that a change of a Pod concerns: those that select the new or the old state. Empty when no field changed that
/// endpoints contain.
fn concerned(change: &Change<Pod>, services: &Informer<Service>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && endpoint_fields(old) == endpoint_fields(new)
    {
        return Vec::new();
    }
    let Some(pod) = change.latest() else { return Vec::new() };
    let selected = |service: &Arc<Service>| {
        selector(service).is_some_and(|selector| change.both().any(|pod| meta::matches(&selector, pod.metadata.labels.as_ref())))
    };
    let concerned = services.in_namespace(meta::namespace(&pod.metadata)).into_iter().filter(selected);
    concerned.map(|service| ObjectKey::from(&service.metadata)).collect()
}

/// Everything of a Pod that its endpoints contain.
fn endpoint_fields(pod: &Pod) -> impl PartialEq + use<'_> {
    let spec = pod.spec.as_ref();
    let names = spec.map(|spec| (&spec.hostname, &spec.subdomain, &spec.node_name));
    let state = (pods::is_ready(pod), pods::is_terminal(pod), meta::is_deleting(&pod.metadata));
    (addresses(pod), state, names, &pod.metadata.labels, &pod.metadata.uid)
}
