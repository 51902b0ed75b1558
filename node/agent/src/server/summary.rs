//! `/stats/summary`: what the node, its Pods and their containers use, in the shape of the kubelet's summary API. What cannot be read
//! is left out.

mod values;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use node_volumes::ClaimVolume;
use runtimes_contract::Stats;
use runtimes_host::cgroup::{Pressure, Swap};
use runtimes_host::disk::Disk;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::values::{fields, interface, left, psi, swap, used, with};
use super::{disks, query_pairs};
use crate::container::{self, resources};
use crate::cpu_rates::Reading;
use crate::disk_usages::PodDisk;
use crate::eviction::usage::{ContainerUsage, Scope};
use crate::layout::PodName;
use crate::machine::{FileSystem, file_system};
use crate::machine_usage::MachineUsage;
use crate::node::{Entry, Node};
use crate::pod_groups::{self, GroupUsage, PodGroups};
use crate::stats::{self, Usage};
use crate::status::time;
use crate::traffic::{self, POD_INTERFACE, Traffic};

/// How long an answer may measure what Pods and images have on the disk.
const MEASURED_FOR: Duration = Duration::from_secs(2);

/// Answers the path. With `only_cpu_and_memory=true` the answer has these, the pressure on them, and swap.
pub(super) async fn summary(State(node): State<Arc<Node>>, RawQuery(query): RawQuery) -> Response {
    let is_set = |(name, value): &(String, String)| name == "only_cpu_and_memory" && value == "true";
    let all = !query_pairs(&query.unwrap_or_default()).iter().any(is_set);
    let entries = node.directory.all();
    let (mut disks, images) = match all {
        true => futures::join!(disks::measured(&node, &entries, MEASURED_FOR), used_by_images(&node)),
        false => (HashMap::new(), None),
    };
    let running = stats::running(&node, &entries).await;
    let groups = pod_groups::of_pods(&node, &entries, false).await;
    let facts = |((entry, running), groups): ((Arc<Entry>, Vec<Usage>), PodGroups)| {
        let names = PodName::of(&entry.pod);
        PodFacts { disk: disks.remove(&names.uid), names, entry, running, groups }
    };
    let pods: Vec<_> = entries.into_iter().zip(running).zip(groups).map(facts).collect();
    let read = api_tasks::blocking("node-agent/summary", move || Summary::read(&node, &pods, images, all).json(&node, &pods));
    match read.await {
        Ok(summary) => Json(summary).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// What the images take on the disk; `None` until all layers are measured.
async fn used_by_images(node: &Node) -> Option<Disk> {
    let measured = tokio::time::timeout(MEASURED_FOR, node.parts.images.usage()).await.ok()?;
    measured.inspect_err(|error| tracing::debug!(%error, "no use of the disk by images")).ok().flatten()
}

/// A Pod, and what was read of it.
struct PodFacts {
    names: PodName,
    entry: Arc<Entry>,
    running: Vec<Usage>,
    groups: PodGroups,
    /// `None` until it is measured.
    disk: Option<Arc<PodDisk>>,
}

/// What is common to the whole answer.
struct Summary {
    /// Whether the answer has more than CPU and memory.
    all: bool,
    now: Timestamp,
    machine: MachineUsage,
    /// The use of all Pods together, with what their containers left in the page cache.
    pods: Option<Stats>,
    group_of_pods: GroupUsage,
    /// CPU use in ns a second.
    rates: HashMap<String, u64>,
    interfaces: HashMap<String, Traffic>,
    node_fs: Option<FileSystem>,
    image_fs: Option<FileSystem>,
    images: Option<Disk>,
}

impl Summary {
    /// Reads the machine. Blocks.
    fn read(node: &Node, pods: &[PodFacts], images: Option<Disk>, all: bool) -> Self {
        let now = api_clock::now();
        let machine = MachineUsage::read(now, &node.config.proc_dir);
        let group = node.cgroups.as_ref().and_then(|cgroups| cgroups.group(&node.layout.cgroup_root()).ok());
        let all_pods = group.and_then(|group| group.stats().ok());
        let reading = |of: &str, started_at, cpu_ns| Reading { of: of.to_owned(), started_at, cpu_ns };
        let mut readings = vec![reading(NODE, None, machine.stats.cpu_ns), reading(KUBELET, None, machine.own.cpu_ns)];
        readings.extend(all_pods.as_ref().map(|stats| reading(PODS, None, stats.cpu_ns)));
        for pod in pods {
            let containers = pod.running.iter();
            readings.extend(containers.map(|usage| reading(&pod.key(&usage.container), Some(usage.started_at), usage.stats.cpu_ns)));
        }
        let data_dir = &node.config.data_dir;
        let image_dir = node.parts.images.dir();
        Self {
            all,
            now,
            machine,
            pods: all_pods,
            group_of_pods: pod_groups::of_all_pods(node),
            rates: node.cpu_rates.add(readings, Instant::now()),
            interfaces: if all { traffic::interfaces() } else { HashMap::new() },
            node_fs: file_system(data_dir).filter(|_| all),
            image_fs: file_system(image_dir.as_deref().unwrap_or(data_dir)).filter(|_| all),
            images,
        }
    }

    fn json(&self, node: &Node, pods: &[PodFacts]) -> Value {
        let (machine, pressures) = (&self.machine, &self.machine.pressures);
        let started = |at: Option<Timestamp>| at.map(|at| json!(time(at)));
        let own = fields([
            ("name", Some(json!(KUBELET))),
            ("startTime", started(machine.own_start)),
            ("cpu", Some(self.cpu(machine.own.cpu_ns, self.rate(KUBELET), None))),
            ("memory", Some(self.memory(&machine.own, None, None))),
        ]);
        let of_node = fields([
            ("nodeName", Some(json!(node.config.node_name))),
            ("systemContainers", Some(std::iter::once(own).chain(self.all_pods()).collect())),
            ("startTime", started(machine.start)),
            ("cpu", Some(self.cpu(machine.stats.cpu_ns, self.rate(NODE), pressures.cpu))),
            ("memory", Some(self.memory(&machine.stats, Some(machine.available_bytes), pressures.memory))),
            ("io", self.io(pressures.io)),
            ("network", self.all.then(|| self.machine_network(node))),
            ("fs", self.node_fs.as_ref().map(|fs| used(self.now, fs, Some(disks::whole(fs))))),
            ("runtime", self.image_fs.as_ref().map(|fs| self.runtime(fs, pods))),
            ("rlimit", machine.tasks.filter(|_| self.all).map(|(now, max)| json!({"time": self.now, "maxpid": max, "curproc": now}))),
            ("swap", Some(self.machine_swap())),
        ]);
        json!({"node": of_node, "pods": pods.iter().map(|pod| self.pod(node, pod)).collect::<Vec<_>>()})
    }

    /// The system container of all Pods together.
    fn all_pods(&self) -> Option<Value> {
        let (stats, GroupUsage { swap: swapped, pressures, .. }) = (self.pods.as_ref()?, &self.group_of_pods);
        let left = self.machine.memory_bytes.saturating_sub(stats.working_set_bytes);
        Some(fields([
            ("name", Some(json!(PODS))),
            ("cpu", Some(self.cpu(stats.cpu_ns, self.rate(PODS), pressures.cpu))),
            ("memory", Some(self.memory(stats, Some(left), pressures.memory))),
            ("swap", self.swap(*swapped)),
        ]))
    }

    /// The file system of the images, with what they take of it, and with what all containers have written to their root file systems.
    fn runtime(&self, fs: &FileSystem, pods: &[PodFacts]) -> Value {
        let written = pods.iter().map(|pod| Some(pod.disk.as_ref()?.usage.disk(Scope::ImageFs)));
        let written = written.collect::<Option<Vec<Disk>>>().map(|all| all.into_iter().sum());
        json!({"imageFs": used(self.now, fs, self.images), "containerFs": used(self.now, fs, written)})
    }

    fn pod(&self, node: &Node, pod: &PodFacts) -> Value {
        let PodFacts { names, entry, running, disk, groups } = pod;
        let GroupUsage { swap: swapped, pressures, .. } = &groups.pod;
        let sum = stats::sum(running);
        let rates: Vec<u64> = running.iter().filter_map(|usage| self.rate(&pod.key(&usage.container))).collect();
        let rate = (!rates.is_empty()).then(|| rates.into_iter().fold(0, u64::saturating_add));
        let storage = |fs: &FileSystem, disk: &PodDisk| used(disk.at, fs, Some(disk.usage.disk(Scope::All)));
        fields([
            ("podRef", Some(json!({"name": names.name, "namespace": names.namespace, "uid": names.uid}))),
            ("startTime", entry.status.start_time.as_ref().map(|at| json!(at))),
            ("containers", Some(running.iter().map(|usage| self.container(pod, usage)).collect())),
            ("cpu", Some(self.cpu(sum.cpu_ns, rate, pressures.cpu))),
            ("memory", Some(self.memory(&sum, left(resources::of_pod(&entry.pod).memory_limit_bytes, &sum), pressures.memory))),
            ("io", self.io(pressures.io)),
            ("network", self.pod_network(node, entry)),
            ("volume", disk.as_ref().map(|disk| self.volumes(&names.namespace, disk)).filter(|all| !all.is_empty()).map(Value::Array)),
            ("ephemeral-storage", self.node_fs.as_ref().zip(disk.as_ref()).map(|(fs, disk)| storage(fs, disk))),
            ("process_stats", self.all.then(|| json!({"process_count": sum.pids}))),
            ("swap", self.swap(*swapped)),
        ])
    }

    fn container(&self, pod: &PodFacts, usage: &Usage) -> Value {
        let Usage { container: name, started_at, stats, .. } = usage;
        let declared = pod.entry.pod.spec.iter().flat_map(container::all).map(|(_, container)| container);
        let limit =
            declared.filter(|one| one.name == *name).find_map(|one| resources::of_container(&pod.entry.pod, one).memory_limit_bytes);
        let disk = pod.disk.as_ref().and_then(|disk| Some((disk.at, disk.usage.containers.iter().find(|one| one.name == *name)?)));
        let fs = |fs: &Option<FileSystem>, part: fn(&ContainerUsage) -> Disk| {
            let ((at, usage), fs) = disk.zip(fs.as_ref())?;
            Some(used(at, fs, Some(part(usage))))
        };
        let GroupUsage { swap, pressures, .. } = pod.groups.container(name);
        fields([
            ("name", Some(json!(name))),
            ("startTime", Some(json!(time(*started_at)))),
            ("cpu", Some(self.cpu(stats.cpu_ns, self.rate(&pod.key(name)), pressures.cpu))),
            ("memory", Some(self.memory(stats, left(limit, stats), pressures.memory))),
            ("io", self.io(pressures.io)),
            ("swap", self.swap(swap)),
            ("rootfs", fs(&self.image_fs, |usage| usage.writable)),
            ("logs", fs(&self.node_fs, |usage| usage.logs)),
        ])
    }

    /// The volumes of a Pod that it may fill: `emptyDir` on the disk, and claims.
    fn volumes(&self, namespace: &str, disk: &PodDisk) -> Vec<Value> {
        let empty_dirs = disk.usage.volumes.iter().filter_map(|(name, of_volume)| {
            let volume = used(disk.at, self.node_fs.as_ref()?, Some(*of_volume));
            Some(with(volume, [("name", json!(name))]))
        });
        let claims = disk.claims.iter().map(|(ClaimVolume { volume, claim, .. }, fs)| {
            let claim = json!({"name": claim, "namespace": namespace});
            with(used(disk.at, fs, Some(disks::whole(fs))), [("name", json!(volume)), ("pvcRef", claim)])
        });
        empty_dirs.chain(claims).collect()
    }

    fn rate(&self, of: &str) -> Option<u64> {
        self.rates.get(of).copied()
    }

    fn cpu(&self, cpu_ns: u64, rate: Option<u64>, pressure: Option<Pressure>) -> Value {
        fields([
            ("time", Some(json!(self.now))),
            ("usageNanoCores", rate.map(|rate| json!(rate))),
            ("usageCoreNanoSeconds", Some(json!(cpu_ns))),
            ("psi", pressure.as_ref().map(psi)),
        ])
    }

    fn memory(&self, stats: &Stats, available: Option<u64>, pressure: Option<Pressure>) -> Value {
        fields([
            ("time", Some(json!(self.now))),
            ("availableBytes", available.map(|bytes| json!(bytes))),
            ("usageBytes", Some(json!(stats.memory_bytes))),
            ("workingSetBytes", Some(json!(stats.working_set_bytes))),
            ("rssBytes", Some(json!(stats.rss_bytes))),
            ("pageFaults", Some(json!(stats.page_faults))),
            ("majorPageFaults", Some(json!(stats.major_page_faults))),
            ("psi", pressure.as_ref().map(psi)),
        ])
    }

    fn io(&self, pressure: Option<Pressure>) -> Option<Value> {
        let pressure = pressure.filter(|_| self.all)?;
        Some(json!({"time": self.now, "psi": psi(&pressure)}))
    }

    fn swap(&self, of_group: Option<Swap>) -> Option<Value> {
        Some(swap(self.now, of_group?))
    }

    fn machine_swap(&self) -> Value {
        let (total, free) = (self.machine.swap_bytes, self.machine.swap_free_bytes);
        swap(self.now, Swap { usage_bytes: total.saturating_sub(free), limit_bytes: Some(total) })
    }

    /// The interfaces of the machine, and that of the default route. Those of Pods are theirs.
    fn machine_network(&self, node: &Node) -> Value {
        let all = stats::machine_interfaces(node, &self.interfaces);
        let default = traffic::default_interface().and_then(|name| all.iter().copied().find(|(interface, _)| *interface == name));
        self.network(default, &all)
    }

    fn pod_network(&self, node: &Node, entry: &Entry) -> Option<Value> {
        let traffic = stats::traffic(node, entry, &self.interfaces)?;
        let only = (POD_INTERFACE, &traffic);
        Some(self.network(Some(only), &[only]))
    }

    fn network(&self, main: Option<(&str, &Traffic)>, all: &[(&str, &Traffic)]) -> Value {
        let all = all.iter().copied().map(interface).collect();
        with(main.map_or_else(|| json!({}), interface), [("time", json!(self.now)), ("interfaces", all)])
    }
}

impl PodFacts {
    /// The name of a container among the CPU rates.
    fn key(&self, container: &str) -> String {
        format!("{}/{container}", self.names.uid)
    }
}

/// The names of the parts of the node, upstream's.
const KUBELET: &str = "kubelet";
const PODS: &str = "pods";
/// The name of the whole node among the CPU rates.
const NODE: &str = "node";
