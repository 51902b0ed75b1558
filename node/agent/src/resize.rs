//! In-place resize of a Pod (KEP-1287, KEP-5419): what its containers and the Pod as a whole were allocated, and what its spec requests
//! now. All other code sees the Pod with its allocation. The worker decides whether the node has room for the new request; if not, the condition
//! `PodResizePending` says so. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::pod_resize::{self, DEFERRED, IN_PROGRESS, INFEASIBLE, PENDING};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node_volumes::Allocatable;

use crate::admit::{self, Demand};
use crate::container::resources::{Change, InstanceResources};
use crate::container::{self, resources};

/// Amounts by resource name.
type ResourceList = BTreeMap<String, Quantity>;

/// The resources allocated to each container, by name. Boxed, because a node of the map has room for eleven.
pub(crate) type OfContainers = BTreeMap<String, Box<ResourceRequirements>>;

/// The resources allocated to a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Allocation {
    pub(crate) containers: OfContainers,
    /// In place of `spec.resources`.
    pub(crate) pod_level: Option<Box<ResourceRequirements>>,
}

impl Allocation {
    /// Whether another one differs, however the amounts are written.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let of_containers = self.containers.iter().map(|(name, own)| (Some(&**own), other.containers.get(name).map(|own| &**own)));
        let of_pod = (self.pod_level.as_deref(), other.pod_level.as_deref());
        of_containers.chain([of_pod]).any(|(one, other)| resources::change(one, other).any())
    }
}

/// Why a Pod does not get the resources of its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// `Infeasible` or `Deferred`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Pending {
    /// The node can never give it.
    pub(crate) fn infeasible(message: String) -> Self {
        Self { reason: INFEASIBLE, message }
    }

    /// Not beside the Pods that are here now.
    pub(crate) fn is_deferred(&self) -> bool {
        self.reason == DEFERRED
    }
}

/// The resources in a Pod's spec.
pub(crate) fn desired(pod: &Pod) -> Allocation {
    let all = pod.spec.iter().flat_map(container::all);
    let containers = all.map(|(_, container)| (container.name.clone(), Box::new(container.resources.clone().unwrap_or_default())));
    let pod_level = pod.spec.as_ref().and_then(|spec| spec.resources.clone());
    Allocation { containers: containers.collect(), pod_level: pod_level.map(Box::new) }
}

/// The resources that an earlier agent allocated to a Pod, from its status. A container that is missing there has the resources
/// of its spec, and so has the Pod as a whole.
pub(crate) fn remembered(pod: &Pod) -> Allocation {
    let mut allocation = desired(pod);
    let Some(status) = &pod.status else { return allocation };
    let lists = [&status.init_container_statuses, &status.container_statuses].into_iter();
    for ContainerStatus { name, resources, .. } in lists.flatten().flatten() {
        if let (Some(slot), Some(resources)) = (allocation.containers.get_mut(name), resources) {
            slot.as_mut().clone_from(resources);
        }
    }
    if let (Some(pod_level), Some(reported)) = (&mut allocation.pod_level, &status.resources) {
        recall(&mut pod_level.requests, reported.requests.as_ref());
        recall(&mut pod_level.limits, reported.limits.as_ref());
    }
    allocation
}

/// Replaces the CPU and memory of a list of `spec.resources` by those of the status. The status also has what containers have together,
/// which is no allocation of the Pod as a whole.
fn recall(list: &mut Option<ResourceList>, reported: Option<&ResourceList>) {
    let Some(list) = list else { return };
    list.retain(|name, amount| match reported.and_then(|reported| reported.get(name)) {
        Some(reported) => {
            amount.clone_from(reported);
            true
        }
        None => !matches!(name.as_str(), "cpu" | "memory"),
    });
}

/// Why an earlier agent did not allocate the resources of the present spec, from the Pod's status.
pub(crate) fn reported_pending(pod: &Pod) -> Option<Pending> {
    let pending = reported_condition(pod, PENDING).filter(|pending| is_of_spec(pending, pod))?;
    let reason = if pending.reason.as_deref() == Some(INFEASIBLE) { INFEASIBLE } else { DEFERRED };
    Some(Pending { reason, message: pending.message.clone().unwrap_or_default() })
}

/// Whether a condition is about the present spec.
fn is_of_spec(condition: &PodCondition, pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    pod_resize::is_of_spec(condition.observed_generation, metadata.generation, metadata.deletion_timestamp.is_some())
}

/// Whether the status has the verdict that an earlier spec is infeasible, and none about the present one.
pub(crate) fn is_weighed_again(pod: &Pod) -> bool {
    reported_condition(pod, PENDING).is_some_and(|pending| pending.reason.as_deref() == Some(INFEASIBLE) && !is_of_spec(pending, pod))
}

