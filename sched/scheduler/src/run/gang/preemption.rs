//! Room for a gang that does not fit. The victims are chosen for the whole gang at once (`gang_preemption.rs`), and deleted only if the
//! gang fits afterwards. Its Pods are nominated to the nodes where they were placed in the choice, and wait until the victims are gone.
//! Until then the gang preempts nobody else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_client::error::chain;
use futures::future::join_all;
use sched_framework::{PodInfo, Snapshot};
use tokio::time::Instant;

use super::{Finished, GangCycle, Next, Nominated, STATUS_WRITES_MAX, Scheduler, Unplaced, sort_by_creation};
use crate::bind::{GroupCondition, Preemptor, Reason, Writer};
use crate::diagnosis::Rejectors;
use crate::gang_preemption::{Budgets, Choice, Gang, GangPreemption, Ineligible, ineligible};
use crate::metrics::{self, Attempt, Disruption, EvaluationResult, PreemptorKind};
use crate::plugins::{DEFAULT_PREEMPTION, group_disruptions, split_by_budget};

/// A gang whose victims are being chosen.
pub(super) struct Preempting {
    choice: GangPreemption,
    /// Why the gang does not fit.
    message: String,
    min_count: usize,
    started: Instant,
}

impl Preempting {
    /// Counts the choice, which has ended.
    fn ended(&self, result: EvaluationResult) {
        metrics::workload_preemption_attempted(result);
        metrics::preemption_evaluated(PreemptorKind::PodGroup, result, self.started.elapsed());
    }
}

/// What became of a preemption.
pub(in crate::run) struct EndedPreemption {
    /// The Pods of the gang.
    pub(super) pods: Vec<(Arc<PodInfo>, Next)>,
    /// Less important Pods that were nominated to the same nodes.
    displaced: Vec<Arc<PodInfo>>,
    /// The UIDs of the victims that are being deleted.
    deleted: Vec<String>,
    /// Whether these are all victims.
    is_complete: bool,
}

/// A preemption for a gang, to be written.
struct Preemption {
    preemptor: Preemptor,
    condition: Option<GroupCondition>,
    /// The Pods of the gang.
    unplaced: Vec<Unplaced>,
    /// The nodes to which they are nominated, by UID.
    nodes: HashMap<String, String>,
    displaced: Vec<Arc<PodInfo>>,
    /// Victims that were not bound yet, and are not bound now.
    rejected: Vec<Arc<PodInfo>>,
    /// Victims to be deleted.
    victims: Vec<Arc<PodInfo>>,
}

impl Preemption {
    /// Writes the nominations, then deletes the victims: a scheduler that begins in between knows for whom Pods are ending.
    async fn write(self, writer: &Writer) -> EndedPreemption {
        let Self { preemptor, condition, unplaced, nodes, displaced, rejected, victims } = self;
        if let Some(condition) = &condition {
            writer.group_condition(condition).await;
        }
        let node_of = |pod: &PodInfo| Some(nodes.get(&pod.uid).map_or("", String::as_str));
        for some in unplaced.chunks(STATUS_WRITES_MAX) {
            join_all(some.iter().map(|one| writer.not_scheduled(&one.pod, Reason::Unschedulable, &one.message, node_of(&one.pod)))).await;
        }
        for some in displaced.chunks(STATUS_WRITES_MAX) {
            join_all(some.iter().map(|other| writer.end_nomination(other))).await;
        }
        rejected.iter().for_each(|victim| writer.preempted(victim, &preemptor));
        let mut deleted = Vec::new();
        for some in victims.chunks(STATUS_WRITES_MAX) {
            let results = join_all(some.iter().map(|victim| writer.preempt(victim, &preemptor))).await;
            for (victim, result) in some.iter().zip(results) {
                match result {
                    Ok(()) => deleted.push(victim.uid.clone()),
                    Err(error) => tracing::warn!(victim = victim.key(), error = chain(&error), "preemption failed"),
                }
            }
        }
        let is_complete = deleted.len() == victims.len();
        let pods = unplaced.into_iter().map(|Unplaced { pod, next, .. }| (pod, next)).collect();
        EndedPreemption { pods, displaced, deleted, is_complete }
    }
}

/// Whether a Pod is being deleted for a more important one; the informer may not have the deletions of `deleted` yet.
fn is_leaving(deleted: &HashSet<String>) -> impl Fn(&PodInfo) -> bool {
    move |pod| pod.deleting && pod.preempted || deleted.contains(&pod.uid)
}

