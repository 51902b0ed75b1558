//! What exceeds its own limit of local storage: an `emptyDir` on the disk its `sizeLimit`, a Pod the sum of its containers'
//! limits, a container its own `ephemeral-storage` limit. Pure; order and words are the kubelet's.

use api_model::quantity;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use super::message::bytes;
use super::usage::{PodUsage, Scope};
use crate::container::{self, Role};

/// Whether the Pod has any such limit.
pub(crate) fn has_any(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    of_pod(spec).is_some() || size_limits(spec).next().is_some()
}

/// Why a Pod must be evicted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Upstream's signal of the limit.
    pub(crate) signal: &'static str,
    pub(crate) message: String,
}

/// Upstream's signals of an `emptyDir`, of a Pod and of a container.
const VOLUME_LIMIT: &str = "emptydirfs.limit";
const POD_LIMIT: &str = "ephemeralpodfs.limit";
const CONTAINER_LIMIT: &str = "ephemeralcontainerfs.limit";

/// Why the Pod must be evicted, if it must.
pub(crate) fn exceeded(pod: &Pod, usage: &PodUsage) -> Option<Excess> {
    let spec = pod.spec.as_ref()?;
    let excess = |signal| move |message| Excess { signal, message };
    let of_volume = volume(spec, usage).map(excess(VOLUME_LIMIT));
    let of_pod = || whole(spec, usage).map(excess(POD_LIMIT));
    let of_container = || one(spec, usage).map(excess(CONTAINER_LIMIT));
    of_volume.or_else(of_pod).or_else(of_container).or_else(|| immeasurable(pod, usage).map(excess(POD_LIMIT)))
}

fn volume(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    size_limits(spec).find_map(|(volume, text, limit)| {
        let used = usage.volumes.get(&volume.name)?;
        (used.bytes > limit).then(|| format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{text}\". ", volume.name))
    })
}

fn whole(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    let limit = of_pod(spec)?;
    let exceeds = usage.disk(Scope::All).bytes > limit;
    exceeds.then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {}. ", bytes(limit)))
}

fn one(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    container::all(spec).find_map(|(_, container)| {
        let (text, limit) = of_container(container)?;
        let used = usage.containers.iter().find(|used| used.name == container.name)?;
        let exceeds = used.storage_bytes() > limit;
        exceeds.then(|| format!("Container {} exceeded its local ephemeral storage limit \"{text}\". ", container.name))
    })
}

/// Storage that cannot be measured cannot be compared with a limit, so a Pod with a limit must not have it. Upstream has no
/// such message: it walks without bounds.
fn immeasurable(pod: &Pod, usage: &PodUsage) -> Option<String> {
    let fault = usage.fault.as_ref().filter(|fault| fault.is_of_the_files() && has_any(pod))?;
    Some(format!("Local ephemeral storage cannot be measured against the limit: {fault}. "))
}

/// The volumes on the disk that have a limit, as written and in bytes.
fn size_limits(spec: &PodSpec) -> impl Iterator<Item = (&Volume, &str, u64)> {
    spec.volumes.iter().flatten().filter_map(|volume| {
        let source = volume.empty_dir.as_ref().filter(|source| source.medium.as_deref().unwrap_or_default().is_empty())?;
        let text = &source.size_limit.as_ref()?.0;
        let limit = quantity::value(text).ok().and_then(|value| u64::try_from(value).ok()).filter(|limit| *limit > 0)?;
        Some((volume, text.as_str(), limit))
    })
}

fn of_container(container: &Container) -> Option<(&str, u64)> {
    let text = &container.resources.as_ref()?.limits.as_ref()?.get("ephemeral-storage")?.0;
    let limit = quantity::value(text).ok().and_then(|value| u64::try_from(value).ok()).filter(|limit| *limit > 0)?;
    Some((text, limit))
}

/// The sum of the containers, or the largest init container with the sidecars before it; `None` when none has a limit.
fn of_pod(spec: &PodSpec) -> Option<u64> {
    let (mut main, mut sidecars, mut init, mut has_limit) = (0_u64, 0_u64, 0_u64, false);
    for (role, container) in container::all(spec) {
        let limit = of_container(container).map(|(_, limit)| limit);
        has_limit |= limit.is_some();
        let limit = limit.unwrap_or(0);
        match role {
            Role::Main => main = main.saturating_add(limit),
            Role::Sidecar => sidecars = sidecars.saturating_add(limit),
            Role::Init => init = init.max(limit.saturating_add(sidecars)),
            Role::Ephemeral => {}
        }
    }
    has_limit.then(|| main.saturating_add(sidecars).max(init))
}

#[cfg(test)]
mod tests {
    use runtimes_host::disk::{Disk, Immeasurable};
    use serde_json::{Value, json};

