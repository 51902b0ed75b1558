//! The Pod manager: it watches the Pods that are bound to this node, admits or rejects each new Pod, and gives each a worker.
//! It removes what an earlier agent left of Pods that do not exist any more, but only after the first complete list of Pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Batch, Changes, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::admit;
use crate::enforce;
use crate::error::chain;
use crate::eviction::{self, Eviction};
use crate::layout::PodName;
use crate::leftovers::{self, Leftovers};
use crate::node::{Entry, Node};
use crate::resize;
use crate::worker::adopt::RuntimeContainer;
use crate::worker::{Desired, Worker};

/// The wait before a worker that panicked is replaced: the cause may make the next one panic too.
const REPLACED_AFTER: Duration = Duration::from_secs(5);

/// The number of heartbeats of the loop in the time after which it counts as blocked.
const SIGNS_OF_LIFE: u32 = 4;

/// One worker's handle.
struct Handle {
    desired: watch::Sender<Desired>,
    /// Whether the Pod counts in admission: it was admitted and has not ended.
    taken: bool,
    /// Why it was turned away.
    rejection: Option<admit::Rejection>,
}

/// The workers of a node.
pub(crate) struct Manager {
    node: Arc<Node>,
    handles: HashMap<String, Handle>,
    /// Each ends with the UID of its Pod.
    workers: JoinSet<String>,
    /// The Pod of each worker, for a worker that panicked.
    tasks: HashMap<tokio::task::Id, String>,
    leftovers: Leftovers,
    /// The Pods to evict.
    evictions: mpsc::Receiver<Eviction>,
    /// The UIDs of the Pods at their last change: a Pod may be deleted and created again under the same name.
    uids: HashMap<ObjectKey, String>,
    /// Whether the first list was processed.
    listed: bool,
    removals: JoinSet<()>,
    cancel: CancellationToken,
}

impl Manager {
    pub(crate) fn new(node: Arc<Node>, leftovers: Leftovers, evictions: mpsc::Receiver<Eviction>, cancel: CancellationToken) -> Self {
        let (workers, removals) = (JoinSet::new(), JoinSet::new());
        let (handles, tasks, uids) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { node, handles, workers, tasks, leftovers, evictions, uids, listed: false, removals, cancel }
    }

