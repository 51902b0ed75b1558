//! A Pod reduced to what its placement depends on.

use api_model::pod_resize::{self, INFEASIBLE, PENDING};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, NodeAffinity, Pod, PodSpec, PodStatus, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    DeviceResources, HostPort, NamespaceLabels, PodAffinityTerm, PodAffinityTerms, PodResourceClaim, PodVolume, Resource, TopologySpread,
    image_names, is_sidecar,
};

/// The CPU that scores count for a container without a CPU request, as upstream: a tenth of a core.
const DEFAULT_CPU_MILLI: i64 = 100;
/// The memory that scores count for a container without a memory request, as upstream.
const DEFAULT_MEMORY_BYTES: i64 = 200 << 20;

/// The fields of a Pod that the scheduler needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodInfo {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: it differs from the UID of a later Pod of the same name.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The revision at which the Pod was read.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations of a Pod without a node.
    pub annotations: BTreeMap<String, String>,
    /// Priority: Pods of a higher one are scheduled first.
    pub priority: i32,
    /// The time at which the Pod was created.
    pub created: Option<Timestamp>,
    /// Whether Pods of a lower priority may be preempted for the Pod (`preemptionPolicy`).
    pub may_preempt: bool,
    /// The time at which a node accepted the Pod.
    pub started: Option<Timestamp>,
    /// `status.nominatedNodeName`; empty when the Pod is not nominated.
    pub nominated_node_name: String,
    /// The node to which the Pod is bound; empty when it is not bound.
    pub node_name: String,
    /// `schedulerName`.
    pub scheduler_name: String,
    /// Whether the Pod has ended (`Succeeded` or `Failed`) and uses no resources.
    pub terminated: bool,
    /// Whether the Pod is being deleted.
    pub deleting: bool,
    /// Whether the scheduler preempted the Pod: the reason in its condition `DisruptionTarget`.
    pub preempted: bool,
    /// Whether the Pod has scheduling gates.
    pub gated: bool,
    /// `namespace/name` of the PodGroup that the Pod belongs to.
    pub pod_group: Option<Arc<str>>,
    /// The Pod's requests with its overhead.
    pub requests: Resource,
    /// The same with upstream's defaults for containers without requests. Scores use it.
    pub non_zero_requests: Resource,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// Node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Node affinity.
    pub node_affinity: Option<NodeAffinity>,
    /// Affinity and anti-affinity to other Pods.
    pub pod_affinity: PodAffinityTerms,
    /// Topology spread constraints.
    pub topology_spread: Vec<TopologySpread>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// The volumes that the placement depends on.
    pub volumes: Vec<PodVolume>,
    /// The claims for devices of a Pod without a node.
    pub resource_claims: Vec<PodResourceClaim>,
    /// What the containers of a Pod without a node request of resources that devices may back.
    pub device_resources: Vec<DeviceResources>,
    /// The names of the images of a Pod without a node.
    pub images: Vec<String>,
    /// The controller of a Pod without a node.
    pub controller: Option<Box<PodController>>,
    /// Reason and message of the present `PodScheduled` condition when its status is `False`.
    pub unschedulable: Option<(String, String)>,
}

/// The owner of a Pod that manages the Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodController {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `ReplicaSet`.
    pub kind: String,
    /// Name, in the namespace of the Pod.
    pub name: String,
}

impl PodController {
    fn new(pod: &Pod) -> Option<Self> {
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        Some(Self { api_version: owner.api_version.clone(), kind: owner.kind.clone(), name: owner.name.clone() })
    }
}

