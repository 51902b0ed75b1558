//! The Pod manager: it watches the Pods that are bound to this node, admits or rejects each new Pod, and gives each a worker.
//! It removes what an earlier agent left of Pods that do not exist any more, but only after the first complete list of Pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Batch, Changes, Informer, ObjectKey};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::admit::{self, Demand};
use crate::device_plugins;
use crate::enforce::{self, SecurityModules};
use crate::error::chain;
use crate::eviction;
use crate::layout::PodName;
use crate::leftovers::{self, Leftovers};
use crate::node::{Entry, Node};
use crate::node_shutdown;
use crate::resize;
use crate::static_pods::{self, Mirrored, Origin, StaticPods};
use crate::termination::Termination;
use crate::worker::adopt::{self, RuntimeContainer};
use crate::worker::finished::FinishedPod;
use crate::worker::{Desired, Worker};

/// The wait before a worker that panicked is replaced: the cause may make the next one panic too.
const REPLACED_AFTER: Duration = Duration::from_secs(5);

/// The number of heartbeats of the loop in the time after which it counts as blocked.
const SIGNS_OF_LIFE: u32 = 4;

/// How long static Pods wait for the API's first list, which has their status of an earlier run: when they began, and which of them have
/// ended. Without the API they begin then.
const STATIC_PODS_WAIT: Duration = Duration::from_secs(10);

/// One worker's handle.
struct Handle {
    desired: watch::Sender<Desired>,
    /// What the Pod takes of the node. `None` when it does not count in admission: it was not admitted, or has ended.
    demand: Option<Demand>,
    /// Why it was turned away.
    rejection: Option<admit::Rejection>,
    /// The Pod has ended and has no worker at present.
    finished: Option<Box<FinishedPod>>,
}

/// What the manager gets beside the Pods of the API, and whom it tells of static Pods.
pub(crate) struct Inputs {
    /// The Pods to end.
    pub(crate) terminations: mpsc::Receiver<Termination>,
    /// The Pods of the node's files.
    pub(crate) manifests: watch::Receiver<Vec<Arc<Pod>>>,
    /// The Pods that are to have mirror Pods; `None` until static Pods may begin.
    pub(crate) mirrored: watch::Sender<Option<Vec<Mirrored>>>,
}

/// The workers of a node.
pub(crate) struct Manager {
    node: Arc<Node>,
    handles: HashMap<String, Handle>,
    /// Each ends with the UID of its Pod, and what is left of one that has ended and stays in the API.
    workers: JoinSet<(String, Option<FinishedPod>)>,
    /// The Pod of each worker, for a worker that panicked.
    tasks: HashMap<tokio::task::Id, String>,
    leftovers: Leftovers,
    /// The Pods to end.
    terminations: mpsc::Receiver<Termination>,
    /// The UIDs of the Pods at their last change: a Pod may be deleted and created again under the same name.
    uids: HashMap<ObjectKey, String>,
    /// Whether the first list was processed.
    listed: bool,
    /// The Pods of this node that the API has.
    pods: Option<Informer<Pod>>,
    static_pods: StaticPods,
    /// Whether static Pods may begin.
    static_begun: bool,
    /// The Pods of the node's files.
    manifests: watch::Receiver<Vec<Arc<Pod>>>,
    /// The Pods that are to have mirror Pods.
    mirrored: watch::Sender<Option<Vec<Mirrored>>>,
    removals: JoinSet<()>,
    cancel: CancellationToken,
}

impl Manager {
    pub(crate) fn new(node: Arc<Node>, leftovers: Leftovers, inputs: Inputs, cancel: CancellationToken) -> Self {
        let (workers, removals) = (JoinSet::new(), JoinSet::new());
        let (handles, tasks, uids) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (static_pods, listed) = (StaticPods::default(), false);
        let Inputs { terminations, manifests, mirrored } = inputs;
        let (pods, static_begun) = (None, false);
        Self {
            node,
            handles,
            workers,
            tasks,
            leftovers,
            terminations,
            uids,
            listed,
            pods,
            static_pods,
            static_begun,
            manifests,
            mirrored,
            removals,
            cancel,
        }
    }