    /// Runs until cancelled; containers continue to run then. `pods` are those of this node.
    pub(crate) async fn run(mut self, mut pods: Changes<Pod>) {
        let mut turns = tokio::time::interval(self.node.config.sync_loop_max / SIGNS_OF_LIFE);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.node.pulse.beat();
            tokio::select! {
                () = self.cancel.cancelled() => break,
                Batch { keys, synced } = pods.next() => {
                    for key in keys {
                        let pod = pods.informer().get(&key);
                        self.changed(key, pod).await;
                    }
                    if synced && !self.listed {
                        self.first_list_done();
                    }
                }
                _ = turns.tick() => {}
                Some(eviction) = self.evictions.recv() => self.evict(eviction),
                Some(ended) = self.workers.join_next_with_id() => self.ended(ended),
                Some(removed) = self.removals.join_next() => {
                    if let Err(error) = removed {
                        // The failure was logged where it happened; the next start removes the rest.
                        tracing::debug!(%error, "removing a leftover died");
                    }
                }
            }
        }
        while self.workers.join_next().await.is_some() {}
    }

    async fn changed(&mut self, key: ObjectKey, pod: Option<Arc<Pod>>) {
        let uid = pod.as_deref().map(|pod| PodName::of(pod).uid);
        let before = match &uid {
            Some(uid) => self.uids.insert(key, uid.clone()),
            None => self.uids.remove(&key),
        };
        if let Some(gone) = before.filter(|before| uid.as_ref() != Some(before)) {
            self.gone(&gone);
        }
        if let Some(pod) = pod {
            self.apply(pod).await;
        }
    }

    async fn apply(&mut self, pod: Arc<Pod>) {
        let uid = PodName::of(&pod).uid;
        if let Some(handle) = self.handles.get_mut(&uid) {
            handle.taken &= !is_over(&pod);
            handle.desired.send_modify(|desired| desired.pod = pod);
            return;
        }
        let found = self.leftovers.take(&uid);
        let (sender, desired) = watch::channel(Desired { pod: pod.clone(), gone: false, eviction: None });
        let verdict = self.admission(&pod, &found);
        let taken = verdict.is_ok() && !is_over(&pod);
        let (node, cancel) = (self.node.clone(), self.cancel.child_token());
        self.handles.insert(uid.clone(), Handle { desired: sender, taken, rejection: verdict.clone().err() });
        if taken {
            self.node.directory.publish(&uid, Entry::taken(&pod));
        }
        tracing::debug!(pod = %PodName::of(&pod), adopted = found.len(), "pod seen");
        self.begin(uid, async move {
            match verdict {
                Ok(()) => Worker::adopting(node, desired, found, cancel).await.run().await,
                Err(rejection) => Worker::rejected(node, desired, &rejection.reason, &rejection.message, cancel).run().await,
            }
        });
    }

    fn begin(&mut self, uid: String, work: impl Future<Output = ()> + Send + 'static) {
        let whose = uid.clone();
        let task = self.workers.spawn(api_tasks::named("node-agent/pod-worker", async move {
            work.await;
            uid
        }));
        self.tasks.insert(task.id(), whose);
    }

    /// A worker has ended: by itself when its Pod is gone, or because of a panic. After a panic the Pod gets another worker,
    /// which adopts the running containers as after a restart of the agent.
    fn ended(&mut self, ended: Result<(tokio::task::Id, String), tokio::task::JoinError>) {
        let error = match ended {
            Ok((task, uid)) => {
                self.tasks.remove(&task);
                self.handles.remove(&uid);
                return;
            }
            Err(error) => error,
        };
        let Some(uid) = self.tasks.remove(&error.id()) else { return };
        let Some(handle) = self.handles.get(&uid) else { return };
        let desired = handle.desired.subscribe();
        // The panic was logged where it happened.
        tracing::warn!(pod = %PodName::of(&desired.borrow().pod), "the worker of a Pod is replaced soon");
        let (node, cancel, rejection) = (self.node.clone(), self.cancel.child_token(), handle.rejection.clone());
        let of = uid.clone();
        self.begin(uid, async move {
            if cancel.run_until_cancelled(tokio::time::sleep(REPLACED_AFTER)).await.is_none() {
                return;
            }
            if let Some(rejection) = rejection {
                return Worker::rejected(node, desired, &rejection.reason, &rejection.message, cancel).run().await;
            }
            let Some(found) = cancel.run_until_cancelled(found_again(&node, &of)).await else { return };
            Worker::adopting(node, desired, found, cancel).await.run().await;
        });
    }

    /// A Pod that already runs here, or has ended, is not weighed again.
    fn admission(&self, pod: &Pod, found: &[RuntimeContainer]) -> Result<(), admit::Rejection> {
        let begun = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        if !found.is_empty() || begun || is_over(pod) || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let refused = eviction::refusal(pod, *self.node.pressure.borrow()).or_else(|| enforce::rejection(pod, enforce::has_selinux()));
        if let Some(rejection) = refused {
            return Err(rejection);
        }
        let others: Vec<Arc<Pod>> =
            self.handles.values().filter(|handle| handle.taken).map(|handle| resize::counted(&handle.desired.borrow().pod)).collect();
        let others: Vec<&Pod> = others.iter().map(Arc::as_ref).collect();
        let this = self.node.objects.node(&self.node.config.node_name);
        admit::admit(pod, &others, this.as_deref(), self.node.allocatable(), self.node.config.pods_max)
    }

    /// A Pod that is gone by now needs no eviction.
    fn evict(&mut self, eviction: Eviction) {
        if let Some(handle) = self.handles.get_mut(&eviction.uid) {
            handle.desired.send_modify(|desired| desired.eviction = Some(eviction));
        }
    }

    fn gone(&mut self, uid: &str) {
        if let Some(handle) = self.handles.get_mut(uid) {
            handle.taken = false;
            handle.desired.send_modify(|desired| desired.gone = true);
        }
    }

    /// The first list is complete: leftovers of an earlier agent from other Pods are removed.
    fn first_list_done(&mut self) {
        self.listed = true;
        let leftovers = self.leftovers.drain();
        let uids: BTreeSet<&str> = self.handles.keys().chain(leftovers.keys()).map(String::as_str).collect();
        let of_others = leftovers::logs_of_others(&self.node, &uids);
        self.removals.spawn(api_tasks::named("node-agent/leftover-logs", leftovers::forget_logs(of_others)));
        for (uid, found) in leftovers {
            tracing::info!(uid, containers = found.len(), "removing what a Pod left that is no more");
            let removal = leftovers::remove(self.node.clone(), uid, found, self.cancel.clone());
            self.removals.spawn(api_tasks::named("node-agent/leftovers", removal));
        }
        self.node.directory.completed();
        // Workers that waited for the list continue.
        self.handles.values().for_each(|handle| handle.desired.send_modify(|_| {}));
    }
}

/// The containers of a Pod in all runtimes; tries again until they answer.
async fn found_again(node: &Node, uid: &str) -> Vec<RuntimeContainer> {
    loop {
        match leftovers::of_pod(node, uid).await {
            Ok(found) => return found,
            Err(error) => tracing::warn!(uid, error = chain(&error), "containers not listed"),
        }
        tokio::time::sleep(REPLACED_AFTER).await;
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
