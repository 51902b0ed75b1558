//! A Pod reduced to what placement depends on.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Container, Pod, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

use crate::ResourceList;
use crate::node::PortUse;

/// What a container counts as in scores when it asks for no CPU, as upstream: a tenth of a core.
const DEFAULT_CPU_MILLI: i64 = 100;
/// What a container counts as in scores when it asks for no memory, as upstream.
const DEFAULT_MEMORY_BYTES: i64 = 200 << 20;

/// What the scheduler keeps of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodInfo {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: tells a Pod from a later one of the same name.
    pub uid: String,
    /// Revision it was read at.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Priority; higher goes first.
    pub priority: i32,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Node it is bound to; empty when none.
    pub node_name: String,
    /// `schedulerName`.
    pub scheduler_name: String,
    /// Whether it has ended (`Succeeded` or `Failed`) and holds nothing.
    pub terminated: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether scheduling gates hold it back.
    pub gated: bool,
    /// What it asks for, overhead included.
    pub requests: ResourceList,
    /// The same with upstream's stand-ins for containers that ask for nothing: scores use it.
    pub scored_requests: ResourceList,
    /// Host ports.
    pub ports: Vec<PortUse>,
    /// Node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity.
    pub affinity: Option<Affinity>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// The present `PodScheduled` condition's reason and message, when false.
    pub unschedulable: Option<(String, String)>,
}

impl PodInfo {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reduces a Pod.
    pub fn new(pod: Pod) -> Self {
        let (metadata, spec, status) = (pod.metadata, pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let phase = status.phase.unwrap_or_default();
        let scheduled = status.conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
        Self {
            requests: requests(&spec, &|list| list),
            scored_requests: requests(&spec, &with_stand_ins),
            ports: ports(&spec),
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|Time(at)| at),
            deleting: metadata.deletion_timestamp.is_some(),
            terminated: phase == "Succeeded" || phase == "Failed",
            priority: spec.priority.unwrap_or_default(),
            gated: spec.scheduling_gates.is_some_and(|gates| !gates.is_empty()),
            node_name: spec.node_name.unwrap_or_default(),
            scheduler_name: spec.scheduler_name.unwrap_or_default(),
            node_selector: spec.node_selector.unwrap_or_default(),
            affinity: spec.affinity,
            tolerations: spec.tolerations.unwrap_or_default(),
            unschedulable: scheduled.map(|c| (c.reason.unwrap_or_default(), c.message.unwrap_or_default())),
        }
    }

    /// Whether anything that decides its placement differs from another reading of the same Pod.
    pub fn placement_differs(&self, other: &Self) -> bool {
        let plain = |pod: &Self| Self { resource_version: String::new(), unschedulable: None, ..pod.clone() };
        plain(self) != plain(other)
    }
}

/// The sum over containers, or the most that the init containers need beside the sidecars before
/// them if that is more, and the overhead. KEP-753 has the formula.
fn requests(spec: &PodSpec, adjust: &dyn Fn(ResourceList) -> ResourceList) -> ResourceList {
    let of = |container: &Container| {
        let asked = container.resources.as_ref().and_then(|r| r.requests.as_ref());
        adjust(asked.map(ResourceList::from_quantities).unwrap_or_default())
    };
    let mut total = ResourceList::default();
    spec.containers.iter().for_each(|container| total.add(&of(container)));
    let (mut sidecars, mut peak) = (ResourceList::default(), ResourceList::default());
    for container in spec.init_containers.iter().flatten() {
        let mut now = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&now);
            sidecars.add(&now);
            peak.raise_to(&sidecars);
        } else {
            now.add(&sidecars);
            peak.raise_to(&now);
        }
    }
    total.raise_to(&peak);
    if let Some(whole) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let whole = ResourceList::from_quantities(whole);
        total.raise_to(&whole);
    }
    if let Some(overhead) = &spec.overhead {
        total.add(&ResourceList::from_quantities(overhead));
    }
    total
}

fn with_stand_ins(mut list: ResourceList) -> ResourceList {
    if list.cpu_milli == 0 {
        list.cpu_milli = DEFAULT_CPU_MILLI;
    }
    if list.memory_bytes == 0 {
        list.memory_bytes = DEFAULT_MEMORY_BYTES;
    }
    list
}

fn ports(spec: &PodSpec) -> Vec<PortUse> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|&p| p > 0)?;
            let ip = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some(PortUse { ip, protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), port: host_port })
        })
        .collect()
}