    /// Runs until cancelled; containers continue to run then. `pods` are those of this node.
    pub(crate) async fn run(mut self, mut pods: Changes<Pod>) {
        self.pods = Some(pods.informer().clone());
        let mut turns = tokio::time::interval(self.node.config.sync_loop_max / SIGNS_OF_LIFE);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let unreached = tokio::time::Instant::now() + STATIC_PODS_WAIT;
        let mut waiting = Vec::new();
        loop {
            self.node.pulse.beat();
            tokio::select! {
                () = self.cancel.cancelled() => break,
                Batch { keys, synced } = pods.next() => {
                    waiting.extend(keys);
                    if !self.listed && self.has_exclusive() {
                        if !synced {
                            continue;
                        }
                        self.release_absent(&self.present(pods.informer())).await;
                    }
                    for key in waiting.drain(..) {
                        let pod = pods.informer().get(&key);
                        self.changed(key, pod).await;
                    }
                    if synced && !self.listed {
                        // Before what is left of Pods that are no more is removed.
                        self.static_begun = true;
                        self.manifests_changed().await;
                        self.first_list_done();
                    }
                }
                () = tokio::time::sleep_until(unreached), if !self.static_begun => {
                    self.static_begun = true;
                    self.manifests_changed().await;
                }
                Ok(()) = self.manifests.changed(), if self.static_begun => self.manifests_changed().await,
                _ = turns.tick() => {}
                Some(termination) = self.terminations.recv() => self.terminate(termination),
                Some(ended) = self.workers.join_next_with_id() => self.ended(ended).await,
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

    /// Whether containers have something alone, CPUs or devices. That of Pods that are no more is returned before another Pod is admitted.
    fn has_exclusive(&self) -> bool {
        self.node.cpu_manager.is_some() || !self.node.device_plugins.pods().is_empty()
    }

    async fn release_absent(&self, present: &BTreeSet<String>) {
        if let Some(cpus) = &self.node.cpu_manager {
            cpus.release_absent(|uid| present.contains(uid), &self.node.parts).await;
        }
        for uid in self.node.device_plugins.pods().iter().filter(|uid| !present.contains(*uid)) {
            self.node.device_plugins.release(uid).await;
        }
    }

    /// The UIDs of all Pods that exist, or of which a container is left.
    fn present(&self, pods: &Informer<Pod>) -> BTreeSet<String> {
        let uid = |pod: &Arc<Pod>| PodName::of(pod).uid;
        let manifests: Vec<String> = self.manifests.borrow().iter().map(uid).collect();
        let of_api = pods.list();
        of_api.iter().map(uid).chain(manifests).chain(self.handles.keys().cloned()).chain(self.leftovers.with_containers()).collect()
    }

    /// The node's files have other Pods.
    async fn manifests_changed(&mut self) {
        let pods = self.manifests.borrow_and_update().clone();
        for action in self.static_pods.want(&pods) {
            match action {
                static_pods::Action::Begin(pod) => self.begin_static(pod).await,
                static_pods::Action::End(uid) => self.gone(&uid),
            }
        }
        self.mirrored.send_if_modified(|present| {
            let wanted = Some(self.static_pods.mirrored());
            let changed = *present != wanted;
            *present = wanted;
            changed
        });
    }

    /// Begins with the status that the API has of an earlier run.
    async fn begin_static(&mut self, pod: Arc<Pod>) {
        let mirror = self.pods.as_ref().and_then(|pods| pods.get(&ObjectKey::from(&pod.metadata)));
        let pod = mirror.and_then(|mirror| self.static_pods.beginning(&mirror)).unwrap_or(pod);
        self.apply(pod, Origin::File).await;
    }

    async fn changed(&mut self, key: ObjectKey, pod: Option<Arc<Pod>>) {
        // A mirror Pod is no Pod to run. Its static Pod takes its status, which others may write too.
        // Before the worker of a Pod that begins anew has written its status, the mirror has that of the end of the node.
        let is_stale = |mirror: &&Arc<Pod>| !self.node.is_shutting_down() && static_pods::ended_with_the_node(mirror);
        let mirror = pod.as_ref().filter(|pod| !is_stale(pod));
        if let Some(of_file) = mirror.and_then(|mirror| self.static_pods.with_status_of(mirror)) {
            self.apply(of_file, Origin::File).await;
        }
        let pod = pod.filter(|pod| static_pods::mirrored_uid(pod).is_none());
        let uid = pod.as_deref().map(|pod| PodName::of(pod).uid);
        let before = match &uid {
            Some(uid) => self.uids.insert(key, uid.clone()),
            None => self.uids.remove(&key),
        };
        if let Some(gone) = before.filter(|before| uid.as_ref() != Some(before)) {
            self.gone(&gone);
        }
        if let Some(pod) = pod {
            self.apply(pod, Origin::Api).await;
        }
    }

    async fn apply(&mut self, pod: Arc<Pod>, origin: Origin) {
        let uid = PodName::of(&pod).uid;
        if let Some(handle) = self.handles.get_mut(&uid) {
            handle.demand = handle.demand.take().filter(|_| !is_over(&pod)).map(|_| demand(&self.node, &pod));
            return self.want(&uid, |desired| desired.pod = pod);
        }
        let got_at = tokio::time::Instant::now();
        let found = self.leftovers.take(&uid);
        let (sender, desired) = watch::channel(Desired { pod: pod.clone(), origin, got_at, gone: false, termination: None });
        let verdict = self.admission(&pod, origin, &found).await;
        let is_admitted = verdict.is_ok() && !is_over(&pod);
        let (node, cancel) = (self.node.clone(), self.cancel.child_token());
        let demand = is_admitted.then(|| resize::demand(&pod));
        self.handles.insert(uid.clone(), Handle { desired: sender, demand, rejection: verdict.clone().err(), finished: None });
        if is_admitted {
            let allocation = adopt::allocation(&pod, &found);
            self.node.directory.publish(&uid, Entry::taken(&pod, &allocation, origin == Origin::File));
        }
        tracing::debug!(pod = %PodName::of(&pod), adopted = found.len(), "pod seen");
        self.begin(uid, async move {
            let verdict = Box::pin(with_devices(&node, &desired, &found, verdict, &cancel)).await?;
            match &verdict {
                Ok(()) => {
                    let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
                    node.kubelet_metrics.pods.worker_started(containers, got_at.elapsed());
                }
                Err(rejection) => node.kubelet_metrics.rejected(&rejection.reason),
            }
            work(node, desired, found, verdict, cancel).await
        });
    }

    /// Changes what is wanted of a Pod. One that has ended gets a worker again.
    fn want(&mut self, uid: &str, change: impl FnOnce(&mut Desired)) {
        let Some(handle) = self.handles.get_mut(uid) else { return };
        handle.desired.send_modify(change);
        if let Some(finished) = handle.finished.take() {
            self.resume(uid.to_owned(), *finished);
        }
    }

    fn resume(&mut self, uid: String, finished: FinishedPod) {
        let (node, cancel) = (self.node.clone(), self.cancel.child_token());
        self.begin(uid, Worker::resuming(node, finished, cancel).run());
    }

    fn begin(&mut self, uid: String, work: impl Future<Output = Option<FinishedPod>> + Send + 'static) {
        let whose = uid.clone();
        let task = self.workers.spawn(api_tasks::named("node-agent/pod-worker", work.map(|finished| (uid, finished))));
        self.tasks.insert(task.id(), whose);
    }

    /// A worker has ended: by itself when its Pod has ended or is gone, or because of a panic. After a panic the Pod gets another
    /// worker, which adopts the running containers as after a restart of the agent.
    async fn ended(&mut self, ended: Result<(tokio::task::Id, (String, Option<FinishedPod>)), tokio::task::JoinError>) {
        let error = match ended {
            Ok((task, (uid, Some(finished)))) => {
                self.tasks.remove(&task);
                if finished.is_outdated() {
                    self.resume(uid, finished);
                } else if let Some(handle) = self.handles.get_mut(&uid) {
                    handle.finished = Some(Box::new(finished));
                }
                return;
            }
            Ok((task, (uid, None))) => {
                self.tasks.remove(&task);
                self.handles.remove(&uid);
                if let Some(next) = self.static_pods.ended(&uid) {
                    if PodName::of(&next).uid == uid {
                        self.node.kubelet_metrics.pods.static_pod_restarted();
                    }
                    self.begin_static(next).await;
                }
                if self.static_begun {
                    self.manifests_changed().await;
                }
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
            cancel.run_until_cancelled(tokio::time::sleep(REPLACED_AFTER)).await?;
            let found = match &rejection {
                Some(_) => Vec::new(),
                None => cancel.run_until_cancelled(found_again(&node, &of)).await?,
            };
            let verdict = Box::pin(with_devices(&node, &desired, &found, rejection.map_or(Ok(()), Err), &cancel)).await?;
            work(node, desired, found, verdict, cancel).await
        });
    }

    /// A Pod that already runs here, or has ended, is not weighed again.
    async fn admission(&self, pod: &Pod, origin: Origin, found: &[RuntimeContainer]) -> Result<(), admit::Rejection> {
        let begun = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        if is_over(pod) || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if !found.is_empty() || begun {
            return self.allocate_again(pod, found).await;
        }
        let pressure = Some(*self.node.pressure.borrow()).filter(|_| origin == Origin::Api);
        let refused = pressure.and_then(|pressure| eviction::refusal(pod, pressure));
        let modules = SecurityModules { app_armor: self.node.app_armor.is_enabled(), selinux: enforce::has_selinux() };
        let refused = refused.or_else(|| enforce::rejection(pod, modules, &self.node.config.allowed_unsafe_sysctls));
        if let Some(rejection) = refused.or_else(|| node_shutdown::refusal(&self.node)) {
            return Err(rejection);
        }
        // As upstream, before the node's room is weighed.
        let Some(cpus) = &self.node.cpu_manager else { return self.weigh(pod) };
        cpus.allocate(pod).await?;
        let weighed = self.weigh(pod);
        if weighed.is_err() {
            cpus.release(&PodName::of(pod).uid, &self.node.parts).await;
        }
        weighed
    }

    /// A Pod that was admitted earlier has its CPUs, unless the state file was deleted since. What runs is not ended for want of CPUs.
    async fn allocate_again(&self, pod: &Pod, found: &[RuntimeContainer]) -> Result<(), admit::Rejection> {
        let Some(cpus) = &self.node.cpu_manager else { return Ok(()) };
        match cpus.allocate(pod).await {
            Err(rejection) if !found.is_empty() => {
                let message = format!("The containers stay on shared CPUs: {}", rejection.message);
                self.node.note(pod, None, true, &rejection.reason, message);
                Ok(())
            }
            allocated => allocated,
        }
    }

    /// Weighs a Pod against the room of the node.
    fn weigh(&self, pod: &Pod) -> Result<(), admit::Rejection> {
        let others: Vec<&Demand> = self.handles.values().filter_map(|handle| handle.demand.as_ref()).collect();
        let this = self.node.objects.node(&self.node.config.node_name);
        let (allocatable, pages) = (self.node.allocatable(), &self.node.machine.huge_pages);
        admit::admit(pod, &others, this.as_deref(), allocatable, pages, self.node.config.pods_max, &|name| {
            self.node.device_plugins.manages(name)
        })
    }

    /// A Pod may be gone by now.
    fn terminate(&mut self, termination: Termination) {
        let uid = termination.uid.clone();
        self.want(&uid, |desired| desired.termination = Some(termination.after(desired.termination.take())));
    }

    fn gone(&mut self, uid: &str) {
        if let Some(handle) = self.handles.get_mut(uid) {
            handle.demand = None;
            self.want(uid, |desired| desired.gone = true);
        }
    }

    /// The first list is complete: leftovers of an earlier agent from other Pods are removed.
    fn first_list_done(&mut self) {
        self.listed = true;
        let leftovers = self.leftovers.drain();
        let orphaned = leftovers.values().filter(|found| !found.is_empty()).count();
        self.node.kubelet_metrics.pods.orphaned(orphaned);
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

/// The verdict on a Pod once it has its devices. Plugins may take their time, which no other Pod waits for. A Pod that is to end needs no
/// devices any more. `None` when cancelled.
async fn with_devices(
    node: &Arc<Node>,
    desired: &watch::Receiver<Desired>,
    found: &[RuntimeContainer],
    verdict: Result<(), admit::Rejection>,
    cancel: &CancellationToken,
) -> Option<Result<(), admit::Rejection>> {
    let mut ending = desired.clone();
    let pod = ending.borrow_and_update().pod.clone();
    if verdict.is_err() || is_over(&pod) {
        return Some(verdict);
    }
    let is_deleted = |desired: &Desired| desired.gone || desired.pod.metadata.deletion_timestamp.is_some();
    let ends = |desired: &Desired| is_deleted(desired) || desired.termination.is_some();
    tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        _ = ending.wait_for(ends) => Some(Ok(())),
        allocated = device_plugins::allocate(node, &pod, !found.is_empty()) => Some(allocated),
    }
}

/// Runs a Pod's worker to its end. Its future, which exists as long as the Pod, has what happens once in boxes of their own.
async fn work(
    node: Arc<Node>,
    desired: watch::Receiver<Desired>,
    found: Vec<RuntimeContainer>,
    verdict: Result<(), admit::Rejection>,
    cancel: CancellationToken,
) -> Option<FinishedPod> {
    match verdict {
        Ok(()) => Box::pin(Worker::adopting(node, desired, found, cancel)).await.run().await,
        Err(rejection) => Worker::rejected(node, desired, &rejection.reason, &rejection.message, cancel).run().await,
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

/// What a Pod that has a worker takes of the room of others. A spec that follows an infeasible one is weighed by the worker in a moment.
fn demand(node: &Node, pod: &Arc<Pod>) -> Demand {
    match node.directory.get(&PodName::of(pod).uid) {
        Some(entry) if resize::is_weighed_again(pod) => Demand::of(&entry.pod),
        _ => resize::demand(pod),
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