/// The time since when the Pod's status reports a deferred resize.
pub(crate) fn deferred_since(pod: &Pod) -> Option<Timestamp> {
    let pending = reported_condition(pod, PENDING).filter(|pending| pending.reason.as_deref() == Some(DEFERRED))?;
    pending.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether the Pod's status reports a resize that an earlier agent had begun and not ended.
pub(crate) fn was_in_progress(pod: &Pod) -> bool {
    reported_condition(pod, IN_PROGRESS).is_some_and(|condition| condition.status == "True")
}

/// A condition in the Pod's status.
pub(crate) fn reported_condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == name)
}

/// A Pod with its allocation instead of the resources of its spec; upstream's `UpdatePodFromAllocation`.
pub(crate) fn with_allocation(pod: &Arc<Pod>, allocation: &Allocation) -> Arc<Pod> {
    if !differs(pod, allocation) {
        return pod.clone();
    }
    Arc::new(with_resources(pod, &allocation.containers, allocation.pod_level.as_deref()))
}

/// A Pod with these resources of its containers and of the Pod as a whole. A container that is missing there keeps the resources of the
/// spec.
pub(crate) fn with_resources(pod: &Pod, containers: &OfContainers, pod_level: Option<&ResourceRequirements>) -> Pod {
    let mut changed = pod.clone();
    if let Some(spec) = &mut changed.spec {
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            if let Some(resources) = containers.get(&container.name) {
                container.resources = Some(ResourceRequirements::clone(resources));
            }
        }
        spec.resources = pod_level.cloned();
    }
    changed
}

/// What a Pod takes of the room of others: an infeasible resize does not count.
pub(crate) fn demand(pod: &Arc<Pod>) -> Demand {
    let is_infeasible = reported_pending(pod).is_some_and(|pending| !pending.is_deferred());
    if is_infeasible { Demand::of(&with_allocation(pod, &remembered(pod))) } else { Demand::of(pod) }
}

/// Whether a Pod's spec differs from its allocation.
pub(crate) fn differs(pod: &Pod, allocation: &Allocation) -> bool {
    let mut all = pod.spec.iter().flat_map(container::all);
    differs_as_a_whole(pod, allocation.pod_level.as_deref())
        || all.any(|(_, container)| {
            let given = allocation.containers.get(&container.name);
            given.is_some_and(|given| resources::change(Some(&**given), container.resources.as_ref()).any())
        })
}

/// Whether `spec.resources` of a Pod differs from these.
pub(crate) fn differs_as_a_whole(pod: &Pod, pod_level: Option<&ResourceRequirements>) -> bool {
    resources::change(pod_level, pod.spec.as_ref().and_then(|spec| spec.resources.as_ref())).any()
}

/// Whether a node has room for the resources of a Pod's spec beside the other Pods. Upstream's reasons and words.
pub(crate) fn weigh(pod: &Pod, others: &[&Pod], node: Allocatable) -> Result<(), Pending> {
    let requested = resources::requests(pod);
    for (name, requested, capacity) in [("cpu", requested.cpu_milli, node.cpu_milli), ("memory", requested.memory_bytes, node.memory_bytes)]
    {
        if requested > capacity {
            let message = format!("Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}");
            return Err(Pending::infeasible(message));
        }
    }
    let others = others.iter().map(|other| resources::requests(other));
    admit::enough(requested, others, node, u32::MAX).map_err(|rejection| Pending { reason: DEFERRED, message: rejection.message })
}

/// The order in which Pods with deferred resizes get free resources, upstream's: Pods that do not grow first, then the higher
/// priority, the better quality of service, the longer wait. The UID makes the order total.
pub(crate) type Rank = (bool, Reverse<i32>, u8, Timestamp, String);

/// A resize that waits for room.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    pub(crate) rank: Rank,
    /// The Pod with the resources of its spec.
    pub(crate) pod: Arc<Pod>,
}

