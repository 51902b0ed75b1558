//! What the plugins of [`Scope::Node`] say about nodes. It holds for all Pods that ask the same of a node, and a node is
//! evaluated again only after a change, so that the cost of a cycle does not grow with the number of nodes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use sched_framework::{
    CycleState, Filters, FiltersInScope, NodeInfo, NodeResults, Normalization, PodInfo, Rejection, Scope, ScorePlugin, ScoreRange, Snapshot,
};

use super::recent::Recent;
use crate::plugins::Profile;

/// The results for the nodes that were evaluated.
#[derive(Default)]
pub(super) struct Evaluation {
    pod: Arc<PodInfo>,
    layout: u64,
    next_change: usize,
    /// By index of the node in the snapshot.
    outcomes: Vec<Outcome>,
    evaluated: usize,
    /// The position in the order of visits at which the search for nodes goes on that were not evaluated.
    position: usize,
    /// The distinct statuses of the nodes that are ruled out.
    rejections: Vec<Rejection>,
    /// The feasible nodes, the best one first.
    ranking: BTreeSet<Rank>,
    /// The ranges of the raw scores of those plugins whose scores depend on other nodes.
    ranges: Vec<Option<ScoreRange>>,
    /// Whether the ranges are to be computed again.
    are_ranges_stale: bool,
    next_ticket: u64,
}

/// The total score of a node, a ticket, and the index of the node. Of several nodes with the same score, the one goes first that
/// was evaluated first: the others get their turn.
type Rank = (Reverse<i64>, u64, usize);

#[derive(Default)]
enum Outcome {
    #[default]
    Unknown,
    /// The index of the status.
    Rejected(usize),
    Feasible(Scores),
}

/// The scores of a feasible node.
struct Scores {
    rank: Rank,
    /// The sum of the scores that do not depend on other nodes.
    absolute: i64,
    /// The raw scores of the other plugins.
    relative: Vec<Option<i64>>,
}

const WITH_NOMINATED: &str = "filters with nominated Pods";

/// The results of all filters with the Pods that are nominated to a node, for the Pods that share a cycle's state.
type WithNominated = NodeResults<Result<(), Arc<Rejection>>>;

/// The plugins of a profile, for one Pod.
pub(super) struct Evaluator<'a> {
    all_filters: &'a Filters,
    /// The filter plugins of [`Scope::Node`].
    filters: FiltersInScope<'a>,
    /// The filter plugins of [`Scope::Cluster`].
    cluster_filters: FiltersInScope<'a>,
    /// The score plugins of [`Scope::Node`] whose scores do not depend on other nodes.
    absolute: Vec<&'a dyn ScorePlugin>,
    /// The other score plugins of [`Scope::Node`].
    relative: Vec<&'a dyn ScorePlugin>,
    pod: &'a Arc<PodInfo>,
    snapshot: &'a Snapshot,
}

impl<'a> Evaluator<'a> {
    /// The plugins; those that have no preference for the Pod are left out.
    pub fn new(profile: &'a Profile, state: &mut CycleState, pod: &'a Arc<PodInfo>, snapshot: &'a Snapshot) -> Self {
        let all = profile.scores.iter().map(AsRef::as_ref);
        let of_node: Vec<&dyn ScorePlugin> = all.filter(|plugin| plugin.scope_for(state, pod) == Scope::Node).collect();
        let preferring = of_node.into_iter().filter(|plugin| plugin.pre_score(state, pod, &[]));
        let (absolute, relative) = preferring.partition(|plugin| plugin.normalization() == Normalization::None);
        let all_filters = &profile.filters;
        let in_scope = |scope| all_filters.in_scope(scope, state, pod);
        let (filters, cluster_filters) = (in_scope(Scope::Node), in_scope(Scope::Cluster));
        Self { all_filters, filters, cluster_filters, absolute, relative, pod, snapshot }
    }

    /// Whether the filters allow a feasible node whose results depend on more than the node: those of [`Scope::Cluster`], and all when
    /// Pods are nominated to the node.
    pub fn passes(&self, state: &mut CycleState, index: usize) -> Result<(), Arc<Rejection>> {
        let Some(node) = self.snapshot.nodes.get(index) else { return Ok(()) };
        let nominated = &self.snapshot.nominated;
        if nominated.before(self.pod, &node.name).next().is_none() {
            return self.cluster_filters.filter(state, self.pod, node).map_err(Arc::new);
        }
        let filter = |state: &mut CycleState| {
            let result = self.all_filters.filter_with_nominated(state, self.pod, node, self.snapshot);
            result.map_err(Arc::new)
        };
        // Otherwise the result depends on other nodes too, or on which of the Pods that are alike it is.
        let depends_on_node = self.cluster_filters.is_empty() && nominated.node_of(&self.pod.uid) != Some(&node.name);
        if !depends_on_node {
            return filter(state);
        }
        let mut results = state.read_mut::<WithNominated>(WITH_NOMINATED).map(std::mem::take).unwrap_or_default();
        let result = results.result(node, nominated, || filter(state)).clone();
        state.write(WITH_NOMINATED, results);
        result
    }

