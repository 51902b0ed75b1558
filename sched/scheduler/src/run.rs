//! The loop of the scheduler: one task handles the changes of the informers and the results of the bindings, and runs one
//! cycle after the other while Pods are active.

mod changes;
mod devices;
mod extended;
mod gang;
mod permit;
mod reload;
mod reserve;
mod volumes;
mod watches;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use api_client::error::chain;
use api_client::events::Recorder;
use api_client::fence::Clients;
use api_client::informer::{Informers, ObjectKey};
use api_client::lease::{Election, Term, lead};
use api_tasks::{TaskFailure, Tasks};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use sched_framework::{ClusterEvent, ExternalPlugin, ExternalPluginSet, ExternalPlugins, PodInfo, Preemption};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::devices::ClaimWaits;
use self::extended::{Answer, Extension};
use self::gang::{EndedPreemption, GangCycle};
use self::reload::Reload;
use self::reserve::Reservations;
use self::watches::Watches;
use crate::bind::{BindingResult, Preemptor, Reason, Writer};
use crate::cache::Cache;
use crate::config::{DefaultConstraints, KubeSchedulerConfiguration, KubeSchedulerProfile};
use crate::cycle::{self, Failure, Nomination, Progress};
use crate::default_spread::DefaultSpread;
use crate::diagnosis::Rejectors;
use crate::extender::Extenders;
use crate::metrics::{self, Attempt, Disruption, PreemptorKind};
use crate::node_images::{self, ImageWatch};
use crate::plugins::{BindingError, DYNAMIC_RESOURCES, Handle, IMAGE_LOCALITY, Profile, group_disruptions};
use crate::pod_groups::PodGroups;
use crate::queue::{Occurrence, SchedulingQueue};
use crate::waiting::WaitingPods;

/// The highest number of bindings and conditions that are written at the same time.
const WRITES_IN_FLIGHT_MAX: usize = 128;

/// Settings.
#[derive(Clone, Default)]
pub struct Config {
    /// The profiles, and what they share.
    pub configuration: KubeSchedulerConfiguration,
    /// The file of the configuration, which is followed for changes of declared plugins.
    pub file: Option<PathBuf>,
    /// The scheduler runs only while it holds this Lease. For several servers on one store.
    pub election: Option<Election>,
    /// Makes the plugins that the profiles declare.
    pub external_plugins: Option<Arc<dyn ExternalPlugins>>,
}

/// Schedules until cancelled. The clients write as the scheduler.
///
/// # Errors
/// When a background task of the scheduler failed.
pub async fn run(clients: Clients, informers: Informers, config: Config, cancel: CancellationToken) -> Result<(), TaskFailure> {
    match config.configuration.leader_election.of(config.election.clone()) {
        None => schedule(clients.unfenced(), informers, config, cancel).await,
        Some(election) => {
            let leading = |Term { fence, cancel }| schedule(clients.fenced(&fence), informers.clone(), config.clone(), cancel);
            // `None`: cancelled while another scheduler was the leader.
            lead(clients.unfenced(), &election, cancel, leading).await.unwrap_or(Ok(()))
        }
    }
}

async fn schedule(client: kube::Client, informers: Informers, config: Config, cancel: CancellationToken) -> Result<(), TaskFailure> {
    metrics::publish();
    let tasks = Tasks::new(cancel.clone());
    let names = config.configuration.profiles.iter().map(|profile| profile.scheduler_name.clone());
    let recorders = names.map(|name| (name.clone(), Recorder::new(client.clone(), &name, None, &tasks)));
    let writer = Writer { recorders: Arc::new(recorders.collect()), client };
    let extenders = Extenders::new(&config.configuration.extenders, &writer.client, &tasks);
    let (finished, results) = mpsc::channel(WRITES_IN_FLIGHT_MAX);
    let externals = externals(&config);
    let (spread, handle) = (DefaultSpread::new(&informers), Handle::new(&writer, &informers));
    let mut scheduler = Scheduler::new(&config.configuration, externals.clone(), spread, writer, finished, &handle);
    scheduler.extension = extenders.map(Extension::new);
    let recorder = config.configuration.profiles.first().and_then(|first| scheduler.writer.recorders.get(&first.scheduler_name).cloned());
    let reload = config.file.map(|file| Reload::new(file, config.configuration, externals.clone(), recorder));
    let images = scheduler.scores_images().then(|| ImageWatch::new(scheduler.writer.client.clone(), &tasks));
    tokio::select! {
        () = scheduler.run(&informers, images, results, cancel) => Ok(()),
        failure = tasks.failed() => Err(failure),
        () = permit::load(externals) => Ok(()),
        () = reload::follow(reload) => Ok(()),
    }
}

