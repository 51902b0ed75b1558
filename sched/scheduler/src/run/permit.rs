//! The binding cycle of a Pod, from the node that was chosen to the binding, with the Pods at permit; and external plugins in the loop: what
//! a cycle begins and ends with.

use std::sync::Arc;
use std::time::Duration;

use sched_framework::{ClusterEvent, ExternalPluginSet, PodInfo};
use tokio::time::Instant;

use super::{Finished, Next, RunningProfile, Scheduler, WRITES_IN_FLIGHT_MAX};
use crate::bind::{BindingResult, Reason};
use crate::diagnosis;
use crate::metrics::{self, Attempt};
use crate::queue::Occurrence;
use crate::waiting::{Permitted, WaitingPod};

/// How long the first cycles wait for external plugins: a registry may be slow, and other profiles need none of them.
pub(super) const LOAD_MAX: Duration = Duration::from_secs(10);

/// Loads the external plugins, until it is dropped.
pub(super) async fn load(externals: Option<Arc<dyn ExternalPluginSet>>) {
    match externals {
        Some(externals) => externals.run().await,
        None => std::future::pending().await,
    }
}

/// Waits until an external plugin has another version, or until that time. Without external plugins, this never happens.
pub(super) async fn changed(externals: Option<&dyn ExternalPluginSet>, until: Option<Instant>) {
    match (externals, until) {
        (Some(externals), Some(until)) => {
            let _elapsed = tokio::time::timeout_at(until, externals.changed()).await;
        }
        (Some(externals), None) => externals.changed().await,
        (None, _) => std::future::pending().await,
    }
}

impl RunningProfile {
    /// Begins a scheduling cycle. Returns why it must fail: an external plugin is not ready, and the cycle cannot do without it.
    pub(super) fn begin_cycle(&mut self) -> Option<String> {
        if self.profile.externals.is_empty() {
            return None;
        }
        let generations: Vec<u64> = self.profile.externals.iter().map(|plugin| plugin.begin_cycle()).collect();
        if generations != self.generations {
            self.progress.reset();
            self.generations = generations;
        }
        self.external_failure()
    }

    /// Why the cycle's result must not be used.
    pub(super) fn external_failure(&self) -> Option<String> {
        self.profile.externals.iter().find_map(|plugin| plugin.failure())
    }

    /// Ends the wait of a Pod at permit. Returns the Pod if it was waiting.
    pub(super) fn take_waiting(&mut self, uid: &str) -> Option<WaitingPod> {
        if self.waiting.is_empty() { None } else { self.waiting.take(uid) }
    }
}

impl Scheduler {
    /// Whether cycles may begin: the external plugins were loaded, or failed to load, or take too long.
    pub(super) fn has_externals(&self) -> bool {
        self.externals.as_ref().is_none_or(|set| set.is_ready() || self.externals_by <= Instant::now())
    }

    /// A new version of an external plugin may let Pods run that the one before ruled out.
    pub(super) fn externals_changed(&mut self) {
        self.happened(Occurrence::new(ClusterEvent::ExternalPluginUpdate));
    }

    /// A plugin failed: the Pod is tried again after its back-off.
    pub(super) fn attempt_failed(&mut self, pod: Arc<PodInfo>, message: String, started: Instant) {
        metrics::attempted(&pod.scheduler_name, Attempt::Error, started.elapsed());
        tracing::debug!(pod = pod.key(), message, "attempt failed");
        self.write_status(pod, Reason::SchedulerError, message, None, Next::Backoff);
    }

    /// The Pod was assumed on the node: it is bound when the permit plugins of its profile allow it.
    pub(super) fn assumed(&mut self, pod: Arc<PodInfo>, node: String, started: Instant) {
        let name = pod.scheduler_name.clone();
        match self.profiles.get_mut(&name) {
            Some(running) if !running.profile.permits.is_empty() && !running.waiting.has_room() => {
                let message = "too many Pods of the profile wait at permit".to_owned();
                self.permitted(WaitingPod::new(pod, node, started), Permitted::Failed(message));
            }
            Some(running) if !running.profile.permits.is_empty() => {
                running.waiting.add(WaitingPod::new(pod, node, started));
                self.permit(&name);
            }
            _ => self.pre_bind(pod, node, started),
        }
    }

    /// The time at which permit plugins are called again.
    pub(super) fn next_permit(&self) -> Option<Instant> {
        self.profiles.values().filter_map(|running| running.waiting.next_check()).min()
    }

    /// Calls the permit plugins of the profiles in which Pods have been waiting long enough.
    pub(super) fn permit_all(&mut self) {
        let now = Instant::now();
        let is_due = |running: &RunningProfile| running.waiting.next_check().is_some_and(|at| at <= now);
        let due: Vec<String> = self.profiles.iter().filter(|(_, running)| is_due(running)).map(|(name, _)| name.clone()).collect();
        for name in due {
            // A plugin that is not ready says so when it is called.
            let _failure = self.profiles.get_mut(&name).map(RunningProfile::begin_cycle);
            self.permit(&name);
        }
    }

