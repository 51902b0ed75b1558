//! The present use of a Pod's containers, from their runtimes.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use runtimes_contract::{ContainerId, HttpRequests, Stats};

use crate::container::files;
use crate::node::{Entry, Instance, Node};
use crate::traffic::Traffic;

/// The prefixes of interfaces that cAdvisor ignores.
const IGNORED_INTERFACES: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// The Pods that are read at once, which takes some milliseconds. The readings of a runtime have one time, that of their end.
const READ_AT_ONCE: usize = 64;

/// The use of a container that runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) container: String,
    pub(crate) started_at: Timestamp,
    /// When the use was read.
    pub(crate) read_at: Timestamp,
    pub(crate) stats: Stats,
}

/// What each container of a Pod uses that the runtime has, by name.
pub(crate) async fn container_stats(node: &Node, entry: &Entry) -> Vec<(String, Stats)> {
    let mut all = Vec::new();
    for name in entry.containers.keys() {
        all.extend(read(node, entry, name).await.map(|stats| (name.clone(), stats)));
    }
    all
}

/// The use of each container that runs, for each of the Pods. A container that has ended, or ends meanwhile, is left out: it uses nothing.
pub(crate) async fn running(node: &Node, entries: &[Arc<Entry>]) -> Vec<Vec<Usage>> {
    let mut all = Vec::with_capacity(entries.len());
    for some in entries.chunks(READ_AT_ONCE) {
        let mut stats = HashMap::new();
        for runtime in &node.parts.runtimes {
            let of_runtime = some.iter().flat_map(|entry| entry.containers.values()).filter_map(|instance| instance.running.as_ref());
            let ids: Vec<_> = of_runtime.filter(|(_, handler)| handler == runtime.handler()).map(|(id, _)| id.clone()).collect();
            if !ids.is_empty() {
                let listed = runtime.list_stats(&ids).await;
                let read_at = api_clock::now();
                stats.extend(listed.into_iter().map(|(id, stats)| (id, (stats, read_at))));
            }
        }
        all.extend(some.iter().map(|entry| of_pod(entry, &stats)));
    }
    all
}

fn of_pod(entry: &Entry, stats: &HashMap<ContainerId, (Stats, Timestamp)>) -> Vec<Usage> {
    let usage = |(name, instance): (&String, &Instance)| {
        let started_at = started_at(&entry.status, name)?;
        let (stats, read_at) = stats.get(&instance.running.as_ref()?.0).filter(|(stats, _)| *stats != Stats::default())?.clone();
        Some(Usage { container: name.clone(), started_at, read_at, stats })
    };
    entry.containers.iter().filter_map(usage).collect()
}

async fn read(node: &Node, entry: &Entry, container: &str) -> Option<Stats> {
    let (id, handler) = entry.containers.get(container)?.running.as_ref()?;
    let stats = node.parts.by_handler(handler)?.stats(id).await;
    stats.inspect_err(|error| tracing::debug!(container = %id, %error, "no stats")).ok()
}

/// The HTTP requests of a container that runs; `None` if its runtime does not serve them.
pub(crate) async fn http_requests(node: &Node, entry: &Entry, container: &str) -> Option<HttpRequests> {
    let (id, handler) = entry.containers.get(container)?.running.as_ref()?;
    let requests = node.parts.by_handler(handler)?.http_requests(id).await;
    requests.inspect_err(|error| tracing::debug!(container = %id, %error, "no HTTP requests")).ok().flatten()
}

/// The start of a container's present instance; `None` if no instance runs.
pub(crate) fn started_at(status: &PodStatus, container: &str) -> Option<Timestamp> {
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == container)?;
    found.state.as_ref()?.running.as_ref()?.started_at.as_ref().map(|time| time.0)
}

/// The traffic of a Pod with a network of its own, as the node's end of its interface counts it.
pub(crate) fn traffic(node: &Node, entry: &Entry, interfaces: &HashMap<String, Traffic>) -> Option<Traffic> {
    let ip = entry.ip.filter(|_| !files::on_host_network(entry.pod.spec.as_ref()))?;
    Some(interfaces.get(&node.parts.network.interface(ip)?)?.of_other_end())
}

/// The interfaces of the machine by name, without those that cAdvisor ignores and those that Skiff has made for Pods.
pub(crate) fn machine_interfaces<'a>(node: &Node, interfaces: &'a HashMap<String, Traffic>) -> Vec<(&'a str, &'a Traffic)> {
    let is_machines =
        |name: &str| !IGNORED_INTERFACES.iter().any(|prefix| name.starts_with(prefix)) && !node.parts.network.owns_interface(name);
    let mut own: Vec<_> = interfaces.iter().map(|(name, traffic)| (name.as_str(), traffic)).filter(|(name, _)| is_machines(name)).collect();
    own.sort_by_key(|(name, _)| *name);
    own
}

/// The sum over the containers of a Pod.
pub(crate) fn sum(usage: &[Usage]) -> Stats {
    usage.iter().fold(Stats::default(), |sum, Usage { stats, .. }| Stats {
        cpu_ns: sum.cpu_ns.saturating_add(stats.cpu_ns),
        memory_bytes: sum.memory_bytes.saturating_add(stats.memory_bytes),
        working_set_bytes: sum.working_set_bytes.saturating_add(stats.working_set_bytes),
        rss_bytes: sum.rss_bytes.saturating_add(stats.rss_bytes),
        page_faults: sum.page_faults.saturating_add(stats.page_faults),
        major_page_faults: sum.major_page_faults.saturating_add(stats.major_page_faults),
        pids: sum.pids.saturating_add(stats.pids),
    })
}
