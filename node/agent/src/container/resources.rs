//! Requests and limits as numbers: what a Pod requests of the node, its quality of service, and the limits that its cgroups
//! get. Pure.

mod huge_pages;
mod instance;
mod limits;
mod start;
mod totals;

use std::collections::{BTreeMap, BTreeSet};

use api_model::huge_pages::is_huge_page;
use api_model::quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node_device_plugins::is_extended_resource;

pub(crate) use instance::InstanceResources;
pub(crate) use limits::{of_container, of_pod, shares, widest};
pub(crate) use start::StartResources;
pub(crate) use totals::{total, total_requests};

use super::Role;
use crate::priority::is_node_critical;

/// `oom_score_adj` of the first and the last quality of service; upstream's.
const OOM_GUARANTEED: i32 = -997;
const OOM_BEST_EFFORT: i32 = 1_000;

/// CPU and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Thousandths of a CPU.
    pub(crate) cpu_milli: i64,
    /// Bytes.
    pub(crate) memory_bytes: i64,
    /// Bytes of local storage.
    pub(crate) storage_bytes: i64,
}

impl Amount {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            storage_bytes: self.storage_bytes.saturating_add(other.storage_bytes),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            storage_bytes: self.storage_bytes.max(other.storage_bytes),
        }
    }

    fn from_list(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        Self {
            cpu_milli: cpu(list).unwrap_or(0),
            memory_bytes: bytes(list, "memory").unwrap_or(0),
            storage_bytes: bytes(list, "ephemeral-storage").unwrap_or(0),
        }
    }
}

fn cpu(list: Option<&BTreeMap<String, Quantity>>) -> Option<i64> {
    let milli = quantity::milli(&list?.get("cpu")?.0).ok()?;
    // An amount beyond the integer range counts as the largest one, not as zero.
    Some(i64::try_from(milli).unwrap_or(i64::MAX))
}

fn bytes(list: Option<&BTreeMap<String, Quantity>>, name: &str) -> Option<i64> {
    quantity::value(&list?.get(name)?.0).ok()
}

/// The requests of a Pod: its containers together with its sidecars, or the largest init container with the sidecars before it,
/// plus the RuntimeClass' overhead; `spec.resources` overrides the containers.
pub(crate) fn requests(pod: &Pod) -> Amount {
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref());
    requests_without_overhead(pod).plus(Amount::from_list(overhead))
}

/// The same without the overhead.
fn requests_without_overhead(pod: &Pod) -> Amount {
    let mut sum = requested_by_containers(pod);
    if let Some(of_pod) = pod_level(pod).and_then(|resources| resources.requests.as_ref()) {
        sum.cpu_milli = cpu(Some(of_pod)).unwrap_or(sum.cpu_milli);
        sum.memory_bytes = bytes(Some(of_pod), "memory").unwrap_or(sum.memory_bytes);
    }
    sum
}

/// The same without overhead and `spec.resources`.
fn requested_by_containers(pod: &Pod) -> Amount {
    together(pod, requested)
}

/// What the containers have together: the main ones and the sidecars, or the largest init container with the sidecars before it.
fn together(pod: &Pod, of: impl Fn(&Container) -> Amount) -> Amount {
    let Some(spec) = &pod.spec else { return Amount::default() };
    let (mut main, mut sidecars, mut init) = (Amount::default(), Amount::default(), Amount::default());
    for (role, container) in super::all(spec) {
        let own = of(container);
        match role {
            Role::Main => main = main.plus(own),
            Role::Sidecar => sidecars = sidecars.plus(own),
            Role::Init => init = init.max(own.plus(sidecars)),
            Role::Ephemeral => {}
        }
    }
    main.plus(sidecars).max(init)
}

