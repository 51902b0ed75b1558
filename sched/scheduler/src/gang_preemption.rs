//! The choice of the Pods that are preempted for a gang, on a copy of the cache: upstream's workload-aware preemption (KEP-5710).
//!
//! All Pods of a lower priority leave the copy, and the gang is placed in what is left. If enough of it fits, the Pods come back one by
//! one, the most important first, and stay if the gang still fits where it was placed; the others are the victims. So nothing is
//! preempted for a gang that does not fit afterwards. A choice for a large gang, or among many Pods, has several steps.
//!
//! Upstream places the gang once, without regard to PodDisruptionBudgets. Here Pods whose budgets allow no disruption stay at first; they
//! leave only in a second choice, when the gang does not fit otherwise.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use sched_framework::{PodInfo, Snapshot};

use crate::cache::Cache;
use crate::cycle::{self, Progress};
use crate::plugins::{Feasibility, IndivisibleGroups, Profile, Unit, placement_feasible, split_by_budget};

/// The number of Pods that a step tries on nodes: as many take a few milliseconds.
const TRIALS_PER_STEP: usize = 64;

/// A gang that does not fit.
pub(crate) struct Gang {
    /// `namespace/name` of its PodGroup.
    pub key: Arc<str>,
    /// The number of its Pods that must be on nodes.
    pub min_count: usize,
    /// Its priority.
    pub priority: i32,
    /// Its Pods without a node, in the order in which they are tried.
    pub pods: Vec<Arc<PodInfo>>,
}

/// Why a gang preempts nothing now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ineligible {
    /// One of its Pods may not preempt others.
    Never,
    /// Pods that were preempted for it are still ending.
    Waits,
}

/// Whether the gang may preempt Pods now. `is_leaving` are Pods that are being deleted for a more important one.
pub(crate) fn ineligible(gang: &Gang, snapshot: &Snapshot, is_leaving: impl Fn(&PodInfo) -> bool) -> Option<Ineligible> {
    if gang.pods.iter().any(|pod| !pod.may_preempt) {
        return Some(Ineligible::Never);
    }
    let nodes: HashSet<&str> = gang.pods.iter().filter_map(|pod| snapshot.nominated.node_of(&pod.uid)).collect();
    let mut on_nodes = nodes.into_iter().filter_map(|node| snapshot.node(node)).flat_map(|node| node.pods.iter());
    on_nodes.any(|pod| pod.priority < gang.priority && is_leaving(pod)).then_some(Ineligible::Waits)
}

/// The result of a choice.
#[derive(Debug)]
pub(crate) enum Choice {
    /// Enough Pods of the gang fit on these nodes once the victims are gone.
    Feasible {
        /// The Pods of the gang, each with its node.
        placed: Vec<(Arc<PodInfo>, String)>,
        /// The Pods to preempt, the most important first within each unit. Pods that are ending anyway are not among them.
        victims: Vec<Arc<PodInfo>>,
    },
    /// The gang does not fit whatever leaves, for this reason.
    Infeasible(String),
}

/// Why there is nothing to choose, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoChoice {
    /// No Pod on a node has a lower priority.
    #[error("No preemption victims found for incoming preemptor")]
    NoVictims,
    /// The gang has too few Pods.
    #[error("{0}")]
    Infeasible(String),
}

/// Whether Pods may be preempted whose budgets allow no disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budgets {
    /// No, as long as there are other Pods to preempt.
    Respected,
    /// They may.
    Violated,
}

/// A choice that is under way.
pub(crate) struct GangPreemption {
    group: Arc<str>,
    min_count: usize,
    /// The copy.
    cache: Cache,
    progress: Progress,
    /// The Pods of the gang that were not tried yet.
    remaining: VecDeque<Arc<PodInfo>>,
    /// The Pods of the gang that are assumed on nodes.
    placed: Vec<(Arc<PodInfo>, String)>,
    /// Whether what fits on a node depends on nothing but the node, for each Pod of the gang.
    depends_on_node_alone: bool,
    /// Whether Pods stay because of their budgets alone.
    spares_pods: bool,
    /// The units that may come back, in the order in which they are tried.
    candidates: VecDeque<Unit>,
    victims: Vec<Arc<PodInfo>>,
}