impl Deferred {
    /// `allocated` is the Pod with its allocation; `since` is the time at which its resize was first deferred.
    pub(crate) fn new(pod: &Arc<Pod>, allocated: &Pod, since: Timestamp) -> Self {
        let (asks, has) = (resources::requests(pod), resources::requests(allocated));
        let increases = asks.cpu_milli > has.cpu_milli || asks.memory_bytes > has.memory_bytes;
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let quality = match resources::qos(pod) {
            "Guaranteed" => 0,
            "Burstable" => 1,
            _ => 2,
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        Self { rank: (increases, Reverse(priority), quality, since, uid), pod: pod.clone() }
    }

    fn uid(&self) -> &str {
        &self.rank.4
    }
}

/// Checks a resize beside the Pods of the node, `pods` by UID with their allocations. The resources that deferred resizes of a
/// higher rank would get now count as taken.
pub(crate) fn weigh_in_order(own: &Deferred, deferred: &[&Deferred], pods: &[(&str, &Pod)], node: Allocatable) -> Result<(), Pending> {
    let mut pods: BTreeMap<&str, &Pod> = pods.iter().copied().collect();
    let mut ahead: Vec<&Deferred> = deferred.iter().copied().filter(|other| other.rank < own.rank && other.uid() != own.uid()).collect();
    ahead.sort_by(|one, other| one.rank.cmp(&other.rank));
    let beside = |pods: &BTreeMap<&str, &Pod>, one: &Deferred| {
        let others: Vec<&Pod> = pods.iter().filter(|(uid, _)| **uid != one.uid()).map(|(_, pod)| *pod).collect();
        weigh(&one.pod, &others, node)
    };
    for one in ahead {
        if beside(&pods, one).is_ok() {
            pods.insert(one.uid(), &one.pod);
        }
    }
    beside(&pods, own)
}

/// Whether a running instance must be restarted to get the resources of its container in this Pod.
pub(crate) fn restarts(spec: &PodSpec, container: &Container, before: &InstanceResources) -> bool {
    restarts_for(container, before.change(spec, container))
}

/// Whether the policy of a container wants a restart for a change.
pub(crate) fn restarts_for(container: &Container, change: Change) -> bool {
    let policy = |name: &str| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|policy| policy.resource_name == name && policy.restart_policy == "RestartContainer")
    };
    change.cpu && policy("cpu") || change.memory && policy("memory")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn pod(cpu: &str, status: Value) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        Arc::new(serde_json::from_value(json!({"spec": {"containers": [container]}, "status": status})).expect("a pod"))
    }

    #[test]
    fn what_does_not_fit_is_infeasible_or_deferred() {
        let node = Allocatable { cpu_milli: 2_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30 };
        let other = pod("1", json!({}));
        let say =
            |cpu: &str| weigh(&pod(cpu, json!({})), &[&other], node).map_err(|pending| format!("{}: {}", pending.reason, pending.message));
        assert_eq!(say("1"), Ok(()));
        let infeasible = "Infeasible: Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000";
        assert_eq!(say("3"), Err(infeasible.to_owned()));
        let deferred = "Deferred: Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000";
        assert_eq!(say("1500m"), Err(deferred.to_owned()));
    }

    #[test]
    fn what_becomes_free_is_for_the_first_in_line() {
        let node = Allocatable { cpu_milli: 3_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30 };
        let named = |uid: &str, cpu: &str, memory: &str, priority: i32| -> Arc<Pod> {
            let list = json!({"cpu": cpu, "memory": memory});
            let container =
                json!({"name": "c", "resources": {"requests": list, "limits": if uid == "g" { list.clone() } else { json!({}) }}});
            Arc::new(
                serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"priority": priority, "containers": [container]}}))
                    .expect("a pod"),
            )
        };
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let has = |uid: &str| named(uid, "1", "1Mi", 0);
        let deferred =
            |uid: &str, cpu: &str, priority: i32, since: i64| Deferred::new(&named(uid, cpu, "1Mi", priority), &has(uid), at(since));
        // Each of the three has one CPU, and there is room for one more.
        let (a, b, g) = (has("a"), has("b"), has("g"));
        let say = |own: &Deferred, others: &[&Deferred], pods: &[(&str, &Pod)]| weigh_in_order(own, others, pods, node).is_ok();
        let two: [(&str, &Pod); 2] = [("a", &a), ("b", &b)];
        let (older, newer) = (deferred("a", "2", 0, 1), deferred("b", "2", 0, 2));
        assert!(say(&older, &[&older, &newer], &two) && !say(&newer, &[&older, &newer], &two), "who waits longer");
        let urgent = deferred("b", "2", 9, 2);
        assert!(say(&urgent, &[&older, &urgent], &two) && !say(&older, &[&older, &urgent], &two), "who has a higher priority");
        let guaranteed = deferred("g", "2", 0, 3);
        let others: [(&str, &Pod); 2] = [("a", &a), ("g", &g)];
        assert!(
            say(&guaranteed, &[&older, &guaranteed], &others) && !say(&older, &[&older, &guaranteed], &others),
            "who has the better class"
        );
        let less = deferred("b", "500m", 0, 9);
        assert!(say(&less, &[&urgent, &less], &two), "who asks for no more than it has");
        let greedy = deferred("b", "9", 9, 2);
        assert!(say(&older, &[&older, &greedy], &two), "who would not get it anyway keeps nobody waiting");
    }

    #[test]
    fn an_allocation_is_remembered_by_the_status_and_counts_when_the_rest_is_infeasible() {
        let given =
            json!([{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "resources": {"requests": {"cpu": "1"}}}]);
        let status = |reason: &str| {
            let condition = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            json!({"containerStatuses": given, "conditions": [condition]})
        };
        let cpu = |pod: &Pod| resources::requests(pod).cpu_milli;
        let weight = |reason: &str| demand(&pod("9", status(reason))).amount.cpu_milli;
        assert_eq!((weight("Infeasible"), weight("Deferred")), (1_000, 9_000));
        let mut changed = Pod::clone(&pod("9", status("Infeasible")));
        changed.metadata.generation = Some(2);
        let of_generation = |observed: i64, is_deleted: bool| {
            let mut pod = changed.clone();
            pod.metadata.deletion_timestamp = is_deleted.then_some(Time(Timestamp::UNIX_EPOCH));
            let conditions = pod.status.as_mut().and_then(|status| status.conditions.as_mut()).into_iter().flatten();
            conditions.for_each(|condition| condition.observed_generation = Some(observed));
            demand(&Arc::new(pod)).amount.cpu_milli
        };
        assert_eq!((of_generation(1, false), of_generation(2, false)), (9_000, 1_000), "an earlier spec was infeasible");
        assert_eq!(of_generation(1, true), 1_000, "a deletion changes no spec");
        let resized = pod("9", status("Deferred"));
        assert!(differs(&resized, &remembered(&resized)));
        assert_eq!(cpu(&with_allocation(&resized, &remembered(&resized))), 1_000);
        assert!(!differs(&pod("1000m", json!({})), &remembered(&resized)), "the same amount in other words");
    }

    #[test]
    fn a_restart_is_wanted_by_the_policy_of_what_changes() {
        let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        let pod_of = |own: Value, whole: Value| -> PodSpec {
            let container = json!({"name": "c", "resizePolicy": policy, "resources": own});
            serde_json::from_value(json!({"resources": whole, "containers": [container]})).expect("a spec")
        };
        let restarts_for = |before: &PodSpec, after: &PodSpec| {
            let of = |spec: &PodSpec| spec.containers.first().cloned().expect("a container");
            restarts(after, &of(after), &InstanceResources::of(before, &of(before)))
        };
        let own = |cpu: &str, memory: &str| pod_of(json!({"requests": {"cpu": cpu, "memory": memory}}), json!({}));
        assert!(!restarts_for(&own("2", "1Mi"), &own("1", "1Mi")));
        assert!(restarts_for(&own("1", "2Mi"), &own("1", "1Mi")));
        let whole = |own: Value, cpu: &str, memory: &str| pod_of(own, json!({"limits": {"cpu": cpu, "memory": memory}}));
        assert!(!restarts_for(&whole(json!({}), "2", "1Mi"), &whole(json!({}), "1", "1Mi")), "the whole Pod's CPU");
        assert!(restarts_for(&whole(json!({}), "1", "2Mi"), &whole(json!({}), "1", "1Mi")), "the whole Pod's memory");
        let own = json!({"limits": {"memory": "1Mi"}});
        assert!(!restarts_for(&whole(own.clone(), "1", "2Mi"), &whole(own, "1", "1Mi")), "beside a limit of its own");
    }

    #[test]
    fn what_a_whole_pod_was_allocated_is_remembered_by_its_status() {
        let whole = |cpu: &str| json!({"requests": {"cpu": cpu, "hugepages-2Mi": "2Mi"}, "limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}});
        let pod_of = |spec: Value, status: Value| -> Arc<Pod> {
            let spec = json!({"resources": spec, "containers": [{"name": "c", "resources": {"requests": {"memory": "1Mi"}}}]});
            Arc::new(serde_json::from_value(json!({"spec": spec, "status": {"resources": status}})).expect("a pod"))
        };
        let status = json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "2"}});
        let resized = pod_of(whole("3"), status.clone());
        let allocation = remembered(&resized);
        assert!(differs(&resized, &allocation));
        let allocated = with_allocation(&resized, &allocation);
        let wanted = json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "limits": {"cpu": "2", "hugepages-2Mi": "2Mi"}});
        let of_pod = allocated.spec.as_ref().map(|spec| serde_json::to_value(&spec.resources).expect("resources"));
        assert_eq!(of_pod, Some(wanted));
        assert_eq!(resources::requests(&allocated).cpu_milli, 1_000);
        let settled = pod_of(json!({"requests": {"cpu": "1000m"}, "limits": {"cpu": "2"}}), status.clone());
        assert!(!differs(&settled, &remembered(&settled)));
        let before = pod_of(whole("3"), Value::Null);
        assert!(!differs(&before, &remembered(&before)), "an earlier version reported nothing");
        let without = pod_of(Value::Null, status);
        assert_eq!(remembered(&without).pod_level, None, "what containers have together is no allocation");
    }
}
