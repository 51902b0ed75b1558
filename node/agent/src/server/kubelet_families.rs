//! The kubelet's families that say how things are at the time of a scrape: the Pods and containers of the node, the file systems of claims
//! and the logs of containers. They are computed from the Pods that the node has now, so that a removed Pod leaves no series. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api_metrics::{Families, number};
use api_model::pod_resize::{DEFERRED, IN_PROGRESS, PENDING};
use k8s_openapi::api::core::v1::PodStatus;

use super::disks;
use crate::container::ephemeral;
use crate::disk_usages::PodDisk;
use crate::layout::PodName;
use crate::machine::FileSystem;
use crate::node::Entry;

/// Adds the node's name.
pub(super) fn add_node(families: &mut Families, name: &str) {
    families.gauge("kubelet_node_name", "The name of the node. The value is always 1.", [([("node", name.to_owned())], 1.0)]);
}

/// Numbers of Pods and containers.
#[derive(Default)]
struct Numbers {
    running_pods: u64,
    running_containers: u64,
    exited_containers: u64,
    ephemeral_containers: u64,
    /// Of the API, and of files.
    desired: [u64; 2],
    active: [u64; 2],
    deferred_resizes: u64,
    infeasible_resizes: u64,
    resizes_in_progress: u64,
}

impl Numbers {
    fn of(entries: &[Arc<Entry>]) -> Self {
        let mut numbers = Self::default();
        entries.iter().for_each(|entry| numbers.count(entry));
        numbers
    }

    fn count(&mut self, entry: &Entry) {
        let [of_api, of_files] = if entry.is_static { [0, 1] } else { [1, 0] };
        let add = |numbers: &mut [u64; 2]| {
            let [api, files] = *numbers;
            *numbers = [api + of_api, files + of_files];
        };
        add(&mut self.desired);
        if entry.is_active() {
            add(&mut self.active);
        }
        let running = entry.containers.values().filter(|instance| instance.running.is_some()).count();
        self.running_pods += u64::from(entry.sandbox.is_some());
        self.running_containers += running as u64;
        self.exited_containers += exited(&entry.status);
        self.ephemeral_containers += ephemeral::list(&entry.pod).count() as u64;
        let condition = |name: &str| entry.status.conditions.iter().flatten().find(|condition| condition.type_ == name);
        if let Some(pending) = condition(PENDING) {
            let is_deferred = pending.reason.as_deref() == Some(DEFERRED);
            self.deferred_resizes += u64::from(is_deferred);
            self.infeasible_resizes += u64::from(!is_deferred);
        }
        self.resizes_in_progress += u64::from(condition(IN_PROGRESS).is_some());
    }
}

/// The containers whose newest instance has ended.
fn exited(status: &PodStatus) -> u64 {
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let states = lists.into_iter().flatten().flatten().filter_map(|status| status.state.as_ref());
    states.filter(|state| state.terminated.is_some()).count() as u64
}

/// Adds the numbers of Pods, containers and resizes.
pub(super) fn add_pods(families: &mut Families, entries: &[Arc<Entry>]) {
    let numbers = Numbers::of(entries);
    let by = |label: &'static str, values: &[(&str, u64)]| -> Vec<_> {
        values.iter().map(|(value, count)| ([(label, (*value).to_owned())], number(*count))).collect()
    };
    let by_origin = |[of_api, of_files]: [u64; 2]| by("static", &[("", of_api), ("true", of_files)]);
    families.gauge("kubelet_running_pods", "Number of Pods that have a sandbox.", [([], number(numbers.running_pods))]);
    // A container is created and started in one step, so that none rests in between.
    let states = [("created", 0), ("exited", numbers.exited_containers), ("running", numbers.running_containers)];
    families.gauge("kubelet_running_containers", "Number of containers by their state.", by("container_state", &states));
    families.gauge("kubelet_desired_pods", "Number of Pods that the node is to run.", by_origin(numbers.desired));
    families.gauge("kubelet_active_pods", "Number of Pods that count when another one is admitted.", by_origin(numbers.active));
    let [_, of_files] = numbers.desired;
    families.gauge("kubelet_mirror_pods", "Number of static Pods, each of which gets a mirror Pod.", [([], number(of_files))]);
    families.gauge(
        "kubelet_managed_ephemeral_containers",
        "Number of ephemeral containers in the node's Pods.",
        [([], number(numbers.ephemeral_containers))],
    );
    let pending = [("deferred", numbers.deferred_resizes), ("infeasible", numbers.infeasible_resizes)];
    families.gauge("kubelet_pod_pending_resizes", "Number of Pods whose resize waits, or is impossible.", by("reason", &pending));
    families.gauge(
        "kubelet_pod_in_progress_resizes",
        "Number of Pods whose containers do not have their new resources yet.",
        [([], number(numbers.resizes_in_progress))],
    );
}

/// Adds the file systems of claims and the logs of containers, of the Pods that have been measured.
pub(super) fn add_disks(families: &mut Families, entries: &[Arc<Entry>], disks: &HashMap<String, Arc<PodDisk>>) {
    let names = entries.iter().map(|entry| PodName::of(&entry.pod));
    let mut measured: Vec<(PodName, &PodDisk)> =
        names.filter_map(|names| Some((disks.get(&names.uid)?.as_ref(), names))).map(|(disk, names)| (names, disk)).collect();
    measured.sort_by(|(a, _), (b, _)| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    add_claims(families, &measured);
    let logs = measured.iter().flat_map(|(names, disk)| {
        disk.usage.containers.iter().map(move |container| {
            let PodName { namespace, name, uid } = names.clone();
            let labels = [("uid", uid), ("namespace", namespace), ("pod", name), ("container", container.name.clone())];
            (labels, number(container.logs.bytes))
        })
    });
    families.gauge("kubelet_container_log_filesystem_used_bytes", "Bytes that the logs of a container have on the disk.", logs);
}

/// Name, help and value of a family.
type ClaimFamily = (&'static str, &'static str, fn(&FileSystem) -> u64);

/// A claim that several Pods mount has one series.
fn add_claims(families: &mut Families, measured: &[(PodName, &PodDisk)]) {
    let mut claims: BTreeMap<(&str, &str), &FileSystem> = BTreeMap::new();
    for (names, disk) in measured {
        for (volume, fs) in &disk.claims {
            claims.entry((&names.namespace, &volume.claim)).or_insert(fs);
        }
    }
    let of_claims: [ClaimFamily; 6] = [
        ("kubelet_volume_stats_capacity_bytes", "Bytes that a volume can have.", |fs| fs.bytes),
        ("kubelet_volume_stats_available_bytes", "Bytes that are free in a volume.", |fs| fs.free_bytes),
        ("kubelet_volume_stats_used_bytes", "Bytes that are used in a volume.", |fs| disks::whole(fs).bytes),
        ("kubelet_volume_stats_inodes", "Inodes that a volume can have.", |fs| fs.inodes),
        ("kubelet_volume_stats_inodes_free", "Inodes that are free in a volume.", |fs| fs.free_inodes),
        ("kubelet_volume_stats_inodes_used", "Inodes that are used in a volume.", |fs| disks::whole(fs).inodes),
    ];
    for (name, help, value) in of_claims {
        let series = claims.iter().map(|((namespace, claim), fs)| {
            let labels = [("namespace", (*namespace).to_owned()), ("persistentvolumeclaim", (*claim).to_owned())];
            (labels, number(value(fs)))
        });
        families.gauge(name, help, series);
    }
}

#[cfg(test)]
mod tests;