fn requested(container: &Container) -> Amount {
    Amount::from_list(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

/// Whether a resource is counted in whole units beside the others: extended resources and huge pages.
pub(crate) fn is_scalar(name: &str) -> bool {
    is_extended_resource(name) || is_huge_page(name)
}

/// The extended resources and huge pages that a Pod requests, in the same way.
pub(crate) fn scalar_requests(pod: &Pod) -> BTreeMap<String, i64> {
    let number = |quantity: &Quantity| quantity::value(&quantity.0).unwrap_or(0);
    let mut sum = scalars_of_containers(pod);
    let of_pod = pod_level(pod).and_then(|resources| resources.requests.as_ref()).into_iter().flatten();
    // An extended resource of the whole Pod is rejected by the API server.
    sum.extend(of_pod.filter(|(name, _)| is_huge_page(name)).map(|(name, quantity)| (name.clone(), number(quantity))));
    let overhead = pod.spec.iter().flat_map(|spec| spec.overhead.iter().flatten()).filter(|(name, _)| is_scalar(name));
    for (name, quantity) in overhead {
        let present: &mut i64 = sum.entry(name.clone()).or_default();
        *present = present.saturating_add(number(quantity));
    }
    sum
}

fn scalars_of_containers(pod: &Pod) -> BTreeMap<String, i64> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let own = |container: &Container| container.resources.clone().and_then(|resources| resources.requests).unwrap_or_default();
    let (mut main, mut sidecars, mut init) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (role, container) in super::all(spec) {
        for (name, quantity) in own(container).into_iter().filter(|(name, _)| is_scalar(name)) {
            let number = quantity::value(&quantity.0).unwrap_or(0);
            let before = sidecars.get(&name).copied().unwrap_or(0_i64);
            let (list, sum) = match role {
                Role::Main => (&mut main, None),
                Role::Sidecar => (&mut sidecars, None),
                Role::Init => (&mut init, Some(number.saturating_add(before))),
                Role::Ephemeral => continue,
            };
            let present: &mut i64 = list.entry(name).or_default();
            *present = sum.map_or_else(|| present.saturating_add(number), |sum| (*present).max(sum));
        }
    }
    let names: BTreeSet<String> = main.keys().chain(sidecars.keys()).chain(init.keys()).cloned().collect();
    let of = |list: &BTreeMap<String, i64>, name: &String| list.get(name).copied().unwrap_or(0);
    let sum = |name: &String| of(&main, name).saturating_add(of(&sidecars, name)).max(of(&init, name));
    names.into_iter().map(|name| (name.clone(), sum(&name))).collect()
}

/// `spec.resources`, if there are any requests or limits for the whole Pod.
pub(crate) fn pod_level(pod: &Pod) -> Option<&ResourceRequirements> {
    let resources = pod.spec.as_ref()?.resources.as_ref()?;
    let is_empty = |list: Option<&BTreeMap<String, Quantity>>| list.is_none_or(BTreeMap::is_empty);
    (!is_empty(resources.requests.as_ref()) || !is_empty(resources.limits.as_ref())).then_some(resources)
}

/// Upstream's quality of service class.
pub(crate) fn qos(pod: &Pod) -> &'static str {
    let Some(spec) = &pod.spec else { return "BestEffort" };
    let of_containers = || super::all(spec).map(|(_, container)| container.resources.as_ref());
    let all = pod_level(pod).map_or_else(|| of_containers().collect(), |of_pod| vec![Some(of_pod)]);
    let asks = |resources: Option<&ResourceRequirements>| {
        let lists = resources.map(|resources| [resources.requests.as_ref(), resources.limits.as_ref()]).unwrap_or_default();
        lists.into_iter().any(|list| cpu(list).is_some_and(|n| n > 0) || bytes(list, "memory").is_some_and(|n| n > 0))
    };
    if !all.iter().copied().any(asks) {
        "BestEffort"
    } else if all.into_iter().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Limits on CPU and memory, and equal requests, if there are any.
fn guaranteed(resources: Option<&ResourceRequirements>) -> bool {
    let Some(resources) = resources else { return false };
    let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
    let (cpu_limit, memory_limit) = (cpu(limits), bytes(limits, "memory"));
    cpu_limit.is_some_and(|n| n > 0)
        && memory_limit.is_some_and(|n| n > 0)
        && cpu(requests).is_none_or(|n| Some(n) == cpu_limit)
        && bytes(requests, "memory").is_none_or(|n| Some(n) == memory_limit)
}

/// The CPU that a container requests, in thousandths; without a request its limit counts.
pub(crate) fn cpu_milli(container: &Container) -> i64 {
    let resources = container.resources.as_ref();
    let requested = cpu(resources.and_then(|resources| resources.requests.as_ref()));
    requested.or_else(|| cpu(resources.and_then(|resources| resources.limits.as_ref()))).unwrap_or(0)
}

/// A container's `oom_score_adj`, in upstream's numbers, for the kernel's choice when the machine's memory runs out: the node's
/// own programs come last, a container within its request late, one without a request first.
pub(crate) fn oom_score_adj(pod: &Pod, container: &Container, machine_bytes: u64) -> i32 {
    match qos(pod) {
        _ if is_node_critical(pod) => OOM_GUARANTEED,
        "Guaranteed" => OOM_GUARANTEED,
        "BestEffort" => OOM_BEST_EFFORT,
        _ => {
            let requested = requested_memory(pod, container).saturating_add(remaining_memory(pod));
            let share = requested.saturating_mul(1_000).checked_div(machine_bytes).and_then(|share| i32::try_from(share).ok());
            (OOM_BEST_EFFORT - share.unwrap_or(i32::MAX).min(OOM_BEST_EFFORT)).clamp(OOM_BEST_EFFORT + OOM_GUARANTEED, OOM_BEST_EFFORT - 1)
        }
    }
}

/// The bytes that a container requests. A sidecar counts at least as much as the smallest of the containers that it serves.
fn requested_memory(pod: &Pod, container: &Container) -> u64 {
    let own = requested(container).memory_bytes;
    let is_sidecar = super::find(pod, &container.name).is_some_and(|(role, _)| role == Role::Sidecar);
    let served = || pod.spec.iter().flat_map(|spec| &spec.containers).map(|one| requested(one).memory_bytes).min().unwrap_or(0);
    u64::try_from(if is_sidecar { own.max(served()) } else { own }).unwrap_or(0)
}

/// Of the memory that the whole Pod requests, each container's part of what no container requests.
fn remaining_memory(pod: &Pod) -> u64 {
    let whole = pod_level(pod).and_then(|resources| bytes(resources.requests.as_ref(), "memory")).unwrap_or(0);
    let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len() + spec.init_containers.iter().flatten().count());
    let rest = u64::try_from(whole.saturating_sub(requested_by_containers(pod).memory_bytes)).unwrap_or(0);
    rest.checked_div(u64::try_from(containers).unwrap_or(u64::MAX)).unwrap_or(0)
}