impl PodInfo {
    /// The reason of the condition `DisruptionTarget` of a Pod that the scheduler preempted.
    pub const PREEMPTED: &str = "PreemptionByScheduler";

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The keys of the Pod's claims, `namespace/name`, each with whether the claim must be the Pod's own.
    pub fn claim_keys(&self) -> impl Iterator<Item = (String, bool)> {
        self.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Claim { name, is_ephemeral } => Some((format!("{}/{name}", self.namespace), *is_ephemeral)),
            PodVolume::Disk(_) => None,
        })
    }

    /// Whether the Pod uses the claim of that key.
    pub fn uses_claim(&self, key: &str) -> bool {
        let rest = key.strip_prefix(self.namespace.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let is_it = |volume: &PodVolume| matches!(volume, PodVolume::Claim { name, .. } if Some(name.as_str()) == rest);
        self.volumes.iter().any(is_it)
    }

    /// Copies what the scheduler needs from the Pod.
    pub fn new(pod: &Pod) -> Self {
        let none = PodSpec::default();
        let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref().unwrap_or(&none), pod.status.as_ref());
        let phase = status.and_then(|status| status.phase.as_deref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let target = conditions.into_iter().flatten().find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
        let scheduled = conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
        let requested = Requested::new(pod, spec);
        Self {
            requests: requested.total(&|list| list),
            non_zero_requests: requested.total(&with_defaults),
            ports: ports(spec),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: spec.node_name.is_none().then(|| metadata.annotations.clone()).flatten().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|Time(at)| *at),
            deleting: metadata.deletion_timestamp.is_some(),
            preempted: target.is_some_and(|target| target.reason.as_deref() == Some(Self::PREEMPTED)),
            started: status.and_then(|status| status.start_time.as_ref()).map(|Time(at)| *at),
            nominated_node_name: status.and_then(|status| status.nominated_node_name.clone()).unwrap_or_default(),
            may_preempt: spec.preemption_policy.as_deref() != Some("Never"),
            terminated: matches!(phase, Some("Succeeded" | "Failed")),
            unschedulable: scheduled.map(|c| (c.reason.clone().unwrap_or_default(), c.message.clone().unwrap_or_default())),
            priority: spec.priority.unwrap_or_default(),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            pod_group: pod_group(pod),
            node_name: spec.node_name.clone().unwrap_or_default(),
            scheduler_name: spec.scheduler_name.clone().unwrap_or_default(),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            node_affinity: spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone()),
            pod_affinity: PodAffinityTerms::new(pod),
            topology_spread: TopologySpread::of_pod(pod),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            volumes: PodVolume::of_pod(pod),
            resource_claims: if spec.node_name.is_none() { PodResourceClaim::of_pod(pod) } else { Vec::new() },
            device_resources: if spec.node_name.is_none() { DeviceResources::of_pod(spec) } else { Vec::new() },
            images: if spec.node_name.is_none() { image_names(spec) } else { Vec::new() },
            controller: spec.node_name.is_none().then(|| PodController::new(pod)).flatten().map(Box::new),
        }
    }

    /// Whether an unschedulable Pod may fit once another Pod is bound, or has other labels than before.
    pub fn may_follow(&self, other: &Self, namespaces: &NamespaceLabels) -> bool {
        self.pod_affinity.affinity.iter().any(|term| other.is_selected_by(term, namespaces))
            || self.topology_spread.iter().any(|constraint| constraint.is_required && other.is_spread_by(constraint, &self.namespace))
    }

    /// Whether a term of another Pod's affinity selects the Pod.
    pub fn is_selected_by(&self, term: &PodAffinityTerm, namespaces: &NamespaceLabels) -> bool {
        term.selects(&self.namespace, &self.labels, namespaces)
    }

    /// Whether a topology spread constraint of a Pod in `namespace` selects the Pod.
    pub fn is_spread_by(&self, constraint: &TopologySpread, namespace: &str) -> bool {
        self.namespace == namespace && constraint.selects(&self.labels)
    }

    /// Whether devices may have to be allocated for the Pod.
    pub fn may_use_devices(&self) -> bool {
        !self.resource_claims.is_empty() || !self.device_resources.is_empty()
    }

    /// Whether the Pod uses the ResourceClaim of that `namespace/name`.
    pub fn uses_resource_claim(&self, key: &str) -> bool {
        let name = key.split_once('/').filter(|(namespace, _)| *namespace == self.namespace).map(|(_, name)| name);
        name.is_some_and(|name| self.resource_claims.iter().any(|claim| claim.claim_name() == Some(name)))
    }

    /// Whether a field that the placement depends on differs between two Pods, or two states of a Pod.
    pub fn placement_differs(&self, other: &Self) -> bool {
        self.placement() != other.placement()
    }

    /// Whether a Pod on a node counts for other Pods as its later state does.
    pub fn counts_as(&self, other: &Self) -> bool {
        let of_pod = |pod: &Self| (pod.priority, pod.deleting);
        of_pod(self) == of_pod(other)
            && (&self.labels, &self.requests, &self.non_zero_requests) == (&other.labels, &other.requests, &other.non_zero_requests)
            && (&self.ports, &self.pod_affinity) == (&other.ports, &other.pod_affinity)
    }

    /// Whether two Pods ask the same of a node: plugins of [`crate::Scope::Node`] say the same of both.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.on_node() == other.on_node()
    }

    fn placement(&self) -> impl PartialEq {
        let of_pod = (&self.namespace, &self.labels, self.priority, self.may_preempt, &self.scheduler_name);
        (of_pod, self.on_node(), &self.pod_affinity, &self.topology_spread, &self.volumes, &self.resource_claims)
    }

    fn on_node(&self) -> impl PartialEq {
        (&self.requests, &self.non_zero_requests, &self.ports, &self.node_selector, &self.node_affinity, &self.tolerations)
    }
}

