//! What both endpoint controllers ask of Services and Pods: which Pods a Service selects, at which
//! of their ports it is served, and which of them belong in its endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::{meta, pods};

/// Marks the endpoints of a Service without a cluster IP.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The Service's selector; `None` where somebody else keeps its endpoints, or where it has none.
pub fn selector(service: &Service) -> Option<api_model::selector::Selector> {
    let spec = service.spec.as_ref()?;
    let labels = spec.selector.as_ref().filter(|labels| !labels.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then(|| meta::selector_of(labels))
}

/// Whether the Service has no cluster IP on purpose.
pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// Whether Pods count as ready for this Service although they are not.
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

/// The number at which a Pod serves a Service's port; `None` when it has no container port of that name.
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
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let mut all = spec.containers.iter().chain(sidecars).flat_map(ports);
    all.find(|port| port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol)
        .map(|port| port.container_port)
}

/// Whether a Pod belongs in endpoints at all: it has an address and has not ended; one on its way
/// out only where terminating Pods are wanted.
pub fn belongs(pod: &Pod, include_terminating: bool) -> bool {
    !pods::is_terminal(pod) && !addresses(pod).is_empty() && (include_terminating || !meta::is_deleting(&pod.metadata))
}

/// The Pod's addresses.
pub fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).filter(|ip| !ip.is_empty()).collect();
    if all.is_empty() { status.pod_ip.as_deref().filter(|ip| !ip.is_empty()).into_iter().collect() } else { all }
}

/// The Pod's address of the Service's family. A node writes its Pods' addresses: one that the server refuses among
/// endpoints would keep all changes of the Service's endpoints from being written.
pub fn address_of_family<'a>(pod: &'a Pod, family: &str) -> Option<&'a str> {
    let is_fit = |address: &&str| address.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6() == (family == "IPv6") && is_of_one_machine(ip));
    addresses(pod).into_iter().find(is_fit)
}

/// Whether an address is neither the sender's own, nor of one link, nor of several machines.
fn is_of_one_machine(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !is_local && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
}

/// The name under which DNS knows the Pod below the Service, if any.
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

/// The Services that a change of a Pod concerns: those that select it now or did before. None when
/// nothing changed that endpoints tell.
pub fn concerned(change: &Change<Pod>, services: &Informer<Service>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && told(old) == told(new)
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

/// Everything about a Pod that its endpoints tell.
fn told(pod: &Pod) -> impl PartialEq + use<'_> {
    let spec = pod.spec.as_ref();
    let names = spec.map(|spec| (&spec.hostname, &spec.subdomain, &spec.node_name));
    let state = (pods::is_ready(pod), pods::is_terminal(pod), meta::is_deleting(&pod.metadata));
    (addresses(pod), state, names, &pod.metadata.labels, &pod.metadata.uid)
}
