//! `/stats/summary`: what the node, its Pods and their containers use, in the shape of the kubelet's summary API. What cannot be read
//! is left out.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use node_volumes::ClaimVolume;
use runtimes_contract::Stats;
use serde_json::{Value, json};

use super::query_pairs;
use crate::container::{self, resources};
use crate::eviction::usage::{Disk, PodUsage, Scope};
use crate::eviction_manager::measure;
use crate::layout::PodName;
use crate::machine::{FileSystem, file_system};
use crate::machine_usage::MachineUsage;
use crate::node::{Entry, Node};
use crate::stats::{self, Usage};
use crate::status::time;
use crate::traffic::{self, POD_INTERFACE, Traffic};

/// Answers the path. With `only_cpu_and_memory=true` the answer has nothing else.
pub(super) async fn summary(State(node): State<Arc<Node>>, RawQuery(query): RawQuery) -> Response {
    let is_set = |(name, value): &(String, String)| name == "only_cpu_and_memory" && value == "true";
    let all = !query_pairs(&query.unwrap_or_default()).iter().any(is_set);
    let entries = node.directory.all();
    let mut disks = if all { measured(&node, &entries).await } else { HashMap::new() };
    let mut pods = Vec::new();
    for entry in entries {
        let (names, running) = (PodName::of(&entry.pod), stats::running(&node, &entry).await);
        pods.push(PodFacts { disk: disks.remove(&names.uid), names, entry, running });
    }
    let read = api_tasks::blocking("node-agent/summary", move || Summary::read(&node, &pods, all).json(&node, &pods));
    match read.await {
        Ok(summary) => Json(summary).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// What Pods have on the disk.
async fn measured(node: &Node, entries: &[Entry]) -> HashMap<String, Arc<PodUsage>> {
    let pods = entries.iter().map(|entry| (PodName::of(&entry.pod).uid, entry.clone())).collect();
    node.disk_usages.of(pods, |entry: Entry, within| async move { measure::disk(node, &entry, within).await }).await
}

/// A Pod, and what was read of it.
struct PodFacts {
    names: PodName,
    entry: Entry,
    running: Vec<Usage>,
    /// `None` until it is measured.
    disk: Option<Arc<PodUsage>>,
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
        let mut readings = vec![(String::new(), machine.stats.cpu_ns), (KUBELET.to_owned(), machine.own.cpu_ns)];
        readings.extend(all_pods.as_ref().map(|stats| (PODS.to_owned(), stats.cpu_ns)));
        for pod in pods {
            readings.push((pod.names.uid.clone(), stats::sum(&pod.running).cpu_ns));
            readings.extend(pod.running.iter().map(|usage| (pod.key(&usage.container), usage.stats.cpu_ns)));
        }
        let data_dir = &node.config.data_dir;
        let images = node.parts.images.dir();
        Self {
            all,
            now,
            machine,
            pods: all_pods,
            rates: node.cpu_rates.add(readings, now),
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
            ("cpu", Some(self.cpu(machine.own.cpu_ns, KUBELET))),
            ("memory", Some(self.memory(&machine.own, None))),
        ]);
        let all_pods = self.pods.as_ref().map(|stats| {
            let left = machine.memory_bytes.saturating_sub(stats.working_set_bytes);
            json!({"name": PODS, "cpu": self.cpu(stats.cpu_ns, PODS), "memory": self.memory(stats, Some(left))})
        });
        let of_node = fields([
            ("nodeName", Some(json!(node.config.node_name))),
            ("systemContainers", Some(std::iter::once(own).chain(all_pods).collect())),
            ("startTime", started(machine.start)),
            ("cpu", Some(self.cpu(machine.stats.cpu_ns, ""))),
            ("memory", Some(self.memory(&machine.stats, Some(machine.available_bytes)))),
            ("network", self.machine_network()),
            ("fs", self.node_fs.as_ref().map(|fs| self.fs(fs, None))),
            ("runtime", self.image_fs.as_ref().map(|fs| json!({"imageFs": self.fs(fs, None), "containerFs": self.fs(fs, None)}))),
            ("rlimit", machine.tasks.filter(|_| self.all).map(|(now, max)| json!({"time": self.now, "maxpid": max, "curproc": now}))),
            ("swap", self.all.then(|| self.swap())),
        ]);
        json!({"node": of_node, "pods": pods.iter().map(|pod| self.pod(node, pod)).collect::<Vec<_>>()})
    }

    fn pod(&self, node: &Node, pod: &PodFacts) -> Value {
        let PodFacts { names, entry, running, disk } = pod;
        let sum = stats::sum(running);
        let of_disk = |scope| disk.as_ref().map(|usage| usage.disk(scope));
        let node_fs = self.node_fs.as_ref();
        fields([
            ("podRef", Some(json!({"name": names.name, "namespace": names.namespace, "uid": names.uid}))),
            ("startTime", entry.status.start_time.as_ref().map(|at| json!(at))),
            ("containers", Some(running.iter().map(|usage| self.container(pod, usage)).collect())),
            ("cpu", Some(self.cpu(sum.cpu_ns, &names.uid))),
            ("memory", Some(self.memory(&sum, left(resources::of_pod(&entry.pod).memory_limit_bytes, &sum)))),
            ("network", self.pod_network(node, entry)),
            ("volume", Some(self.volumes(node, pod)).filter(|all| !all.is_empty()).map(Value::Array)),
            ("ephemeral-storage", node_fs.zip(of_disk(Scope::All)).map(|(fs, used)| self.fs(fs, Some(used)))),
            ("process_stats", self.all.then(|| json!({"process_count": sum.pids}))),
        ])
    }

    fn container(&self, pod: &PodFacts, usage: &Usage) -> Value {
        let Usage { container: name, started_at, stats, .. } = usage;
        let declared = pod.entry.pod.spec.iter().flat_map(container::all).map(|(_, container)| container);
        let limit = declared.filter(|one| one.name == *name).find_map(|one| resources::of_container(one).memory_limit_bytes);
        let disk = pod.disk.as_ref().and_then(|disk| disk.containers.iter().find(|one| one.name == *name));
        let fs = |fs: &Option<FileSystem>, used: Option<Disk>| fs.as_ref().zip(used).map(|(fs, used)| self.fs(fs, Some(used)));
        fields([
            ("name", Some(json!(name))),
            ("startTime", Some(json!(time(*started_at)))),
            ("cpu", Some(self.cpu(stats.cpu_ns, &pod.key(name)))),
            ("memory", Some(self.memory(stats, left(limit, stats)))),
            ("rootfs", fs(&self.image_fs, disk.map(|disk| disk.writable))),
            ("logs", fs(&self.node_fs, disk.map(|disk| disk.logs))),
        ])
    }

    /// The volumes of a Pod that it may write: `emptyDir` and claims.
    fn volumes(&self, node: &Node, pod: &PodFacts) -> Vec<Value> {
        let Some(fs) = self.node_fs.as_ref() else { return Vec::new() };
        let walked = pod.disk.iter().flat_map(|disk| &disk.volumes);
        let walked = walked.map(|(name, used)| with(self.fs(fs, Some(*used)), [("name", json!(name))]));
        let claims = node.volumes.claims(&pod.entry.pod).into_iter().filter_map(|ClaimVolume { volume, claim, path }| {
            let claim = json!({"name": claim, "namespace": pod.names.namespace});
            Some(with(self.fs(&file_system(&path)?, None), [("name", json!(volume)), ("pvcRef", claim)]))
        });
        walked.chain(claims).collect()
    }

    fn cpu(&self, cpu_ns: u64, rate_of: &str) -> Value {
        let rate = self.rates.get(rate_of);
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

    /// A file system, and the part of it that is used: all of it, unless `used` says what somebody has there.
    fn fs(&self, fs: &FileSystem, used: Option<Disk>) -> Value {
        let whole = Disk { bytes: fs.bytes.saturating_sub(fs.all_free_bytes), inodes: fs.inodes.saturating_sub(fs.free_inodes) };
        let used = used.unwrap_or(whole);
        json!({
            "time": self.now, "availableBytes": fs.free_bytes, "capacityBytes": fs.bytes, "usedBytes": used.bytes,
            "inodesFree": fs.free_inodes, "inodes": fs.inodes, "inodesUsed": used.inodes,
        })
    }

    fn machine_network(&self) -> Option<Value> {
        let name = traffic::default_interface().filter(|_| self.all)?;
        let mut interfaces: Vec<(&str, &Traffic)> =
            self.interfaces.iter().map(|(name, traffic)| (name.as_str(), traffic)).filter(|(name, _)| *name != "lo").collect();
        interfaces.sort_by_key(|(name, _)| *name);
        Some(self.network((&name, self.interfaces.get(&name)?), &interfaces))
    }

    fn pod_network(&self, node: &Node, entry: &Entry) -> Option<Value> {
        let traffic = stats::traffic(node, entry, &self.interfaces)?;
        let only = (POD_INTERFACE, &traffic);
        Some(self.network(only, &[only]))
    }

    /// The interface of the default route, and all of them.
    fn network(&self, main: (&str, &Traffic), all: &[(&str, &Traffic)]) -> Value {
        let all = all.iter().copied().map(interface).collect();
        with(interface(main), [("time", json!(self.now)), ("interfaces", all)])
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
