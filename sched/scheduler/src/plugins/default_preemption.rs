//! Preemption: on some node, the least important Pods whose absence lets a more important Pod fit. The plugin decides; the
//! scheduler disrupts the victims. Upstream's `DefaultPreemption` is the model.

mod dry_runs;
mod units;

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sched_framework::{
    CycleState, DisruptionBudget, Filters, NodeInfo, Plugin, PodChange, PodInfo, PostFilterPlugin, PostFilterResult, Preemption, Reason,
    Rejection, Scope, Snapshot, Status,
};

use self::dry_runs::{DryRun, DryRuns};
pub(crate) use self::units::{IndivisibleGroups, Unit, group_disruptions};
use crate::config::DefaultPreemptionArgs;
use crate::diagnosis::node_reasons;
use crate::metrics::{self, EvaluationResult, PreemptorKind};

/// The name of the plugin.
pub(crate) const DEFAULT_PREEMPTION: &str = "DefaultPreemption";

pub(crate) struct DefaultPreemption {
    args: DefaultPreemptionArgs,
}

impl DefaultPreemption {
    pub(super) fn new(args: &DefaultPreemptionArgs) -> Self {
        Self { args: args.clone() }
    }
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        DEFAULT_PREEMPTION
    }
}

impl PostFilterPlugin for DefaultPreemption {
    fn post_filter(
        &self,
        filters: &Filters,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        resolvable: &[usize],
        offset: usize,
    ) -> PostFilterResult {
        metrics::pod_preemption_attempted();
        if let Some(message) = ineligible(pod, snapshot, resolvable) {
            return PostFilterResult::Unschedulable { message: format!("preemption: {message}"), stays_nominated: true };
        }
        let started = Instant::now();
        let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
        let mut candidates: Vec<Arc<Preemption>> = Vec::new();
        let mut dry_runs = state.read_mut::<DryRuns>(self.name()).map(std::mem::take).unwrap_or_default();
        dry_runs.follow(snapshot);
        let groups = IndivisibleGroups::new(snapshot, |_| true);
        // Otherwise what fits on a node, or who leaves it, depends on other nodes too.
        let is_of_node = filters.in_scope(Scope::Cluster, state, pod).is_empty() && snapshot.indivisible_groups.is_empty();
        let enough = self.args.candidates(resolvable.len());
        let order = resolvable.iter().cycle().skip(offset % resolvable.len().max(1)).take(resolvable.len());
        for node in order.filter_map(|index| snapshot.nodes.get(*index)) {
            let mut run = || select_victims(filters, state, pod, snapshot, (node, &groups));
            let depends_on_node = is_of_node && snapshot.nominated.node_of(&pod.uid) != Some(&node.name);
            let dry_run = match depends_on_node {
                true => Cow::Borrowed(dry_runs.results.result(node, &snapshot.nominated, run)),
                false => Cow::Owned(run()),
            };
            match &*dry_run {
                Ok(candidate) => candidates.push(Arc::clone(candidate)),
                Err(rejected) => rejected.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1),
            }
            if candidates.len() >= enough && candidates.iter().any(|candidate| candidate.violations == 0) {
                break;
            }
        }
        state.write(self.name(), dry_runs);
        let unhelpful = snapshot.nodes.len() - resolvable.len();
        if unhelpful > 0 {
            reasons.insert("Preemption is not helpful for scheduling".into(), unhelpful);
        }
        let selected = select_candidate(candidates);
        let result = if selected.is_some() { EvaluationResult::Success } else { EvaluationResult::Unschedulable };
        metrics::preemption_evaluated(PreemptorKind::Pod, result, started.elapsed());
        match selected {
            Some((best, others)) => PostFilterResult::Preempt { best, others },
            None => {
                let message = format!("preemption: {}", node_reasons(snapshot.nodes.len(), &reasons));
                PostFilterResult::Unschedulable { message, stays_nominated: false }
            }
        }
    }
}

