//! Counts the HTTP requests to the Pods of Services that scale with them, and reports them in the Lease of the node.
//!
//! The controller of ScaledObjects marks such a Service ([`REQUESTS_COUNTED_BY`]). Its containers are those of this node's Pods that it
//! selects, in its own namespace. The runtime that serves their requests counts these; this part reads the counters periodically, and
//! only of marked Services. It does not know which Service a request was sent to: a Pod of two Services counts for both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api_client::demand::rates::{Means, Rates};
use api_client::demand::writer::{PERIOD, ReportWriter};
use api_client::demand::{Measurement as _, REQUESTS_COUNTED_BY, Report, Requests};
use api_client::informer::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use runtimes_contract::{ContainerId, ContentKind, HttpRequests, RuntimeError};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::error::chain;
use crate::node::Node;
use crate::stats;

/// Who writes the report.
const COMPONENT: &str = "kubelet";
/// Marked Services of one namespace that are looked at.
const SERVICES_OF_NAMESPACE_MAX: usize = 256;

/// A container that runs, and may serve requests.
#[derive(Clone, Debug)]
struct Candidate {
    pod: Arc<Pod>,
    id: ContainerId,
    handler: String,
    /// The start of the container.
    started_at: Option<Timestamp>,
}

/// Reports the requests on one node.
pub(crate) struct Reporter {
    node: Arc<Node>,
    writer: ReportWriter<Requests>,
    rates: Rates,
    in_flight: Means,
    /// When the counters were last read.
    read_at: Option<Timestamp>,
}

impl Reporter {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let writer = ReportWriter::new(node.client.clone(), &node.config.node_name, COMPONENT);
        Self { node, writer, rates: Rates::default(), in_flight: Means::default(), read_at: None }
    }

    /// Reports until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.report()).await;
    }

    async fn report(&mut self) {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            self.writer.ready().await;
            let report = self.measure().await;
            // After a failure, the next period writes what is true then.
            let _is_written = self.writer.write(report).await;
        }
    }

    async fn measure(&mut self) -> Report<Requests> {
        let began = api_clock::now();
        let services = marked(self.node.objects.listed_services());
        let candidates = self.candidates(&services);
        let backends = backends(&services, &candidates);
        let counted = self.read(&candidates, backends.values().flatten().copied().collect()).await;
        self.observe(Instant::now(), &candidates, &counted);
        self.read_at = Some(began);
        let measured = backends.into_iter().map(|(service, indexes)| {
            let containers = indexes.into_iter().filter_map(|index| Some(candidates.get(index)?.id.0.as_str()));
            let requests = containers.filter(|id| counted.contains_key(*id)).map(|id| self.of_container(id));
            (service, requests.fold(Requests::default(), Requests::plus))
        });
        Report::new(measured)
    }

    /// The WASM containers that run on this node in the namespaces of the Services.
    fn candidates(&self, services: &[Arc<Service>]) -> Vec<Candidate> {
        let namespaces: HashSet<&str> = services.iter().filter_map(|service| service.metadata.namespace.as_deref()).collect();
        let mut candidates = Vec::new();
        if namespaces.is_empty() {
            return candidates;
        }
        for entry in self.node.directory.all() {
            if !entry.pod.metadata.namespace.as_deref().is_some_and(|namespace| namespaces.contains(namespace)) {
                continue;
            }
            for (name, instance) in &entry.containers {
                let Some((id, handler)) = &instance.running else { continue };
                if self.node.parts.by_handler(handler).is_some_and(|runtime| runtime.runs() == ContentKind::Wasm) {
                    let started_at = stats::started_at(&entry.status, name);
                    candidates.push(Candidate { pod: entry.pod.clone(), id: id.clone(), handler: handler.clone(), started_at });
                }
            }
        }
        candidates
    }

    /// The counters of these candidates by container; those without counters are left out.
    async fn read(&self, candidates: &[Candidate], indexes: BTreeSet<usize>) -> BTreeMap<String, HttpRequests> {
        let mut counted = BTreeMap::new();
        for Candidate { id, handler, .. } in indexes.into_iter().filter_map(|index| candidates.get(index)) {
            let Some(runtime) = self.node.parts.by_handler(handler) else { continue };
            match runtime.http_requests(id).await {
                Ok(requests) => counted.extend(requests.map(|requests| (id.0.clone(), requests))),
                // It has ended and was removed meanwhile.
                Err(RuntimeError::NotFound(_)) => {}
                Err(error) => tracing::warn!(container = %id, error = chain(&error), "HTTP requests not counted"),
            }
        }
        counted
    }

    fn observe(&mut self, now: Instant, candidates: &[Candidate], counted: &BTreeMap<String, HttpRequests>) {
        let starts: HashMap<&str, Option<Timestamp>> =
            candidates.iter().map(|candidate| (candidate.id.0.as_str(), candidate.started_at)).collect();
        let totals: BTreeMap<String, u64> = counted.iter().map(|(id, requests)| (id.clone(), requests.received)).collect();
        for (id, total) in &totals {
            let started_at = starts.get(id.as_str()).copied().flatten();
            if !self.rates.has(id) && !is_new(started_at, self.read_at) {
                self.rates.begin(now, id, *total);
            }
        }
        self.rates.observe(now, &totals);
        self.in_flight.observe(now, &counted.iter().map(|(id, requests)| (id.clone(), requests.in_flight)).collect());
    }

    fn of_container(&self, id: &str) -> Requests {
        Requests { milli_per_second: self.rates.milli_per_second(id), milli_in_flight: self.in_flight.milli(id), containers: 1 }
    }
}