    fn permit(&mut self, profile: &str) {
        let Some(running) = self.profiles.get_mut(profile) else { return };
        let decided = running.waiting.decide(&running.profile.permits, self.cache.snapshot(), Instant::now());
        decided.into_iter().for_each(|(waiting, decision)| self.permitted(waiting, decision));
    }

    fn permitted(&mut self, waiting: WaitingPod, decision: Permitted) {
        let waited = waiting.waited();
        let WaitingPod { pod, node, started, .. } = waiting;
        let (attempt, reason, message) = match decision {
            Permitted::Allowed => {
                waited.into_iter().for_each(|waited| metrics::permitted(Attempt::Scheduled, waited));
                return self.pre_bind(pod, node, started);
            }
            Permitted::Rejected(message) => (Attempt::Unschedulable, Reason::Unschedulable, message),
            Permitted::Failed(message) => (Attempt::Error, Reason::SchedulerError, message),
        };
        waited.into_iter().for_each(|waited| metrics::permitted(attempt, waited));
        metrics::attempted(&pod.scheduler_name, attempt, started.elapsed());
        self.binding_cycle_failed(pod, reason, message);
    }

    /// Ends a binding cycle whose Pod is not bound: the Pod leaves its node, is not nominated to a node any more, and is tried again after
    /// its back-off (upstream's `handleBindingCycleError`).
    pub(super) fn binding_cycle_failed(&mut self, pod: Arc<PodInfo>, reason: Reason, message: String) {
        tracing::debug!(pod = pod.key(), message, "not bound");
        // The state of the Pod is from before its nomination, which ends now.
        let pod = match self.reservations.nomination(&pod.uid) {
            Some(node) => Arc::new(PodInfo { nominated_node_name: node.to_owned(), ..PodInfo::clone(&pod) }),
            None => pod,
        };
        self.cache.forget_pod(&pod.uid);
        self.happened(Occurrence::new(ClusterEvent::AssignedPodDelete));
        self.unreserve_and_retry(pod, reason, message);
    }

    /// Rejects the victims of a preemption that wait at permit or are in PreBind: they go back to the queue. Returns these and the others,
    /// which are to be deleted.
    pub(super) fn reject_waiting(&mut self, victims: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
        let at_permit = |uid: &str| self.profiles.values().any(|running| running.waiting.contains(uid));
        let is_waiting = |victim: &Arc<PodInfo>| at_permit(&victim.uid) || self.reservations.in_pre_bind(&victim.uid);
        let (rejected, others): (Vec<_>, Vec<_>) = victims.into_iter().partition(is_waiting);
        for victim in &rejected {
            if let Some(waiting) = self.profiles.values_mut().find_map(|running| running.take_waiting(&victim.uid)) {
                self.permitted(waiting, Permitted::preempted());
            } else {
                self.binding_cycle_failed(Arc::clone(victim), Reason::Unschedulable, diagnosis::rejected("preempted"));
            }
        }
        (rejected, others)
    }

    /// Writes the binding beside the next cycles, as soon as few enough writes are in flight: a whole gang may come at once.
    pub(super) fn bind(&mut self, pod: Arc<PodInfo>, node: String, started: Instant) {
        self.bindings.push_back((pod, node, started));
        self.begin_bindings();
    }

    /// Begins the bindings that wait, in their order.
    pub(super) fn begin_bindings(&mut self) {
        while self.writes.len() < WRITES_IN_FLIGHT_MAX
            && let Some((pod, node, started)) = self.bindings.pop_front()
        {
            // A Pod that left the queue meanwhile is gone, or somebody else has bound it.
            if self.queue.contains(&pod.uid) {
                self.begin_binding(pod, node, started);
            } else {
                self.unreserve(&pod);
            }
        }
    }

    fn begin_binding(&mut self, pod: Arc<PodInfo>, node: String, started: Instant) {
        let (writer, finished) = (self.writer.clone(), self.finished.clone());
        let visit = self.extension.as_ref().and_then(|extension| extension.extenders.begin_binding(&pod));
        let (binder, binds) = match (&mut self.extension, visit) {
            (Some(extension), Some(visit)) => (Some((Arc::clone(&extension.extenders), visit)), &mut extension.binds),
            _ => (None, &mut self.writes),
        };
        let attempts = self.queue.attempts(&pod.uid);
        binds.spawn(api_tasks::named("scheduler/binding", async move {
            let _counted = metrics::binding();
            let result = match &binder {
                Some((extenders, _visit)) => extenders.bind(&writer, &pod, &node).await,
                None => writer.bind(&pod, &node).await,
            };
            drop(binder);
            let is_bound = matches!(result, BindingResult::Bound);
            let attempt = if is_bound { Attempt::Scheduled } else { Attempt::Error };
            metrics::attempted(&pod.scheduler_name, attempt, started.elapsed());
            if let Some((attempts, first)) = attempts.filter(|_| is_bound) {
                metrics::bound(attempts, first);
            }
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::Binding(pod, result)).await;
        }));
    }
}

#[cfg(test)]
mod tests;
