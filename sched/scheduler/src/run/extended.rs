//! The Pods that extenders are interested in. Their nodes are filtered, scored and chosen in two cycles with calls of the extenders
//! between them; meanwhile the loop goes on with other Pods, and the Pod is in flight. Each extender has a bound of its own: a slow or
//! broken one keeps Pods waiting that it is interested in, and no others.

use std::sync::Arc;

use sched_framework::{PodInfo, Preemption};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::{Finished, Next, Scheduler};
use crate::bind::Reason;
use crate::cycle::{self, Offer};
use crate::diagnosis::FitError;
use crate::extender::{Evaluated, Extenders, Proposal};
use crate::metrics::{self, Attempt};
use crate::plugins::select_candidate;

/// The extenders and the tasks that call them.
pub(super) struct Extension {
    pub extenders: Arc<Extenders>,
    /// Evaluations of nodes and of preemptions.
    calls: JoinSet<()>,
    /// Bindings by an extender: decisions that were made.
    pub binds: JoinSet<()>,
}

/// What came of the calls.
pub(super) enum Answer {
    /// Of those about nodes.
    Nodes(Offer, Evaluated),
    /// Of those about the candidates of a preemption, for a Pod that no node is feasible for: what is left of them, or why a call
    /// failed.
    Victims(FitError, Result<Vec<Arc<Preemption>>, String>),
}

impl Extension {
    /// No calls yet.
    pub fn new(extenders: Arc<Extenders>) -> Self {
        Self { extenders, calls: JoinSet::new(), binds: JoinSet::new() }
    }
}

/// The next end of the calls for a Pod, or of a Pod's calls to one of several extenders; `None` without extenders.
pub(super) async fn ended(extension: &mut Option<Extension>) -> Option<Result<(), JoinError>> {
    let Extension { extenders, calls, binds } = extension.as_mut()?;
    tokio::select! {
        Some(ended) = calls.join_next() => Some(ended),
        Some(ended) = binds.join_next() => Some(ended),
        () = extenders.visit_ended() => Some(Ok(())),
    }
}

/// Waits for the bindings. Nothing was decided yet in the other calls.
pub(super) async fn finish(extension: &mut Option<Extension>) {
    if let Some(extension) = extension {
        extension.calls.shutdown().await;
        while extension.binds.join_next().await.is_some() {}
    }
}

impl Scheduler {
    /// Parks Pods for which an extender would be called that enough calls of are under way.
    pub(super) fn park(&mut self) {
        if let Some(extension) = &self.extension {
            self.queue.park_while(|pod| extension.extenders.waits_for(pod));
        }
    }

    /// Makes parked Pods active whose extenders may be called.
    pub(super) fn unpark(&mut self) {
        if let Some(extension) = &self.extension {
            self.queue.unpark(|indexes| extension.extenders.have_room(indexes));
        }
    }

    /// Finds the feasible nodes of the Pod and calls the extenders about them.
    pub(super) fn begin_evaluation(&mut self, pod: Arc<PodInfo>, started: Instant) {
        let (Some(running), Some(extension)) = (self.profiles.get_mut(&pod.scheduler_name), &mut self.extension) else { return };
        let result = cycle::feasible_nodes(&running.profile, &pod, self.cache.snapshot(), &mut running.progress);
        if let Some(message) = running.external_failure() {
            return self.attempt_failed(pod, message, started);
        }
        match result {
            Ok(offer) => {
                let (extenders, finished) = (Arc::clone(&extension.extenders), self.finished.clone());
                let visit = extenders.begin_judging(&pod);
                extension.calls.spawn(api_tasks::named("scheduler/extenders", async move {
                    let evaluated = extenders.evaluate(&pod, &offer, visit).await;
                    // The receiver is gone only at shutdown.
                    let _gone = finished.send(Finished::Extenders(pod, started, Answer::Nodes(offer, evaluated))).await;
                }));
            }
            Err(failure) => {
                metrics::cycled(started.elapsed());
                metrics::attempted(&pod.scheduler_name, Attempt::Unschedulable, started.elapsed());
                self.no_node(pod, *failure);
            }
        }
    }

    /// Goes on with a Pod after the calls for it. The cluster and the Pod may have changed meanwhile.
    pub(super) fn extenders_answered(&mut self, pod: Arc<PodInfo>, started: Instant, answer: Answer) {
        let (Some(newest), Some(running)) = (self.queue.in_flight(&pod.uid), self.profiles.get(&pod.scheduler_name)) else { return };
        if self.default_spread.apply(Arc::clone(newest), &running.default_constraints).placement_differs(&pod) {
            return self.queue.move_to_backoff(&pod.uid, Instant::now());
        }
        match answer {
            Answer::Nodes(offer, evaluated) => self.nodes_evaluated(pod, started, offer, evaluated),
            Answer::Victims(error, Ok(candidates)) => self.victims_chosen(pod, candidates, error),
            Answer::Victims(error, Err(message)) => self.nothing_preempted(pod, error, &message),
        }
    }

