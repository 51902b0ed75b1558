//! The limits of containers and whole Pods, and those of their cgroups. Pure.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use runtimes_contract::Resources;

use super::{Amount, bytes, cpu, huge_pages, pod_level, requests, together};

/// Upstream's CPU period, in µs.
const CPU_PERIOD_US: u64 = 100_000;
/// Least CPU quota, in µs.
const CPU_QUOTA_US_MIN: i64 = 1_000;
/// Bounds of CPU shares.
const CPU_SHARES: (u64, u64) = (2, 262_144);

/// Limits of CPU and memory above zero; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Thousandths of a CPU.
    pub(crate) cpu_milli: Option<i64>,
    /// Bytes.
    pub(crate) memory_bytes: Option<i64>,
}

impl Limits {
    fn from_requirements(resources: Option<&ResourceRequirements>) -> Self {
        let list = resources.and_then(|resources| resources.limits.as_ref());
        Self { cpu_milli: cpu(list).filter(|n| *n > 0), memory_bytes: bytes(list, "memory").filter(|n| *n > 0) }
    }

    fn or(self, other: Self) -> Self {
        Self { cpu_milli: self.cpu_milli.or(other.cpu_milli), memory_bytes: self.memory_bytes.or(other.memory_bytes) }
    }

    /// As an amount, in which the largest number is unlimited.
    fn or_most(self) -> Amount {
        let most = |limit: Option<i64>| limit.unwrap_or(i64::MAX);
        Amount { cpu_milli: most(self.cpu_milli), memory_bytes: most(self.memory_bytes), ..Amount::default() }
    }

    /// The same with the memory of others.
    pub(super) fn with_memory_of(self, other: Self) -> Self {
        Self { memory_bytes: other.memory_bytes, ..self }
    }

    /// The limits of a cgroup, without its CPU shares.
    fn of_cgroup(self) -> Resources {
        Resources {
            memory_limit_bytes: self.memory_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            cpu_quota_us: self.cpu_milli.map(quota),
            cpu_period_us: self.cpu_milli.map(|_| CPU_PERIOD_US),
            ..Resources::default()
        }
    }
}

/// The limits of a container with requirements of its own, in a Pod with those as a whole. As upstream, a limit of the whole Pod is also
/// that of each container that has none.
pub(super) fn limits(own: Option<&ResourceRequirements>, pod_level: Option<&ResourceRequirements>) -> Limits {
    Limits::from_requirements(own).or(Limits::from_requirements(pod_level))
}

/// The limits of a Pod's cgroup: those of `spec.resources`. As upstream, another resource is limited only if every container limits it.
pub(crate) fn of_pod(pod: &Pod) -> Resources {
    let overhead = Amount::from_list(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()));
    let limits = limits_of_pod(pod);
    let limits = Limits {
        cpu_milli: limits.cpu_milli.map(|n| n.saturating_add(overhead.cpu_milli)),
        memory_bytes: limits.memory_bytes.map(|n| n.saturating_add(overhead.memory_bytes)),
    };
    Resources { cpu_shares: Some(shares(requests(pod).cpu_milli)), huge_pages: Some(huge_pages::of_pod(pod)), ..limits.of_cgroup() }
}

/// The same without the overhead.
pub(super) fn limits_of_pod(pod: &Pod) -> Limits {
    let most = together(pod, |container| Limits::from_requirements(container.resources.as_ref()).or_most());
    let bounded = |sum: i64| Some(sum).filter(|n| *n > 0 && *n < i64::MAX);
    let of_containers = Limits { cpu_milli: bounded(most.cpu_milli), memory_bytes: bounded(most.memory_bytes) };
    Limits::from_requirements(pod_level(pod)).or(of_containers)
}

/// Limits that hold both of two states of a cgroup. Those of huge pages stay: no resize changes them.
pub(crate) fn widest(one: &Resources, other: &Resources) -> Resources {
    let quota = one.cpu_quota_us.zip(other.cpu_quota_us).map(|(one, other)| one.max(other));
    Resources {
        memory_limit_bytes: one.memory_limit_bytes.zip(other.memory_limit_bytes).map(|(one, other)| one.max(other)),
        cpu_shares: one.cpu_shares.max(other.cpu_shares),
        cpu_quota_us: quota,
        cpu_period_us: quota.map(|_| CPU_PERIOD_US),
        ..Resources::default()
    }
}

/// The limits of a container's cgroup.
pub(crate) fn of_container(pod: &Pod, container: &Container) -> Resources {
    let resources = container.resources.as_ref();
    let pages = huge_pages::of_container(pod, resources.and_then(|resources| resources.limits.as_ref()));
    Resources { huge_pages: Some(pages), ..of_limits(limits(resources, pod_level(pod)), resources) }
}

/// The cgroup limits for these limits and the requests among the requirements.
pub(super) fn of_limits(limits: Limits, resources: Option<&ResourceRequirements>) -> Resources {
    let requested = cpu(resources.and_then(|resources| resources.requests.as_ref()));
    Resources { cpu_shares: Some(shares(requested.or(limits.cpu_milli).unwrap_or(0))), ..limits.of_cgroup() }
}

pub(crate) fn shares(milli: i64) -> u64 {
    let shares = u64::try_from(milli).unwrap_or(0).saturating_mul(1_024) / 1_000;
    shares.clamp(CPU_SHARES.0, CPU_SHARES.1)
}

fn quota(milli: i64) -> i64 {
    milli.saturating_mul(100_000).checked_div(1_000).unwrap_or(0).max(CPU_QUOTA_US_MIN)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_sidecar_counts_beside_the_init_containers_after_it() {
        let container = |cpu: &str, memory: &str| json!({"name": "c", "resources": {"limits": {"cpu": cpu, "memory": memory}}});
        let sidecar = |cpu: &str, memory: &str| {
            let mut sidecar = container(cpu, memory);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        let of = |init: Value| {
            let spec = json!({"containers": [container("10m", "10Mi")], "initContainers": init});
            let limits = limits_of_pod(&serde_json::from_value(json!({"spec": spec})).expect("a pod"));
            (limits.cpu_milli, limits.memory_bytes.map(|bytes| bytes >> 20))
        };
        let (beside, init) = (sidecar("50m", "50Mi"), container("100m", "100Mi"));
        for (what, init, wanted) in [
            ("no other container", json!([]), (Some(10), Some(10))),
            ("a sidecar that started before", json!([beside, init]), (Some(150), Some(150))),
            ("a sidecar that starts after", json!([init, beside]), (Some(100), Some(100))),
            ("a sidecar beside the main container", json!([beside]), (Some(60), Some(60))),
            ("an init container without limits", json!([beside, {"name": "i"}]), (None, None)),
            ("a sidecar without limits", json!([{"name": "s", "restartPolicy": "Always"}, init]), (None, None)),
        ] {
            assert_eq!(of(init), wanted, "{what}");
        }
    }
}