impl GangPreemption {
    /// Takes Pods of a lower priority away. The error says why nothing can be preempted.
    pub fn begin(gang: Gang, cache: &Cache, budgets: Budgets, is_leaving: impl Fn(&PodInfo) -> bool) -> Result<Self, NoChoice> {
        let snapshot = cache.snapshot();
        let on_nodes = snapshot.nodes.iter().flat_map(|node| node.pods.iter().map(move |pod| (pod, node.index)));
        // Pods that are ending anyway make room for whoever needs it.
        let is_ending = |pod: &PodInfo| pod.deleting || is_leaving(pod);
        let (ending, staying): (Vec<_>, Vec<_>) = on_nodes.partition(|(pod, _)| is_ending(pod));
        let mut units = IndivisibleGroups::new(snapshot, |pod| !is_ending(pod)).units_below(gang.priority, staying.into_iter());
        let ending: Vec<_> = ending.into_iter().map(|(pod, _)| Arc::clone(pod)).filter(|pod| pod.priority < gang.priority).collect();
        if units.is_empty() && ending.is_empty() {
            return Err(NoChoice::NoVictims);
        }
        if let Feasibility::Infeasible(message) = placement_feasible(gang.min_count, cache.scheduled_in(&gang.key), gang.pods.len()) {
            return Err(NoChoice::Infeasible(message));
        }
        units.sort_by(Unit::by_importance);
        let (mut violating, others) = split_by_budget(units, Unit::pods, snapshot.budgets.values());
        let spares_pods = budgets == Budgets::Respected && !violating.is_empty() && !(others.is_empty() && ending.is_empty());
        if spares_pods {
            violating.clear();
        }
        // Those whose budgets allow no disruption come back first.
        let candidates: VecDeque<Unit> = violating.into_iter().chain(others).collect();
        let mut copy = cache.clone();
        let of_units = candidates.iter().flat_map(|unit| unit.pods.iter().map(|(pod, _)| pod));
        of_units.chain(&ending).for_each(|pod| copy.forget_pod(&pod.uid));
        for pod in &gang.pods {
            copy.end_nomination(&pod.uid);
        }
        Ok(Self {
            group: gang.key,
            min_count: gang.min_count,
            cache: copy,
            progress: Progress::default(),
            remaining: gang.pods.into(),
            placed: Vec::new(),
            depends_on_node_alone: true,
            spares_pods,
            candidates,
            victims: Vec::new(),
        })
    }

    /// Whether more Pods could be preempted, whose budgets do not allow that.
    pub fn spares_pods(&self) -> bool {
        self.spares_pods
    }

    /// Makes the next step. `None` while there are more.
    pub fn step(&mut self, profile: &Profile) -> Option<Choice> {
        let mut trials = 0;
        while trials < TRIALS_PER_STEP {
            match placement_feasible(self.min_count, self.cache.scheduled_in(&self.group), self.remaining.len()) {
                Feasibility::Infeasible(message) => return Some(Choice::Infeasible(message)),
                Feasibility::Wait => {
                    let pod = self.remaining.pop_front()?;
                    self.assume(profile, pod);
                    trials += 1;
                }
                Feasibility::Feasible => {
                    let Some(unit) = self.candidates.pop_front() else {
                        let (placed, victims) = (std::mem::take(&mut self.placed), std::mem::take(&mut self.victims));
                        return Some(Choice::Feasible { placed, victims });
                    };
                    trials += self.reprieve(profile, unit).max(1);
                }
            }
        }
        None
    }

    /// Assumes a Pod of the gang on the best node, if there is one.
    fn assume(&mut self, profile: &Profile, pod: Arc<PodInfo>) {
        self.cache.order_nodes();
        let Ok(node) = cycle::schedule_member(profile, &pod, self.cache.snapshot(), &mut self.progress) else { return };
        let mut state = self.progress.take_state(&pod.uid);
        let is_alone = cycle::depends_on_node_alone(profile, &pod, self.cache.snapshot(), &mut self.progress);
        self.cache.assume_pod(Arc::clone(&pod), &node);
        if profile.binding.has_part_in(&pod) && profile.binding.reserve(&mut state, &pod, &node, self.cache.snapshot_mut()).is_err() {
            profile.binding.unreserve(&mut state, &pod, &node, self.cache.snapshot_mut());
            return self.cache.forget_pod(&pod.uid);
        }
        self.depends_on_node_alone &= is_alone;
        self.placed.push((pod, node));
    }

    /// Puts a unit back if the gang fits beside it. Returns the number of Pods of the gang that were tried for that.
    fn reprieve(&mut self, profile: &Profile, unit: Unit) -> usize {
        let nodes: Vec<String> = unit.pods.iter().map(|(_, node)| self.name_of(*node)).collect();
        for ((pod, _), node) in unit.pods.iter().zip(&nodes) {
            self.cache.assume_pod(Arc::clone(pod), node);
        }
        // A Pod with affinity has a say in other nodes too.
        let is_local = self.depends_on_node_alone && unit.pods.iter().all(|(pod, _)| pod.pod_affinity.is_empty());
        let affected: Vec<_> = self.placed.iter().filter(|(_, node)| !is_local || nodes.contains(node)).cloned().collect();
        affected.iter().for_each(|(pod, _)| self.cache.forget_pod(&pod.uid));
        let mut fits = true;
        // In the order in which they were placed, each beside those before it.
        for (pod, node) in &affected {
            fits = fits && cycle::fits(profile, pod, self.cache.snapshot(), &mut self.progress, node);
            self.cache.assume_pod(Arc::clone(pod), node);
        }
        if !fits {
            unit.pods.iter().for_each(|(pod, _)| self.cache.forget_pod(&pod.uid));
            self.victims.extend(unit.pods.into_iter().map(|(pod, _)| pod));
        }
        affected.len()
    }

    /// The name of the node of that index; the copy has the nodes of the cache.
    fn name_of(&self, node: usize) -> String {
        self.cache.snapshot().nodes.get(node).map(|node| node.name.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