    fn nodes_evaluated(&mut self, pod: Arc<PodInfo>, started: Instant, offer: Offer, evaluated: Evaluated) {
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else { return };
        if let Some(message) = running.begin_cycle() {
            return self.attempt_failed(pod, message, started);
        }
        let snapshot = self.cache.snapshot();
        match evaluated {
            // The informer will say so. Until then the Pod stays in flight.
            Evaluated::PodGone => {}
            Evaluated::Allowed(nodes) => {
                let node = cycle::best_of(&running.profile, &pod, snapshot, &mut running.progress, &nodes);
                metrics::cycled(started.elapsed());
                if let Some(message) = running.external_failure() {
                    return self.attempt_failed(pod, message, started);
                }
                match node {
                    Some(node) => self.assume(pod, node, started),
                    // Other Pods took all of them.
                    None => self.queue.move_to_backoff(&pod.uid, Instant::now()),
                }
            }
            Evaluated::NoneAllowed(rejected) => {
                let failure = cycle::unschedulable(&running.profile, &pod, snapshot, &mut running.progress, (offer, &rejected));
                metrics::cycled(started.elapsed());
                if let Some(message) = running.external_failure() {
                    return self.attempt_failed(pod, message, started);
                }
                match failure {
                    Some(failure) => {
                        metrics::attempted(&pod.scheduler_name, Attempt::Unschedulable, started.elapsed());
                        self.no_node(pod, failure);
                    }
                    None => self.queue.move_to_backoff(&pod.uid, Instant::now()),
                }
            }
            Evaluated::Failed(message) => {
                tracing::warn!(pod = pod.key(), message, "extender failed");
                metrics::attempted(&pod.scheduler_name, Attempt::Error, started.elapsed());
                self.end_nomination(&pod);
                self.write_status(pod, Reason::SchedulerError, message, Some(""), Next::Backoff);
            }
        }
    }

    /// Preempts the victims of the best candidate, if no extender has a say in that.
    pub(super) fn preempt_or_consult(&mut self, pod: Arc<PodInfo>, best: Arc<Preemption>, others: Vec<Arc<Preemption>>, error: FitError) {
        let Some(extension) = self.extension.as_mut().filter(|extension| extension.extenders.preempts(&pod)) else {
            return self.preempt(pod, best, error.to_string(), error.rejectors());
        };
        let snapshot = self.cache.snapshot();
        let proposal = |preemption: Arc<Preemption>| Some(Proposal { node: Arc::clone(snapshot.node(&preemption.node)?), preemption });
        let candidates: Vec<Proposal> = std::iter::once(best).chain(others).filter_map(proposal).collect();
        let (extenders, finished, started) = (Arc::clone(&extension.extenders), self.finished.clone(), Instant::now());
        let visit = extenders.begin_preemption(&pod);
        extension.calls.spawn(api_tasks::named("scheduler/extenders", async move {
            let result = extenders.process_preemption(&pod, candidates, visit).await;
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::Extenders(pod, started, Answer::Victims(error, result))).await;
        }));
    }

    /// Preempts the victims of the best candidate that the extenders left, unless the Pod fits without that by now.
    fn victims_chosen(&mut self, pod: Arc<PodInfo>, candidates: Vec<Arc<Preemption>>, error: FitError) {
        let Some((best, _)) = select_candidate(candidates) else {
            return self.nothing_preempted(pod, error, "no candidate node for preemption");
        };
        let Some(running) = self.profiles.get_mut(&pod.scheduler_name) else { return };
        if let Some(message) = running.begin_cycle() {
            return self.write_status(pod, Reason::SchedulerError, message, None, Next::Backoff);
        }
        let snapshot = self.cache.snapshot();
        let fits = snapshot.node(&best.node).is_none() || cycle::fits(&running.profile, &pod, snapshot, &mut running.progress, &best.node);
        if let Some(message) = running.external_failure() {
            return self.write_status(pod, Reason::SchedulerError, message, None, Next::Backoff);
        }
        if fits {
            return self.queue.move_to_backoff(&pod.uid, Instant::now());
        }
        self.preempt(pod, best, error.to_string(), error.rejectors());
    }

    fn nothing_preempted(&mut self, pod: Arc<PodInfo>, mut error: FitError, why: &str) {
        error.set_post_filter(format!("preemption: {why}"));
        self.write_status(pod, Reason::Unschedulable, error.to_string(), None, Next::Unschedulable(error.rejectors()));
    }
}

#[cfg(test)]
mod tests;
