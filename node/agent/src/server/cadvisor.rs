//! `/metrics/cadvisor`: the containers and the machine under cAdvisor's names, as dashboards for the kubelet read them. Skiff has the
//! CPU, the memory, the processes, the limits, the pressure and the transfers of a container, and the network of a Pod; what Pods have on
//! the disk is not measured here. The HTTP requests that a runtime serves are beside them, under names of Skiff's own.

mod groups;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_metrics::{Families, number};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::{HttpRequests, Resources, Stats};
use runtimes_host::cgroup::Swap;

use crate::block_devices;
use crate::container::{self, resources};
use crate::layout::PodName;
use crate::machine::{FileSystem, Machine, file_system};
use crate::machine_usage::MachineUsage;
use crate::node::Node;
use crate::pod_groups::{self, GroupUsage};
use crate::stats::{self, Usage};
use crate::traffic::{self, Direction, POD_INTERFACE, Traffic};

/// A cgroup: a container's, a Pod's or the whole machine's.
struct Measured {
    container: String,
    /// The path from the root.
    id: String,
    image: String,
    /// The name of the container for its runtime.
    name: String,
    pod: String,
    namespace: String,
    stats: Stats,
    group: GroupUsage,
    /// Its file systems, by the name of the device.
    file_systems: Vec<(String, FileSystem)>,
    /// Its interfaces, by name.
    interfaces: Vec<(String, Traffic)>,
    /// `None` where the runtime serves no HTTP requests.
    requests: Option<HttpRequests>,
    /// In ms since the epoch; `None` for what has no start of its own.
    started_ms: Option<i64>,
    read_ms: i64,
    limits: Resources,
}

/// Answers the path.
pub(super) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let of_machine = node.clone();
    let read = api_tasks::blocking("node-agent/cadvisor", move || {
        let interfaces = traffic::interfaces();
        (machine(&of_machine, &interfaces), interfaces)
    });
    let Ok((machine, interfaces)) = read.await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let mut all = vec![machine];
    let entries = node.directory.all();
    let running = stats::running(&node, &entries).await;
    let groups = pod_groups::of_pods(&node, &entries, true).await;
    for ((entry, running), groups) in entries.iter().zip(running).zip(groups) {
        let Some(read_at) = running.first().map(|usage| usage.read_at) else { continue };
        let names = PodName::of(&entry.pod);
        let cgroup = node.layout.pod_cgroup(resources::qos(&entry.pod), &names.uid);
        all.push(Measured {
            id: format!("/{cgroup}"),
            pod: names.name.clone(),
            namespace: names.namespace.clone(),
            stats: stats::sum(&running),
            group: groups.pod.clone(),
            interfaces: stats::traffic(&node, entry, &interfaces).into_iter().map(|traffic| (POD_INTERFACE.to_owned(), traffic)).collect(),
            read_ms: read_at.as_millisecond(),
            limits: resources::of_pod(&entry.pod),
            ..Measured::nothing()
        });
        let id = |container: &str| entry.containers.get(container).and_then(|instance| Some(instance.running.as_ref()?.0.to_string()));
        for usage in running {
            let requests = stats::http_requests(&node, entry, &usage.container).await;
            let (id, group) = (id(&usage.container).unwrap_or_default(), groups.container(&usage.container));
            all.push(Measured { requests, group, ..of_container(&entry.pod, &names, &cgroup, id, usage) });
        }
    }
    ([(header::CONTENT_TYPE, api_metrics::TEXT_FORMAT)], families(&node.machine, &all).text()).into_response()
}

/// The machine. Blocks.
fn machine(node: &Node, interfaces: &HashMap<String, Traffic>) -> Measured {
    let now = api_clock::now();
    let usage = MachineUsage::read(now, &node.config.proc_dir);
    let swap = Swap { usage_bytes: usage.swap_bytes.saturating_sub(usage.swap_free_bytes), limit_bytes: Some(usage.swap_bytes) };
    let own = stats::machine_interfaces(node, interfaces).into_iter();
    Measured {
        id: "/".to_owned(),
        group: GroupUsage { swap: Some(swap), pressures: usage.pressures, io: pod_groups::machine_io(node) },
        stats: usage.stats,
        file_systems: file_systems(node).into_iter().collect(),
        interfaces: own.map(|(name, traffic)| (name.to_owned(), traffic.clone())).collect(),
        read_ms: now.as_millisecond(),
        ..Measured::nothing()
    }
}

/// The file systems of the node's data and of its images, by the name of the device.
fn file_systems(node: &Node) -> BTreeMap<String, FileSystem> {
    let dirs = [Some(node.config.data_dir.clone()), node.parts.images.dir()].into_iter().flatten();
    dirs.filter_map(|dir| Some((block_devices::of_file_system(&dir)?, file_system(&dir)?))).collect()
}

