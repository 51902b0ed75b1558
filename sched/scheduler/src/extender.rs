//! The extenders of the configuration: HTTP servers that filter and prioritize the nodes of a Pod, choose the victims of a preemption,
//! and bind Pods. The wire format and the order of the calls are upstream's (`k8s.io/kube-scheduler/extender/v1`, `extender.go`).
//!
//! All of this runs in tasks of its own, for one Pod each: what comes in are names of feasible nodes or candidates of a preemption, what
//! goes out is what the extenders left of them. Whether that still fits the cluster is the scheduler's business.

mod client;
mod evaluation;
mod objects;
mod preemption;
mod visits;
mod wire;

use std::sync::Arc;

use api_client::error::chain;
use api_tasks::Tasks;
use sched_framework::PodInfo;
use tokio::sync::Notify;

use self::client::{CallError, Connection};
use self::objects::Objects;
use self::visits::Visits;
use crate::bind::{BindingResult, Presence, Writer};
use crate::config;

pub(crate) use self::evaluation::Evaluated;
pub(crate) use self::preemption::Proposal;
#[cfg(test)]
pub(crate) use self::visits::VISITS_MAX;
pub(crate) use self::visits::Visit;

/// The extenders, in the order of their calls.
pub(crate) struct Extenders {
    extenders: Vec<Extender>,
    objects: Objects,
    visit_ended: Arc<Notify>,
}

/// An extender and the connection to it.
struct Extender {
    config: config::Extender,
    connection: Connection,
    visits: Arc<Visits>,
}

impl Extenders {
    /// The extenders of a configuration; `None` when it has none. `client` reads whole Pods and Nodes as the scheduler.
    pub fn new(configured: &[config::Extender], client: &kube::Client, tasks: &Tasks) -> Option<Arc<Self>> {
        if configured.is_empty() {
            return None;
        }
        let get_nodes = |config: &config::Extender| {
            !config.node_cache_capable && (!config.filter_verb.is_empty() || !config.prioritize_verb.is_empty())
        };
        let objects = Objects::new(client, configured.iter().any(get_nodes), tasks);
        let visit_ended = Arc::new(Notify::new());
        let extender = |config: &config::Extender| {
            let (connection, visits) = (Connection::new(config), Visits::new(&visit_ended));
            Extender { config: config.clone(), connection, visits }
        };
        Some(Arc::new(Self { extenders: configured.iter().map(extender).collect(), objects, visit_ended }))
    }

    /// The indexes of the extenders that are called for the Pod, when the Pod must wait because one of them is called for too many Pods.
    pub fn waits_for(&self, pod: &PodInfo) -> Option<Vec<usize>> {
        if self.extenders.iter().all(|extender| extender.visits.has_room()) || self.interested(pod).all(|one| one.visits.has_room()) {
            return None;
        }
        let indexes = self.extenders.iter().enumerate().filter(|(_, extender)| extender.is_interested(pod));
        Some(indexes.map(|(index, _)| index).collect())
    }

    /// Whether a Pod may begin that these extenders are called for.
    pub fn have_room(&self, indexes: &[usize]) -> bool {
        indexes.iter().filter_map(|index| self.extenders.get(*index)).all(|extender| extender.visits.has_room())
    }

    /// Waits until a Pod leaves an extender.
    pub async fn visit_ended(&self) {
        self.visit_ended.notified().await;
    }

    /// Begins the Pod's visit of the first extender that judges its nodes.
    pub fn begin_judging(&self, pod: &PodInfo) -> Option<Visit> {
        let filtering = self.interested(pod).find(|extender| !extender.config.filter_verb.is_empty());
        let prioritizing = || self.interested(pod).find(|extender| !extender.config.prioritize_verb.is_empty());
        filtering.or_else(prioritizing).map(Extender::visit)
    }

    /// Begins the Pod's visit of the first extender that chooses victims.
    pub fn begin_preemption(&self, pod: &PodInfo) -> Option<Visit> {
        self.interested(pod).find(|extender| !extender.config.preempt_verb.is_empty()).map(Extender::visit)
    }

    /// Begins the Pod's visit of the extender that binds it.
    pub fn begin_binding(&self, pod: &PodInfo) -> Option<Visit> {
        self.interested(pod).find(|extender| !extender.config.bind_verb.is_empty()).map(Extender::visit)
    }

    /// Whether extenders filter or prioritize the nodes of the Pod.
    pub fn judges(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|extender| !extender.config.filter_verb.is_empty() || !extender.config.prioritize_verb.is_empty())
    }

    /// Whether extenders choose the victims of a preemption for the Pod.
    pub fn preempts(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|extender| !extender.config.preempt_verb.is_empty())
    }

    /// Binds the Pod to the node: by the extender that does so, else as without extenders.
    pub async fn bind(&self, writer: &Writer, pod: &PodInfo, node: &str) -> BindingResult {
        for extender in self.interested(pod).filter(|extender| !extender.config.bind_verb.is_empty()) {
            let result = extender.bind(pod, node).await;
            // The answer does not count, but what became of the Pod: an answer may be lost or wrong.
            match (writer.presence(pod).await, result) {
                (Ok(Presence::Bound(node)), _) => {
                    writer.bound(pod, &node);
                    return BindingResult::Bound;
                }
                (Ok(Presence::Gone), _) => return BindingResult::PodGone,
                (Ok(Presence::Waiting), Ok(())) => {
                    let name = &extender.config.name;
                    return BindingResult::Refused(format!("extender {name:?} claims to have bound the pod, which has no node"));
                }
                (Err(_), Ok(())) => {
                    writer.bound(pod, node);
                    return BindingResult::Bound;
                }
                (_, Err(error)) if extender.config.ignorable => extender.skipped("bind", pod, &error),
                (_, Err(error)) => return BindingResult::Refused(chain(&error)),
            }
        }
        writer.bind(pod, node).await
    }

    fn interested<'e>(&'e self, pod: &'e PodInfo) -> impl Iterator<Item = &'e Extender> {
        self.extenders.iter().filter(|extender| extender.is_interested(pod))
    }
}

impl Extender {
    /// Upstream's `IsInterested`. A container's limit of an extended resource is its request too.
    fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.config.managed_resources;
        managed.is_empty() || managed.iter().any(|resource| pod.requests.scalar.contains_key(resource))
    }

    fn visit(&self) -> Visit {
        Visit::begin(&self.visits)
    }

    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), CallError> {
        let args = wire::ExtenderBindingArgs { pod_name: &pod.name, pod_namespace: &pod.namespace, pod_uid: &pod.uid, node };
        let verb = &self.config.bind_verb;
        let answer = self.connection.post(verb, wire::encode(&args)).await?;
        match wire::decode(&answer, wire::ExtenderBindingResult::new).map_err(|source| self.garbage(verb, source))? {
            wire::ExtenderBindingResult { error } if error.is_empty() => Ok(()),
            wire::ExtenderBindingResult { error } => Err(CallError::refused(&error)),
        }
    }

    fn garbage(&self, verb: &str, source: serde_json::Error) -> CallError {
        CallError::Garbage { url: self.config.url(verb), source }
    }

    /// A call failed, and the Pod does without the extender.
    fn skipped(&self, call: &'static str, pod: &PodInfo, error: &CallError) {
        tracing::warn!(pod = pod.key(), extender = self.config.name, call, error = chain(error), "extender skipped");
    }
}

#[cfg(test)]
mod tests;