/// The external plugins of the profiles, in the order of the profiles.
fn externals(config: &Config) -> Option<Arc<dyn ExternalPluginSet>> {
    let specs = config.configuration.external_plugins();
    Some(config.external_plugins.as_ref().filter(|_| !specs.is_empty())?.open(specs))
}

/// What a write ended with.
enum Finished {
    /// The binding of a Pod.
    Binding(Arc<PodInfo>, BindingResult),
    /// PreBind of a Pod that is assumed on a node, whose attempt began then.
    PreBinding(Arc<PodInfo>, Instant, Result<(), BindingError>),
    /// What plugins take back for a Pod that is not bound, for this reason.
    TakenBack(Arc<PodInfo>, Reason, String),
    /// The deletion of the Pods that were preempted for a Pod.
    Preemption(Arc<PodInfo>, PreemptionResult),
    /// The status of a Pod that no node is feasible for.
    Status(Arc<PodInfo>, Next),
    /// The status of the Pods of a gang that are not bound.
    GangStatus(Vec<(Arc<PodInfo>, Next)>),
    /// It could not be written that this group is scheduled.
    FailedReport(Arc<str>),
    /// The deletion of the Pods that were preempted for a gang.
    GangPreemption(EndedPreemption),
    /// The calls of extenders for a Pod whose attempt began then.
    Extenders(Arc<PodInfo>, Instant, Answer),
}

/// What becomes of a Pod whose status was written.
enum Next {
    /// It waits for one of these plugins' events.
    Unschedulable(Rejectors),
    /// It is tried again.
    Backoff,
}

/// The result of a preemption.
struct PreemptionResult {
    /// The less important Pods that were nominated to the node.
    displaced: Vec<Arc<PodInfo>>,
    /// The plugins that ruled nodes out for the Pod.
    rejectors: Rejectors,
    /// Whether all victims are being deleted.
    is_complete: bool,
}

/// A profile at work.
struct RunningProfile {
    profile: Profile,
    has_scheduling_gates: bool,
    /// Whether the Pods of groups wait for each other.
    has_gang_scheduling: bool,
    /// Whether Pods wait for the claims that are made for them.
    has_dynamic_resources: bool,
    /// The constraints of Pods that have none.
    default_constraints: DefaultConstraints,
    progress: Progress,
    /// The generations of the external plugins in the last cycle.
    generations: Vec<u64>,
    /// The Pods at permit.
    waiting: WaitingPods,
}

impl RunningProfile {
    fn new(profile: &KubeSchedulerProfile, externals: Vec<Arc<dyn ExternalPlugin>>, handle: &Handle) -> Self {
        Self {
            profile: Profile::new(profile, externals, handle),
            has_scheduling_gates: profile.plugins.has_scheduling_gates,
            has_gang_scheduling: profile.plugins.has_gang_scheduling,
            has_dynamic_resources: profile.plugins.filter.contains(&DYNAMIC_RESOURCES),
            default_constraints: profile.arguments.pod_topology_spread.default_constraints(),
            progress: Progress::default(),
            generations: Vec::new(),
            waiting: WaitingPods::default(),
        }
    }
}

struct Scheduler {
    /// By `schedulerName`.
    profiles: HashMap<String, RunningProfile>,
    externals: Option<Arc<dyn ExternalPluginSet>>,
    /// The time from which on cycles do not wait for external plugins to be loaded.
    externals_by: Instant,
    cache: Cache,
    queue: SchedulingQueue,
    groups: PodGroups,
    /// The cycle of a gang that is under way. No other Pod is tried until it has ended.
    gang_cycle: Option<GangCycle>,
    /// The UIDs of the Pods on nodes that were deleted for gangs.
    preempted_for_gangs: HashSet<String>,
    default_spread: DefaultSpread,
    writer: Writer,
    writes: JoinSet<()>,
    /// The bindings that wait until fewer writes are in flight.
    bindings: VecDeque<(Arc<PodInfo>, String, Instant)>,
    /// What plugins reserved for Pods that are not bound yet.
    reservations: Reservations,
    /// Wakes the work of PreBind.
    pre_bind_changes: Arc<watch::Sender<u64>>,
    /// The Pods with scheduling gates.
    gated: HashSet<ObjectKey>,
    /// The Pods whose claims are not there yet.
    claim_waits: ClaimWaits,
    /// The extenders and their calls, if there are some.
    extension: Option<Extension>,
    finished: mpsc::Sender<Finished>,
    /// The UIDs of the Pods at their last change: a Pod may be deleted and created again under the same name.
    uids: HashMap<ObjectKey, String>,
}

