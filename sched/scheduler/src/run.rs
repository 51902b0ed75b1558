//! The loop of the scheduler: one task handles the changes of the informers and the results of the bindings, and runs one
//! cycle after the other while Pods are active.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_client::error::chain;
use api_client::events::Recorder;
use api_client::informer::{Batch, Informers, ObjectKey};
use api_client::lease::{Election, lead};
use api_tasks::{TaskFailure, Tasks};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use sched_framework::{ClusterEvent, DisruptionBudget, PodInfo, Preemption};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bind::{BindingResult, Writer};
use crate::cache::Cache;
use crate::cycle::{self, Failure, Nomination, Progress};
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
        progress: Progress::default(),
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

/// What a write ended with.
enum Finished {
    /// The binding of a Pod.
    Binding(Arc<PodInfo>, BindingResult),
    /// The deletion of the Pods that were preempted for a Pod.
    Preemption(Arc<PodInfo>, PreemptionResult),
}

/// The result of a preemption.
struct PreemptionResult {
    preemption: Preemption,
    /// The events that may make the Pod fit.
    events: HashSet<ClusterEvent>,
    /// Whether all victims are being deleted.
    is_complete: bool,
}

struct Scheduler {
    config: Config,
    profile: Profile,
    cache: Cache,
    queue: SchedulingQueue,
    progress: Progress,
    writer: Writer,
    writes: JoinSet<()>,
    finished: mpsc::Sender<Finished>,
    /// The UIDs of the Pods at their last change: a Pod may be deleted and created again under the same name.
    uids: HashMap<ObjectKey, String>,
}