/// What a Pod requests while a resize may be under way: of each container, and of the Pod as a whole, the largest of what the spec
/// requests, what the node allocated, and what it has. A resize that is infeasible is never applied, so the spec of such a Pod does not count
/// (upstream's `PodRequests` with `UseStatusResources`). Quotas count the same: `requests_in_use` of `api_admission::pods`.
struct Requested<'a> {
    spec: &'a PodSpec,
    status: Option<&'a PodStatus>,
    is_infeasible: bool,
    pod_level: Resource,
}

impl<'a> Requested<'a> {
    fn new(pod: &'a Pod, spec: &'a PodSpec) -> Self {
        let (status, is_infeasible) = (pod.status.as_ref(), is_infeasible(pod));
        Self { spec, status, is_infeasible, pod_level: pod_level_requests(spec, status, is_infeasible) }
    }

    /// The sum, in which each container counts as `adjust` makes of its list.
    fn total(&self, adjust: &dyn Fn(Resource) -> Resource) -> Resource {
        // Container by container, since one may grow while another one shrinks.
        total(self.spec, &self.pod_level, &|container| adjust(self.of_container(container)))
    }

    fn of_container(&self, container: &Container) -> Resource {
        let lists = |status: &'a PodStatus| status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        let reported = self.status.into_iter().flat_map(lists).find(|status| status.name == container.name);
        let allocated = reported.and_then(|status| status.allocated_resources.as_ref());
        let resources = reported.and_then(|status| status.resources.as_ref());
        let is_reported = allocated.is_some() || resources.is_some();
        let specified = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let specified = specified.filter(|_| !self.is_infeasible || !is_reported);
        largest([specified, allocated, resources.and_then(|resources| resources.requests.as_ref())])
    }
}

/// Amounts by resource name.
type Quantities = BTreeMap<String, Quantity>;

/// The largest amounts of the lists that are there.
fn largest(lists: [Option<&Quantities>; 3]) -> Resource {
    let mut lists = lists.into_iter().flatten();
    let mut largest = lists.next().map(Resource::from_quantities).unwrap_or_default();
    lists.for_each(|list| largest.set_max(&Resource::from_quantities(list)));
    largest
}

/// Whether the node can never provide the resources of the Pod's present spec.
fn is_infeasible(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let (generation, is_deleted) = (pod.metadata.generation, pod.metadata.deletion_timestamp.is_some());
    let mut pending = conditions.into_iter().flatten().filter(|c| c.type_ == PENDING && c.reason.as_deref() == Some(INFEASIBLE));
    pending.any(|c| pod_resize::is_of_spec(c.observed_generation, generation, is_deleted))
}

/// The requests of `spec.resources`; without them, none. The status has those of every Pod, and of resources that only containers request.
fn pod_level_requests(spec: &PodSpec, status: Option<&PodStatus>, is_infeasible: bool) -> Resource {
    let specified = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()).filter(|list| !list.is_empty());
    let Some(specified) = specified else { return Resource::default() };
    let named = |list: &Quantities| -> Quantities {
        list.iter().filter(|(name, _)| specified.contains_key(*name)).map(|(name, amount)| (name.clone(), amount.clone())).collect()
    };
    let allocated = status.and_then(|status| status.allocated_resources.as_ref());
    let resources = status.and_then(|status| status.resources.as_ref());
    let is_reported = allocated.is_some() || resources.is_some();
    let actual = resources.and_then(|resources| resources.requests.as_ref()).map(named);
    largest([Some(specified).filter(|_| !is_infeasible || !is_reported), allocated.map(named).as_ref(), actual.as_ref()])
}