/// The difference between two requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) cpu: bool,
    pub(crate) memory: bool,
}

impl Change {
    /// Whether anything does.
    pub(crate) fn any(self) -> bool {
        self.cpu || self.memory
    }
}

/// Compares amounts, however they are written. Only CPU and memory can change.
pub(crate) fn change(before: Option<&ResourceRequirements>, after: Option<&ResourceRequirements>) -> Change {
    let lists = |resources: Option<&ResourceRequirements>| {
        let lists = resources.map(|resources| [resources.requests.as_ref(), resources.limits.as_ref()]).unwrap_or_default();
        (lists.map(cpu), lists.map(|list| bytes(list, "memory")))
    };
    let ((cpu_before, memory_before), (cpu_after, memory_after)) = (lists(before), lists(after));
    Change { cpu: cpu_before != cpu_after, memory: memory_before != memory_after }
}

/// Requirements with the memory of others.
pub(crate) fn with_memory_of(wanted: &ResourceRequirements, memory: &ResourceRequirements) -> ResourceRequirements {
    let list = |wanted: Option<&BTreeMap<String, Quantity>>, memory: Option<&BTreeMap<String, Quantity>>| {
        let mut list = wanted.cloned().unwrap_or_default();
        list.remove("memory");
        list.extend(memory.and_then(|list| list.get_key_value("memory")).map(|(name, amount)| (name.clone(), amount.clone())));
        Some(list).filter(|list| !list.is_empty())
    };
    ResourceRequirements {
        requests: list(wanted.requests.as_ref(), memory.requests.as_ref()),
        limits: list(wanted.limits.as_ref(), memory.limits.as_ref()),
        ..wanted.clone()
    }
}