impl Scheduler {
    fn new(
        configuration: &KubeSchedulerConfiguration,
        externals: Option<Arc<dyn ExternalPluginSet>>,
        default_spread: DefaultSpread,
        writer: Writer,
        finished: mpsc::Sender<Finished>,
        handle: &Handle,
    ) -> Self {
        let mut plugins = externals.as_ref().map(|set| set.plugins()).unwrap_or_default().into_iter();
        let running = |profile: &KubeSchedulerProfile| {
            let externals = plugins.by_ref().take(profile.arguments.external.len()).collect();
            (profile.scheduler_name.clone(), RunningProfile::new(profile, externals, handle))
        };
        Self {
            profiles: configuration.profiles.iter().map(running).collect(),
            externals,
            externals_by: Instant::now() + permit::LOAD_MAX,
            cache: Cache::default(),
            queue: SchedulingQueue::new(configuration.backoff),
            groups: PodGroups::default(),
            gang_cycle: None,
            preempted_for_gangs: HashSet::new(),
            default_spread,
            writer,
            writes: JoinSet::new(),
            bindings: VecDeque::new(),
            reservations: Reservations::new(handle.writes.clone()),
            pre_bind_changes: Arc::clone(&handle.changes),
            gated: HashSet::new(),
            claim_waits: ClaimWaits::default(),
            extension: None,
            finished,
            uids: HashMap::new(),
        }
    }

