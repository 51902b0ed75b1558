//! What plugins reserve for a Pod from the choice of its node to the end of its binding, and PreBind between the two. A Pod that no plugin
//! has a part in has no reservation.

use std::collections::HashMap;
use std::sync::Arc;

use sched_framework::{CycleState, PodInfo};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

use super::{Finished, Scheduler};
use crate::bind::Reason;
use crate::diagnosis::rejected;
use crate::metrics::{self, Attempt};
use crate::plugins::BindingError;

/// The highest number of Pods in PreBind, which may wait for minutes.
const PRE_BINDINGS_MAX: usize = 1_000;

/// The reservations by the UID of their Pods.
#[derive(Default)]
pub(super) struct Reservations {
    by_uid: HashMap<String, Reservation>,
    pre_bindings: JoinSet<()>,
}

struct Reservation {
    pod: Arc<PodInfo>,
    node: String,
    state: CycleState,
    /// PreBind, while it is under way.
    pre_binding: Option<AbortHandle>,
}

impl Reservations {
    /// Whether PreBind of the Pod is under way.
    pub fn in_pre_bind(&self, uid: &str) -> bool {
        self.by_uid.get(uid).is_some_and(|reservation| reservation.pre_binding.is_some())
    }

    /// The next end of a PreBind; `None` without one.
    pub async fn ended(&mut self) -> Option<Result<(), JoinError>> {
        self.pre_bindings.join_next().await
    }

    /// Ends PreBind of all Pods: none of them is bound.
    pub async fn shutdown(&mut self) {
        self.pre_bindings.shutdown().await;
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
        let reservation = Reservation { pod: Arc::clone(pod), node: node.to_owned(), state, pre_binding: None };
        self.reservations.by_uid.insert(pod.uid.clone(), reservation);
        result
    }

    /// Calls Unreserve, if something was reserved for the Pod.
    pub(super) fn unreserve(&mut self, pod: &PodInfo) {
        let Some(Reservation { pod, node, mut state, pre_binding }) = self.reservations.by_uid.remove(&pod.uid) else { return };
        pre_binding.iter().for_each(AbortHandle::abort);
        if let Some(running) = self.profiles.get(&pod.scheduler_name) {
            running.profile.binding.unreserve(&mut state, &pod, &node, self.cache.snapshot_mut());
        }
    }

    /// Binds the Pod after PreBind, if a plugin has work before the binding.
    pub(super) fn pre_bind(&mut self, pod: Arc<PodInfo>, node: String, started: Instant) {
        let (profile, reservation) = (self.profiles.get(&pod.scheduler_name), self.reservations.by_uid.get_mut(&pod.uid));
        let (Some(running), Some(reservation)) = (profile, reservation) else { return self.bind(pod, node, started) };
        let Some(work) = running.profile.binding.pre_bind(&reservation.state, &pod, &node) else { return self.bind(pod, node, started) };
        if self.reservations.pre_bindings.len() >= PRE_BINDINGS_MAX {
            metrics::attempted(&pod.scheduler_name, Attempt::Error, started.elapsed());
            return self.binding_cycle_failed(pod, Reason::SchedulerError, "too many Pods are in PreBind".to_owned());
        }
        let finished = self.finished.clone();
        reservation.pre_binding = Some(self.reservations.pre_bindings.spawn(api_tasks::named("scheduler/pre-binding", async move {
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

    /// Writes what plugins decided for a Pod that no node is feasible for. A failure leaves things as they are: the Pod is tried again.
    pub(super) fn make_room(&mut self, pod: &Arc<PodInfo>) {
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else { return };
        if !running.profile.binding.has_part_in(pod) {
            return;
        }
        let state = running.progress.take_state(&pod.uid);
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

#[cfg(test)]
mod tests;