impl Measured {
    fn nothing() -> Self {
        let none = String::new;
        Self {
            container: none(),
            id: none(),
            image: none(),
            name: none(),
            pod: none(),
            namespace: none(),
            stats: Stats::default(),
            group: GroupUsage::default(),
            file_systems: Vec::new(),
            interfaces: Vec::new(),
            requests: None,
            started_ms: None,
            read_ms: 0,
            limits: Resources::default(),
        }
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        let labels = [
            ("container", &self.container),
            ("id", &self.id),
            ("image", &self.image),
            ("name", &self.name),
            ("namespace", &self.namespace),
            ("pod", &self.pod),
        ];
        labels.into_iter().map(|(label, value)| (label, value.clone())).collect()
    }
}

fn of_container(pod: &Pod, names: &PodName, cgroup: &str, id: String, usage: Usage) -> Measured {
    let declared = pod.spec.iter().flat_map(container::all).map(|(_, container)| container).find(|one| one.name == usage.container);
    Measured {
        container: usage.container,
        id: format!("/{cgroup}/{id}"),
        image: declared.and_then(|container| container.image.clone()).unwrap_or_default(),
        name: id,
        pod: names.name.clone(),
        namespace: names.namespace.clone(),
        stats: usage.stats,
        started_ms: Some(usage.started_at.as_millisecond()),
        read_ms: usage.read_at.as_millisecond(),
        limits: declared.map(|container| resources::of_container(pod, container)).unwrap_or_default(),
        ..Measured::nothing()
    }
}

fn families(machine: &Machine, all: &[Measured]) -> Families {
    let mut families = Families::default();
    let of_machine =
        || [("boot_id", machine.boot_id.clone()), ("machine_id", machine.machine_id.clone()), ("system_uuid", machine.system_uuid.clone())];
    families.gauge("machine_cpu_cores", "Number of logical CPU cores.", [(of_machine(), number(machine.cpus))]);
    families.gauge("machine_memory_bytes", "Amount of memory installed on the machine.", [(of_machine(), number(machine.memory_bytes))]);
    let cpu = all.iter().map(|one| {
        let labels = one.labels().into_iter().chain([("cpu", "total".to_owned())]);
        (labels.collect::<Vec<_>>(), Duration::from_nanos(one.stats.cpu_ns).as_secs_f64())
    });
    families.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", cpu);
    families.stamp(all.iter().map(|one| one.read_ms));
    type Value = fn(&Measured) -> Option<u64>;
    let gauges: [(&str, &str, Value); 7] = [
        ("container_memory_rss", "Size of RSS in bytes.", |one| Some(one.stats.rss_bytes)),
        ("container_memory_swap", "Container swap usage in bytes.", |one| Some(one.group.swap?.usage_bytes)),
        ("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", |one| {
            Some(one.stats.memory_bytes)
        }),
        ("container_memory_working_set_bytes", "Current working set in bytes.", |one| Some(one.stats.working_set_bytes)),
        ("container_processes", "Number of processes running inside the container.", |one| Some(one.stats.pids).filter(|pids| *pids > 0)),
        ("container_spec_memory_limit_bytes", "Memory limit for the container.", |one| Some(one.limits.memory_limit_bytes.unwrap_or(0))),
        ("container_spec_cpu_period", "CPU period of the container.", |one| one.limits.cpu_quota_us.and(one.limits.cpu_period_us)),
    ];
    for (name, help, value) in gauges {
        let (measured, values): (Vec<&Measured>, Vec<u64>) = all.iter().filter_map(|one| Some((one, value(one)?))).unzip();
        families.gauge(name, help, measured.iter().zip(values).map(|(one, value)| (one.labels(), number(value))));
        families.stamp(measured.iter().map(|one| one.read_ms));
    }
    let quotas = all.iter().filter_map(|one| Some((one.labels(), one.limits.cpu_quota_us? as f64)));
    families.gauge("container_spec_cpu_quota", "CPU quota of the container.", quotas);
    let starts = all.iter().filter_map(|one| Some((one.labels(), one.started_ms? as f64 / 1_000.0)));
    families.gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", starts);
    groups::add_disks(&mut families, all);
    groups::add_pressure(&mut families, all);
    add_network(&mut families, all);
    add_requests(&mut families, all);
    families
}

