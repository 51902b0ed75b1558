//! One scheduling cycle: filter, score, choose. It works on memory alone: the same snapshot, Pod and starting point give the
//! same result.

use std::sync::Arc;

use sched_framework::{CycleState, Filters, NodeInfo, PodChange, PodInfo, PostFilterResult, Preemption, Rejection, Snapshot};

use crate::diagnosis::{Diagnosis, FitError};
use crate::plugins::Profile;

/// A cluster of fewer nodes is searched as a whole: upstream's `minFeasibleNodesToFind`.
const FEASIBLE_NODES_MIN: usize = 100;
/// The lowest share of nodes that must be feasible before the search ends, in per cent: upstream's
/// `minFeasibleNodesPercentageToFind`.
const FEASIBLE_PERCENT_MIN: usize = 5;

/// What to do with a Pod that no node is feasible for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: FitError,
    pub nomination: Nomination,
}

/// What becomes of the Pod's nomination to a node.
#[derive(Debug)]
pub(crate) enum Nomination {
    /// It stays as it is.
    Stays,
    /// It ends, if there is one.
    Ends,
    /// The Pod is nominated to the node of this preemption.
    Preempts(Preemption),
}

/// What a cycle leaves for the next one.
#[derive(Default)]
pub(crate) struct Progress {
    /// The index in the snapshot at which the next search begins, so that successive cycles begin at different nodes:
    /// upstream's `nextStartNodeIndex`.
    start: usize,
    pre_filtered: Option<PreFiltered>,
}

/// The state of a Pod's cycle after `pre_filter`. A Pod like it begins with this state: its sums over the Pods of the cluster
/// only have to follow the changes since then.
struct PreFiltered {
    pod: Arc<PodInfo>,
    generation: u64,
    next_change: usize,
    state: CycleState,
}

impl Progress {
    fn pre_filter(&mut self, filters: &Filters, pod: &PodInfo, snapshot: &Snapshot) -> Result<CycleState, Rejection> {
        let alike = |last: &PreFiltered| last.generation == snapshot.generation && !last.pod.placement_differs(pod);
        if let Some(last) = self.pre_filtered.take().filter(alike)
            && let Some(changes) = snapshot.pod_changes.since(last.next_change)
        {
            let mut state = last.state;
            for change in changes {
                if let Some(node) = snapshot.node(&change.node) {
                    filters.pod_changed(&mut state, pod, snapshot, PodChange { pod: &change.pod, node, number: change.number });
                }
            }
            return Ok(state);
        }
        let mut state = CycleState::default();
        filters.pre_filter(&mut state, pod, snapshot).map(|()| state)
    }

    fn keep(&mut self, pod: &Arc<PodInfo>, snapshot: &Snapshot, state: CycleState) {
        let (pod, next_change) = (Arc::clone(pod), snapshot.pod_changes.next());
        self.pre_filtered = Some(PreFiltered { pod, generation: snapshot.generation, next_change, state });
    }
}

/// The best node for the Pod, or why there is none and which Pods to preempt.
pub(crate) fn schedule_pod(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
) -> Result<Arc<NodeInfo>, Box<Failure>> {
    let nodes = snapshot.nodes.len();
    if nodes == 0 {
        return Err(Box::new(Failure { error: FitError::NoNodes, nomination: Nomination::Stays }));
    }
    let mut diagnosis = Diagnosis::default();
    let mut state = match progress.pre_filter(&profile.filters, pod, snapshot) {
        Ok(state) => state,
        Err(rejection) => {
            diagnosis.add_all(nodes, rejection);
            let nomination = make_room(profile, &mut CycleState::default(), pod, snapshot, &mut diagnosis);
            return Err(Box::new(Failure { error: FitError::Unschedulable { nodes, diagnosis }, nomination }));
        }
    };
    let feasible = feasible_nodes(profile, &mut state, pod, snapshot, &mut progress.start, &mut diagnosis);
    if let Some(node) = select_host(profile, &mut state, pod, snapshot, &feasible) {
        progress.keep(pod, snapshot, state);
        return Ok(node);
    }
    let nomination = make_room(profile, &mut state, pod, snapshot, &mut diagnosis);
    progress.keep(pod, snapshot, state);
    Err(Box::new(Failure { error: FitError::Unschedulable { nodes, diagnosis }, nomination }))
}