/// Whether all requests of a container came after the counters were last read. A container that ran before, unread because no Service
/// was marked or because it is an earlier agent's, has not served all of them just now. A Pod's status has whole seconds.
fn is_new(started_at: Option<Timestamp>, read_at: Option<Timestamp>) -> bool {
    started_at.zip(read_at).is_some_and(|(started_at, read_at)| started_at.as_second() >= read_at.as_second())
}

/// The marked ones of the Services, a bounded number of each namespace.
fn marked(services: Vec<Arc<Service>>) -> Vec<Arc<Service>> {
    let is_marked = |service: &Arc<Service>| {
        service.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(REQUESTS_COUNTED_BY))
    };
    let mut of_namespaces: BTreeMap<Option<String>, Vec<Arc<Service>>> = BTreeMap::new();
    for service in services.into_iter().filter(is_marked) {
        of_namespaces.entry(service.metadata.namespace.clone()).or_default().push(service);
    }
    for marked in of_namespaces.values_mut().filter(|marked| marked.len() > SERVICES_OF_NAMESPACE_MAX) {
        marked.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        marked.truncate(SERVICES_OF_NAMESPACE_MAX);
    }
    of_namespaces.into_values().flatten().collect()
}

/// The candidates of each Service, by their indexes. A Service without a selector, or without candidates, is left out.
fn backends(services: &[Arc<Service>], candidates: &[Candidate]) -> BTreeMap<ObjectKey, Vec<usize>> {
    let mut backends: BTreeMap<ObjectKey, Vec<usize>> = BTreeMap::new();
    for service in services {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).filter(|selector| !selector.is_empty()) else {
            continue;
        };
        let is_selected = |pod: &Pod| {
            let labels = pod.metadata.labels.as_ref();
            let has = |(name, value): (&String, &String)| labels.and_then(|labels| labels.get(name)) == Some(value);
            pod.metadata.namespace.as_deref() == Some(namespace) && selector.iter().all(has)
        };
        let indexes: Vec<usize> =
            candidates.iter().enumerate().filter(|(_, candidate)| is_selected(&candidate.pod)).map(|(index, _)| index).collect();
        if !indexes.is_empty() {
            backends.insert(ObjectKey::new(namespace, service.metadata.name.clone().unwrap_or_default()), indexes);
        }
    }
    backends
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn candidate(namespace: &str, labels: Value) -> Candidate {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": namespace, "labels": labels}})).expect("a Pod");
        Candidate { pod: Arc::new(pod), id: ContainerId("c".to_owned()), handler: "wasmtime".to_owned(), started_at: None }
    }

    fn service(namespace: &str, name: &str, selector: Value, annotations: Value) -> Arc<Service> {
        let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": selector}})).expect("a Service"))
    }

    #[test]
    fn a_service_has_the_containers_that_it_selects_in_its_namespace() {
        let candidates = [
            candidate("default", json!({"app": "web", "tier": "front"})),
            candidate("default", json!({"app": "api"})),
            candidate("other", json!({"app": "web"})),
            candidate("default", json!(null)),
        ];
        for (namespace, selector, wanted) in [
            ("default", json!({"app": "web"}), vec![0]),
            ("default", json!({"app": "web", "tier": "back"}), vec![]),
            ("other", json!({"app": "web"}), vec![2]),
            ("third", json!({"app": "web"}), vec![]),
            ("default", json!({}), vec![]),
            ("default", json!(null), vec![]),
        ] {
            let found = backends(&[service(namespace, "s", selector.clone(), json!({}))], &candidates);
            let found: Vec<usize> = found.into_values().flatten().collect();
            assert_eq!(found, wanted, "{namespace} {selector}");
        }
        let two = [("one", json!({"app": "web"})), ("two", json!({"tier": "front"}))];
        let two = two.map(|(name, selector)| service("default", name, selector, json!({})));
        assert_eq!(backends(&two, &candidates).len(), 2, "one Pod behind two Services");
    }

    #[test]
    fn only_a_container_that_started_since_counts_from_zero() {
        let at = |second: i64| Timestamp::from_second(second).ok();
        for (started_at, read_at, wanted) in
            [(at(10), at(10), true), (at(11), at(10), true), (at(9), at(10), false), (at(9), None, false), (None, at(10), false)]
        {
            assert_eq!(is_new(started_at, read_at), wanted, "{started_at:?} {read_at:?}");
        }
    }

    #[test]
    fn marked_services_are_bounded_for_each_namespace() {
        let mark = || json!({REQUESTS_COUNTED_BY: "web"});
        let services = vec![service("default", "a", json!({}), mark()), service("default", "b", json!({}), json!({"other": "x"}))];
        assert_eq!(marked(services).len(), 1);
        let many = (0..300).rev().map(|number| service("default", &format!("s{number:03}"), json!({}), mark()));
        let many = many.chain([service("other", "o", json!({}), mark())]).collect();
        let names: Vec<_> = marked(many).into_iter().filter_map(|service| service.metadata.name.clone()).collect();
        assert_eq!((names.len(), names.first().map(String::as_str), names.last().map(String::as_str)), (257, Some("s000"), Some("o")));
    }
}
