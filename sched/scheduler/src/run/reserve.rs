//! What plugins reserve for a Pod from the choice of its node to the end of its binding, and PreBind between the two. A Pod that no plugin
//! has a part in has no reservation.

use std::collections::HashMap;
use std::sync::Arc;

use sched_framework::{ClusterEvent, CycleState, PodInfo, PreBinding};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

use super::{Finished, Next, Scheduler};
use crate::bind::Reason;
use crate::cycle::Nomination;
use crate::diagnosis::rejected;
use crate::metrics::{self, Attempt};
use crate::plugins::{BindingError, Writes};
use crate::queue::Occurrence;

/// The highest number of Pods in PreBind, which may wait for minutes.
const PRE_BINDINGS_MAX: usize = 1_000;
/// The highest number of Pods of one namespace in PreBind, so that there is room for others.
const PRE_BINDINGS_PER_NAMESPACE_MAX: usize = PRE_BINDINGS_MAX / 4;

/// The reservations by the UID of their Pods.
pub(super) struct Reservations {
    by_uid: HashMap<String, Reservation>,
    /// PreBind of Pods, and what takes it back.
    pre_bindings: JoinSet<()>,
    /// The writes of plugins that go on without their Pods.
    pub writes: Writes,
}

/// What ended.
pub(super) enum Ended {
    PreBinding(Result<(), JoinError>),
    /// A write of a plugin, for which nobody may have waited.
    Write,
}

struct Reservation {
    pod: Arc<PodInfo>,
    node: String,
    state: CycleState,
    /// Whether the Pod is nominated to the node, because its binding waits for PreBind.
    is_nominated: bool,
    /// PreBind, while it is under way.
    pre_binding: Option<AbortHandle>,
}

impl Reservations {
    /// No reservations. The writes are those of the plugins.
    pub fn new(writes: Writes) -> Self {
        Self { by_uid: HashMap::new(), pre_bindings: JoinSet::new(), writes }
    }

    /// Why no further Pod of the namespace may begin PreBind.
    fn is_full(&self, namespace: &str) -> Option<&'static str> {
        if self.pre_bindings.len() >= PRE_BINDINGS_MAX || self.writes.len() >= PRE_BINDINGS_MAX {
            return Some("too many Pods are in PreBind");
        }
        let of_namespace = |one: &&Reservation| one.pre_binding.is_some() && one.pod.namespace == namespace;
        let is_full = self.by_uid.values().filter(of_namespace).count() >= PRE_BINDINGS_PER_NAMESPACE_MAX;
        is_full.then_some("too many Pods of the namespace are in PreBind")
    }

    /// Whether PreBind of the Pod is under way.
    pub fn in_pre_bind(&self, uid: &str) -> bool {
        self.by_uid.get(uid).is_some_and(|reservation| reservation.pre_binding.is_some())
    }

    /// The node to which the Pod was nominated for the time of PreBind.
    pub fn nomination(&self, uid: &str) -> Option<&str> {
        self.by_uid.get(uid).filter(|reservation| reservation.is_nominated).map(|reservation| reservation.node.as_str())
    }

    /// The next end of a PreBind or of a write. Dropping the future loses nothing.
    pub async fn ended(&mut self) -> Ended {
        tokio::select! {
            biased;
            Some(ended) = self.pre_bindings.join_next() => Ended::PreBinding(ended),
            () = self.writes.ended() => Ended::Write,
        }
    }

    /// Ends PreBind of all Pods: none of them is bound. Writes that have begun are completed.
    pub async fn shutdown(&mut self) {
        self.pre_bindings.shutdown().await;
        self.writes.shutdown().await;
    }
}

impl Scheduler {
    /// Calls Reserve for a Pod that was assumed on the node.
    pub(super) fn reserve(&mut self, pod: &Arc<PodInfo>, node: &str) -> Result<(), BindingError> {
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else { return Ok(()) };
        let plugins = &running.profile.binding;
        if !plugins.has_part_in(pod) {
            return Ok(());
        }
        let mut state = running.progress.take_state(&pod.uid);
        let result = plugins.reserve(&mut state, pod, node, self.cache.snapshot_mut());
        // After an error, too: Unreserve needs the state.
        let reservation = Reservation { pod: Arc::clone(pod), node: node.to_owned(), state, is_nominated: false, pre_binding: None };
        self.reservations.by_uid.insert(pod.uid.clone(), reservation);
        result
    }

    /// Calls Unreserve for a Pod that is not tried again, if something was reserved for it.
    pub(super) fn unreserve(&mut self, pod: &PodInfo) {
        let (works, pod) = (self.release(pod), pod.key());
        if !works.is_empty() {
            self.reservations.pre_bindings.spawn(api_tasks::named("scheduler/take-back", take_back(works, pod)));
        }
    }

