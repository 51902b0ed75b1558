//! `/stats/summary`: what the node, its Pods and their containers use, in the shape of the kubelet's summary API. What cannot be read
//! is left out.

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
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{disks, query_pairs};
use crate::container::{self, resources};
use crate::cpu_rates::Reading;
use crate::disk_usages::PodDisk;
use crate::eviction::usage::{ContainerUsage, Disk, Scope};
use crate::layout::PodName;
use crate::machine::{FileSystem, file_system};
use crate::machine_usage::MachineUsage;
use crate::node::{Entry, Node};
use crate::stats::{self, Usage};
use crate::status::time;
use crate::traffic::{self, POD_INTERFACE, Traffic};

/// How long an answer may measure what Pods have on the disk.
const MEASURED_FOR: Duration = Duration::from_secs(2);

/// Answers the path. With `only_cpu_and_memory=true` the answer has these and the node's swap.
pub(super) async fn summary(State(node): State<Arc<Node>>, RawQuery(query): RawQuery) -> Response {
    let is_set = |(name, value): &(String, String)| name == "only_cpu_and_memory" && value == "true";
    let all = !query_pairs(&query.unwrap_or_default()).iter().any(is_set);
    let entries = node.directory.all();
    let mut disks = if all { disks::measured(&node, &entries, MEASURED_FOR).await } else { HashMap::new() };
    let running = stats::running(&node, &entries).await;
    let facts = |(entry, running): (Arc<Entry>, Vec<Usage>)| {
        let names = PodName::of(&entry.pod);
        PodFacts { disk: disks.remove(&names.uid), names, entry, running }
    };
    let pods: Vec<_> = entries.into_iter().zip(running).map(facts).collect();
    let read = api_tasks::blocking("node-agent/summary", move || Summary::read(&node, &pods, all).json(&node, &pods));
    match read.await {
        Ok(summary) => Json(summary).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// A Pod, and what was read of it.
struct PodFacts {
    names: PodName,
    entry: Arc<Entry>,
    running: Vec<Usage>,
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
    /// CPU use in ns a second.
    rates: HashMap<String, u64>,
    interfaces: HashMap<String, Traffic>,
    node_fs: Option<FileSystem>,
    image_fs: Option<FileSystem>,
}

impl Summary {
    /// Reads the machine. Blocks.
    fn read(node: &Node, pods: &[PodFacts], all: bool) -> Self {
        let now = api_clock::now();
        let machine = MachineUsage::read(now);
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
        let images = node.parts.images.dir();
        Self {
            all,
            now,
            machine,
            pods: all_pods,
            rates: node.cpu_rates.add(readings, Instant::now()),
            interfaces: if all { traffic::interfaces() } else { HashMap::new() },
            node_fs: file_system(data_dir).filter(|_| all),
            image_fs: file_system(images.as_deref().unwrap_or(data_dir)).filter(|_| all),
        }
    }

    fn json(&self, node: &Node, pods: &[PodFacts]) -> Value {
        let machine = &self.machine;
        let started = |at: Option<Timestamp>| at.map(|at| json!(time(at)));
        let own = fields([
            ("name", Some(json!(KUBELET))),
            ("startTime", started(machine.own_start)),
            ("cpu", Some(self.cpu(machine.own.cpu_ns, self.rate(KUBELET)))),
            ("memory", Some(self.memory(&machine.own, None))),
        ]);
        let all_pods = self.pods.as_ref().map(|stats| {
            let left = machine.memory_bytes.saturating_sub(stats.working_set_bytes);
            json!({"name": PODS, "cpu": self.cpu(stats.cpu_ns, self.rate(PODS)), "memory": self.memory(stats, Some(left))})
        });
        let of_node = fields([
            ("nodeName", Some(json!(node.config.node_name))),
            ("systemContainers", Some(std::iter::once(own).chain(all_pods).collect())),
            ("startTime", started(machine.start)),
            ("cpu", Some(self.cpu(machine.stats.cpu_ns, self.rate(NODE)))),
            ("memory", Some(self.memory(&machine.stats, Some(machine.available_bytes)))),
            ("network", self.all.then(|| self.machine_network(node))),
            ("fs", self.node_fs.as_ref().map(|fs| with(room(self.now, fs), used_of(disks::whole(fs))))),
            ("runtime", self.image_fs.as_ref().map(|fs| json!({"imageFs": room(self.now, fs), "containerFs": room(self.now, fs)}))),
            ("rlimit", machine.tasks.filter(|_| self.all).map(|(now, max)| json!({"time": self.now, "maxpid": max, "curproc": now}))),
            ("swap", Some(self.swap())),
        ]);
        json!({"node": of_node, "pods": pods.iter().map(|pod| self.pod(node, pod)).collect::<Vec<_>>()})
    }

    fn pod(&self, node: &Node, pod: &PodFacts) -> Value {
        let PodFacts { names, entry, running, disk } = pod;
        let sum = stats::sum(running);
        let rates: Vec<u64> = running.iter().filter_map(|usage| self.rate(&pod.key(&usage.container))).collect();
        let rate = (!rates.is_empty()).then(|| rates.into_iter().fold(0, u64::saturating_add));
        let storage = |fs: &FileSystem, disk: &PodDisk| with(room(disk.at, fs), used_of(disk.usage.disk(Scope::All)));
        fields([
            ("podRef", Some(json!({"name": names.name, "namespace": names.namespace, "uid": names.uid}))),
            ("startTime", entry.status.start_time.as_ref().map(|at| json!(at))),
            ("containers", Some(running.iter().map(|usage| self.container(pod, usage)).collect())),
            ("cpu", Some(self.cpu(sum.cpu_ns, rate))),
            ("memory", Some(self.memory(&sum, left(resources::of_pod(&entry.pod).memory_limit_bytes, &sum)))),
            ("network", self.pod_network(node, entry)),
            ("volume", disk.as_ref().map(|disk| self.volumes(&names.namespace, disk)).filter(|all| !all.is_empty()).map(Value::Array)),
            ("ephemeral-storage", self.node_fs.as_ref().zip(disk.as_ref()).map(|(fs, disk)| storage(fs, disk))),
            ("process_stats", self.all.then(|| json!({"process_count": sum.pids}))),
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
            Some(with(room(at, fs), used_of(part(usage))))
        };
        fields([
            ("name", Some(json!(name))),
            ("startTime", Some(json!(time(*started_at)))),
            ("cpu", Some(self.cpu(stats.cpu_ns, self.rate(&pod.key(name))))),
            ("memory", Some(self.memory(stats, left(limit, stats)))),
            ("rootfs", fs(&self.image_fs, |usage| usage.writable)),
            ("logs", fs(&self.node_fs, |usage| usage.logs)),
        ])
    }

    /// The volumes of a Pod that it may fill: `emptyDir` on the disk, and claims.
    fn volumes(&self, namespace: &str, disk: &PodDisk) -> Vec<Value> {
        let empty_dirs = disk.usage.volumes.iter().filter_map(|(name, used)| {
            let volume = with(room(disk.at, self.node_fs.as_ref()?), used_of(*used));
            Some(with(volume, [("name", json!(name))]))
        });
        let claims = disk.claims.iter().map(|(ClaimVolume { volume, claim, .. }, fs)| {
            let claim = json!({"name": claim, "namespace": namespace});
            with(with(room(disk.at, fs), used_of(disks::whole(fs))), [("name", json!(volume)), ("pvcRef", claim)])
        });
        empty_dirs.chain(claims).collect()
    }

    fn rate(&self, of: &str) -> Option<u64> {
        self.rates.get(of).copied()
    }

    fn cpu(&self, cpu_ns: u64, rate: Option<u64>) -> Value {
        fields([
            ("time", Some(json!(self.now))),
            ("usageNanoCores", rate.map(|rate| json!(rate))),
            ("usageCoreNanoSeconds", Some(json!(cpu_ns))),
        ])
    }

    fn memory(&self, stats: &Stats, available: Option<u64>) -> Value {
        fields([
            ("time", Some(json!(self.now))),
            ("availableBytes", available.map(|bytes| json!(bytes))),
            ("usageBytes", Some(json!(stats.memory_bytes))),
            ("workingSetBytes", Some(json!(stats.working_set_bytes))),
            ("rssBytes", Some(json!(stats.rss_bytes))),
            ("pageFaults", Some(json!(stats.page_faults))),
            ("majorPageFaults", Some(json!(stats.major_page_faults))),
        ])
    }

    fn swap(&self) -> Value {
        let (total, free) = (self.machine.swap_bytes, self.machine.swap_free_bytes);
        json!({"time": self.now, "swapAvailableBytes": free, "swapUsageBytes": total.saturating_sub(free)})
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

/// A file system without what is used of it.
fn room(at: Timestamp, fs: &FileSystem) -> Value {
    json!({
        "time": at, "availableBytes": fs.free_bytes, "capacityBytes": fs.bytes, "inodesFree": fs.free_inodes, "inodes": fs.inodes,
    })
}

fn used_of(used: Disk) -> [(&'static str, Value); 2] {
    [("usedBytes", json!(used.bytes)), ("inodesUsed", json!(used.inodes))]
}

fn left(limit: Option<u64>, stats: &Stats) -> Option<u64> {
    limit.map(|limit| limit.saturating_sub(stats.working_set_bytes))
}

fn interface((name, traffic): (&str, &Traffic)) -> Value {
    let Traffic { received, sent } = traffic;
    json!({"name": name, "rxBytes": received.bytes, "rxErrors": received.errors, "txBytes": sent.bytes, "txErrors": sent.errors})
}

fn with<const N: usize>(mut object: Value, more: [(&str, Value); N]) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    object
}

/// An object of the fields that have a value.
fn fields<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<serde_json::Map<_, _>>().into()
}