    async fn run(
        mut self,
        informers: &Informers,
        images: Option<ImageWatch>,
        mut results: mpsc::Receiver<Finished>,
        cancel: CancellationToken,
    ) {
        let (mut watches, pods) = (Watches::new(informers), informers.informer::<Pod>());
        loop {
            self.unpark();
            self.begin_bindings();
            self.measure();
            let (flush_at, report_at) = (self.queue.next_flush(), self.next_report());
            let (permit_at, externals, has_externals) = (self.next_permit(), self.externals.clone(), self.has_externals());
            let externals_by = (!has_externals).then_some(self.externals_by);
            let may_schedule = watches.are_synced() && has_externals && self.has_work() && self.writes.len() < WRITES_IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                // A write that panicked has no result, and its Pod would stay in flight for ever.
                Some(ended) = self.writes.join_next() => drop(api_tasks::joined(ended)),
                ended = self.reservations.ended() => self.reservation_ended(ended),
                Some(ended) = extended::ended(&mut self.extension) => drop(api_tasks::joined(ended)),
                Some(finished) = results.recv() => match finished {
                    Finished::Binding(pod, result) => self.binding_finished(&pod, result),
                    Finished::PreBinding(pod, started, result) => self.pre_binding_finished(pod, started, result),
                    Finished::TakenBack(pod, reason, message) => self.write_status(pod, reason, message, Some(""), Next::Backoff),
                    Finished::Preemption(pod, result) => self.preemption_finished(&pod, result),
                    Finished::Status(pod, next) => self.status_written(&pod, next),
                    Finished::GangPreemption(ended) => self.gang_preemption_finished(ended),
                    Finished::FailedReport(group) => self.report_failed(group),
                    Finished::GangStatus(pods) => pods.into_iter().for_each(|(pod, next)| self.status_written(&pod, next)),
                    Finished::Extenders(pod, started, answer) => self.extenders_answered(pod, started, answer),
                },
                changes = watches.next() => {
                    self.objects_changed(changes, &pods);
                    if watches.devices.are_synced() {
                        self.devices_synced(&pods);
                    }
                }
                changes = node_images::next(images.as_ref()) => self.images_changed(changes),
                () = permit::changed(externals.as_deref(), externals_by) => self.externals_changed(),
                () = tokio::time::sleep_until(permit_at.unwrap_or_else(Instant::now)), if permit_at.is_some() => self.permit_all(),
                () = tokio::time::sleep_until(report_at.unwrap_or_else(Instant::now)), if report_at.is_some() => self.repeat_report(),
                () = std::future::ready(()), if may_schedule => self.schedule_one(),
                () = tokio::time::sleep_until(flush_at.unwrap_or_else(Instant::now)), if flush_at.is_some() => self.queue.flush(Instant::now()),
            }
        }
        metrics::set_pending([0; 4]);
        metrics::set_cache_size(0, 0);
        // The decisions that were made are written; the next leader makes the others.
        drop(results);
        self.reservations.shutdown().await;
        while self.writes.join_next().await.is_some() {
            self.begin_bindings();
        }
        extended::finish(&mut self.extension).await;
    }

    /// Reports the sizes of the queue and of the cache.
    fn measure(&self) {
        let gated = self.gated.len() + self.claim_waits.len() + self.groups.waiting();
        let [active, backoff, unschedulable] = self.queue.counts();
        metrics::set_pending([active, backoff, unschedulable, gated]);
        metrics::set_cache_size(self.cache.snapshot().nodes.len(), self.cache.pod_count());
    }

    /// Whether the images of nodes have a say in a profile.
    fn scores_images(&self) -> bool {
        self.profiles.values().any(|running| running.profile.scores.iter().any(|plugin| plugin.name() == IMAGE_LOCALITY))
    }

    /// Whether [`Scheduler::schedule_one`] has something to do.
    fn has_work(&self) -> bool {
        self.gang_cycle.is_some() || self.queue.has_active()
    }

    fn schedule_one(&mut self) {
        if let Some(cycle) = self.gang_cycle.take() {
            return self.continue_gang(cycle);
        }
        // Pods whose back-off ended take their turn by priority, also while others are active.
        self.queue.flush(Instant::now());
        self.park();
        let Some(pod) = self.queue.pop(api_clock::now()) else { return };
        if !self.goes_alone(&pod) {
            return;
        }
        // The queue has Pods of the profiles alone.
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else { return };
        self.cache.order_nodes();
        let pod = self.default_spread.apply(pod, &running.default_constraints);
        let started = Instant::now();
        if let Some(message) = running.begin_cycle() {
            return self.attempt_failed(pod, message, started);
        }
        if self.extension.as_ref().is_some_and(|extension| extension.extenders.judges(&pod)) {
            return self.begin_evaluation(pod, started);
        }
        let result = cycle::schedule_pod(&running.profile, &pod, self.cache.snapshot(), &mut running.progress);
        metrics::cycled(started.elapsed());
        if let Some(message) = running.external_failure() {
            return self.attempt_failed(pod, message, started);
        }
        match result {
            Ok(node) => self.assume(pod, node, started),
            Err(failure) => {
                metrics::attempted(&pod.scheduler_name, Attempt::Unschedulable, started.elapsed());
                self.no_node(pod, *failure);
            }
        }
    }

    /// Puts the Pod on the node that was chosen. It is bound when what it uses is reserved and the permit plugins allow it.
    fn assume(&mut self, pod: Arc<PodInfo>, node: String, started: Instant) {
        tracing::debug!(pod = pod.key(), node, "node chosen");
        self.cache.assume_pod(Arc::clone(&pod), &node);
        match self.reserve(&pod, &node) {
            Ok(()) => {
                self.member_scheduled(&pod);
                self.assumed(pod, node, started);
            }
            Err(error) => self.refused(pod, error, started),
        }
    }

    fn no_node(&mut self, pod: Arc<PodInfo>, Failure { error, nomination }: Failure) {
        let message = error.to_string();
        tracing::debug!(pod = pod.key(), message, ?nomination, "no node fits");
        self.make_room(&pod, &nomination);
        let nominated = match nomination {
            Nomination::Preempts { best, others } => return self.preempt_or_consult(pod, best, others, error),
            Nomination::Stays => None,
            Nomination::Ends => {
                self.end_nomination(&pod);
                Some("")
            }
        };
        self.write_status(pod, Reason::Unschedulable, message, nominated, Next::Unschedulable(error.rejectors()));
    }

    /// Writes why the Pod has no node. The Pod stays in flight until then: a later attempt must not be overwritten.
    fn write_status(&mut self, pod: Arc<PodInfo>, reason: Reason, message: String, nominated: Option<&'static str>, next: Next) {
        let (writer, finished) = (self.writer.clone(), self.finished.clone());
        self.writes.spawn(api_tasks::named("scheduler/status", async move {
            writer.not_scheduled(&pod, reason, &message, nominated).await;
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::Status(pod, next)).await;
        }));
    }

    fn status_written(&mut self, pod: &PodInfo, next: Next) {
        match next {
            Next::Unschedulable(rejectors) => self.add_unschedulable(pod, rejectors),
            Next::Backoff => self.queue.move_to_backoff(&pod.uid, Instant::now()),
        }
    }

    /// Nominates the Pod to the node and deletes the victims; those that are not bound yet go back to the queue. The Pod stays in flight
    /// until their deletion is written: with a part of it, the next cycle would preempt Pods of another node.
    fn preempt(&mut self, pod: Arc<PodInfo>, preemption: Arc<Preemption>, message: String, rejectors: Rejectors) {
        let displaced: Vec<_> = self.cache.snapshot().nominated.after(&pod, &preemption.node).cloned().collect();
        for other in &displaced {
            self.cache.end_nomination(&other.uid);
        }
        let groups = group_disruptions(&preemption.victims, self.cache.snapshot());
        let disruption = Disruption { victims: preemption.victims.len(), groups, violations: preemption.violations };
        metrics::preempted(PreemptorKind::Pod, disruption);
        self.end_nomination(&pod);
        self.cache.nominate(Arc::clone(&pod), &preemption.node);
        let (rejected, victims) = self.reject_waiting(preemption.victims.clone());
        let (writer, finished, started) = (self.writer.clone(), self.finished.clone(), Instant::now());
        self.writes.spawn(api_tasks::named("scheduler/preemption", async move {
            let node = &preemption.node;
            writer.not_scheduled(&pod, Reason::Unschedulable, &message, Some(node)).await;
            join_all(displaced.iter().map(|other| writer.end_nomination(other))).await;
            let preemptor = Preemptor::pod(&pod, node);
            rejected.iter().for_each(|victim| writer.preempted(victim, &preemptor));
            let ended = join_all(victims.iter().map(|victim| writer.preempt(victim, &preemptor))).await;
            let errors = ended.into_iter().filter_map(Result::err).inspect(|error| {
                tracing::warn!(pod = pod.key(), node, error = chain(error), "preemption failed");
            });
            let is_complete = errors.count() == 0;
            metrics::preemption_executed(PreemptorKind::Pod, is_complete, started.elapsed());
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::Preemption(pod, PreemptionResult { displaced, rejectors, is_complete })).await;
        }));
    }

    /// The Pod waits for the end of its victims, of which some may have ended while it was in flight. After a failure it is tried
    /// again and remains nominated: victims that are ending keep it from preempting others.
    fn preemption_finished(&mut self, pod: &PodInfo, result: PreemptionResult) {
        result.displaced.iter().for_each(|other| self.queue.activate(&other.uid));
        if result.is_complete {
            self.add_unschedulable(pod, result.rejectors);
        } else {
            self.queue.move_to_backoff(&pod.uid, Instant::now());
        }
    }

    fn binding_finished(&mut self, pod: &Arc<PodInfo>, result: BindingResult) {
        let message = match result {
            // The Pod stays in flight until the informer has it with its node: an older state of the Pod without a node must
            // not schedule it again.
            BindingResult::Bound => return self.post_bind(pod),
            BindingResult::PodGone => return self.unreserve(pod),
            BindingResult::Failed(error) => format!("running Bind plugin \"DefaultBinder\": {}", chain(&error)),
            BindingResult::Refused(message) => message,
        };
        tracing::warn!(pod = pod.key(), message, "binding failed");
        // A Pod that the informer has with its node is not in the queue any more: the binding was written and only its answer
        // was lost. Any other Pod is tried again.
        if self.queue.contains(&pod.uid) {
            self.binding_cycle_failed(Arc::clone(pod), Reason::SchedulerError, message);
        } else if self.cache.pod(&pod.uid).is_some() {
            self.post_bind(pod);
        } else {
            self.unreserve(pod);
        }
    }

    fn add_unschedulable(&mut self, pod: &PodInfo, rejectors: Rejectors) {
        let namespaces = &self.cache.snapshot().namespaces;
        self.queue.add_unschedulable_if_not_present(pod, rejectors, Instant::now(), namespaces);
    }

    /// Ends the nomination of a Pod, which may help less important Pods.
    fn end_nomination(&mut self, pod: &Arc<PodInfo>) {
        if self.cache.end_nomination(&pod.uid) {
            self.happened(Occurrence::of_pod(ClusterEvent::AssignedPodDelete, Arc::clone(pod)));
        }
    }

    /// Moves the unschedulable Pods that the change may help.
    fn happened(&mut self, occurrence: Occurrence) {
        self.queue.move_all_to_active_or_backoff(occurrence, Instant::now(), &self.cache.snapshot().namespaces);
    }
}

#[cfg(test)]
mod tests;
