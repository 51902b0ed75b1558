//! The loop of the scheduler: one task handles the changes of the informers and the results of the bindings, and runs one
//! cycle after the other while Pods are active.

use std::collections::HashMap;
use std::sync::Arc;

use api_client::error::chain;
use api_client::events::Recorder;
use api_client::informer::{Batch, Informers, ObjectKey};
use api_client::lease::{Election, lead};
use api_tasks::{TaskFailure, Tasks};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use sched_framework::{ClusterEvent, PodInfo};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bind::{BindingResult, Writer};
use crate::cache::Cache;
use crate::cycle;
use crate::plugins::Profile;
use crate::queue::SchedulingQueue;

/// The highest number of bindings and conditions that are written at the same time.
const WRITES_IN_FLIGHT_MAX: usize = 128;

/// Settings.
#[derive(Clone)]
pub struct Config {
    /// The `schedulerName` of the Pods to schedule, upstream's `default-scheduler`.
    pub scheduler_name: String,
    /// The scheduler runs only while it holds this Lease. For several servers on one store.
    pub election: Option<Election>,
}

impl Default for Config {
    fn default() -> Self {
        Self { scheduler_name: "default-scheduler".to_owned(), election: None }
    }
}

/// Schedules until cancelled. `client` writes as the scheduler.
///
/// # Errors
/// When a background task of the scheduler failed.
pub async fn run(client: kube::Client, informers: Informers, config: Config, cancel: CancellationToken) -> Result<(), TaskFailure> {
    match config.election.clone() {
        None => schedule(client, informers, config, cancel).await,
        Some(election) => {
            let leading = |term: CancellationToken| schedule(client.clone(), informers.clone(), config.clone(), term);
            // `None`: cancelled while another scheduler was the leader.
            lead(client.clone(), &election, cancel, leading).await.unwrap_or(Ok(()))
        }
    }
}

async fn schedule(client: kube::Client, informers: Informers, config: Config, cancel: CancellationToken) -> Result<(), TaskFailure> {
    let tasks = Tasks::new(cancel.clone());
    let events = Recorder::new(client.clone(), &config.scheduler_name, None, &tasks);
    let (finished, results) = mpsc::channel(WRITES_IN_FLIGHT_MAX);
    let scheduler = Scheduler {
        config,
        profile: Profile::default(),
        cache: Cache::default(),
        queue: SchedulingQueue::default(),
        next_start_node: 0,
        writer: Writer { client, events },
        writes: JoinSet::new(),
        finished,
        uids: HashMap::new(),
    };
    tokio::select! {
        () = scheduler.run(&informers, results, cancel) => Ok(()),
        failure = tasks.failed() => Err(failure),
    }
}

/// A Pod with the result of its binding.
type FinishedBinding = (Arc<PodInfo>, BindingResult);

struct Scheduler {
    config: Config,
    profile: Profile,
    cache: Cache,
    queue: SchedulingQueue,
    /// The index in the snapshot at which the next search begins.
    next_start_node: usize,
    writer: Writer,
    writes: JoinSet<()>,
    finished: mpsc::Sender<FinishedBinding>,
    /// The UIDs of the Pods at their last change: a Pod may be deleted and created again under the same name.
    uids: HashMap<ObjectKey, String>,
}

