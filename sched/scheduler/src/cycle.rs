//! One scheduling cycle: filter, score, choose. It works on memory alone: the same snapshot, Pod and progress give the
//! same result.

mod evaluation;
mod extended;
mod member;
mod pre_filtered;
mod recent;
mod search;

use std::sync::Arc;

use sched_framework::{CycleState, PodInfo, PostFilterResult, Preemption, Snapshot};

use self::evaluation::Evaluation;
pub(crate) use self::extended::{Offer, Rejected, best_of, feasible_nodes, fits, unschedulable};
pub(crate) use self::member::{depends_on_node_alone, schedule_member};
use self::pre_filtered::PreFiltered;
use self::recent::Recent;
use self::search::find_host;
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
    /// The Pod is nominated to the node of the best preemption.
    Preempts { best: Arc<Preemption>, others: Vec<Arc<Preemption>> },
}

/// What a cycle leaves for the next ones.
#[derive(Default)]
pub(crate) struct Progress {
    /// The position in the order of visits at which the next search begins, so that successive cycles begin at different nodes:
    /// upstream's `nextStartNodeIndex`.
    start: usize,
    /// The same for the search for Pods to preempt.
    preemption_offset: usize,
    pre_filtered: Recent<PreFiltered>,
    /// The state of the latest cycle, if plugins go on with it after the cycle, with the UID of its Pod.
    own: Option<(String, CycleState)>,
    evaluations: Recent<Evaluation>,
}

impl Progress {
    /// Drops the results of earlier cycles, which do not hold any more.
    pub fn reset(&mut self) {
        *self = Self { start: self.start, preemption_offset: self.preemption_offset, ..Self::default() };
    }

    /// Stores the state of a cycle: for the next cycles of Pods that are alike, or for the binding of this Pod.
    fn keep(&mut self, profile: &Profile, pod: &Arc<PodInfo>, snapshot: &Snapshot, mut state: CycleState) {
        // What volumes a Pod gets changes without a change of nodes and Pods.
        if !pod.volumes.is_empty() || profile.binding.has_part_in(pod) {
            // Other plugins may share objects with the snapshot, which must not be copied when one of them changes.
            state.retain(|plugin| profile.binding.has_plugin(plugin));
            self.own = Some((pod.uid.clone(), state));
        } else {
            self.pre_filtered.keep(pod, snapshot, state);
        }
    }

    /// The state of the cycle that was the Pod's latest one and the latest of all, for the binding.
    pub fn take_state(&mut self, uid: &str) -> CycleState {
        self.own.take().filter(|(of, _)| of == uid).map(|(_, state)| state).unwrap_or_default()
    }
}

/// The name of the best node for the Pod, or why there is none and which Pods to preempt.
pub(crate) fn schedule_pod(
    profile: &Profile,
    pod: &Arc<PodInfo>,
    snapshot: &Snapshot,
    progress: &mut Progress,
) -> Result<String, Box<Failure>> {
    let (nodes, mut diagnosis) = (snapshot.nodes.len(), Diagnosis::default());
    let mut state = begin(profile, pod, snapshot, progress)?;
    let host = match nominated_host(profile, &mut state, pod, snapshot) {
        Some(host) => Some(host),
        None => find_host(profile, &mut state, pod, snapshot, progress, &mut diagnosis),
    };
    let nomination = match host {
        Some(_) => Nomination::Stays,
        None => make_room(profile, &mut state, pod, snapshot, &mut diagnosis, &mut progress.preemption_offset),
    };
    progress.keep(profile, pod, snapshot, state);
    host.ok_or_else(|| Box::new(Failure { error: FitError::Unschedulable { nodes, diagnosis }, nomination }))
}

/// The state of the Pod's cycle after `pre_filter`, or why no node is feasible and which Pods to preempt.
fn begin(profile: &Profile, pod: &Arc<PodInfo>, snapshot: &Snapshot, progress: &mut Progress) -> Result<CycleState, Box<Failure>> {
    let nodes = snapshot.nodes.len();
    // That of another cycle is of no use any more, and it may say what to write.
    progress.own = None;
    if nodes == 0 {
        return Err(Box::new(Failure { error: FitError::NoNodes, nomination: Nomination::Ends }));
    }
    progress.pre_filtered.pre_filter(profile, pod, snapshot).map_err(|rejection| {
        let mut diagnosis = Diagnosis::default();
        diagnosis.add_all(nodes, rejection);
        let offset = &mut progress.preemption_offset;
        let nomination = make_room(profile, &mut CycleState::default(), pod, snapshot, &mut diagnosis, offset);
        Box::new(Failure { error: FitError::Unschedulable { nodes, diagnosis }, nomination })
    })
}