/// The preemption that disrupts the least, and the others: upstream's `SelectCandidate`.
pub(crate) fn select_candidate(mut candidates: Vec<Arc<Preemption>>) -> Option<(Arc<Preemption>, Vec<Arc<Preemption>>)> {
    let best = candidates.iter().enumerate().min_by_key(|(_, candidate)| cost(candidate)).map(|(index, _)| index)?;
    Some((candidates.swap_remove(best), candidates))
}

/// The order of candidates, the best one first, as upstream's `pickOneNodeForPreemption`: fewest violated budgets, lowest highest
/// priority, lowest sum of priorities, fewest victims, latest start of the most important victims.
fn cost(Preemption { victims, violations, .. }: &Preemption) -> (usize, Option<i32>, i64, usize, Reverse<Option<Timestamp>>) {
    let highest = victims.first().map(|victim| victim.priority);
    // Each victim counts more than 0, so that many of a low priority do not cost less than a few.
    let weight = |priority: i32| i64::from(priority) + i64::from(i32::MAX) + 1;
    let sum = victims.iter().map(|victim| weight(victim.priority)).sum();
    let earliest = victims.iter().filter(|victim| Some(victim.priority) == highest).map(|victim| started(victim)).min();
    (*violations, highest, sum, victims.len(), Reverse(earliest))
}

/// Why the Pod may not preempt others now: upstream's `PodEligibleToPreemptOthers`.
fn ineligible(pod: &PodInfo, snapshot: &Snapshot, resolvable: &[usize]) -> Option<&'static str> {
    if !pod.may_preempt {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let index = *snapshot.node_index.get(snapshot.nominated.node_of(&pod.uid)?)?;
    let node = snapshot.nodes.get(index).filter(|_| resolvable.contains(&index))?;
    let is_leaving = |other: &Arc<PodInfo>| other.priority < pod.priority && other.deleting && other.preempted;
    node.pods.iter().any(is_leaving).then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The Pods of the node that have to go: all of a lower priority, but for those that fit beside the Pod (upstream's
/// `SelectVictimsOnNode`). With a Pod of an indivisible group, those of its Pods go that are on other nodes. The error has the reasons why
/// the node is no candidate.
fn select_victims(
    filters: &Filters,
    state: &mut CycleState,
    pod: &PodInfo,
    snapshot: &Snapshot,
    (node, groups): (&NodeInfo, &IndivisibleGroups),
) -> DryRun {
    let mut potential = groups.units_below(pod.priority, node.pods.iter().map(|other| (other, node.index)));
    if potential.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    potential.sort_by(Unit::by_importance);
    let mut trial = Trial { filters, state, pod, snapshot, node, left: node.clone(), removed: Vec::new() };
    potential.iter().for_each(|unit| trial.remove(unit.clone()));
    let fits = trial.fits();
    let violations = fits.map(|()| match potential.as_slice() {
        // With its only victim, the node was ruled out before.
        [_] => split_by_budget(potential, Unit::pods, snapshot.budgets.values()).0.len(),
        _ => reprieve(&mut trial, potential),
    });
    let mut victims = trial.restore();
    let violations = violations.map_err(|rejection| match rejection.status {
        Status::Success => Vec::new(),
        Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) => reasons,
    })?;
    victims.sort_by(by_importance);
    Ok(Arc::new(Preemption { node: node.name.clone(), victims, violations }))
}

/// Takes back the removal of the units that fit, first of those whose budget would be violated, the most important ones first.
/// Returns the number of victims whose budget is violated.
fn reprieve(trial: &mut Trial<'_>, potential: Vec<Unit>) -> usize {
    let (violating, others) = split_by_budget(potential, Unit::pods, trial.snapshot.budgets.values());
    let mut violations = 0;
    for (unit, violates) in violating.into_iter().map(|unit| (unit, true)).chain(others.into_iter().map(|unit| (unit, false))) {
        if !trial.reprieves(unit) && violates {
            violations += 1;
        }
    }
    violations
}

/// The units with a Pod whose disruption its budget does not allow, and the others: upstream's `filterPodsWithPDBViolation`. `pods` are the
/// Pods of a unit, which are disrupted together.
pub(crate) fn split_by_budget<'b, U>(
    units: Vec<U>,
    pods: impl Fn(&U) -> Vec<&PodInfo>,
    budgets: impl Iterator<Item = &'b DisruptionBudget>,
) -> (Vec<U>, Vec<U>) {
    let mut budgets: Vec<(&DisruptionBudget, i32)> = budgets.map(|budget| (budget, budget.allowed)).collect();
    // A Pod uses up every budget that counts it, also after one that has nothing left.
    let mut violates = |pod: &PodInfo| {
        budgets.iter_mut().filter(|(budget, _)| budget.counts(pod)).fold(false, |violates, (_, allowed)| {
            *allowed = allowed.saturating_sub(1);
            violates | (*allowed < 0)
        })
    };
    // Each Pod of a unit uses up what its budget allows, also after one that violates its own.
    units.into_iter().partition(|unit| pods(unit).into_iter().filter(|pod| violates(pod)).count() > 0)
}

