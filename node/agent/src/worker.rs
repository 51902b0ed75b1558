//! The worker of one Pod: one loop that calls [`plan`] for the next step, begins exactly that step, and handles reports.
//! Effects run as tasks of their own, so that the worker can always react to the end of the Pod. Only this loop changes the
//! Pod's record.

pub(crate) mod adopt;
mod cpus;
mod deadlines;
pub(crate) mod effect;
pub(crate) mod finished;
pub(crate) mod learn;
pub(crate) mod plan;
mod publish;
mod resize;
mod timing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cleanup;
use crate::container;
use crate::container::probes::{self, ProbeKind};
use crate::container::processes;
use crate::error::chain;
use crate::kubelet_metrics::SyncType;
use crate::layout::{PodName, pause_id};
use crate::node::Node;
use crate::record::{Clean, ImageState, InstanceState, PodRecord, SandboxState};
use crate::static_pods::Origin;
use crate::status;
use crate::status::writer::Writer;
use crate::termination::{IMMEDIATE_SECONDS, Termination, TerminationCause};
use adopt::RuntimeContainer;
use effect::{Deadline, Effects, NextInstance, TerminationMessage};
use finished::FinishedPod;
use learn::{Note, Report, StartFault};
use plan::Step;
use timing::Timing;

/// Reports that may wait for the worker.
const REPORTS_MAX: usize = 64;
/// The longest pause between two checks of the volumes and the record.
const REST_MAX: Duration = Duration::from_secs(3_600);

/// What the manager requests of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    /// The Pod at its last change.
    pub(crate) pod: Arc<Pod>,
    pub(crate) origin: Origin,
    /// When the node got the Pod.
    pub(crate) got_at: tokio::time::Instant,
    /// The API no longer has the Pod.
    pub(crate) gone: bool,
    /// The node ends the Pod.
    pub(crate) termination: Option<Termination>,
}

/// One Pod's worker.
pub(crate) struct Worker {
    node: Arc<Node>,
    name: PodName,
    desired: watch::Receiver<Desired>,
    /// The Pod as the API has it.
    wanted: Arc<Pod>,
    /// The Pod with its allocation, which may be more or less than its spec requests by now.
    pod: Arc<Pod>,
    record: PodRecord,
    effects: Effects,
    reports: mpsc::Receiver<Box<Report>>,
    tasks: JoinSet<()>,
    writer: Writer,
    /// Whether the Pod was delivered since its status was last compared.
    redelivered: bool,
    /// When every instance must be gone, once the Pod is to end.
    kill_by: watch::Sender<Timestamp>,
    /// When every instance must be gone, while all containers are being ended so that the Pod begins again.
    restart_by: watch::Sender<Timestamp>,
    /// Running probes by container, attempt and kind.
    probes: BTreeMap<(String, u32, ProbeKind), CancellationToken>,
    volumes_at: tokio::time::Instant,
    timing: Timing,
    cancel: CancellationToken,
}

impl Worker {
    /// A worker for a Pod that the node rejected.
    pub(crate) fn rejected(
        node: Arc<Node>,
        desired: watch::Receiver<Desired>,
        reason: &str,
        message: &str,
        cancel: CancellationToken,
    ) -> Box<Self> {
        let pod = desired.borrow().pod.clone();
        node.note(&pod, None, true, reason, message);
        let pod_record = adopt::rejected(&pod, reason, message, api_clock::now());
        Self::with(node, desired, pod_record, None, cancel)
    }

    /// A worker that adopts the containers that runtimes have of the Pod. It removes containers that cannot be adopted.
    pub(crate) async fn adopting(
        node: Arc<Node>,
        desired: watch::Receiver<Desired>,
        found: Vec<RuntimeContainer>,
        cancel: CancellationToken,
    ) -> Box<Self> {
        let pod = desired.borrow().pod.clone();
        let (pod_record, useless) = adopt::adopt(&pod, found, api_clock::now());
        for one in useless {
            if let Err(error) = cleanup::remove_container(&node, &one.handler, &one.status.id).await {
                tracing::warn!(container = %one.status.id, error = chain(&error), "container not removed");
            }
        }
        let mut worker = Self::with(node, desired, pod_record, None, cancel);
        worker.timing.wake(SyncType::Create);
        worker.read_termination_messages().await;
        let alive: Vec<_> =
            worker.record.containers.iter().filter_map(|(name, record)| Some((name.clone(), record.alive()?.clone()))).collect();
        for (name, alive) in alive {
            tracing::info!(pod = %worker.name, container = name, id = %alive.id, "container adopted");
            worker.adopt_cpus(&name, &alive);
            worker.tasks.spawn(api_tasks::named("node-agent/pod-wait", worker.effects.clone().wait(name, alive)));
        }
        worker
    }

