//! One scheduling cycle: filter, score, choose. Works on memory alone; the same snapshot, Pod and
//! starting point give the same answer.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sched_framework::{ClusterEvent, CycleState, NodeInfo, PodInfo, Snapshot, Verdict};

use crate::plugins::Profile;

/// Below so many nodes all are looked at, as upstream.
const FEASIBLE_NODES_MIN: usize = 100;
/// Least share of nodes looked at, in per cent, as upstream.
const PERCENT_MIN: usize = 5;

/// Why no node was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// Upstream's message.
    pub message: String,
    /// Changes that may help.
    pub helped_by: HashSet<ClusterEvent>,
}

/// The best node, or why there is none. `start` is where in the snapshot the search begins; it is
/// moved on, so that cycles take turns in which nodes they look at first.
pub(crate) fn schedule(profile: &Profile, pod: &PodInfo, snapshot: &Snapshot, start: &mut usize) -> Result<Arc<NodeInfo>, Unfit> {
    let all = snapshot.nodes.len();
    if all == 0 {
        return Err(Unfit { message: "no nodes available to schedule pods".to_owned(), helped_by: [ClusterEvent::NodeAdded].into() });
    }
    let mut state = CycleState::default();
    for filter in &profile.filters {
        if let Err(reason) = filter.pre_filter(&mut state, pod, snapshot) {
            let helped_by = filter.helped_by().iter().copied().collect();
            return Err(Unfit { message: format!("0/{all} nodes are available: {reason}."), helped_by });
        }
    }
    let mut search = Search::default();
    let wanted = feasible_wanted(all);
    let (before, after) = snapshot.nodes.split_at(*start % all);
    let mut looked_at = 0;
    for node in after.iter().chain(before) {
        looked_at += 1;
        if search.filter(profile, &state, pod, node) && search.feasible.len() == wanted {
            break;
        }
    }
    *start = (*start + looked_at) % all;
    search.best(profile, &state, pod).ok_or_else(|| search.unfit(all))
}

/// How many fitting nodes are enough: upstream's `numFeasibleNodesToFind`.
fn feasible_wanted(all: usize) -> usize {
    if all < FEASIBLE_NODES_MIN {
        return all;
    }
    let percent = 50_usize.saturating_sub(all / 125).max(PERCENT_MIN);
    (all * percent / 100).max(FEASIBLE_NODES_MIN)
}

#[derive(Default)]
struct Search {
    feasible: Vec<Arc<NodeInfo>>,
    reasons: BTreeMap<String, usize>,
    helped_by: HashSet<ClusterEvent>,
}

impl Search {
    /// Whether the node fits; if not, notes why.
    fn filter(&mut self, profile: &Profile, state: &CycleState, pod: &PodInfo, node: &Arc<NodeInfo>) -> bool {
        for filter in &profile.filters {
            let reasons = match filter.filter(state, pod, node) {
                Verdict::Fits => continue,
                Verdict::Unschedulable(reasons) | Verdict::Unresolvable(reasons) => reasons,
            };
            for reason in reasons {
                *self.reasons.entry(reason).or_default() += 1;
            }
            self.helped_by.extend(filter.helped_by());
            return false;
        }
        self.feasible.push(Arc::clone(node));
        true
    }

    /// The feasible node of the highest score; of equals the first found.
    fn best(&self, profile: &Profile, state: &CycleState, pod: &PodInfo) -> Option<Arc<NodeInfo>> {
        if let [only] = self.feasible.as_slice() {
            return Some(Arc::clone(only));
        }
        let mut totals = vec![0_i64; self.feasible.len()];
        for plugin in profile.scores.iter().filter(|plugin| plugin.applies(pod)) {
            let mut scores: Vec<i64> = self.feasible.iter().map(|node| plugin.score(state, pod, node)).collect();
            plugin.normalize(&mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += score * plugin.weight();
            }
        }
        let highest = totals.iter().max()?;
        let at = totals.iter().position(|total| total == highest)?;
        self.feasible.get(at).map(Arc::clone)
    }