impl Scheduler {
    async fn run(mut self, informers: &Informers, mut results: mpsc::Receiver<Finished>, cancel: CancellationToken) {
        let (mut nodes, mut pods) = (informers.informer::<Node>().changes(), informers.informer::<Pod>().changes());
        let mut namespaces = informers.informer::<Namespace>().changes();
        let mut budgets = informers.informer::<PodDisruptionBudget>().changes();
        // A cycle before the first lists are complete would know a part of the cluster only.
        let (mut has_nodes, mut has_pods, mut has_namespaces, mut has_budgets) = (false, false, false, false);
        loop {
            let flush_at = self.queue.next_flush();
            let has_all = has_nodes && has_pods && has_namespaces && has_budgets;
            let may_schedule = has_all && self.queue.has_active() && self.writes.len() < WRITES_IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                // A write that panicked has no result, and its Pod would stay in flight for ever.
                Some(ended) = self.writes.join_next() => drop(api_tasks::joined(ended)),
                Some(finished) = results.recv() => match finished {
                    Finished::Binding(pod, result) => self.binding_finished(&pod, result),
                    Finished::Preemption(pod, result) => self.preemption_finished(&pod, result),
                },
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
                Batch { keys, synced } = budgets.next() => {
                    for key in &keys {
                        let budget = budgets.informer().get(key);
                        self.cache.set_budget(key.to_string(), budget.map(|budget| DisruptionBudget::new(&budget)));
                    }
                    has_budgets = synced;
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
        match cycle::schedule_pod(&self.profile, &pod, self.cache.snapshot(), &mut self.progress) {
            Ok(node) => {
                tracing::debug!(pod = pod.key(), node = node.name, "node chosen");
                self.cache.assume_pod(Arc::clone(&pod), &node.name);
                let (writer, finished) = (self.writer.clone(), self.finished.clone());
                self.writes.spawn(api_tasks::named("scheduler/binding", async move {
                    let result = writer.bind(&pod, &node.name).await;
                    // The receiver is gone only at shutdown.
                    let _gone = finished.send(Finished::Binding(pod, result)).await;
                }));
            }
            Err(failure) => self.no_node(pod, *failure),
        }
    }

    fn no_node(&mut self, pod: Arc<PodInfo>, Failure { error, nomination }: Failure) {
        let message = error.to_string();
        tracing::debug!(pod = pod.key(), message, ?nomination, "no node fits");
        let events = error.events();
        let nominated = match nomination {
            Nomination::Preempts(preemption) => return self.preempt(pod, preemption, message, events),
            Nomination::Stays => None,
            Nomination::Ends => {
                self.cache.end_nomination(&pod.uid);
                Some("")
            }
        };
        self.queue.add_unschedulable_if_not_present(&pod.uid, events, Instant::now());
        let writer = self.writer.clone();
        self.writes.spawn(api_tasks::named("scheduler/status", async move { writer.unschedulable(&pod, &message, nominated).await }));
    }

    /// Nominates the Pod to the node and deletes the victims. The Pod stays in flight until their deletion is written: with a
    /// part of it, the next cycle would preempt Pods of another node.
    fn preempt(&mut self, pod: Arc<PodInfo>, preemption: Preemption, message: String, events: HashSet<ClusterEvent>) {
        let displaced: Vec<_> = self.cache.snapshot().nominated.after(&pod, &preemption.node).cloned().collect();
        for other in &displaced {
            self.cache.end_nomination(&other.uid);
            self.queue.activate(&other.uid);
        }
        self.cache.nominate(Arc::clone(&pod), &preemption.node);
        let (writer, finished) = (self.writer.clone(), self.finished.clone());
        self.writes.spawn(api_tasks::named("scheduler/preemption", async move {
            let node = &preemption.node;
            writer.unschedulable(&pod, &message, Some(node)).await;
            join_all(displaced.iter().map(|other| writer.end_nomination(other))).await;
            let ended = join_all(preemption.victims.iter().map(|victim| writer.preempt(victim, &pod, node))).await;
            let errors = ended.into_iter().filter_map(Result::err).inspect(|error| {
                tracing::warn!(pod = pod.key(), node, error = chain(error), "preemption failed");
            });
            let is_complete = errors.count() == 0;
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::Preemption(pod, PreemptionResult { preemption, events, is_complete })).await;
        }));
    }

    fn preemption_finished(&mut self, pod: &PodInfo, result: PreemptionResult) {
        if !result.is_complete {
            self.cache.end_nomination(&pod.uid);
            self.queue.move_to_backoff(&pod.uid, Instant::now());
            return;
        }
        self.queue.add_unschedulable_if_not_present(&pod.uid, result.events, Instant::now());
        // The end of a victim wakes the Pod, but not while the Pod was in flight.
        if result.preemption.victims.iter().any(|victim| self.cache.pod(&victim.uid).is_none()) {
            let is_preemptor = |waiting: &PodInfo| waiting.uid == pod.uid;
            self.queue.move_all_to_active_or_backoff(ClusterEvent::AssignedPodDelete, Instant::now(), &is_preemptor);
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
            self.nomination_read(&pod);
            self.queue.update(pod);
        }
    }

    /// Follows the Pod's `nominatedNodeName`: another scheduler, or this one before a restart, may have made room for the Pod.
    /// A nomination whose writing is under way stays.
    fn nomination_read(&mut self, pod: &Arc<PodInfo>) {
        let before = self.queue.pod(&pod.uid).map(|pod| pod.nominated_node_name.as_str()).unwrap_or_default();
        if before == pod.nominated_node_name {
            return;
        }
        if pod.nominated_node_name.is_empty() {
            self.cache.end_nomination(&pod.uid);
        } else {
            self.cache.nominate(Arc::clone(pod), &pod.nominated_node_name);
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
        let was_nominated = self.cache.end_nomination(uid);
        if self.cache.remove_pod(uid) || was_nominated {
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
            progress: Progress::default(),
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

    /// A Pod in the place of another one, which is preempted.
    fn preempting(scheduler: &mut Scheduler) -> Arc<PodInfo> {
        let of = |name: &str, priority: i32, node: Value| -> Pod {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": "4"}}});
            let spec = json!({"schedulerName": "default-scheduler", "priority": priority, "containers": [container], "nodeName": node});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})).expect("a Pod")
        };
        scheduler.node_changed(&ObjectKey::new("", "n"), Some(&node()));
        scheduler.pod_applied(&of("victim", 0, json!("n")));
        scheduler.pod_applied(&of("p", 1, Value::Null));
        scheduler.schedule_one();
        Arc::clone(scheduler.queue.pod("p").expect("waiting"))
    }

    fn finished(scheduler: &Scheduler, is_complete: bool) -> PreemptionResult {
        let victims = scheduler.cache.pod("victim").cloned().into_iter().collect();
        let preemption = Preemption { node: "n".to_owned(), victims };
        PreemptionResult { preemption, events: [ClusterEvent::AssignedPodDelete].into(), is_complete }
    }

    #[tokio::test(start_paused = true)]
    async fn a_preemptor_waits_for_the_end_of_its_victims() {
        for gone_while_in_flight in [true, false] {
            let mut scheduler = scheduler();
            let pod = preempting(&mut scheduler);
            assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), Some("n"));
            assert!(!scheduler.queue.has_active() && scheduler.queue.next_flush().is_none(), "in flight");
            let result = finished(&scheduler, true);
            if gone_while_in_flight {
                scheduler.pod_gone("victim");
                scheduler.preemption_finished(&pod, result);
            } else {
                scheduler.preemption_finished(&pod, result);
                scheduler.pod_gone("victim");
            }
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
            scheduler.queue.flush(Instant::now());
            scheduler.schedule_one();
            assert_eq!(scheduler.cache.pod_count(), 1, "assumed");
            assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), None);
        }
    }

    #[tokio::test]
    async fn a_preemption_that_failed_is_tried_again() {
        let mut scheduler = scheduler();
        let pod = preempting(&mut scheduler);
        let result = finished(&scheduler, false);
        scheduler.preemption_finished(&pod, result);
        assert_eq!(scheduler.cache.snapshot().nominated.node_of("p"), None);
        assert!(scheduler.queue.next_flush().is_some(), "in back-off");
    }

    #[tokio::test]
    async fn a_nomination_of_an_earlier_scheduler_holds_until_it_is_removed() {
        let nominated = |node: Value| {
            let mut pod = pod(Value::Null);
            pod.status = serde_json::from_value(json!({"nominatedNodeName": node})).expect("a status");
            pod
        };
        let mut scheduler = scheduler();
        scheduler.pod_applied(&nominated(json!("n")));
        assert_eq!(scheduler.cache.snapshot().nominated.node_of("u"), Some("n"));
        scheduler.pod_applied(&nominated(Value::Null));
        assert_eq!(scheduler.cache.snapshot().nominated.node_of("u"), None);
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
