//! The search of a cycle for the best node.

use std::collections::BTreeSet;
use std::sync::Arc;

use sched_framework::{CycleState, NodeInfo, PodInfo, Scope, ScorePlugin, Snapshot};

use super::evaluation::{Evaluation, Evaluator};
use super::{Progress, feasible_nodes_to_find};
use crate::diagnosis::Diagnosis;
use crate::plugins::Profile;

/// The number of nodes that each further cycle for Pods that are alike evaluates beside those that it has: after a while, the best
/// node of all is chosen.
pub(super) const FURTHER_NODES: usize = 16;

/// The best node, or `None` and why.
pub(super) fn find_host(
    profile: &Profile,
    state: &mut CycleState,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
    diagnosis: &mut Diagnosis,
) -> Option<String> {
    let mut search = Search::begin(profile, state, pod, snapshot, progress);
    let host = search.host(&mut progress.start);
    if host.is_none() {
        search.diagnose(diagnosis);
    }
    search.end(progress);
    host
}

/// The search of a cycle for the best node.
pub(super) struct Search<'a> {
    profile: &'a Profile,
    evaluator: Evaluator<'a>,
    evaluation: Evaluation,
    state: &'a mut CycleState,
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
    /// The names of the only nodes that are searched, with the plugins that say so.
    only: Option<(BTreeSet<String>, Vec<&'static str>)>,
}

impl<'a> Search<'a> {
    /// Continues the latest search for a Pod that asks the same of a node.
    pub fn begin(
        profile: &'a Profile,
        state: &'a mut CycleState,
        pod: &'a Arc<PodInfo>,
        snapshot: &'a Snapshot,
        progress: &mut Progress,
    ) -> Self {
        let evaluator = Evaluator::new(profile, state, pod, snapshot);
        let only = profile.filters.node_names(pod);
        let evaluation = match &only {
            None => evaluator.latest(&mut progress.evaluations, state, progress.start),
            Some((names, _)) => {
                let mut evaluation = evaluator.nothing();
                let indexes = names.iter().filter_map(|name| snapshot.node_index.get(name).copied());
                evaluation.finish_with(&evaluator, state, indexes);
                evaluation
            }
        };
        Self { profile, evaluator, evaluation, state, pod, snapshot, only }
    }

    /// Leaves the results for the next cycles.
    pub fn end(self, progress: &mut Progress) {
        if self.only.is_none() {
            progress.evaluations.put(self.evaluation);
        }
    }

    /// The number of feasible nodes at which the search ends.
    pub fn enough(&self) -> usize {
        feasible_nodes_to_find(self.profile.percentage_of_nodes_to_score, self.snapshot.nodes.len())
    }

    /// The name of the best node.
    pub fn host(&mut self, start: &mut usize) -> Option<String> {
        let all = self.profile.scores.iter().map(AsRef::as_ref);
        let in_cluster: Vec<&dyn ScorePlugin> = all.filter(|plugin| plugin.scope_for(self.state, self.pod) == Scope::Cluster).collect();
        let scorers: Vec<_> = in_cluster.into_iter().filter(|plugin| plugin.pre_score(self.state, self.pod, &[])).collect();
        let enough = self.enough();
        let index = if scorers.is_empty() { self.first_of_ranking(enough, start) } else { self.best_of_window(&scorers, enough, start) };
        self.snapshot.nodes.get(index?).map(|node| node.name.clone())
    }

    /// Without preferences that depend on other nodes: the first node of the ranking that the other filters allow.
    fn first_of_ranking(&mut self, enough: usize, start: &mut usize) -> Option<usize> {
        let Self { evaluator, evaluation, state, .. } = self;
        evaluation.extend(evaluator, state, FURTHER_NODES, enough);
        loop {
            let found = evaluation.ranking(evaluator).find(|index| evaluator.passes(state, *index).is_ok());
            *start = evaluation.position();
            if found.is_some() || evaluation.is_complete() {
                return found;
            }
            let feasible = evaluation.feasible() + enough;
            evaluation.extend(evaluator, state, 0, feasible);
        }
    }

