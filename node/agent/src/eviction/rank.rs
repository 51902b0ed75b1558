//! Ranks Pods for eviction in the kubelet's order. Pods that use more than they requested come first, then Pods of lower
//! priority, then Pods that exceed their request by most. For process ids only priority and number of processes count. A Pod
//! that cannot be measured comes before all others, because only the Pod itself can cause that. Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::signal::Resource;
use super::usage::{PodUsage, Scope};
use crate::container::resources;

/// A candidate for eviction.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) pod: Arc<Pod>,
    pub(crate) usage: PodUsage,
}

/// Sorts the candidates; the first is evicted first.
pub(crate) fn rank(candidates: &mut [Candidate], resource: Resource, scope: Scope) {
    candidates.sort_by_cached_key(|candidate| {
        let priority = candidate.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let (usage, requests) = (&candidate.usage, resources::requests(&candidate.pod));
        let (used, requested) = match resource {
            Resource::Memory => (usage.memory_bytes(), requests.memory_bytes),
            Resource::EphemeralStorage => (usage.disk(scope).bytes, requests.storage_bytes),
            Resource::Inodes => (usage.disk(scope).inodes, 0),
            Resource::Pids => (usage.processes(), 0),
        };
        let on_disk = matches!(resource, Resource::EphemeralStorage | Resource::Inodes);
        let beyond = i128::from(used) - i128::from(requested);
        let exceeds = resource == Resource::Pids || beyond > 0;
        (!(on_disk && usage.fault.is_some()), !exceeds, priority, Reverse(beyond))
    });
}

#[cfg(test)]
mod tests {
    use runtimes_host::disk::{Disk, Immeasurable};
    use serde_json::json;

    use super::super::usage::ContainerUsage;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A Pod by name, priority, requested MiB (of memory and of storage) and MiB in use of both.
    fn candidate(name: &str, priority: i32, requested: u64, used: u64) -> Candidate {
        let requests = json!({"memory": format!("{requested}Mi"), "ephemeral-storage": format!("{requested}Mi")});
        let spec = json!({"priority": priority, "containers": [{"name": "c", "resources": {"requests": requests}}]});
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a pod");
        let disk = Disk { bytes: used * MIB, inodes: used };
        let container =
            ContainerUsage { name: "c".to_owned(), writable: disk, memory: Some(used * MIB), processes: used, ..ContainerUsage::default() };
        Candidate { pod: Arc::new(pod), usage: PodUsage { containers: vec![container], ..PodUsage::default() } }
    }

    fn order(mut candidates: Vec<Candidate>, resource: Resource) -> String {
        rank(&mut candidates, resource, Scope::All);
        let names = candidates.iter().map(|candidate| candidate.pod.metadata.name.clone().unwrap_or_default());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn usage_over_the_request_goes_before_priority_and_amount() {
        for resource in [Resource::Memory, Resource::EphemeralStorage] {
            let all = vec![
                candidate("modest-low", -5, 100, 50),
                candidate("modest", 0, 100, 90),
                candidate("over-high", 1_000, 10, 500),
                candidate("over-little", 0, 10, 20),
                candidate("over-much", 0, 10, 400),
                candidate("asked-for-much", 0, 390, 400),
            ];
            assert_eq!(order(all, resource), "over-much over-little asked-for-much over-high modest-low modest", "{resource}");
        }
    }

    #[test]
    fn process_ids_go_by_priority_and_number() {
        let all = vec![candidate("few", 0, 0, 1), candidate("many-high", 10, 0, 500), candidate("many", 0, 0, 300)];
        assert_eq!(order(all, Resource::Pids), "many few many-high");
    }

    #[test]
    fn what_hides_from_being_measured_goes_first_for_the_disk_alone() {
        let mut hidden = candidate("hidden", 100, 10, 0);
        hidden.usage.fault = Some(Immeasurable::TooDeep);
        let all = vec![candidate("over", 0, 10, 400), hidden];
        assert_eq!(order(all.clone(), Resource::Inodes), "hidden over");
        assert_eq!(order(all, Resource::Memory), "over hidden");
    }

    #[test]
    fn with_a_file_system_for_images_each_counts_what_lies_on_it() {
        let with = |name: &str, writable: u64, volume: u64| {
            let mut one = candidate(name, 0, 0, writable);
            one.usage.volumes.insert("v".to_owned(), Disk { bytes: volume * MIB, inodes: 1 });
            one
        };
        let mut all = [with("layer", 9, 1), with("volume", 1, 8)];
        for (scope, first) in [(Scope::All, "layer"), (Scope::NodeFs, "volume"), (Scope::ImageFs, "layer")] {
            rank(&mut all, Resource::EphemeralStorage, scope);
            assert_eq!(all[0].pod.metadata.name.as_deref(), Some(first), "{scope:?}");
        }
    }
}
