//! The status messages of evicted Pods, in the kubelet's sentences. Each sentence ends with a space, as in the kubelet. Pure.

use api_model::quantity;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::signal::Resource;
use super::state::Met;
use super::usage::PodUsage;
use crate::container;

/// Why a Pod was evicted for the node's sake, and which of its containers used more than they requested.
pub(crate) fn node_was_low(met: &Met, pod: &Pod, usage: &PodUsage) -> String {
    let resource = met.key.signal.resource();
    let amount = |value: u64| match resource {
        Resource::Memory | Resource::EphemeralStorage => bytes(value),
        Resource::Inodes | Resource::Pids => count(value),
    };
    let mut text = format!("The node was low on resource: {resource}. ");
    text += &format!("Threshold quantity: {}, available: {}. ", amount(met.quantity), amount(met.available));
    for (_, container) in pod.spec.iter().flat_map(container::all) {
        let Some(used) = usage.containers.iter().find(|used| used.name == container.name) else { continue };
        let used = match resource {
            Resource::Memory => used.memory,
            Resource::EphemeralStorage => Some(used.storage_bytes()),
            Resource::Inodes | Resource::Pids => None,
        };
        let requested = requested(container, resource);
        let least = quantity::value(&requested).unwrap_or(0);
        if let Some(used) = used.filter(|used| i128::from(*used) > i128::from(least)) {
            let (name, used) = (&container.name, bytes(used));
            text += &format!("Container {name} was using {used}, request is {requested}, has larger consumption of {resource}. ");
        }
    }
    text
}

fn requested(container: &Container, resource: Resource) -> String {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get(&resource.to_string())).map_or_else(|| "0".to_owned(), |quantity| quantity.0.clone())
}

/// A number of bytes as upstream's quantities write it: the largest binary suffix that loses nothing.
pub(crate) fn bytes(value: u64) -> String {
    with_suffix(value, 1_024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// A count, also with decimal suffixes.
pub(crate) fn count(value: u64) -> String {
    with_suffix(value, 1_000, &["", "k", "M", "G", "T", "P", "E"])
}

fn with_suffix(value: u64, base: u64, suffixes: &[&str]) -> String {
    let (mut value, mut suffix) = (value, "");
    for next in suffixes.iter().skip(1) {
        if value == 0 || !value.is_multiple_of(base) {
            break;
        }
        (value, suffix) = (value / base, next);
    }
    format!("{value}{suffix}")
}

#[cfg(test)]
mod tests {
    use runtimes_host::disk::Disk;
    use serde_json::json;

    use super::super::signal::Signal;
    use super::super::threshold::ThresholdKey;
    use super::super::usage::ContainerUsage;
    use super::*;

    #[test]
    fn quantities_are_written_as_upstream_writes_them() {
        for (value, wanted) in
            [(0, "0"), (5, "5"), (1_000, "1000"), (1_024, "1Ki"), (100 << 20, "100Mi"), (1_536, "1536"), (1 << 60, "1Ei")]
        {
            assert_eq!(bytes(value), wanted);
        }
        assert_eq!((count(0), count(1_000), count(52_428), count(3_000_000)), ("0".into(), "1k".into(), "52428".into(), "3M".into()));
    }

    #[test]
    fn the_sentences_are_upstreams() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [{"name": "first"}],
            "containers": [
                {"name": "greedy", "resources": {"requests": {"memory": "32Mi", "ephemeral-storage": "1Mi"}}},
                {"name": "modest", "resources": {"requests": {"memory": "1Gi", "ephemeral-storage": "1Gi"}}},
                {"name": "silent"},
            ],
        }}))
        .expect("a pod");
        let container = |name: &str, mib: u64| ContainerUsage {
            name: name.to_owned(),
            writable: Disk { bytes: mib << 20, inodes: 1 },
            logs: Disk { bytes: 1 << 20, inodes: 1 },
            memory: Some(mib << 20),
            processes: 1,
        };
        let ended = ContainerUsage { memory: None, ..container("silent", 0) };
        let usage = PodUsage { containers: vec![container("greedy", 64), container("modest", 64), ended], ..PodUsage::default() };
        let met = |signal, quantity, available| Met { key: ThresholdKey { is_soft: false, signal }, quantity, available };
        let all = [
            met(Signal::MemoryAvailable, 100 << 20, 51_200),
            met(Signal::NodeFsAvailable, 1 << 30, 1_000),
            met(Signal::NodeFsInodesFree, 5_000, 17),
            met(Signal::PidAvailable, 100, 3),
        ];
        let lines: Vec<String> = all.iter().map(|met| format!("{}|", node_was_low(met, &pod, &usage))).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Ki. Container greedy was using 64Mi, request is 32Mi, has larger consumption of memory. |
        The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 1000. Container greedy was using 65Mi, request is 1Mi, has larger consumption of ephemeral-storage. Container silent was using 1Mi, request is 0, has larger consumption of ephemeral-storage. |
        The node was low on resource: inodes. Threshold quantity: 5k, available: 17. |
        The node was low on resource: pids. Threshold quantity: 100, available: 3. |
        ");
    }
}
