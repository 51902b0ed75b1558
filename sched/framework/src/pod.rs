//! A Pod reduced to what placement depends on.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Container, Pod, PodSpec, PodStatus, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

use crate::{PortUse, ResourceList};

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
    pub fn new(pod: &Pod) -> Self {
        let none = PodSpec::default();
        let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref().unwrap_or(&none), pod.status.as_ref());
        let phase = status.and_then(|status| status.phase.as_deref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let scheduled = conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
        Self {
            requests: requests(spec, status, &|list| list),
            scored_requests: requests(spec, status, &with_stand_ins),
            ports: ports(spec),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|Time(at)| *at),
            deleting: metadata.deletion_timestamp.is_some(),
            terminated: matches!(phase, Some("Succeeded" | "Failed")),
            unschedulable: scheduled.map(|c| (c.reason.clone().unwrap_or_default(), c.message.clone().unwrap_or_default())),
            priority: spec.priority.unwrap_or_default(),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            node_name: spec.node_name.clone().unwrap_or_default(),
            scheduler_name: spec.scheduler_name.clone().unwrap_or_default(),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            affinity: spec.affinity.clone(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
        }
    }

    /// Whether anything that decides its placement differs from another reading of the same Pod.
    pub fn placement_differs(&self, other: &Self) -> bool {
        let plain = |pod: &Self| Self { resource_version: String::new(), unschedulable: None, ..pod.clone() };
        plain(self) != plain(other)
    }
}

/// The most of what the spec asks for, what was allocated and what is had: a resize may be under way. One that is
/// infeasible does not come, and its spec does not count (upstream's `PodRequests` with `UseStatusResources`).
fn requests(spec: &PodSpec, status: Option<&PodStatus>, adjust: &dyn Fn(ResourceList) -> ResourceList) -> ResourceList {
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let infeasible = conditions.into_iter().flatten().any(|c| c.type_ == "PodResizePending" && c.reason.as_deref() == Some("Infeasible"));
    let asked = |container: &Container| container.resources.as_ref().and_then(|r| r.requests.clone());
    let known = |container: &Container| {
        let mut all =
            status.into_iter().flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses).flatten());
        all.find(|status| status.name == container.name)
    };
    let allocated = |container: &Container| {
        let told = known(container).and_then(|status| status.allocated_resources.clone());
        told.or_else(|| asked(container).filter(|_| !infeasible))
    };
    let had = |container: &Container| {
        let told = known(container).and_then(|status| status.resources.as_ref()?.requests.clone());
        told.or_else(|| allocated(container))
    };
    // Container by container, since one may grow while another shrinks.
    total(spec, &|container| {
        let coming = asked(container).filter(|_| !infeasible);
        let lists = [allocated(container), had(container), coming].map(|list| ResourceList::from_quantities(&list.unwrap_or_default()));
        let [mut most, had, coming] = lists;
        most.raise_to(&had);
        most.raise_to(&coming);
        adjust(most)
    })
}

/// The sum over containers, or the most that the init containers need beside the sidecars before
/// them if that is more, and the overhead. KEP-753 has the formula.
fn total(spec: &PodSpec, of: &dyn Fn(&Container) -> ResourceList) -> ResourceList {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn a_resize_counts_at_its_most_unless_it_is_infeasible() {
        let count = |asked: &str, allocated: &str, had: &str, reason: &str| {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": asked}}});
            let status = json!({
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": had}},
            });
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            let status = json!({"containerStatuses": [status], "conditions": [pending]});
            let pod = json!({"spec": {"containers": [container]}, "status": status});
            PodInfo::new(&serde_json::from_value(pod).expect("a pod")).requests.cpu_milli
        };
        assert_eq!(count("3", "2", "1", "Deferred"), 3_000);
        assert_eq!(count("1", "1", "2", "Deferred"), 2_000);
        assert_eq!(count("100", "1", "2", "Infeasible"), 2_000);
    }
}