    /// With such preferences: the best of as many feasible nodes as are enough.
    fn best_of_window(&mut self, scorers: &[&dyn ScorePlugin], enough: usize, start: &mut usize) -> Option<usize> {
        let Self { evaluator, evaluation, state, pod, snapshot, .. } = self;
        let (nodes, first) = (snapshot.nodes.len(), *start);
        let (mut window, mut processed) = (Vec::new(), 0);
        for index in (first % nodes..nodes).chain(0..first % nodes).map(|position| snapshot.index_at(position)) {
            processed += 1;
            if evaluation.is_feasible(evaluator, state, index) && evaluator.passes(state, index).is_ok() {
                window.push(index);
            }
            if window.len() == enough {
                break;
            }
        }
        *start = (first + processed) % nodes;
        let feasible: Vec<&NodeInfo> = window.iter().filter_map(|index| Some(snapshot.nodes.get(*index)?.as_ref())).collect();
        let mut totals = evaluation.totals(evaluator, &window);
        for plugin in scorers {
            if plugin.pre_score(state, pod, &feasible) {
                let raw: Vec<_> = feasible.iter().map(|node| plugin.score(state, pod, node)).collect();
                let scores = plugin.normalization().scale(&raw);
                totals.iter_mut().zip(scores).for_each(|(total, score)| *total += score * plugin.weight());
            }
        }
        let highest = totals.iter().max()?;
        window.get(totals.iter().position(|total| total == highest)?).copied()
    }

    /// The names of as many feasible nodes as are enough. The diagnosis says why the others that were searched are not.
    pub fn feasible(&mut self, start: &mut usize, diagnosis: &mut Diagnosis) -> Vec<String> {
        let (nodes, first, enough) = (self.snapshot.nodes.len(), *start, self.enough());
        let plugins = self.only.as_ref().map(|(_, plugins)| plugins.as_slice()).unwrap_or_default();
        let (mut names, mut processed) = (Vec::new(), 0);
        for index in (first % nodes..nodes).chain(0..first % nodes).map(|position| self.snapshot.index_at(position)) {
            processed += 1;
            if !self.evaluation.is_feasible(&self.evaluator, self.state, index) {
                match self.evaluation.rejection(index) {
                    Some(rejection) => diagnosis.add(index, rejection),
                    None => diagnosis.add_unsearched(plugins),
                }
                continue;
            }
            match self.evaluator.passes(self.state, index) {
                Ok(()) => names.extend(self.snapshot.nodes.get(index).map(|node| node.name.clone())),
                Err(rejection) => diagnosis.add(index, &rejection),
            }
            if names.len() == enough {
                break;
            }
        }
        *start = (first + processed) % nodes;
        names
    }

    /// Why no node is feasible.
    pub fn diagnose(&mut self, diagnosis: &mut Diagnosis) {
        let plugins = self.only.as_ref().map(|(_, plugins)| plugins.as_slice()).unwrap_or_default();
        let mut counts = vec![0; self.evaluation.rejections().len()];
        for index in 0..self.snapshot.nodes.len() {
            if let Some(number) = self.evaluation.rejection_number(index) {
                counts.get_mut(number).into_iter().for_each(|count| *count += 1);
                let is_resolvable = self.evaluation.rejections().get(number).is_some_and(|rejection| rejection.status.is_resolvable());
                diagnosis.resolvable.extend(is_resolvable.then_some(index));
            } else if self.evaluation.is_feasible(&self.evaluator, self.state, index) {
                self.evaluator.passes(self.state, index).err().iter().for_each(|rejection| diagnosis.add(index, rejection));
            } else {
                diagnosis.add_unsearched(plugins);
            }
        }
        self.evaluation.rejections().iter().zip(counts).for_each(|(rejection, count)| diagnosis.count_nodes(rejection, count));
    }
}