    /// Why each node does not fit, in upstream's words. What upstream goes on to say of preemption is not said: nobody
    /// looks for Pods that could be preempted.
    fn unfit(&self, all: usize) -> Unfit {
        Unfit { message: histogram(all, &self.reasons), helped_by: self.helped_by.clone() }
    }
}

fn histogram(all: usize, counts: &BTreeMap<String, usize>) -> String {
    let mut reasons: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    reasons.sort();
    format!("0/{all} nodes are available: {}.", reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{asking, node, pod};

    fn snapshot(nodes: Vec<NodeInfo>) -> Snapshot {
        Snapshot { nodes: nodes.into_iter().map(Arc::new).collect() }
    }

    #[test]
    fn the_message_counts_reasons_as_upstream_does() {
        let tainted = |name: &str| node(name, json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}));
        let mut full = node("e", json!({"status": {"allocatable": {"cpu": "64", "memory": "2Ti"}}}));
        full.add_pod(Arc::new(asking("a", "1", "1Gi")));
        let nodes =
            snapshot(vec![tainted("a"), tainted("b"), node("c", json!({})), node("d", json!({"spec": {"unschedulable": true}})), full]);
        let unfit =
            schedule(&Profile::default(), &asking("p", "64", "1Ti"), &nodes, &mut 0).map(|n| n.name.clone()).expect_err("nothing fits");
        assert_eq!(
            unfit.message,
            "0/5 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu, 2 node(s) had untolerated \
             taint(s)."
        );
        assert!(unfit.helped_by.contains(&ClusterEvent::NodeTaints));
    }

    #[test]
    fn nothing_is_said_of_preemption_which_nobody_tried() {
        let mut full = node("n", json!({}));
        full.add_pod(Arc::new(asking("a", "4", "1Gi")));
        for priority in [0, 1] {
            let pod = PodInfo { priority, ..asking("p", "1", "1Gi") };
            let nodes = snapshot(vec![full.clone()]);
            let unfit = schedule(&Profile::default(), &pod, &nodes, &mut 0).map(|n| n.name.clone()).expect_err("nothing fits");
            assert_eq!(unfit.message, "0/1 nodes are available: 1 Insufficient cpu.");
        }
    }

    #[test]
    fn without_nodes_the_message_says_so() {
        let unfit =
            schedule(&Profile::default(), &pod("p", json!({})), &Snapshot::default(), &mut 0).map(|n| n.name.clone()).expect_err("no node");
        assert_eq!(unfit.message, "no nodes available to schedule pods");
    }

    #[test]
    fn the_emptier_node_is_chosen() {
        let mut busy = node("busy", json!({}));
        busy.add_pod(Arc::new(asking("a", "2", "4Gi")));
        let nodes = snapshot(vec![busy, node("idle", json!({}))]);
        let chosen = schedule(&Profile::default(), &asking("p", "1", "1Gi"), &nodes, &mut 0).expect("fits");
        assert_eq!(chosen.name, "idle");
    }

    #[test]
    fn in_a_large_cluster_a_share_of_nodes_is_looked_at_in_turns() {
        assert_eq!((feasible_wanted(50), feasible_wanted(1_000), feasible_wanted(5_000)), (50, 420, 500));
        let nodes = snapshot((0..1_000).map(|n| node(&n.to_string(), json!({}))).collect());
        let mut start = 0;
        let profile = Profile::default();
        let first = schedule(&profile, &pod("p", json!({})), &nodes, &mut start).expect("fits").name.clone();
        assert_eq!((first.as_str(), start), ("0", 420));
        let second = schedule(&profile, &pod("p", json!({})), &nodes, &mut start).expect("fits").name.clone();
        assert_eq!(second, "420");
    }
}