    use super::super::usage::ContainerUsage;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn container(name: &str, limit: &str) -> Value {
        json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}})
    }

    fn empty_dir(name: &str, medium: &str, limit: Option<&str>) -> Value {
        json!({"name": name, "emptyDir": {"medium": medium, "sizeLimit": limit}})
    }

    fn disk(mib: u64) -> Disk {
        Disk { bytes: mib * MIB, inodes: 1 }
    }

    /// Usage in MiB: writable layer and logs of each container, each volume.
    fn usage(containers: &[(&str, u64, u64)], volumes: &[(&str, u64)]) -> PodUsage {
        let usage_of = |(name, writable, logs): &(&str, u64, u64)| ContainerUsage {
            name: (*name).to_owned(),
            writable: disk(*writable),
            logs: disk(*logs),
            ..ContainerUsage::default()
        };
        PodUsage {
            containers: containers.iter().map(usage_of).collect(),
            volumes: volumes.iter().map(|(name, mib)| ((*name).to_owned(), disk(*mib))).collect(),
            ..PodUsage::default()
        }
    }

    fn excess(spec: Value, usage: &PodUsage) -> Option<Excess> {
        exceeded(&serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod"), usage)
    }

    fn verdict(spec: Value, usage: &PodUsage) -> Option<String> {
        excess(spec, usage).map(|excess| excess.message)
    }

    #[test]
    fn each_limit_has_its_signal() {
        let limited =
            || json!({"containers": [container("a", "4Mi"), container("b", "8Mi")], "volumes": [empty_dir("v", "", Some("4Mi"))]});
        let signal = |usage: &PodUsage| excess(limited(), usage).map(|excess| excess.signal);
        assert_eq!(signal(&usage(&[("a", 5, 0)], &[])), Some("ephemeralcontainerfs.limit"));
        assert_eq!(signal(&usage(&[("a", 9, 0), ("b", 9, 0)], &[])), Some("ephemeralpodfs.limit"));
        assert_eq!(signal(&usage(&[("a", 9, 0), ("b", 9, 0)], &[("v", 5)])), Some("emptydirfs.limit"));
        assert_eq!(signal(&usage(&[("a", 1, 0)], &[])), None);
    }

    #[test]
    fn limits_apply_in_upstreams_order_with_its_messages() {
        let two = || json!({"containers": [container("a", "4Mi"), container("b", "8Mi")]});
        let with_volumes = |containers: Value, volumes: Value| json!({"containers": containers, "volumes": volumes});
        let free = json!([{"name": "a"}]);
        for (spec, usage, wanted) in [
            (two(), usage(&[("a", 2, 2), ("b", 4, 4)], &[]), None),
            (two(), usage(&[("a", 2, 3), ("b", 0, 0)], &[]), Some("Container a exceeded its local ephemeral storage limit \"4Mi\". ")),
            (
                two(),
                usage(&[("a", 4, 0), ("b", 8, 0)], &[("v", 1)]),
                Some("Pod ephemeral local storage usage exceeds the total limit of containers 12Mi. "),
            ),
            (
                with_volumes(free.clone(), json!([empty_dir("v", "", Some("4Mi"))])),
                usage(&[("a", 900, 0)], &[("v", 5)]),
                Some("Usage of EmptyDir volume \"v\" exceeds the limit \"4Mi\". "),
            ),
            (with_volumes(free.clone(), json!([empty_dir("v", "", Some("4Mi"))])), usage(&[("a", 900, 0)], &[("v", 4)]), None),
            // Limited by the size of its file system.
            (with_volumes(free.clone(), json!([empty_dir("v", "Memory", Some("4Mi"))])), usage(&[], &[("v", 5)]), None),
            (with_volumes(free.clone(), json!([empty_dir("v", "", None)])), usage(&[], &[("v", 500)]), None),
            (with_volumes(free.clone(), json!([empty_dir("v", "", Some("0"))])), usage(&[], &[("v", 500)]), None),
            (json!({"containers": free}), usage(&[("a", 500, 500)], &[]), None),
            // The greediest init container.
            (
                json!({"containers": [container("a", "1Mi")], "initContainers": [container("first", "9Mi")]}),
                usage(&[("first", 5, 0), ("a", 1, 0)], &[]),
                None,
            ),
        ] {
            assert_eq!(verdict(spec.clone(), &usage).as_deref(), wanted, "{spec}");
        }
    }

    #[test]
    fn what_has_no_name_counts_for_the_pod() {
        let mut usage = usage(&[("a", 1, 0)], &[]);
        usage.other = disk(4);
        let wanted = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ";
        assert_eq!(verdict(json!({"containers": [container("a", "4Mi")]}), &usage).as_deref(), Some(wanted));
    }

    #[test]
    fn what_cannot_be_measured_has_no_limit_to_hide_under() {
        let limited = || json!({"containers": [container("a", "4Mi")]});
        let with = |fault| PodUsage { fault: Some(fault), ..usage(&[("a", 1, 0)], &[]) };
        let words = verdict(limited(), &with(Immeasurable::TooDeep)).expect("it goes");
        assert!(words.starts_with("Local ephemeral storage cannot be measured against the limit: "), "{words}");
        assert_eq!(verdict(limited(), &with(Immeasurable::TooSlow)), None, "a slow disk is not the Pod's doing");
        assert_eq!(verdict(json!({"containers": [{"name": "a"}]}), &with(Immeasurable::TooDeep)), None, "there is no limit");
    }
}