/// The feasible nodes; the nominated node alone if it is one.
fn feasible_nodes<'a>(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    snapshot: &'a Snapshot,
    start: &mut usize,
    diagnosis: &mut Diagnosis,
) -> Vec<&'a Arc<NodeInfo>> {
    let nominated = snapshot.nominated.node_of(&pod.uid).and_then(|name| snapshot.node(name));
    if let Some(node) = nominated.filter(|node| profile.filters.filter_with_nominated(state, pod, node, snapshot).is_ok()) {
        return vec![node];
    }
    let nodes = snapshot.nodes.len();
    let (first, enough) = (*start % nodes, feasible_nodes_to_find(nodes));
    let mut feasible = Vec::new();
    let mut processed = 0;
    for (index, node) in snapshot.nodes.iter().enumerate().cycle().skip(first).take(nodes) {
        processed += 1;
        match profile.filters.filter_with_nominated(state, pod, node, snapshot) {
            Ok(()) => feasible.push(node),
            Err(rejection) => diagnosis.add(index, rejection),
        }
        if feasible.len() == enough {
            break;
        }
    }
    *start = (first + processed) % nodes;
    feasible
}

/// Calls the post-filter plugins until one finds Pods to preempt.
fn make_room(profile: &Profile, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot, diagnosis: &mut Diagnosis) -> Nomination {
    let mut nomination = Nomination::Stays;
    for plugin in &profile.post_filters {
        match plugin.post_filter(&profile.filters, state, pod, snapshot, &diagnosis.resolvable) {
            PostFilterResult::Preempt(preemption) => return Nomination::Preempts(preemption),
            PostFilterResult::Unschedulable { message, stays_nominated } => {
                diagnosis.post_filter = Some(message);
                if !stays_nominated {
                    nomination = Nomination::Ends;
                }
            }
        }
    }
    nomination
}

/// The number of feasible nodes at which the search ends: upstream's `numFeasibleNodesToFind`.
fn feasible_nodes_to_find(nodes: usize) -> usize {
    if nodes < FEASIBLE_NODES_MIN {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(FEASIBLE_PERCENT_MIN);
    (nodes * percent / 100).max(FEASIBLE_NODES_MIN)
}

/// The feasible node with the highest score; the first one of several.
fn select_host(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    snapshot: &Snapshot,
    feasible: &[&Arc<NodeInfo>],
) -> Option<Arc<NodeInfo>> {
    if let [only] = feasible {
        return Some(Arc::clone(only));
    }
    let mut totals = vec![0_i64; feasible.len()];
    for plugin in &profile.scores {
        if !plugin.pre_score(state, pod, snapshot, feasible) {
            continue;
        }
        let mut scores: Vec<i64> = feasible.iter().map(|node| plugin.score(state, pod, node)).collect();
        plugin.normalize_score(&mut scores);
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += score * plugin.weight();
        }
    }
    let highest = totals.iter().max()?;
    let index = totals.iter().position(|total| total == highest)?;
    feasible.get(index).map(|node| Arc::clone(node))
}

#[cfg(test)]
mod tests {
    use sched_framework::ClusterEvent;
    use serde_json::json;

    use super::*;
    use crate::cache::Cache;
    use crate::plugins::fixtures::{labelled, node, pod, requesting, snapshot};

    fn error(pod: &PodInfo, all: &Snapshot) -> FitError {
        schedule_pod(&Profile::default(), &Arc::new(pod.clone()), all, &mut Progress::default())
            .map(|node| node.name.clone())
            .expect_err("nothing fits")
            .error
    }