/// What the end of these Pods disrupts.
fn disruption(victims: &[Arc<PodInfo>], snapshot: &Snapshot) -> Disruption {
    let (violating, _) = split_by_budget(victims.iter().collect(), |victim| vec![victim.as_ref()], snapshot.budgets.values());
    Disruption { victims: victims.len(), groups: group_disruptions(victims, snapshot), violations: violating.len() }
}

/// The message of a gang about which preemption has something to say.
fn joined(message: &str, preemption: &str) -> String {
    format!("{message}, pod group preemption: {preemption}")
}

impl Scheduler {
    /// Looks for Pods to preempt for a gang all of whose Pods were taken back.
    pub(super) fn begin_preempting(&mut self, cycle: GangCycle, message: String) {
        let Some(gang) = self.preemptor(&cycle) else { return self.gang_unschedulable(cycle, &message, &Nominated::None) };
        let ineligible = ineligible(&gang, self.cache.snapshot(), is_leaving(&self.preempted_for_gangs));
        match ineligible {
            Some(Ineligible::Waits) => {
                metrics::workload_preemption_attempted(EvaluationResult::Success);
                self.gang_unschedulable(cycle, &joined(&message, "ongoing preemption on nominated nodes"), &Nominated::AsBefore);
            }
            Some(Ineligible::Never) => {
                metrics::workload_preemption_attempted(EvaluationResult::Unschedulable);
                self.gang_unschedulable(cycle, &joined(&message, "not eligible due to preemptionPolicy=Never."), &Nominated::None);
            }
            None => self.begin_choice(cycle, gang, message, Budgets::Respected, Instant::now()),
        }
    }

    fn begin_choice(&mut self, mut cycle: GangCycle, gang: Gang, message: String, budgets: Budgets, started: Instant) {
        let min_count = gang.min_count;
        match GangPreemption::begin(gang, &self.cache, budgets, is_leaving(&self.preempted_for_gangs)) {
            Ok(choice) => {
                cycle.preempting = Some(Box::new(Preempting { choice, message, min_count, started }));
                self.gang_cycle = Some(cycle);
            }
            Err(why) => {
                metrics::workload_preemption_attempted(EvaluationResult::Unschedulable);
                self.gang_unschedulable(cycle, &joined(&message, &why.to_string()), &Nominated::None);
            }
        }
    }

    /// The gang as a preemptor; `None` if its profile preempts nothing.
    fn preemptor(&self, cycle: &GangCycle) -> Option<Gang> {
        let mut pods: Vec<_> = cycle.remaining.iter().chain(cycle.unplaced.iter().map(|one| &one.pod)).cloned().collect();
        pods.retain(|pod| self.queue.in_flight(&pod.uid).is_some());
        sort_by_creation(&mut pods);
        let profile = &self.profiles.get(&pods.first()?.scheduler_name)?.profile;
        let info = self.groups.info(&cycle.group)?;
        let preempts = profile.post_filters.iter().any(|plugin| plugin.name() == DEFAULT_PREEMPTION);
        preempts.then_some(Gang { key: Arc::clone(&cycle.group), min_count: info.min_count?, priority: info.priority, pods })
    }

    /// Makes the next step of the choice.
    pub(super) fn continue_preempting(&mut self, mut cycle: GangCycle, mut preempting: Box<Preempting>) {
        if self.groups.min_count(&cycle.group) != Some(preempting.min_count) {
            return self.abandon_gang(cycle);
        }
        let first = cycle.unplaced.first().map(|one| &one.pod).or(cycle.remaining.front());
        let Some(running) = first.and_then(|pod| self.profiles.get_mut(&pod.scheduler_name)) else { return self.abandon_gang(cycle) };
        if let Some(message) = running.begin_cycle() {
            preempting.ended(EvaluationResult::Error);
            return self.gang_failed(cycle, message);
        }
        let choice = preempting.choice.step(&running.profile);
        if let Some(message) = running.external_failure() {
            preempting.ended(EvaluationResult::Error);
            return self.gang_failed(cycle, message);
        }
        match choice {
            None => {
                cycle.preempting = Some(preempting);
                self.gang_cycle = Some(cycle);
            }
            Some(Choice::Infeasible(_)) if preempting.choice.spares_pods() => match self.preemptor(&cycle) {
                Some(gang) => self.begin_choice(cycle, gang, preempting.message, Budgets::Violated, preempting.started),
                None => {
                    preempting.ended(EvaluationResult::Unschedulable);
                    self.gang_unschedulable(cycle, &preempting.message, &Nominated::None);
                }
            },
            Some(Choice::Infeasible(why)) => {
                preempting.ended(EvaluationResult::Unschedulable);
                self.gang_unschedulable(cycle, &joined(&preempting.message, &why), &Nominated::None);
            }
            Some(Choice::Feasible { placed, victims }) => {
                preempting.ended(EvaluationResult::Success);
                self.preempt_for_gang(cycle, &preempting.message, placed, victims);
            }
        }
    }