/// The network of Pods and of the machine.
fn add_network(families: &mut Families, all: &[Measured]) {
    type Part = fn(&Traffic) -> &Direction;
    type Value = fn(&Direction) -> u64;
    let directions: [(&str, &str, &str, Part); 2] = [
        ("receive", "received", "receiving", |traffic| &traffic.received),
        ("transmit", "transmitted", "transmitting", |traffic| &traffic.sent),
    ];
    for (name, done, doing, part) in directions {
        let counters: [(&str, String, Value); 4] = [
            ("bytes", format!("bytes {done}"), |direction| direction.bytes),
            ("packets", format!("packets {done}"), |direction| direction.packets),
            ("errors", format!("errors encountered while {doing}"), |direction| direction.errors),
            ("packets_dropped", format!("packets dropped while {doing}"), |direction| direction.dropped),
        ];
        for (what, counted, value) in counters {
            let series = all.iter().flat_map(|one| one.interfaces.iter().map(move |interface| (one, interface)));
            let series = series.map(|(one, (interface, traffic))| {
                let labels = one.labels().into_iter().chain([("interface", interface.clone())]);
                (labels.collect::<Vec<_>>(), number(value(part(traffic))))
            });
            families.counter(&format!("container_network_{name}_{what}_total"), &format!("Cumulative count of {counted}"), series);
            families.stamp(all.iter().flat_map(|one| one.interfaces.iter().map(|_| one.read_ms)));
        }
    }
}

/// The HTTP requests of the containers that count them. cAdvisor has no such families.
fn add_requests(families: &mut Families, all: &[Measured]) {
    let counted: Vec<(&Measured, HttpRequests)> = all.iter().filter_map(|one| Some((one, one.requests?))).collect();
    let series = |value: fn(&HttpRequests) -> u64| counted.iter().map(move |(one, requests)| (one.labels(), number(value(requests))));
    let (received, rejected, in_flight) = (
        "HTTP requests to a container whose runtime serves them (wasi:http), without probes of the node.",
        "HTTP requests that were answered with 503 because the container had no room for them.",
        "HTTP requests that wait, are handled, or whose answer is being sent.",
    );
    families.counter("skiff_container_http_requests_total", received, series(|requests| requests.received));
    families.counter("skiff_container_http_requests_rejected_total", rejected, series(|requests| requests.rejected));
    families.gauge("skiff_container_http_requests_in_flight", in_flight, series(|requests| requests.in_flight));
}

#[cfg(test)]
mod tests {
    use runtimes_host::cgroup::{DeviceIo, Pressure, Pressures, Stall};

    use super::*;

    /// A group that has waited for CPUs, and has read and written.
    fn group() -> GroupUsage {
        let stall = |total_us| Stall { total_us, avg10: 1.5, avg60: 0.5, avg300: 0.0 };
        let cpu = Pressure { some: stall(1_500_000), full: stall(250_000) };
        let io = DeviceIo { major: 253, minor: 0, read_bytes: 4_096, written_bytes: 8_192, reads: 1, writes: 2 };
        GroupUsage {
            swap: Some(Swap { usage_bytes: 512, limit_bytes: None }),
            pressures: Pressures { cpu: Some(cpu), ..Pressures::default() },
            io: vec![("/dev/vda".to_owned(), io)],
        }
    }

    #[test]
    fn the_text_is_cadvisors() {
        let machine = Machine { cpus: 2, memory_bytes: 1 << 30, boot_id: "b".to_owned(), ..Machine::default() };
        let limits = Resources {
            memory_limit_bytes: Some(1 << 20),
            cpu_quota_us: Some(5_000),
            cpu_period_us: Some(100_000),
            ..Resources::default()
        };
        let container = Measured {
            container: "c".to_owned(),
            id: "/skiff/sk1/burstable/podu/1f".to_owned(),
            image: "web:1".to_owned(),
            name: "1f".to_owned(),
            pod: "web".to_owned(),
            namespace: "default".to_owned(),
            stats: Stats { cpu_ns: 1_500_000_000, memory_bytes: 4_096, working_set_bytes: 2_048, pids: 3, ..Stats::default() },
            group: group(),
            file_systems: Vec::new(),
            interfaces: vec![(POD_INTERFACE.to_owned(), Traffic::default())],
            requests: Some(HttpRequests { received: 12, rejected: 2, in_flight: 3 }),
            started_ms: Some(100_000),
            read_ms: 200_000,
            limits,
        };
        let fs = FileSystem { bytes: 1_000, free_bytes: 400, all_free_bytes: 500, inodes: 90, free_inodes: 30 };
        let file_systems = vec![("/dev/vda1".to_owned(), fs)];
        let root = Measured { id: "/".to_owned(), read_ms: 200_001, file_systems, ..Measured::nothing() };
        insta::assert_snapshot!(families(&machine, &[root, container]).text());
    }
}