    #[test]
    fn the_message_counts_reasons_as_upstream_does() {
        let tainted = |name: &str| node(name, json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}));
        let mut full = node("e", json!({"status": {"allocatable": {"cpu": "64", "memory": "2Ti"}}}));
        full.add_pod(Arc::new(requesting("a", "1", "1Gi")));
        let nodes =
            snapshot(vec![tainted("a"), tainted("b"), node("c", json!({})), node("d", json!({"spec": {"unschedulable": true}})), full]);
        let error = error(&requesting("p", "64", "1Ti"), &nodes);
        assert_eq!(
            error.to_string(),
            "0/5 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu, 2 node(s) had untolerated \
             taint(s). preemption: 0/5 nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful \
             for scheduling."
        );
        assert!(error.events().contains(&ClusterEvent::UpdateNodeTaint));
    }

    #[test]
    fn without_nodes_the_message_says_so() {
        let error = error(&pod("p", json!({})), &Snapshot::default());
        assert_eq!(error.to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn the_emptier_node_is_chosen() {
        let mut busy = node("busy", json!({}));
        busy.add_pod(Arc::new(requesting("a", "2", "4Gi")));
        let nodes = snapshot(vec![busy, node("idle", json!({}))]);
        let chosen =
            schedule_pod(&Profile::default(), &Arc::new(requesting("p", "1", "1Gi")), &nodes, &mut Progress::default()).expect("fits");
        assert_eq!(chosen.name, "idle");
    }

    #[test]
    fn in_a_large_cluster_each_cycle_searches_the_next_share_of_nodes() {
        assert_eq!((feasible_nodes_to_find(50), feasible_nodes_to_find(1_000), feasible_nodes_to_find(5_000)), (50, 420, 500));
        let nodes = snapshot((0..1_000).map(|n| node(&n.to_string(), json!({}))).collect());
        let (mut progress, plain) = (Progress::default(), Arc::new(pod("p", json!({}))));
        let profile = Profile::default();
        let first = schedule_pod(&profile, &plain, &nodes, &mut progress).expect("fits").name.clone();
        assert_eq!((first.as_str(), progress.start), ("0", 420));
        let second = schedule_pod(&profile, &plain, &nodes, &mut progress).expect("fits").name.clone();
        assert_eq!(second, "420");
    }

    /// Pods of three kinds come and go; some are being deleted; nodes change. A cycle that begins with the last one's state
    /// decides as one that does not.
    #[test]
    fn a_state_that_follows_the_changes_is_that_of_a_new_cycle() {
        let term = json!({"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"});
        let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let near = json!({"labelSelector": {"matchLabels": {"app": "near"}}, "topologyKey": "zone"});
        let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}});
        let spread = json!({"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}}}]});
        let kinds = [("apart", apart), ("near", near), ("spread", spread)];
        let node = |n: usize| {
            let labels = json!({"kubernetes.io/hostname": n.to_string(), "zone": (n % 3).to_string()});
            let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
            serde_json::from_value(json!({"metadata": {"name": n.to_string(), "labels": labels}, "status": status})).expect("a Node")
        };
        let (mut cache, profile, mut progress) = (Cache::default(), Profile::default(), Progress::default());
        (0..7).for_each(|n| drop(cache.update_node(&node(n))));
        let (mut bound, mut waiting) = (Vec::<Arc<PodInfo>>::new(), 0);
        for step in 0..400_usize {
            let (app, spec) = &kinds[step / 20 % 3];
            let pod = Arc::new(labelled(&format!("{app}-{step}"), json!({"app": app}), spec.clone()));
            let mut anew = Progress { start: progress.start, pre_filtered: None };
            let wanted = schedule_pod(&profile, &pod, cache.snapshot(), &mut anew).map(|node| node.name.clone());
            let chosen = schedule_pod(&profile, &pod, cache.snapshot(), &mut progress).map(|node| node.name.clone());
            assert_eq!(chosen.as_ref().ok(), wanted.as_ref().ok(), "step {step}");
            assert_eq!(chosen.as_ref().map_err(|failure| &failure.error).err(), wanted.as_ref().map_err(|failure| &failure.error).err());
            match chosen {
                Ok(node) => {
                    cache.assume_pod(Arc::clone(&pod), &node);
                    bound.push(pod);
                }
                Err(_) => waiting += 1,
            }
            if step % 3 == 0 && !bound.is_empty() {
                let gone = bound.swap_remove(step * 7 % bound.len());
                cache.remove_pod(&gone.uid);
            }
            if step % 7 == 0
                && let Some(leaving) = bound.get(step % 5)
            {
                let on = cache.pod(&leaving.uid).map(|_| PodInfo { deleting: true, ..PodInfo::clone(leaving) });
                let node = cache.snapshot().nodes.iter().find(|node| node.pods.contains_key(&leaving.uid)).map(|node| node.name.clone());
                on.into_iter().zip(node).for_each(|(pod, node_name)| cache.add_pod(Arc::new(PodInfo { node_name, ..pod })));
            }
            if step % 50 == 49 {
                cache.remove_node(&(step % 7).to_string());
                cache.update_node(&node(step % 9));
            }
        }
        assert!(bound.len() > 20 && waiting > 20, "{} bound, {waiting} waiting: both happen", bound.len());
    }
}