#[cfg(test)]
mod tests {
    use runtimes_contract::Resources;
    use serde_json::{Value, json};

    use super::*;

    fn pod(containers: Value, init: Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": containers, "initContainers": init, "overhead": {"cpu": "100m"}}}))
            .expect("a pod")
    }

    fn container(requests: Value, limits: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn quality_of_service_follows_upstream() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (containers, wanted) in [
            (json!([{"name": "c"}]), "BestEffort"),
            (json!([container(json!({"cpu": "0"}), json!({}))]), "BestEffort"),
            (json!([container(full.clone(), full.clone())]), "Guaranteed"),
            (json!([container(json!({}), full.clone())]), "Guaranteed"),
            (json!([container(json!({"cpu": "500m"}), full.clone())]), "Burstable"),
            (json!([container(full.clone(), full.clone()), {"name": "d"}]), "Burstable"),
            (json!([container(json!({"memory": "1Mi"}), json!({}))]), "Burstable"),
        ] {
            assert_eq!(qos(&pod(containers.clone(), json!([]))), wanted, "{containers}");
        }
    }

    #[test]
    fn requests_count_sidecars_and_the_greediest_init_container() {
        let one = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = one("200m");
        sidecar["restartPolicy"] = json!("Always");
        assert_eq!(requests(&pod(json!([one("300m"), one("100m")]), json!([]))).cpu_milli, 500);
        assert_eq!(requests(&pod(json!([one("300m")]), json!([sidecar.clone(), one("1")]))).cpu_milli, 1_300);
        assert_eq!(requests(&pod(json!([one("3")]), json!([sidecar, one("1")]))).cpu_milli, 3_300);
    }

    #[test]
    fn a_pod_without_requests_goes_first_when_memory_runs_out() {
        let one = |requests: Value, limits: Value| {
            let pod = pod(json!([container(requests, limits)]), json!([]));
            oom_score_adj(&pod, &pod.spec.as_ref().expect("a spec").containers[0], 1 << 30)
        };
        let full = json!({"cpu": "1", "memory": "256Mi"});
        for (requests, limits, wanted) in [
            (json!({}), json!({}), 1_000),
            (full.clone(), full, -997),
            (json!({"cpu": "1"}), json!({}), 999),
            (json!({"memory": "256Mi"}), json!({}), 750),
            (json!({"memory": "1Ki"}), json!({}), 999),
            (json!({"memory": "1Gi"}), json!({}), 3),
            (json!({"memory": "100Gi"}), json!({}), 3),
        ] {
            assert_eq!(one(requests.clone(), limits.clone()), wanted, "{requests} {limits}");
        }
    }

    #[test]
    fn the_kernels_numbers() {
        let limited = pod(json!([container(json!({"cpu": "250m"}), json!({"cpu": "500m", "memory": "64Mi"}))]), json!([]));
        let of = of_container(&limited, &limited.spec.as_ref().expect("a spec").containers[0]);
        assert_eq!(
            (of.cpu_shares, of.cpu_quota_us, of.cpu_period_us, of.memory_limit_bytes),
            (Some(256), Some(50_000), Some(100_000), Some(64 << 20))
        );
        let all = of_pod(&limited);
        assert_eq!((all.cpu_shares, all.cpu_quota_us, all.memory_limit_bytes), (Some(358), Some(60_000), Some(64 << 20)));
        let open = pod(json!([container(json!({}), json!({"cpu": "1"})), {"name": "d"}]), json!([]));
        assert_eq!((of_pod(&open).cpu_quota_us, of_pod(&open).memory_limit_bytes), (None, None));
        assert_eq!(of_container(&open, &open.spec.as_ref().expect("a spec").containers[1]).cpu_shares, Some(2));
    }