    /// An evaluation without results.
    pub fn nothing(&self) -> Evaluation {
        Evaluation {
            pod: Arc::clone(self.pod),
            layout: self.snapshot.layout,
            next_change: self.snapshot.node_changes.next(),
            outcomes: self.snapshot.nodes.iter().map(|_| Outcome::Unknown).collect(),
            ranges: vec![None; self.relative.len()],
            ..Evaluation::default()
        }
    }

    /// The latest evaluation for a Pod that asks the same of a node, with the changes since then. A new one begins at `start`.
    pub fn latest(&self, recent: &mut Recent<Evaluation>, state: &CycleState, start: usize) -> Evaluation {
        let alike = recent.take(|last| last.pod.asks_the_same(self.pod)).filter(|last| last.layout == self.snapshot.layout);
        let Some((mut evaluation, changes)) = alike.and_then(|last| {
            let changes = self.snapshot.node_changes.since(last.next_change)?;
            Some((last, changes))
        }) else {
            return Evaluation { position: start, ..self.nothing() };
        };
        evaluation.outcomes.resize_with(self.snapshot.nodes.len(), Outcome::default);
        for index in changes {
            if evaluation.is_evaluated(*index) {
                evaluation.evaluate(self, state, *index);
            }
        }
        evaluation.next_change = self.snapshot.node_changes.next();
        evaluation
    }

    fn scores(&self, state: &CycleState, node: &NodeInfo) -> (i64, Vec<Option<i64>>) {
        let weighted = |plugin: &&dyn ScorePlugin| plugin.score(state, self.pod, node).unwrap_or(0) * plugin.weight();
        let absolute = self.absolute.iter().map(weighted).sum();
        (absolute, self.relative.iter().map(|plugin| plugin.score(state, self.pod, node)).collect())
    }

    fn total(&self, absolute: i64, relative: &[Option<i64>], ranges: &[Option<ScoreRange>]) -> i64 {
        let scaled = self.relative.iter().zip(relative).zip(ranges);
        absolute + scaled.map(|((plugin, raw), range)| plugin.normalization().scaled(*raw, *range) * plugin.weight()).sum::<i64>()
    }
}

impl Evaluation {
    /// Whether all nodes were evaluated that may be.
    pub fn is_complete(&self) -> bool {
        self.evaluated == self.outcomes.len()
    }

    fn is_evaluated(&self, index: usize) -> bool {
        !matches!(self.outcomes.get(index), None | Some(Outcome::Unknown))
    }

    /// Evaluates further nodes: at least `nodes`, and as many as it takes to have so many `feasible` ones.
    pub fn extend(&mut self, evaluator: &Evaluator<'_>, state: &CycleState, nodes: usize, feasible: usize) {
        let wanted = self.evaluated + nodes;
        while !self.is_complete() && (self.evaluated < wanted || self.ranking.len() < feasible) {
            let index = evaluator.snapshot.index_at(self.position);
            if !self.is_evaluated(index) {
                self.evaluate(evaluator, state, index);
            }
            self.position = (self.position + 1) % self.outcomes.len();
        }
    }

    /// Evaluates these nodes. No others will be.
    pub fn finish_with(&mut self, evaluator: &Evaluator<'_>, state: &CycleState, indexes: impl Iterator<Item = usize>) {
        indexes.for_each(|index| self.evaluate(evaluator, state, index));
        self.evaluated = self.outcomes.len();
    }

    /// Whether the node is feasible. Evaluates a node that was not.
    pub fn is_feasible(&mut self, evaluator: &Evaluator<'_>, state: &CycleState, index: usize) -> bool {
        if !self.is_evaluated(index) && !self.is_complete() {
            self.evaluate(evaluator, state, index);
        }
        matches!(self.outcomes.get(index), Some(Outcome::Feasible(_)))
    }

