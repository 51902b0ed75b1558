//! The loop: one task takes in what the watches and the bindings tell, and runs one cycle after the
//! other while Pods wait.

use std::collections::HashMap;
use std::sync::Arc;

use api_client::error::chain;
use api_client::events::Recorder;
use api_client::informer::{Batch, Informers, ObjectKey};
use api_client::lease::{Election, lead};
use api_tasks::{TaskFailure, Tasks};
use k8s_openapi::api::core::v1::{Node, Pod};
use sched_framework::{ClusterEvent, PodInfo};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bind::{Bound, Writer};
use crate::cache::Cache;
use crate::cycle;
use crate::plugins::Profile;
use crate::queue::Queue;

/// Writes under way at once.
const IN_FLIGHT_MAX: usize = 128;

/// Settings.
#[derive(Clone)]
pub struct Config {
    /// The `schedulerName` of the Pods to schedule, upstream's `default-scheduler`.
    pub scheduler_name: String,
    /// Run only while holding a Lease: for several servers on one store.
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
            // `None`: cancelled while another one led.
            lead(client.clone(), &election, cancel, leading).await.unwrap_or(Ok(()))
        }
    }
}

async fn schedule(client: kube::Client, informers: Informers, config: Config, cancel: CancellationToken) -> Result<(), TaskFailure> {
    let tasks = Tasks::new(cancel.clone());
    let events = Recorder::new(client.clone(), &config.scheduler_name, None, &tasks);
    let (finished, results) = mpsc::channel(IN_FLIGHT_MAX);
    let scheduler = Scheduler {
        config,
        profile: Profile::default(),
        cache: Cache::default(),
        queue: Queue::default(),
        start: 0,
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

/// A binding that ended: the Pod, its node, how.
type Finished = (Arc<PodInfo>, Bound);

struct Scheduler {
    config: Config,
    profile: Profile,
    cache: Cache,
    queue: Queue,
    /// Where in the snapshot the next search begins.
    start: usize,
    writer: Writer,
    writes: JoinSet<()>,
    finished: mpsc::Sender<Finished>,
    /// UIDs of the Pods that the informer had: a Pod may be created again under its name.
    uids: HashMap<ObjectKey, String>,
}

impl Scheduler {
    async fn run(mut self, informers: &Informers, mut results: mpsc::Receiver<Finished>, cancel: CancellationToken) {
        let (mut nodes, mut pods) = (informers.informer::<Node>().changes(), informers.informer::<Pod>().changes());
        // Before the first lists are complete a cycle would weigh half of the cluster.
        let (mut has_nodes, mut has_pods) = (false, false);
        loop {
            let due = self.queue.next_due();
            let may_schedule = has_nodes && has_pods && self.queue.has_active() && self.writes.len() < IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                // A write that panicked reports nothing, and its Pod would wait for it without end.
                Some(ended) = self.writes.join_next() => drop(api_tasks::joined(ended)),
                Some((pod, bound)) = results.recv() => self.bound(&pod, bound),
                Batch { keys, synced } = nodes.next() => {
                    keys.iter().for_each(|key| self.node_changed(key, nodes.informer().get(key).as_deref()));
                    has_nodes = synced;
                }
                Batch { keys, synced } = pods.next() => {
                    keys.into_iter().for_each(|key| self.pod_changed(&key, pods.informer().get(&key).as_deref()));
                    has_pods = synced;
                }
                () = std::future::ready(()), if may_schedule => self.cycle(),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.queue.tick(Instant::now()),
            }
        }
        // What was decided is written; what was not is decided by the next one in charge.
        while self.writes.join_next().await.is_some() {}
    }

    fn cycle(&mut self) {
        let Some(pod) = self.queue.take() else { return };
        match cycle::schedule(&self.profile, &pod, self.cache.snapshot(), &mut self.start) {
            Ok(node) => {
                tracing::debug!(pod = pod.key(), node = node.name, "node chosen");
                self.cache.place(Arc::clone(&pod), &node.name);
                let (writer, finished) = (self.writer.clone(), self.finished.clone());
                self.writes.spawn(api_tasks::named("scheduler/binding", async move {
                    let bound = writer.bind(&pod, &node.name).await;
                    // The receiver is gone only at shutdown.
                    let _gone = finished.send((pod, bound)).await;
                }));
            }
            Err(unfit) => {
                tracing::debug!(pod = pod.key(), message = unfit.message, "no node fits");
                self.queue.park(&pod.uid, unfit.helped_by, Instant::now());
                let writer = self.writer.clone();
                self.writes.spawn(api_tasks::named("scheduler/status", async move { writer.unschedulable(&pod, &unfit.message).await }));
            }
        }
    }

    fn bound(&mut self, pod: &PodInfo, bound: Bound) {
        match bound {
            // The queue keeps the Pod as taken until the watch shows where it is: a stale event of it
            // without a node must not schedule it again.
            Bound::Done | Bound::Moot => return,
            Bound::Conflict => tracing::debug!(pod = pod.key(), "binding conflicted"),
            Bound::Failed(error) => tracing::warn!(pod = pod.key(), error = chain(&error), "binding failed"),
        }
        // The watch may have shown by now where the Pod is (an answer can get lost on its way): then
        // that is what counts. Else it is tried again; whoever has a node leaves the queue.
        if self.queue.contains(&pod.uid) {
            self.cache.remove(&pod.uid);
            self.queue.back_off(&pod.uid, Instant::now());
            self.happened(&[ClusterEvent::PodGone]);
        }
    }

    fn node_changed(&mut self, key: &ObjectKey, node: Option<&Node>) {
        match node {
            Some(node) => {
                let events = self.cache.set_node(node);
                self.happened(&events);
            }
            None => self.cache.remove_node(&key.name),
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
            self.queue.remove(&pod.uid);
            let node = pod.node_name.clone();
            self.cache.place(pod, &node);
        } else if pod.deleting || pod.gated || pod.scheduler_name != self.config.scheduler_name {
            self.pod_gone(&pod.uid);
        } else {
            self.queue.set(pod);
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        self.queue.remove(uid);
        if self.cache.remove(uid) {
            self.happened(&[ClusterEvent::PodGone]);
        }
    }

    fn happened(&mut self, events: &[ClusterEvent]) {
        for event in events {
            self.queue.happened(*event, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A scheduler whose requests nobody answers.
    fn scheduler() -> Scheduler {
        let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = kube::Client::try_from(silent).expect("a client");
        let (finished, _results) = mpsc::channel(1);
        let events = Recorder::new(client.clone(), "default-scheduler", None, &Tasks::new(CancellationToken::new()));
        Scheduler {
            config: Config::default(),
            profile: Profile::default(),
            cache: Cache::default(),
            queue: Queue::default(),
            start: 0,
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

    fn failures() -> [Bound; 2] {
        let lost = kube::Error::Service(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        [Bound::Conflict, Bound::Failed(lost)]
    }

    #[tokio::test]
    async fn a_binding_that_failed_is_tried_again() {
        for failure in failures() {
            let mut scheduler = scheduler();
            scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
            scheduler.pod_applied(&pod(Value::Null));
            scheduler.cycle();
            assert_eq!((scheduler.cache.placed().len(), scheduler.queue.next_due()), (1, None), "assumed");
            scheduler.bound(&PodInfo::new(&pod(Value::Null)), failure);
            assert!(scheduler.cache.placed().is_empty() && scheduler.queue.next_due().is_some());
        }
    }

    #[tokio::test]
    async fn a_binding_whose_answer_was_lost_stands() {
        for failure in failures() {
            let mut scheduler = scheduler();
            scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
            scheduler.pod_applied(&pod(Value::Null));
            scheduler.cycle();
            scheduler.pod_applied(&pod(json!("n")));
            scheduler.bound(&PodInfo::new(&pod(Value::Null)), failure);
            assert_eq!((scheduler.cache.placed().len(), scheduler.queue.next_due()), (1, None), "the watch has told");
        }
    }
}