/// The order of Pods, the most important one first: upstream's `MoreImportantPod`.
pub(crate) fn by_importance(one: &Arc<PodInfo>, other: &Arc<PodInfo>) -> Ordering {
    let key = |pod: &PodInfo| (Reverse(pod.priority), started(pod));
    key(one).cmp(&key(other)).then_with(|| one.uid.cmp(&other.uid))
}

/// A Pod that has not started counts as started last.
fn started(pod: &PodInfo) -> Timestamp {
    pod.started.unwrap_or(Timestamp::MAX)
}

/// A node from which Pods are removed to see whether another Pod fits.
struct Trial<'a> {
    filters: &'a Filters,
    state: &'a mut CycleState,
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
    node: &'a NodeInfo,
    /// The node without the removed Pods.
    left: NodeInfo,
    removed: Vec<Unit>,
}

impl Trial<'_> {
    fn remove(&mut self, unit: Unit) {
        for (other, node) in &unit.pods {
            if *node == self.node.index {
                self.left.remove_pod(&other.uid);
            }
            self.changed(other, *node, -1);
        }
        self.removed.push(unit);
    }

    fn add(&mut self, unit: &Unit) {
        for (other, node) in &unit.pods {
            if *node == self.node.index {
                self.left.add_pod(Arc::clone(other));
            }
            self.changed(other, *node, 1);
        }
    }

    /// The state of the cycle follows: the node has so many Pods like this one more.
    fn changed(&mut self, pod: &PodInfo, node: usize, number: i64) {
        if let Some(node) = self.snapshot.nodes.get(node) {
            self.filters.pod_changed(self.state, self.pod, self.snapshot, PodChange { pod, node, number });
        }
    }

    fn fits(&mut self) -> Result<(), Rejection> {
        self.filters.filter_with_nominated(self.state, self.pod, &self.left, self.snapshot)
    }

    /// Puts a unit back if the Pod of the cycle fits beside it. Returns whether it does.
    fn reprieves(&mut self, unit: Unit) -> bool {
        self.add(&unit);
        let first = |unit: &Unit| unit.pods.first().map(|(pod, _)| pod.uid.clone());
        self.removed.retain(|removed| first(removed) != first(&unit));
        let fits = self.fits().is_ok();
        if !fits {
            self.remove(unit);
        }
        fits
    }

    /// Restores the state of the cycle; returns the Pods that were removed at the end.
    fn restore(mut self) -> Vec<Arc<PodInfo>> {
        let removed = std::mem::take(&mut self.removed);
        removed.iter().for_each(|unit| self.add(unit));
        removed.into_iter().flat_map(|unit| unit.pods).map(|(pod, _)| pod).collect()
    }
}

#[cfg(test)]
mod tests;