    /// The total scores of these feasible nodes.
    pub fn totals(&mut self, evaluator: &Evaluator<'_>, indexes: &[usize]) -> Vec<i64> {
        self.refresh_ranges(evaluator);
        let total = |index: &usize| match self.outcomes.get(*index) {
            Some(Outcome::Feasible(Scores { rank: (Reverse(total), ..), .. })) => *total,
            _ => 0,
        };
        indexes.iter().map(total).collect()
    }

    /// The position at which the search goes on.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The indexes of the feasible nodes that were evaluated, the best one first.
    pub fn ranking(&mut self, evaluator: &Evaluator<'_>) -> impl Iterator<Item = usize> {
        self.refresh_ranges(evaluator);
        self.ranking.iter().map(|(_, _, index)| *index)
    }

    /// The number of feasible nodes that were evaluated.
    pub fn feasible(&self) -> usize {
        self.ranking.len()
    }

    /// The distinct statuses of the nodes that are, or were, ruled out.
    pub fn rejections(&self) -> &[Rejection] {
        &self.rejections
    }

    /// The status of a node that is ruled out; `None` when it is feasible or was not evaluated.
    pub fn rejection(&self, index: usize) -> Option<&Rejection> {
        self.rejections.get(self.rejection_number(index)?)
    }

    /// The index in [`Evaluation::rejections`] of the status of a node that is ruled out.
    pub fn rejection_number(&self, index: usize) -> Option<usize> {
        match self.outcomes.get(index)? {
            Outcome::Rejected(status) => Some(*status),
            Outcome::Unknown | Outcome::Feasible(_) => None,
        }
    }

    fn evaluate(&mut self, evaluator: &Evaluator<'_>, state: &CycleState, index: usize) {
        let Some(node) = evaluator.snapshot.nodes.get(index) else { return };
        let outcome = match evaluator.filters.filter(state, evaluator.pod, node) {
            Ok(()) => {
                let (absolute, relative) = evaluator.scores(state, node);
                self.widen_ranges(&relative);
                let rank = (Reverse(evaluator.total(absolute, &relative, &self.ranges)), self.next_ticket, index);
                self.next_ticket += 1;
                self.ranking.insert(rank);
                Outcome::Feasible(Scores { rank, absolute, relative })
            }
            Err(rejection) => Outcome::Rejected(self.number_of(rejection)),
        };
        let Some(before) = self.outcomes.get_mut(index).map(|stored| std::mem::replace(stored, outcome)) else { return };
        match before {
            Outcome::Unknown => self.evaluated += 1,
            Outcome::Rejected(_) => {}
            Outcome::Feasible(scores) => {
                self.ranking.remove(&scores.rank);
                let ends_at =
                    |(range, raw): (&Option<ScoreRange>, &Option<i64>)| range.zip(*raw).is_some_and(|(range, raw)| range.ends_at(raw));
                self.are_ranges_stale |= self.ranges.iter().zip(&scores.relative).any(ends_at);
            }
        }
    }

    /// Nodes that were evaluated before have other totals when a score is out of its range.
    fn widen_ranges(&mut self, relative: &[Option<i64>]) {
        for (range, raw) in self.ranges.iter_mut().zip(relative) {
            let Some(raw) = *raw else { continue };
            if range.is_none_or(|range| !range.contains(raw)) {
                *range = ScoreRange::new(range.iter().flat_map(|range| [range.lowest, range.highest]).chain([raw]));
                self.are_ranges_stale = true;
            }
        }
    }

    fn refresh_ranges(&mut self, evaluator: &Evaluator<'_>) {
        if !std::mem::take(&mut self.are_ranges_stale) {
            return;
        }
        let Self { outcomes, ranges, ranking, .. } = self;
        let feasible = || outcomes.iter().filter_map(|outcome| if let Outcome::Feasible(scores) = outcome { Some(scores) } else { None });
        for (plugin, range) in ranges.iter_mut().enumerate() {
            *range = ScoreRange::new(feasible().filter_map(|scores| *scores.relative.get(plugin)?));
        }
        ranking.clear();
        for outcome in self.outcomes.iter_mut() {
            if let Outcome::Feasible(scores) = outcome {
                scores.rank.0 = Reverse(evaluator.total(scores.absolute, &scores.relative, ranges));
                ranking.insert(scores.rank);
            }
        }
    }

    fn number_of(&mut self, rejection: Rejection) -> usize {
        self.rejections.iter().position(|other| *other == rejection).unwrap_or_else(|| {
            self.rejections.push(rejection);
            self.rejections.len() - 1
        })
    }
}