    /// Calls Unreserve for a Pod that is tried again. Its status is written, and the next attempt begins, when plugins have taken back what
    /// they wrote.
    pub(super) fn unreserve_and_retry(&mut self, pod: Arc<PodInfo>, reason: Reason, message: String) {
        let works = self.release(&pod);
        if works.is_empty() {
            return self.write_status(pod, reason, message, Some(""), Next::Backoff);
        }
        let finished = self.finished.clone();
        self.reservations.pre_bindings.spawn(api_tasks::named("scheduler/take-back", async move {
            take_back(works, pod.key()).await;
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::TakenBack(pod, reason, message)).await;
        }));
    }

    /// Calls Unreserve. Returns what is to be written after it.
    fn release(&mut self, pod: &PodInfo) -> Vec<PreBinding> {
        let Some(Reservation { pod, node, mut state, pre_binding, .. }) = self.reservations.by_uid.remove(&pod.uid) else {
            return Vec::new();
        };
        pre_binding.iter().for_each(AbortHandle::abort);
        let Some(running) = self.profiles.get(&pod.scheduler_name) else { return Vec::new() };
        let events = running.profile.binding.unreserve(&mut state, &pod, &node, self.cache.snapshot_mut());
        let works = running.profile.binding.take_back(&state, &pod);
        events.into_iter().for_each(|event| self.happened(Occurrence::new(event)));
        works
    }

    /// Something ended that goes on beside the loop.
    pub(super) fn reservation_ended(&mut self, ended: Ended) {
        match ended {
            Ended::PreBinding(ended) => drop(api_tasks::joined(ended)),
            // Of a write that failed nobody else may tell the Pods that wait for its devices.
            Ended::Write if self.cache.dra_mut().end_all_pending() => self.happened(Occurrence::new(ClusterEvent::ResourceClaimUpdate)),
            Ended::Write => {}
        }
    }

    /// Binds the Pod after PreBind, if a plugin has work before the binding. The Pod is nominated to its node for that time, so that others
    /// see where it goes, and the next scheduler after this one begins there (upstream's `NominatedNodeNameForExpectation`, KEP-5278).
    pub(super) fn pre_bind(&mut self, pod: Arc<PodInfo>, node: String, started: Instant) {
        let (profile, reservation) = (self.profiles.get(&pod.scheduler_name), self.reservations.by_uid.get(&pod.uid));
        let (Some(running), Some(reservation)) = (profile, reservation) else { return self.bind(pod, node, started) };
        let Some(work) = running.profile.binding.pre_bind(&reservation.state, &pod, &node) else { return self.bind(pod, node, started) };
        if let Some(message) = self.reservations.is_full(&pod.namespace) {
            metrics::attempted(&pod.scheduler_name, Attempt::Error, started.elapsed());
            return self.binding_cycle_failed(pod, Reason::SchedulerError, message.to_owned());
        }
        let Some(reservation) = self.reservations.by_uid.get_mut(&pod.uid) else { return };
        let (finished, writer) = (self.finished.clone(), self.writer.clone());
        reservation.is_nominated = true;
        reservation.pre_binding = Some(self.reservations.pre_bindings.spawn(api_tasks::named("scheduler/pre-binding", async move {
            writer.nominate(&pod, &node).await;
            let result = work.await;
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::PreBinding(pod, started, result)).await;
        })));
    }

    /// Binds a Pod after PreBind, unless it was refused, or left the queue meanwhile.
    pub(super) fn pre_binding_finished(&mut self, pod: Arc<PodInfo>, started: Instant, result: Result<(), BindingError>) {
        let Some(reservation) = self.reservations.by_uid.get_mut(&pod.uid).filter(|one| one.pre_binding.is_some()) else { return };
        reservation.pre_binding = None;
        match result {
            Ok(()) => {
                let node = reservation.node.clone();
                self.bind(pod, node, started);
            }
            Err(error) => self.refused(pod, error, started),
        }
    }

    /// A plugin of Reserve or PreBind does not let the Pod be bound.
    pub(super) fn refused(&mut self, pod: Arc<PodInfo>, error: BindingError, started: Instant) {
        let (attempt, reason, message) = match error {
            BindingError::Unschedulable(message) => (Attempt::Unschedulable, Reason::Unschedulable, rejected(&message)),
            BindingError::Failed { .. } => (Attempt::Error, Reason::SchedulerError, error.to_string()),
        };
        metrics::attempted(&pod.scheduler_name, attempt, started.elapsed());
        self.binding_cycle_failed(pod, reason, message);
    }

    /// Ends PreBind of a Pod that left the queue: it is gone, or somebody else has bound it.
    pub(super) fn end_pre_binding(&mut self, uid: &str) {
        if let Some(Reservation { pod, pre_binding: Some(_), .. }) = self.reservations.by_uid.get(uid) {
            self.unreserve(&Arc::clone(pod));
        }
    }

    /// Writes what plugins decided for a Pod that no node is feasible for, unless Pods are preempted for it. A failure leaves things as they
    /// are: the next attempt of the Pod decides again.
    pub(super) fn make_room(&mut self, pod: &Arc<PodInfo>, nomination: &Nomination) {
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else { return };
        if !running.profile.binding.has_part_in(pod) {
            return;
        }
        // The state shares objects with the snapshot.
        let state = running.progress.take_state(&pod.uid);
        if matches!(nomination, Nomination::Preempts { .. }) {
            return;
        }
        for work in running.profile.binding.make_room(&state, pod) {
            let pod = pod.key();
            self.writes.spawn(api_tasks::named("scheduler/make-room", async move {
                if let Err(error) = work.await {
                    tracing::warn!(pod, error = api_client::error::chain(&error), "no room was made");
                }
            }));
        }
    }

    /// Calls PostBind for a Pod that is bound.
    pub(super) fn post_bind(&mut self, pod: &PodInfo) {
        let Some(Reservation { pod, node, state, .. }) = self.reservations.by_uid.remove(&pod.uid) else { return };
        if let Some(running) = self.profiles.get(&pod.scheduler_name) {
            running.profile.binding.post_bind(&state, &pod, &node);
        }
    }
}

/// Does what takes back what plugins wrote for a Pod.
async fn take_back(works: Vec<PreBinding>, pod: String) {
    for work in works {
        if let Err(error) = work.await {
            tracing::warn!(pod, error = api_client::error::chain(&error), "not taken back");
        }
    }
}

#[cfg(test)]
mod tests;