    /// Nominates the Pods of the gang and deletes the victims. The Pods stay in flight until the deletions are written.
    fn preempt_for_gang(&mut self, mut cycle: GangCycle, message: &str, placed: Vec<(Arc<PodInfo>, String)>, victims: Vec<Arc<PodInfo>>) {
        let snapshot = self.cache.snapshot();
        let is_stale = |pod: &PodInfo, node: &str| self.queue.in_flight(&pod.uid).is_none() || snapshot.node(node).is_none();
        let group = self.groups.info(&cycle.group).cloned();
        // Without one of these Pods or nodes, the choice does not hold: the gang is tried again.
        let (Some(group), Some((first, _)), false) = (group, placed.first(), placed.iter().any(|(pod, node)| is_stale(pod, node))) else {
            return self.abandon_gang(cycle);
        };
        let preemptor = Preemptor::group(&group, &first.scheduler_name);
        let victims: Vec<_> = victims.into_iter().filter(|victim| self.cache.pod(&victim.uid).is_some()).collect();
        let message = joined(message, &format!("found a placement for podgroup, preempting {} victims", victims.len()));
        tracing::debug!(group = &*cycle.group, victims = victims.len(), "room is made");
        metrics::preempted(PreemptorKind::PodGroup, disruption(&victims, self.cache.snapshot()));
        cycle.attempted(Attempt::WaitingOnPreemption);
        let condition = self.condition(&cycle.group, "Unschedulable", &message);
        self.end_gang(&mut cycle, &message, || Next::Unschedulable(Rejectors::default()));
        let mut unplaced = cycle.unplaced;
        self.count_unplaced(&mut unplaced, cycle.started, Reason::Unschedulable);
        let displaced = self.nominate_gang(&unplaced, &placed);
        let (rejected, victims) = self.reject_waiting(victims);
        let nodes = placed.into_iter().map(|(pod, node)| (pod.uid.clone(), node)).collect();
        let preemption = Preemption { preemptor, condition, unplaced, nodes, displaced, rejected, victims };
        let (writer, finished, started) = (self.writer.clone(), self.finished.clone(), Instant::now());
        self.writes.spawn(api_tasks::named("scheduler/gang-preemption", async move {
            let ended = preemption.write(&writer).await;
            metrics::preemption_executed(PreemptorKind::PodGroup, ended.is_complete, started.elapsed());
            // The receiver is gone only at shutdown.
            let _gone = finished.send(Finished::GangPreemption(ended)).await;
        }));
    }

    /// Nominates the Pods that were placed in the choice, and no others of the gang. Returns the less important Pods that were nominated to
    /// the same nodes, and are not any more.
    fn nominate_gang(&mut self, unplaced: &[Unplaced], placed: &[(Arc<PodInfo>, String)]) -> Vec<Arc<PodInfo>> {
        let nominated = &self.cache.snapshot().nominated;
        let mut displaced: Vec<Arc<PodInfo>> = placed.iter().flat_map(|(pod, node)| nominated.after(pod, node)).cloned().collect();
        displaced.sort_by(|one, other| one.uid.cmp(&other.uid));
        displaced.dedup_by(|one, other| one.uid == other.uid);
        for other in &displaced {
            self.cache.end_nomination(&other.uid);
        }
        unplaced.iter().for_each(|one| self.end_nomination(&one.pod));
        placed.iter().for_each(|(pod, node)| self.cache.nominate(Arc::clone(pod), node));
        displaced
    }

    /// The gang waits for the end of its victims. After a failure it is tried again, and waits then for those that are ending.
    pub(in crate::run) fn gang_preemption_finished(&mut self, ended: EndedPreemption) {
        let EndedPreemption { pods, displaced, deleted, is_complete } = ended;
        displaced.iter().for_each(|other| self.queue.activate(&other.uid));
        // The informer may not have these deletions yet.
        self.preempted_for_gangs.extend(deleted.into_iter().filter(|uid| self.cache.pod(uid).is_some()));
        for (pod, next) in pods {
            self.status_written(&pod, if is_complete { next } else { Next::Backoff });
        }
    }
}