    /// Reads the termination messages of instances that ended while no agent ran.
    async fn read_termination_messages(&mut self) {
        if self.record.ended_before {
            return;
        }
        for (name, record) in &mut self.record.containers {
            let attempt = record.restarts();
            if let InstanceState::Ended(ended) = &mut record.run
                && ended.message.is_empty()
            {
                ended.message = TerminationMessage::of(&self.pod, name, attempt).read(&self.node, ended.exit_code).await;
            }
        }
    }

    /// `written` is the status that the API has by an earlier worker.
    fn with(
        node: Arc<Node>,
        desired: watch::Receiver<Desired>,
        pod_record: PodRecord,
        written: Option<Arc<PodStatus>>,
        cancel: CancellationToken,
    ) -> Box<Self> {
        let Desired { pod: wanted, origin, got_at, gone, .. } = desired.borrow().clone();
        // A Pod has not started in the future, whatever the clock was set to since.
        let active_since = api_clock::as_steady(pod_record.started_at).min(api_clock::steady());
        let pod_record = PodRecord { gone: pod_record.gone || gone, active_since, ..pod_record };
        let pod = crate::resize::with_allocation(&wanted, &pod_record.allocation);
        let name = PodName::of(&wanted);
        let (sender, reports) = mpsc::channel(REPORTS_MAX);
        let mut tasks = JoinSet::new();
        let writer =
            Writer::start((node.client.clone(), node.kubelet_metrics.clone()), name.clone(), origin, written, &mut tasks, cancel.clone());
        let (kill_by, restart_by) = (watch::Sender::new(Timestamp::MAX), watch::Sender::new(Timestamp::MAX));
        let (node_of_effects, ending, probe_results) = (node.clone(), cancel.child_token(), Arc::default());
        let effects = Effects { node: node_of_effects, pod: pod.clone(), origin, reports: sender, ending, probe_results };
        let volumes_at = tokio::time::Instant::now() + node.config.volume_refresh;
        let timing = Timing::new(&wanted, got_at);
        Box::new(Self {
            node,
            name,
            desired,
            wanted,
            pod,
            record: pod_record,
            effects,
            reports,
            tasks,
            writer,
            redelivered: true,
            kill_by,
            restart_by,
            probes: BTreeMap::new(),
            volumes_at,
            timing,
            cancel,
        })
    }

    /// Runs until the Pod is gone from node and API, or until cancelled: then containers continue to run. Returns what is left of a
    /// Pod that has ended and stays in the API.
    pub(crate) async fn run(mut self: Box<Self>) -> Option<FinishedPod> {
        loop {
            let now = api_clock::steady();
            self.timing.wake(SyncType::Sync);
            // Read once: no container starts between the end of the list and the allocation.
            let is_complete = self.node.directory.is_complete();
            self.heed_termination();
            self.note_ending(now);
            self.note_restart(now);
            self.weigh_resize(now, is_complete);
            self.return_exclusive().await;
            let notes = self.record.look(&self.pod);
            self.announce(notes);
            match self.next_step(now, is_complete) {
                Step::Stop => break,
                step @ (Step::Wait(_) | Step::Finish) => {
                    self.tend_probes();
                    self.show();
                    // Read once: the end of a write between the look and the rest wakes the worker all the same.
                    let is_writing = !self.writer.is_written();
                    if step == Step::Finish && !is_writing && self.is_reported() {
                        return Some(self.finish());
                    }
                    self.measure_rest();
                    let until = if let Step::Wait(until) = step { until } else { None };
                    if !self.rest(until, is_writing).await {
                        break;
                    }
                }
                step => self.step(step, now),
            }
        }
        self.node.directory.withdraw(&self.name.uid);
        None
    }

