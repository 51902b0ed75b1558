//! The manager: it watches the Pods that are bound to this node, takes or turns away each new one, and
//! gives each its worker. A wake-up carries the whole Pod; what the worker does with it is the
//! worker's. Pods that left something here and that the API does not have are removed, but only after
//! the API has said once what there is.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_client::error::is_everyday;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
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

/// Wait before a worker that died is replaced: what killed it may do so again.
const REPLACED_AFTER: Duration = Duration::from_secs(5);

/// How often the loop turns at least, as its sign of life.
const TURN_EVERY: Duration = Duration::from_secs(1);

/// One worker's handle.
struct Handle {
    desired: watch::Sender<Desired>,
    /// Counts in admission: it was taken and is not over.
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
    /// Whose each worker is, for when it cannot say so itself.
    tasks: HashMap<tokio::task::Id, String>,
    leftovers: Leftovers,
    /// Pods that have to go.
    evictions: mpsc::Receiver<Eviction>,
    /// UIDs that the list under way has named.
    listed: BTreeSet<String>,
    removals: JoinSet<()>,
    cancel: CancellationToken,
}

impl Manager {
    pub(crate) fn new(node: Arc<Node>, leftovers: Leftovers, evictions: mpsc::Receiver<Eviction>, cancel: CancellationToken) -> Self {
        let (workers, removals) = (JoinSet::new(), JoinSet::new());
        let (handles, tasks, listed) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        Self { node, handles, workers, tasks, leftovers, evictions, listed, removals, cancel }
    }

    /// Runs until cancelled; what runs goes on then.
    pub(crate) async fn run(mut self) {
        let pods: Api<Pod> = Api::all(self.node.client.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node.config.node_name));
        let mut events = std::pin::pin!(watcher(pods, config).default_backoff());
        let mut turns = tokio::time::interval(TURN_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.node.pulse.beat();
            tokio::select! {
                () = self.cancel.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.handle(event).await,
                    Some(Err(error)) if is_everyday(&error) => tracing::debug!(error = chain(&error), "the watch of Pods ended"),
                    Some(Err(error)) => tracing::warn!(error = chain(&error), "watching Pods failed"),
                    None => break,
                },
                _ = turns.tick() => {}
                Some(eviction) = self.evictions.recv() => self.evict(eviction),
                Some(ended) = self.workers.join_next_with_id() => self.ended(ended),
                Some(removed) = self.removals.join_next() => {
                    if let Err(error) = removed {
                        // Logged where it happened; the next start removes what is left.
                        tracing::debug!(%error, "removing a leftover died");
                    }
                }
            }
        }
        while self.workers.join_next().await.is_some() {}
    }

    async fn handle(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(pod) => {
                self.listed.insert(PodName::of(&pod).uid);
                self.apply(pod).await;
            }
            watcher::Event::InitDone => self.init_done(),
            watcher::Event::Apply(pod) => self.apply(pod).await,
            watcher::Event::Delete(pod) => self.gone(&PodName::of(&pod).uid),
        }
    }

    async fn apply(&mut self, pod: Pod) {
        let uid = PodName::of(&pod).uid;
        let pod = Arc::new(pod);
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

    /// A worker has ended: by itself when its Pod is gone, or because something in it panicked. Then the
    /// Pod gets another one, which takes up what runs as after a restart of the agent.
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
        // Logged where it happened.
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

    /// The API has said what there is: who is not in it is gone, and so is what an earlier agent left of
    /// it.
    fn init_done(&mut self) {
        let missing: Vec<String> = self.handles.keys().filter(|uid| !self.listed.contains(*uid)).cloned().collect();
        for uid in missing {
            self.gone(&uid);
        }
        let leftovers = self.leftovers.drain();
        let known: BTreeSet<&str> = self.handles.keys().chain(leftovers.keys()).map(String::as_str).collect();
        let of_others = leftovers::logs_of_others(&self.node, &known);
        self.removals.spawn(api_tasks::named("node-agent/leftover-logs", leftovers::forget_logs(of_others)));
        for (uid, found) in leftovers {
            tracing::info!(uid, containers = found.len(), "removing what a Pod left that is no more");
            let removal = leftovers::remove(self.node.clone(), uid, found, self.cancel.clone());
            self.removals.spawn(api_tasks::named("node-agent/leftovers", removal));
        }
        self.listed.clear();
        self.node.directory.completed();
        // What waited for that goes on.
        self.handles.values().for_each(|handle| handle.desired.send_modify(|_| {}));
    }
}

/// What the runtimes have of a Pod, asked until they answer.
async fn found_again(node: &Node, uid: &str) -> Vec<RuntimeContainer> {
    loop {
        match leftovers::of_pod(node, uid).await {
            Ok(found) => return found,
            Err(error) => tracing::warn!(uid, error, "containers not listed"),
        }
        tokio::time::sleep(REPLACED_AFTER).await;
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