    fn with_resources(mut pod: Pod, resources: Value) -> Pod {
        pod.spec.as_mut().expect("a spec").resources = serde_json::from_value(resources).expect("requirements");
        pod
    }

    #[test]
    fn limits_of_the_whole_pod_are_those_of_its_cgroup_and_of_containers_without() {
        let containers = json!([container(json!({}), json!({"cpu": "250m", "memory": "32Mi"})), {"name": "d"}]);
        let whole = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}});
        let limited = with_resources(pod(containers.clone(), json!([])), whole);
        let numbers = |of: &Resources| (of.cpu_shares, of.cpu_quota_us, of.memory_limit_bytes);
        // With the overhead of 100m.
        assert_eq!(numbers(&of_pod(&limited)), (Some(614), Some(110_000), Some(64 << 20)));
        let of_containers = limited.spec.iter().flat_map(|spec| &spec.containers).map(|one| numbers(&of_container(&limited, one)));
        assert_eq!(
            of_containers.collect::<Vec<_>>(),
            [(Some(256), Some(25_000), Some(32 << 20)), (Some(1_024), Some(100_000), Some(64 << 20))]
        );
        let memory_alone = with_resources(pod(containers, json!([])), json!({"limits": {"memory": "64Mi"}}));
        assert_eq!((of_pod(&memory_alone).cpu_quota_us, of_pod(&memory_alone).memory_limit_bytes), (None, Some(64 << 20)));
    }

    #[test]
    fn the_whole_pods_figures_decide_about_its_quality_of_service() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, wanted) in [
            (json!({"limits": full}), "Guaranteed"),
            (json!({"requests": full, "limits": full}), "Guaranteed"),
            (json!({"requests": {"cpu": "500m"}, "limits": full}), "Burstable"),
            (json!({"limits": {"memory": "1Gi"}}), "Burstable"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {}}), "BestEffort"),
        ] {
            assert_eq!(qos(&with_resources(pod(json!([{"name": "c"}]), json!([])), resources.clone())), wanted, "{resources}");
        }
        let of_container = json!([container(json!({"cpu": "1"}), json!({}))]);
        assert_eq!(qos(&with_resources(pod(of_container, json!([])), json!({"limits": {}}))), "Burstable", "of its container");
    }

    #[test]
    fn memory_that_only_the_whole_pod_requests_counts_for_all_its_containers() {
        let one = |name: &str, memory: &str| json!({"name": name, "resources": {"requests": {"memory": memory}}});
        let mut sidecar = one("s", "64Mi");
        sidecar["restartPolicy"] = json!("Always");
        let scores = |pod: &Pod| {
            let all = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
            all.map(|container| oom_score_adj(pod, container, 1 << 30)).collect::<Vec<_>>()
        };
        let sidecar_of_greater = pod(json!([one("c", "256Mi"), one("d", "512Mi")]), json!([sidecar]));
        assert_eq!(scores(&sidecar_of_greater), [750, 750, 500], "a sidecar counts as much as the smallest that it serves");
        let mut critical = pod(json!([one("c", "256Mi")]), json!([]));
        let spec = critical.spec.as_mut().expect("a spec");
        (spec.priority, spec.priority_class_name) = (Some(2_000_001_000), Some("system-node-critical".to_owned()));
        assert_eq!(scores(&critical), [-997]);
        let whole = with_resources(pod(json!([one("c", "256Mi"), {"name": "d"}]), json!([])), json!({"requests": {"memory": "512Mi"}}));
        assert_eq!(scores(&whole), [625, 875]);
    }
}