impl Scheduler {
    async fn run(mut self, informers: &Informers, mut results: mpsc::Receiver<FinishedBinding>, cancel: CancellationToken) {
        let (mut nodes, mut pods) = (informers.informer::<Node>().changes(), informers.informer::<Pod>().changes());
        let mut namespaces = informers.informer::<Namespace>().changes();
        // A cycle before the first lists are complete would know a part of the cluster only.
        let (mut has_nodes, mut has_pods, mut has_namespaces) = (false, false, false);
        loop {
            let flush_at = self.queue.next_flush();
            let may_schedule =
                has_nodes && has_pods && has_namespaces && self.queue.has_active() && self.writes.len() < WRITES_IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                // A write that panicked has no result, and its Pod would stay in flight for ever.
                Some(ended) = self.writes.join_next() => drop(api_tasks::joined(ended)),
                Some((pod, result)) = results.recv() => self.binding_finished(&pod, result),
                Batch { keys, synced } = nodes.next() => {
                    keys.iter().for_each(|key| self.node_changed(key, nodes.informer().get(key).as_deref()));
                    has_nodes = synced;
                }
                Batch { keys, synced } = namespaces.next() => {
                    for key in &keys {
                        let namespace = namespaces.informer().get(key);
                        let labels = namespace.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
                        self.cache.set_namespace(&key.name, labels);
                    }
                    has_namespaces = synced;
                }
                Batch { keys, synced } = pods.next() => {
                    keys.into_iter().for_each(|key| self.pod_changed(&key, pods.informer().get(&key).as_deref()));
                    has_pods = synced;
                }
                () = std::future::ready(()), if may_schedule => self.schedule_one(),
                () = tokio::time::sleep_until(flush_at.unwrap_or_else(Instant::now)), if flush_at.is_some() => self.queue.flush(Instant::now()),
            }
        }
        // The decisions that were made are written; the next leader makes the others.
        while self.writes.join_next().await.is_some() {}
    }

    fn schedule_one(&mut self) {
        let Some(pod) = self.queue.pop() else { return };
        match cycle::schedule_pod(&self.profile, &pod, self.cache.snapshot(), &mut self.next_start_node) {
            Ok(node) => {
                tracing::debug!(pod = pod.key(), node = node.name, "node chosen");
                self.cache.assume_pod(Arc::clone(&pod), &node.name);
                let (writer, finished) = (self.writer.clone(), self.finished.clone());
                self.writes.spawn(api_tasks::named("scheduler/binding", async move {
                    let result = writer.bind(&pod, &node.name).await;
                    // The receiver is gone only at shutdown.
                    let _gone = finished.send((pod, result)).await;
                }));
            }
            Err(error) => {
                let message = error.to_string();
                tracing::debug!(pod = pod.key(), message, "no node fits");
                self.queue.add_unschedulable_if_not_present(&pod.uid, error.events(), Instant::now());
                let writer = self.writer.clone();
                self.writes.spawn(api_tasks::named("scheduler/status", async move { writer.unschedulable(&pod, &message).await }));
            }
        }
    }

    fn binding_finished(&mut self, pod: &PodInfo, result: BindingResult) {
        match result {
            // The Pod stays in flight until the informer has it with its node: an older state of the Pod without a node must
            // not schedule it again.
            BindingResult::Bound | BindingResult::PodGone => return,
            BindingResult::Conflict => tracing::debug!(pod = pod.key(), "binding conflicted"),
            BindingResult::Failed(error) => tracing::warn!(pod = pod.key(), error = chain(&error), "binding failed"),
        }
        // A Pod that the informer has with its node is not in the queue any more: the binding was written and only its answer
        // was lost. Any other Pod is tried again.
        if self.queue.contains(&pod.uid) {
            self.cache.forget_pod(&pod.uid);
            self.queue.move_to_backoff(&pod.uid, Instant::now());
            self.move_all_to_active_or_backoff(&[ClusterEvent::AssignedPodDelete]);
        }
    }

    fn node_changed(&mut self, key: &ObjectKey, node: Option<&Node>) {
        match node {
            Some(node) => {
                let events = self.cache.update_node(node);
                self.move_all_to_active_or_backoff(&events);
            }
            None => {
                self.cache.remove_node(&key.name);
                self.move_all_to_active_or_backoff(&[ClusterEvent::NodeDelete]);
            }
        }
    }

    fn pod_changed(&mut self, key: &ObjectKey, pod: Option<&Pod>) {
        let uid = pod.map(|pod| pod.metadata.uid.clone().unwrap_or_default());
        let before = match &uid {
            Some(uid) => self.uids.insert(key.clone(), uid.clone()),
            None => self.uids.remove(key),
        };
        if let Some(gone) = before.filter(|before| uid.as_ref() != Some(before)) {
            self.pod_gone(&gone);
        }
        if let Some(pod) = pod {
            self.pod_applied(pod);
        }
    }

    fn pod_applied(&mut self, pod: &Pod) {
        let pod = Arc::new(PodInfo::new(pod));
        if pod.terminated {
            self.pod_gone(&pod.uid);
        } else if !pod.node_name.is_empty() {
            self.pod_assigned(pod);
        } else if pod.deleting || pod.gated || pod.scheduler_name != self.config.scheduler_name {
            self.pod_gone(&pod.uid);
        } else {
            self.queue.update(pod);
        }
    }

    fn pod_assigned(&mut self, pod: Arc<PodInfo>) {
        let (was_waiting, before) = (self.queue.contains(&pod.uid), self.cache.pod(&pod.uid).cloned());
        self.queue.delete(&pod.uid);
        self.cache.add_pod(Arc::clone(&pod));
        let event = match before {
            Some(before) if before.labels != pod.labels => ClusterEvent::UpdateAssignedPodLabel,
            Some(_) if !was_waiting => return,
            _ => ClusterEvent::AssignedPodAdd,
        };
        // Only Pods that follow other Pods gain by one more; a Pod with other labels may also be in nobody's way any more.
        let Self { queue, cache, .. } = self;
        let may_help =
            |waiting: &PodInfo| event == ClusterEvent::UpdateAssignedPodLabel || waiting.may_follow(&pod, &cache.snapshot().namespaces);
        queue.move_all_to_active_or_backoff(event, Instant::now(), &may_help);
    }

    fn pod_gone(&mut self, uid: &str) {
        self.queue.delete(uid);
        if self.cache.remove_pod(uid) {
            self.move_all_to_active_or_backoff(&[ClusterEvent::AssignedPodDelete]);
        }
    }

    fn move_all_to_active_or_backoff(&mut self, events: &[ClusterEvent]) {
        for event in events {
            self.queue.move_all_to_active_or_backoff(*event, Instant::now(), &|_| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A scheduler whose API server does not answer.
    fn scheduler() -> Scheduler {
        let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = kube::Client::try_from(silent).expect("a client");
        let (finished, _results) = mpsc::channel(1);
        let events = Recorder::new(client.clone(), "default-scheduler", None, &Tasks::new(CancellationToken::new()));
        Scheduler {
            config: Config::default(),
            profile: Profile::default(),
            cache: Cache::default(),
            queue: SchedulingQueue::default(),
            next_start_node: 0,
            writer: Writer { client, events },
            writes: JoinSet::new(),
            finished,
            uids: HashMap::new(),
        }
    }

    fn pod(more: Value) -> Pod {
        let spec = json!({"schedulerName": "default-scheduler", "containers": [{"name": "c"}], "nodeName": more});
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec})).expect("a Pod")
    }

    fn node() -> Node {
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).expect("a Node")
    }

    fn failures() -> [BindingResult; 2] {
        let lost = kube::Error::Service(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        [BindingResult::Conflict, BindingResult::Failed(lost)]
    }

    #[tokio::test]
    async fn a_binding_that_failed_is_tried_again() {
        for failure in failures() {
            let mut scheduler = scheduler();
            scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
            scheduler.pod_applied(&pod(Value::Null));
            scheduler.schedule_one();
            assert_eq!((scheduler.cache.pod_count(), scheduler.queue.next_flush()), (1, None), "assumed");
            scheduler.binding_finished(&PodInfo::new(&pod(Value::Null)), failure);
            assert!(scheduler.cache.pod_count() == 0 && scheduler.queue.next_flush().is_some());
        }
    }

    #[tokio::test]
    async fn a_binding_whose_answer_was_lost_stands() {
        for failure in failures() {
            let mut scheduler = scheduler();
            scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
            scheduler.pod_applied(&pod(Value::Null));
            scheduler.schedule_one();
            scheduler.pod_applied(&pod(json!("n")));
            scheduler.binding_finished(&PodInfo::new(&pod(Value::Null)), failure);
            assert_eq!((scheduler.cache.pod_count(), scheduler.queue.next_flush()), (1, None), "the informer has the Pod with its node");
        }
    }
}