/// The node to which the Pod is nominated, if it is feasible.
fn nominated_host(profile: &Profile, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Option<String> {
    let node = snapshot.node(snapshot.nominated.node_of(&pod.uid)?)?;
    profile.filters.filter_with_nominated(state, pod, node, snapshot).ok().map(|()| node.name.clone())
}

/// Calls the post-filter plugins until one finds Pods to preempt.
fn make_room(
    profile: &Profile,
    state: &mut CycleState,
    pod: &PodInfo,
    snapshot: &Snapshot,
    diagnosis: &mut Diagnosis,
    offset: &mut usize,
) -> Nomination {
    let mut nomination = Nomination::Stays;
    for plugin in &profile.post_filters {
        let result = plugin.post_filter(&profile.filters, state, pod, snapshot, &diagnosis.resolvable, *offset);
        *offset += feasible_nodes_to_find(profile.percentage_of_nodes_to_score, snapshot.nodes.len());
        match result {
            PostFilterResult::Preempt { best, others } => return Nomination::Preempts { best, others },
            PostFilterResult::Unschedulable { message, stays_nominated } => {
                diagnosis.add_post_filter(message);
                if !stays_nominated {
                    nomination = Nomination::Ends;
                }
            }
        }
    }
    nomination
}

/// The number of feasible nodes at which the search ends: upstream's `numFeasibleNodesToFind`. A `percentage` of 0 depends on the number
/// of nodes.
fn feasible_nodes_to_find(percentage: usize, nodes: usize) -> usize {
    if nodes < FEASIBLE_NODES_MIN {
        return nodes;
    }
    let percent = if percentage > 0 { percentage } else { 50_usize.saturating_sub(nodes / 125).max(FEASIBLE_PERCENT_MIN) };
    (nodes * percent / 100).max(FEASIBLE_NODES_MIN)
}

#[cfg(test)]
mod tests {
    use sched_framework::{ClusterEvent, NodeInfo};
    use serde_json::{Value, json};

    use super::search::FURTHER_NODES;
    use super::*;
    use crate::cache::Cache;
    use crate::config::KubeSchedulerProfile;
    use crate::plugins::device_fixtures::{allocated, devices_of, set_claim, set_class, set_slice};
    use crate::plugins::fixtures::{labelled, node, pod, requesting, snapshot};

    fn error(pod: &PodInfo, all: &Snapshot) -> FitError {
        schedule_pod(&Profile::default(), &Arc::new(pod.clone()), all, &mut Progress::default()).expect_err("nothing fits").error
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
        assert!(error.rejectors().events.contains(&ClusterEvent::UpdateNodeTaint));
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
        assert_eq!(chosen, "idle");
    }

    #[test]
    fn a_search_that_ends_early_has_nodes_of_all_zones() {
        let (mut cache, mut progress) = (Cache::default(), Progress::default());
        for n in 0..400 {
            let mut node = object(n);
            let zone = if n < 300 { "old" } else { "new" };
            node.metadata.labels.get_or_insert_default().insert("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
            cache.update_node(&node);
        }
        cache.order_nodes();
        let preference = json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["new"]}]});
        let preferred = json!([{"weight": 1, "preference": preference}]);
        let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
        assert_eq!(bind(&mut cache, &Arc::new(pod("p", spec)), &mut progress), "300", "the first node of the other zone is the second");
        let apart = json!({"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"});
        let avoided = json!([{"weight": 1, "podAffinityTerm": apart}]);
        let spec = json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": avoided}}});
        let by_turns: Vec<_> =
            (0..4).map(|n| bind(&mut cache, &Arc::new(pod(&format!("a{n}"), spec.clone())), &mut Progress::default())).collect();
        assert_eq!(by_turns, ["0", "1", "301", "2"]);
    }

    fn bind(cache: &mut Cache, pod: &Arc<PodInfo>, progress: &mut Progress) -> String {
        let node = schedule_pod(&Profile::default(), pod, cache.snapshot(), progress).expect("fits");
        cache.assume_pod(Arc::clone(pod), &node);
        node
    }

    #[test]
    fn in_a_large_cluster_a_cycle_searches_a_share_of_the_nodes_and_the_next_ones_a_few_more() {
        for (percentage, nodes, wanted) in [(0, 50, 50), (0, 1_000, 420), (0, 5_000, 500), (30, 50, 50), (30, 1_000, 300), (5, 1_000, 100)]
        {
            assert_eq!(feasible_nodes_to_find(percentage, nodes), wanted, "{percentage} % of {nodes}");
        }
        let (mut cache, mut progress) = (Cache::default(), Progress::default());
        (0..1_000).for_each(|n| drop(cache.update_node(&object(n))));
        let chosen: Vec<String> =
            (0..3).map(|n| bind(&mut cache, &Arc::new(requesting(&n.to_string(), "1", "1Gi")), &mut progress)).collect();
        assert_eq!((chosen, progress.start), (["0", "1", "2"].map(str::to_owned).to_vec(), 420 + 2 * FURTHER_NODES));
        let other = bind(&mut cache, &Arc::new(requesting("other", "2", "1Gi")), &mut progress);
        assert_eq!(other, (420 + 2 * FURTHER_NODES).to_string(), "the search for another kind of Pod begins where the last one ended");
    }

    #[test]
    fn pods_take_turns_on_nodes_of_the_same_score() {
        let (mut cache, mut progress) = (Cache::default(), Progress::default());
        (0..3).for_each(|n| drop(cache.update_node(&object(n))));
        let chosen: Vec<String> =
            (0..6).map(|n| bind(&mut cache, &Arc::new(requesting(&n.to_string(), "1m", "1Mi")), &mut progress)).collect();
        assert_eq!(chosen, ["0", "1", "2", "0", "1", "2"]);
    }

    #[test]
    fn a_pod_that_names_its_node_is_tried_there_alone() {
        let (mut cache, mut progress) = (Cache::default(), Progress::default());
        (0..3).for_each(|n| drop(cache.update_node(&object(n))));
        let named = |node: &str| {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
            let spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}});
            Arc::new(pod("p", spec))
        };
        assert_eq!(bind(&mut cache, &named("1"), &mut progress), "1");
        assert_eq!(
            error(&named("9"), cache.snapshot()).to_string(),
            "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 3 \
             Preemption is not helpful for scheduling."
        );
    }

    /// A Node of one of three zones.
    fn object(n: usize) -> k8s_openapi::api::core::v1::Node {
        let labels = json!({"kubernetes.io/hostname": n.to_string(), "zone": (n % 3).to_string()});
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
        serde_json::from_value(json!({"metadata": {"name": n.to_string(), "labels": labels}, "status": status})).expect("a Node")
    }

    /// The scores of all nodes in a new cycle; `None` where the Pod is not feasible.
    fn scores(pod: &Arc<PodInfo>, snapshot: &Snapshot) -> Vec<Option<i64>> {
        let (profile, mut state) = (Profile::default(), CycleState::default());
        assert!(profile.filters.pre_filter(&mut state, pod, snapshot).is_ok());
        profile.scores.iter().for_each(|plugin| plugin.count_pods(&mut state, pod, snapshot));
        profile.scores.iter().for_each(|plugin| plugin.read_snapshot(&mut state, pod, snapshot));
        let feasible: Vec<bool> = snapshot.nodes.iter().map(|node| profile.filters.filter(&state, pod, node).is_ok()).collect();
        let nodes: Vec<&NodeInfo> =
            snapshot.nodes.iter().zip(&feasible).filter(|(_, fits)| **fits).map(|(node, _)| node.as_ref()).collect();
        let mut totals = vec![0; nodes.len()];
        for plugin in &profile.scores {
            if plugin.pre_score(&mut state, pod, &nodes) {
                let raw: Vec<_> = nodes.iter().map(|node| plugin.score(&state, pod, node)).collect();
                let scaled = plugin.normalization().scale(&raw);
                totals.iter_mut().zip(scaled).for_each(|(total, score)| *total += score * plugin.weight());
            }
        }
        let mut totals = totals.into_iter();
        feasible.into_iter().map(|fits| if fits { totals.next() } else { None }).collect()
    }

    /// Pods of several kinds come and go; some are being deleted; nodes change. A cycle that begins with what the last ones left
    /// decides as well as a new one, in which every plugin is called for every node.
    #[test]
    fn results_that_follow_the_changes_are_those_of_a_new_cycle() {
        let term = |app: &str, key: &str| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
        let required = |kind: &str, term: Value| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let preferred = json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 10, "podAffinityTerm": term("apart", "zone")}]}}});
        let spread = |action: &str, key: &str| {
            json!({"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": key, "whenUnsatisfiable": action,
                "labelSelector": {"matchLabels": {"app": "spread"}}}]})
        };
        // The highest preference ends when the nodes of zone 2 are full.
        let zone = |zone: &str, weight: i64| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}});
        let zones = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [zone("1", 2), zone("2", 90)]}});
        let half = json!([{"name": "c", "resources": {"requests": {"cpu": "1800m", "memory": "1Gi"}}}]);
        let kinds = [
            ("apart", required("podAntiAffinity", term("apart", "kubernetes.io/hostname"))),
            ("near", required("podAffinity", term("near", "zone"))),
            ("liking", preferred),
            ("spread", spread("DoNotSchedule", "zone")),
            ("spread", spread("ScheduleAnyway", "kubernetes.io/hostname")),
            ("zoned", json!({"affinity": zones, "containers": half})),
            ("large", json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]})),
        ];
        let (mut cache, profile, mut progress) = (Cache::default(), Profile::default(), Progress::default());
        (0..7).for_each(|n| drop(cache.update_node(&object(n))));
        let (mut bound, mut waiting) = (Vec::<Arc<PodInfo>>::new(), 0);
        for step in 0..1_400_usize {
            let (app, spec) = &kinds[step / 20 % kinds.len()];
            let pod = Arc::new(labelled(&format!("{app}-{step}"), json!({"app": app}), spec.clone()));
            let mut anew = Progress { start: progress.start, ..Progress::default() };
            let wanted = schedule_pod(&profile, &pod, cache.snapshot(), &mut anew).map_err(|failure| failure.error);
            let chosen = schedule_pod(&profile, &pod, cache.snapshot(), &mut progress).map_err(|failure| failure.error);
            assert_eq!(chosen.as_ref().err(), wanted.as_ref().err(), "step {step}");
            match chosen {
                Ok(node) => {
                    let scores = scores(&pod, cache.snapshot());
                    assert_eq!(scores[cache.snapshot().node_index[&node]], scores.iter().copied().max().flatten(), "step {step}, {app}");
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
                let node = cache.snapshot().nodes.iter().find(|node| node.pods.get(&leaving.uid).is_some()).map(|node| node.name.clone());
                on.into_iter().zip(node).for_each(|(pod, node_name)| cache.add_pod(Arc::new(PodInfo { node_name, ..pod })));
            }
            if step % 50 == 49 {
                cache.remove_node(&(step % 7).to_string());
                cache.update_node(&object(step % 9));
            }
        }
        assert!(bound.len() > 20 && waiting > 20, "{} bound, {waiting} waiting: both happen", bound.len());
    }

    /// Devices are allocated and freed without a change of the node.
    #[test]
    fn scores_of_resources_that_devices_back_follow_the_claims() {
        let resources = json!([{"name": "example.com/gpu", "weight": 10}]);
        let args = json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}});
        let arguments = crate::plugins::fixtures::arguments("NodeResourcesFit", &args);
        let profile = Profile::of_cycle(&KubeSchedulerProfile { arguments, ..KubeSchedulerProfile::default() }, Vec::new());
        let container = json!({"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}});
        let wanting = |name: &str| Arc::new(pod(name, json!({"containers": [container]})));
        let (mut cache, mut progress) = (Cache::default(), Progress::default());
        (0..2).for_each(|n| drop(cache.update_node(&object(n))));
        let devices = [devices_of("0", &["a", "b", "c", "d"]), devices_of("1", &["a", "b", "c", "d"])];
        devices.iter().for_each(|slice| set_slice(cache.dra_mut(), slice));
        set_class(cache.dra_mut(), "gpu", json!({"extendedResourceName": "example.com/gpu"}));
        let mut chosen = Vec::new();
        for (number, node) in ["1", "0", "1"].into_iter().enumerate() {
            set_claim(cache.dra_mut(), &allocated("x", node, "a", &["q"]));
            let pod = wanting(&format!("p{number}"));
            chosen.push(schedule_pod(&profile, &pod, cache.snapshot(), &mut progress).expect("fits"));
        }
        assert_eq!(chosen, ["1", "0", "1"]);
    }

    /// What plugins decided for the Pod in an earlier cycle does not hold any more.
    #[test]
    fn a_cycle_that_ends_at_once_leaves_no_state_of_an_earlier_one() {
        let pod = Arc::new(crate::plugins::volume_fixtures::claiming("p", &["missing"]));
        let mut state = CycleState::default();
        state.write("Other", 1_u8);
        let mut progress = Progress { own: Some((pod.uid.clone(), state)), ..Progress::default() };
        let all = snapshot(vec![node("a", json!({}))]);
        schedule_pod(&Profile::default(), &pod, &all, &mut progress).expect_err("its claim is missing");
        assert_eq!(progress.take_state(&pod.uid).read::<u8>("Other"), None);
    }
}