/// The sum over the containers, or the largest need of an init container beside the sidecars before it if that is more,
/// plus the overhead. KEP-753 has the formula.
fn total(spec: &PodSpec, pod_level: &Resource, container_requests: &dyn Fn(&Container) -> Resource) -> Resource {
    let mut total = Resource::default();
    spec.containers.iter().for_each(|container| total.add(&container_requests(container)));
    let (mut sidecars, mut peak) = (Resource::default(), Resource::default());
    for container in spec.init_containers.iter().flatten() {
        let mut needed = container_requests(container);
        if is_sidecar(container) {
            total.add(&needed);
            sidecars.add(&needed);
            peak.set_max(&sidecars);
        } else {
            needed.add(&sidecars);
            peak.set_max(&needed);
        }
    }
    total.set_max(&peak);
    total.set_max(pod_level);
    if let Some(overhead) = &spec.overhead {
        total.add(&Resource::from_quantities(overhead));
    }
    total
}

fn with_defaults(mut resource: Resource) -> Resource {
    if resource.cpu_milli == 0 {
        resource.cpu_milli = DEFAULT_CPU_MILLI;
    }
    if resource.memory_bytes == 0 {
        resource.memory_bytes = DEFAULT_MEMORY_BYTES;
    }
    resource
}

fn pod_group(pod: &Pod) -> Option<Arc<str>> {
    let name = pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.as_ref()?;
    Some(format!("{}/{name}", pod.metadata.namespace.as_deref().unwrap_or_default()).into())
}

fn ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|&p| p > 0)?;
            let ip = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some(HostPort { ip, protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), port: host_port })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn a_resize_counts_at_its_most_unless_it_is_infeasible() {
        let count = |desired: &str, allocated: &str, actual: &str, reason: &str| {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": desired}}});
            let status = json!({
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}},
            });
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            let status = json!({"containerStatuses": [status], "conditions": [pending]});
            let pod = json!({"spec": {"containers": [container]}, "status": status});
            PodInfo::new(&serde_json::from_value(pod).expect("a pod")).requests.cpu_milli
        };
        assert_eq!(count("3", "2", "1", "Deferred"), 3_000);
        assert_eq!(count("1", "1", "2", "Deferred"), 2_000);
        assert_eq!(count("100", "1", "2", "Infeasible"), 2_000);
        let of_generation = |generation: i64, deleted: Option<&str>| {
            let status = json!({
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible", "observedGeneration": 2}],
                "containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "resources": {"requests": {"cpu": "1"}},
                }],
            });
            let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]});
            let pod = json!({"metadata": {"generation": generation, "deletionTimestamp": deleted}, "spec": spec, "status": status});
            PodInfo::new(&serde_json::from_value(pod).expect("a pod")).requests.cpu_milli
        };
        assert_eq!((of_generation(2, None), of_generation(3, None)), (1_000, 9_000), "an earlier spec was infeasible");
        assert_eq!(of_generation(3, Some("2026-01-01T00:00:00Z")), 1_000, "a deletion changes no spec");
    }

    #[test]
    fn a_resize_of_the_whole_pod_counts_at_its_most_unless_it_is_infeasible() {
        let count = |spec: serde_json::Value, allocated: &str, actual: &str, reason: &str| {
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            let status = json!({
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}, "conditions": [pending],
            });
            let pod = json!({"spec": spec, "status": status});
            PodInfo::new(&serde_json::from_value(pod).expect("a pod")).requests.cpu_milli
        };
        let spec = |cpu: &str| {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": "500m"}}});
            json!({"resources": {"requests": {"cpu": cpu}}, "containers": [container], "overhead": {"cpu": "100m"}})
        };
        let of_container = json!({"resources": {"requests": {"memory": "1Mi"}}, "containers": [{"name": "c"}]});
        assert_eq!(count(of_container, "4", "4", ""), 0, "its containers request the CPU of the status");
        assert_eq!(count(spec("3"), "2", "1", "Deferred"), 3_100);
        assert_eq!(count(spec("1"), "1", "2", "Deferred"), 2_100);
        assert_eq!(count(spec("1"), "2", "1", "Deferred"), 2_100);
        assert_eq!(count(spec("100"), "1", "2", "Infeasible"), 2_100);
        let without = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        assert_eq!(count(without, "4", "4", ""), 1_000, "the status of containers counts for Pods without resources of their own");
    }
}