    /// Begins one step: marks it in the record as started and spawns the task that performs it.
    fn step(&mut self, step: Step, now: Timestamp) {
        tracing::debug!(pod = %self.name, ?step, "step");
        match step {
            Step::Prepare => {
                self.record.sandbox = SandboxState::Making;
                let (pause, adopted, is_new) = (self.record.pause.clone(), self.record.anything_runs(), self.record.lost_sandbox());
                let prepared = self.effects.clone().prepare(pause, adopted, is_new, self.resizes());
                self.tasks.spawn(api_tasks::named("node-agent/pod-prepare", prepared));
            }
            Step::Recreate => {
                self.record.recreate_sandbox(now);
                self.node.note(&self.pod, None, false, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
            }
            Step::Pull(name) => {
                if let Some(record) = self.record.containers.get_mut(&name) {
                    record.image = ImageState::Pulling;
                    self.timing.pulls();
                    let user = self.record.ready_sandbox().and_then(|sandbox| sandbox.sandbox.user.clone());
                    self.tasks.spawn(api_tasks::named("node-agent/pod-pull", self.effects.clone().pull(name, user)));
                }
            }
            Step::Start(name) => self.start(name, now),
            Step::Kill { name, message, replaced } => self.kill(&name, message, replaced, now),
            Step::Reset => self.record.reset(now),
            Step::Resize => self.resize(),
            Step::BackOffPull(name) => {
                let notes = self.record.back_off_pull(&self.pod, &name);
                self.announce(notes);
            }
            Step::Expire => {
                let notes = self.record.expire();
                self.announce(notes);
            }
            Step::Clean => {
                self.record.clean = Clean::Busy;
                let forget_logs = self.record.forgets_logs(&self.pod);
                self.record.logs_forgotten = forget_logs;
                let ids = self.record.containers.values().flat_map(|record| [record.ended(), record.last.as_ref()]).flatten();
                let pause = processes::are_shared(&self.pod).then(|| pause_id(&self.name.uid).0);
                let ids = ids.filter_map(|ended| ended.id.clone()).chain(pause).collect();
                self.tasks.spawn(api_tasks::named("node-agent/pod-clean", self.effects.clone().clean(ids, forget_logs)));
            }
            Step::Delete => {
                self.record.delete_sent = true;
                self.writer.finish(Arc::new(status::compute(&self.pod, &self.record, self.node.host(), api_clock::now())));
            }
            Step::Wait(_) | Step::Finish | Step::Stop => {}
        }
    }

    fn start(&mut self, name: String, now: Timestamp) {
        let Some(sandbox) = self.record.ready_sandbox().cloned() else { return };
        let target = self.record.target(&self.pod, &name);
        let Some(record) = self.record.containers.get_mut(&name) else { return };
        let ImageState::Ready(image) = record.image.clone() else { return };
        let before = match std::mem::replace(&mut record.run, InstanceState::Idle) {
            InstanceState::Ended(ended) => Some(ended),
            _ => None,
        };
        let attempt = record.attempts;
        let leftover = before.as_ref().and_then(|ended| ended.id.clone());
        record.run = InstanceState::Starting { before };
        match target {
            Ok(target) => {
                let next = NextInstance { name, attempt, image, sandbox, target, leftover };
                self.tasks.spawn(api_tasks::named("node-agent/pod-start", self.effects.clone().start(next)));
            }
            Err(reason) => {
                let notes = self.record.learn(&self.pod, Report::Started(name, Err(StartFault::Unmade(reason))), now);
                self.announce(notes);
            }
        }
    }

    fn kill(&mut self, name: &str, message: String, replaced: bool, now: Timestamp) {
        // While the Pod lives the deadline is this instance's own; the Pod's end may cut it short.
        let ending = self.record.ending_since.is_some();
        let own = if ending { Timestamp::MAX } else { self.restart_deadline(name, now) };
        // As upstream, a restart of all containers runs no hooks. What ended with the sandbox can run none.
        let reset = !ending && (self.restarts_all() || self.record.sandbox == SandboxState::Lost);
        let Some(record) = self.record.containers.get_mut(name) else { return };
        let InstanceState::Running(alive) = &mut record.run else { return };
        (alive.stopping, alive.replaced) = (true, replaced);
        let alive = alive.clone();
        self.node.note(&self.pod, Some(name), false, "Killing", message);
        let at_once = self.record.grace_seconds_max <= IMMEDIATE_SECONDS;
        let (of_restart, of_pod) = (self.restart_by.subscribe(), self.kill_by.subscribe());
        let deadline = Deadline { own, of_restart, of_pod, at_once, without_hook: reset };
        self.tasks.spawn(api_tasks::named("node-agent/pod-stop", self.effects.clone().stop(name.to_owned(), alive, deadline)));
    }

    /// Reads the order in each iteration of the loop, so that a replacement of this worker sees it too.
    fn heed_termination(&mut self) {
        let Some(termination) = self.desired.borrow().termination.clone() else { return };
        let notes = self.record.terminate(&self.pod, &termination);
        if let (false, TerminationCause::Eviction { signal, .. }) = (notes.is_empty(), termination.cause) {
            self.node.kubelet_metrics.evicted(signal);
        }
        self.announce(notes);
    }

    /// Waits for a report, a change of the Pod, the end of a write, or the time. False when the worker is to stop.
    async fn rest(&mut self, until: Option<Timestamp>, is_writing: bool) -> bool {
        let wait = until.map_or(REST_MAX, |until| api_clock::between(api_clock::steady(), until));
        let rested = tokio::time::Instant::now() + wait.min(REST_MAX);
        let refreshes = self.record.ready_sandbox().is_some() && !self.record.refreshing && !self.record.ends(&self.pod);
        loop {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return false,
                report = self.reports.recv() => {
                    let Some(report) = report else { return false };
                    self.take(*report);
                    while let Ok(more) = self.reports.try_recv() {
                        self.take(*more);
                    }
                }
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    // The effect cannot report any more, and its step would stay in progress for ever: the worker ends with it,
                    // and the manager starts another one.
                    api_tasks::joined(ended);
                    continue;
                }
                changed = self.desired.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    self.look();
                }
                () = self.writer.written(), if self.record.clean == Clean::Done && is_writing => {}
                () = tokio::time::sleep_until(self.volumes_at), if refreshes => {
                    self.volumes_at = tokio::time::Instant::now() + self.node.config.volume_refresh;
                    self.record.refreshing = true;
                    self.tasks.spawn(api_tasks::named("node-agent/pod-refresh", self.effects.clone().refresh()));
                }
                () = tokio::time::sleep_until(rested) => {}
            }
            return true;
        }
    }

    fn look(&mut self) {
        let desired = self.desired.borrow_and_update().clone();
        self.timing.wake(SyncType::Update);
        self.record.gone |= desired.gone;
        self.take_up(desired.pod);
        self.measure_reported_start();
        self.redelivered = true;
    }

    fn take(&mut self, report: Report) {
        if matches!(report, Report::Pulled(..)) {
            self.timing.pulls();
        }
        let volumes_due = match &report {
            Report::Refreshed(due) => *due,
            Report::Prepared(Ok(sandbox)) => sandbox.volumes_due,
            _ => None,
        };
        if let Some(due) = volumes_due {
            let wait = api_clock::between(api_clock::now(), due);
            self.volumes_at = self.volumes_at.min(tokio::time::Instant::now() + wait);
        }
        let begun = match &report {
            Report::Started(name, Ok(alive)) => Some((name.clone(), alive.clone())),
            _ => None,
        };
        let pause = if let Report::Prepared(Ok(sandbox)) = &report { sandbox.pause.clone() } else { None };
        let notes = self.record.learn(&self.pod, report, api_clock::steady());
        self.announce(notes);
        if let Some(pause) = pause {
            self.tasks.spawn(api_tasks::named("node-agent/pod-sandbox-wait", self.effects.clone().wait_for_pause(pause)));
        }
        if let Some((name, alive)) = begun {
            if !alive.hooked {
                self.tasks
                    .spawn(api_tasks::named("node-agent/pod-post-start", self.effects.clone().post_start(name.clone(), alive.clone())));
            }
            self.tasks.spawn(api_tasks::named("node-agent/pod-wait", self.effects.clone().wait(name, alive)));
        }
    }

    fn announce(&self, notes: Vec<Note>) {
        for note in notes {
            self.node.note(&self.pod, note.container.as_deref(), note.warning, note.reason, note.message);
        }
    }

    /// Starts the probes that are due and stops those whose instance has ended.
    fn tend_probes(&mut self) {
        let mut wanted = Vec::new();
        for (name, record) in &self.record.containers {
            let Some(alive) = record.alive().filter(|alive| !alive.stopping) else { continue };
            let Some((_, container)) = container::find(&self.pod, name) else { continue };
            for (kind, probe) in probes::declared(container) {
                let due = if kind == ProbeKind::Startup { !alive.startup_ok } else { alive.startup_ok };
                if due {
                    wanted.push(((name.clone(), alive.attempt, kind), probe.clone(), alive.clone()));
                }
            }
        }
        self.probes.retain(|key, token| {
            let keep = wanted.iter().any(|(wanted, ..)| wanted == key);
            if !keep {
                token.cancel();
            }
            keep
        });
        let Some(ip) = self.record.ready_sandbox().map(|sandbox| sandbox.ip) else { return };
        for (key, probe, alive) in wanted {
            if !self.probes.contains_key(&key) {
                let token = self.cancel.child_token();
                self.tasks.spawn(api_tasks::named(
                    "node-agent/pod-probe",
                    self.effects.clone().probe(key.0.clone(), key.2, probe, alive, ip, token.clone()),
                ));
                self.probes.insert(key, token);
            }
        }
    }
}
