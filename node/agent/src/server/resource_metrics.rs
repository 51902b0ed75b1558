//! `/metrics/resource`: the CPU and the memory of the node, its Pods and their containers, under the kubelet's names. A metrics
//! server reads this path.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api_metrics::{Families, number};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;

use crate::layout::PodName;
use crate::machine::{self, Memory};
use crate::node::Node;
use crate::stats::{self, Usage};

/// Answers the path.
pub(super) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let entries = node.directory.all();
    let running = stats::running(&node, &entries).await;
    let pods: Vec<_> = entries.iter().map(|entry| PodName::of(&entry.pod)).zip(running).collect();
    let own = NodeUsage::read(&node.config.proc_dir);
    ([(header::CONTENT_TYPE, api_metrics::TEXT_FORMAT)], families(&own, &pods).text()).into_response()
}

/// The use of the whole machine.
struct NodeUsage {
    read_at: Timestamp,
    /// `None` when the kernel does not say it.
    cpu: Option<Duration>,
    working_set_bytes: u64,
}

impl NodeUsage {
    fn read(proc_dir: &Path) -> Self {
        let Memory { total, available } = Memory::read(proc_dir);
        Self { read_at: api_clock::now(), cpu: machine::cpu_time(), working_set_bytes: total.saturating_sub(available) }
    }
}

/// The families in upstream's order. Each value has the time at which it was read.
fn families(node: &NodeUsage, pods: &[(PodName, Vec<Usage>)]) -> Families {
    let mut families = Families::default();
    let cpu = node.cpu.map(|cpu| ([], cpu.as_secs_f64()));
    families.counter("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", cpu);
    families.stamp([node.read_at.as_millisecond()]);
    let memory = [([], number(node.working_set_bytes))];
    families.gauge("node_memory_working_set_bytes", "Current working set of the node in bytes", memory);
    families.stamp([node.read_at.as_millisecond()]);
    of_containers(&mut families, pods);
    of_pods(&mut families, pods);
    // Values that cannot be read are left out one by one, so the answer as a whole has no error.
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    families.gauge("resource_scrape_error", help, [([], 0.0)]);
    families.gauge("scrape_error", help, [([], 0.0)]);
    families
}

fn of_containers(families: &mut Families, pods: &[(PodName, Vec<Usage>)]) {
    let all = || pods.iter().flat_map(|(names, usage)| usage.iter().map(move |usage| (names, usage)));
    let labels = |names: &PodName, usage: &Usage| {
        [("container", usage.container.clone()), ("namespace", names.namespace.clone()), ("pod", names.name.clone())]
    };
    let times = || all().map(|(_, usage)| usage.read_at.as_millisecond());
    families.gauge(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds",
        all().map(|(names, usage)| (labels(names, usage), usage.started_at.as_millisecond() as f64 / 1_000.0)),
    );
    families.counter(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed by the container in core-seconds",
        all().map(|(names, usage)| (labels(names, usage), seconds(usage.stats.cpu_ns))),
    );
    families.stamp(times());
    families.gauge(
        "container_memory_working_set_bytes",
        "Current working set of the container in bytes",
        all().map(|(names, usage)| (labels(names, usage), number(usage.stats.working_set_bytes))),
    );
    families.stamp(times());
}

/// A Pod is the sum of its containers.
fn of_pods(families: &mut Families, pods: &[(PodName, Vec<Usage>)]) {
    let all = || pods.iter().filter_map(|(names, usage)| Some((names, usage.first()?.read_at, stats::sum(usage))));
    let labels = |names: &PodName| [("namespace", names.namespace.clone()), ("pod", names.name.clone())];
    let times = || all().map(|(_, read_at, _)| read_at.as_millisecond());
    families.counter(
        "pod_cpu_usage_seconds_total",
        "Cumulative cpu time consumed by the pod in core-seconds",
        all().map(|(names, _, sum)| (labels(names), seconds(sum.cpu_ns))),
    );
    families.stamp(times());
    families.gauge(
        "pod_memory_working_set_bytes",
        "Current working set of the pod in bytes",
        all().map(|(names, _, sum)| (labels(names), number(sum.working_set_bytes))),
    );
    families.stamp(times());
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtimes_contract::Stats;

    #[test]
    fn the_text_is_a_kubelets() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let stats = Stats { cpu_ns: 1_500_000_000, memory_bytes: 4_096, working_set_bytes: 2_048, pids: 1, ..Stats::default() };
        let usage =
            |container: &str| Usage { container: container.to_owned(), started_at: at(100), read_at: at(200), stats: stats.clone() };
        let names = |name: &str| PodName { namespace: "default".to_owned(), name: name.to_owned(), uid: String::new() };
        let pods = [(names("web"), vec![usage("a"), usage("b")]), (names("over"), Vec::new())];
        let node = NodeUsage { read_at: at(300), cpu: Some(Duration::from_millis(12_250)), working_set_bytes: 1 << 30 };
        insta::assert_snapshot!(families(&node, &pods).text());
    }
}
