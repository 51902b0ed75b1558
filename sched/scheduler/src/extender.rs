//! The extenders of the configuration: HTTP servers that filter and prioritize the nodes of a Pod, choose the victims of a preemption,
//! and bind Pods. The wire format and the order of the calls are upstream's (`k8s.io/kube-scheduler/extender/v1`, `extender.go`).
//!
//! All of this runs in tasks of its own, for one Pod each: what comes in are names of feasible nodes or candidates of a preemption, what
//! goes out is what the extenders left of them. Whether that still fits the cluster is the scheduler's business.

mod client;
mod evaluation;
mod objects;
mod preemption;
mod wire;

use std::sync::Arc;

use api_client::error::chain;
use api_tasks::Tasks;
use sched_framework::PodInfo;

use self::client::{CallError, Connection};
use self::objects::Objects;
use crate::bind::{BindingResult, Presence, Writer};
use crate::config;

pub(crate) use self::evaluation::Evaluated;
pub(crate) use self::preemption::Proposal;

/// The extenders, in the order of their calls.
pub(crate) struct Extenders {
    extenders: Vec<Extender>,
    objects: Objects,
}

/// An extender and the connection to it.
struct Extender {
    config: config::Extender,
    connection: Connection,
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
        let extender = |config: &config::Extender| Extender { config: config.clone(), connection: Connection::new(config) };
        Some(Arc::new(Self { extenders: configured.iter().map(extender).collect(), objects }))
    }

    /// Whether an extender is called for the Pod at some time.
    pub fn is_interested(&self, pod: &PodInfo) -> bool {
        self.interested(pod).next().is_some()
    }

    /// Whether extenders filter or prioritize the nodes of the Pod.
    pub fn judges(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|extender| !extender.config.filter_verb.is_empty() || !extender.config.prioritize_verb.is_empty())
    }

    /// Whether extenders choose the victims of a preemption for the Pod.
    pub fn preempts(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|extender| !extender.config.preempt_verb.is_empty())
    }

    /// Whether an extender binds the Pod.
    pub fn binds(&self, pod: &PodInfo) -> bool {
        self.interested(pod).any(|extender| !extender.config.bind_verb.is_empty())
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

    /// Upstream's `IsInterested`. A container's limit of an extended resource is its request too.
    fn interested<'e>(&'e self, pod: &'e PodInfo) -> impl Iterator<Item = &'e Extender> {
        self.extenders.iter().filter(|extender| {
            let managed = &extender.config.managed_resources;
            managed.is_empty() || managed.iter().any(|resource| pod.requests.scalar.contains_key(resource))
        })
    }
}

impl Extender {
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
