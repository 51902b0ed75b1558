use serde_json::json;

use super::*;
use crate::cache::Cache;
use crate::cycle::Nomination;
use crate::plugins::fixtures::{pod, requesting};

/// Four cores and 8 GiB.
fn object(name: &str) -> k8s_openapi::api::core::v1::Node {
    let labels = json!({"kubernetes.io/hostname": name});
    let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "status": status})).expect("a Node")
}

fn cluster(names: &[&str]) -> Cache {
    let mut cache = Cache::default();
    names.iter().for_each(|name| drop(cache.update_node(&object(name))));
    cache
}

fn offer(cache: &Cache, pod: &Arc<PodInfo>, progress: &mut Progress) -> Offer {
    feasible_nodes(&Profile::default(), pod, cache.snapshot(), progress).expect("feasible nodes")
}

fn allowed(names: &[(&str, i64)]) -> Vec<(String, i64)> {
    names.iter().map(|(name, score)| ((*name).to_owned(), *score)).collect()
}

fn rejected(node: &str, reason: &'static str) -> Rejected {
    Rejected { node: node.to_owned(), reason: reason.into() }
}

#[test]
fn the_feasible_nodes_are_offered() {
    let mut cache = cluster(&["a", "b", "full"]);
    cache.assume_pod(Arc::new(requesting("running", "4", "1Gi")), "full");
    let (wanting, mut progress) = (Arc::new(requesting("p", "1", "1Gi")), Progress::default());
    cache.nominate(Arc::clone(&wanting), "b");
    let offered = offer(&cache, &wanting, &mut progress);
    assert_eq!((offered.nodes, offered.nominated), (vec!["a".to_owned(), "b".to_owned()], Some("b".to_owned())));
    let too_large = Arc::new(requesting("large", "9", "1Gi"));
    let failure = feasible_nodes(&Profile::default(), &too_large, cache.snapshot(), &mut progress).expect_err("nothing fits");
    assert!(failure.error.to_string().starts_with("0/3 nodes are available: 3 Insufficient cpu."), "{}", failure.error);
    let nothing = feasible_nodes(&Profile::default(), &too_large, Cache::default().snapshot(), &mut progress).expect_err("no nodes");
    assert_eq!(nothing.error.to_string(), "no nodes available to schedule pods");
}

#[test]
fn in_a_large_cluster_as_many_nodes_are_offered_as_are_enough() {
    let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let cache = cluster(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (pod, mut progress) = (Arc::new(requesting("p", "1", "1Gi")), Progress::default());
    let first = offer(&cache, &pod, &mut progress);
    let second = offer(&cache, &pod, &mut progress);
    assert_eq!((first.nodes.len(), second.nodes.len()), (420, 420));
    assert_eq!((first.nodes.first().map(String::as_str), second.nodes.first().map(String::as_str)), (Some("0"), Some("420")));
}

#[test]
fn the_best_node_has_the_highest_sum_of_all_scores_and_is_still_feasible() {
    let mut cache = cluster(&["a", "b", "c"]);
    cache.assume_pod(Arc::new(requesting("running", "1", "2Gi")), "a");
    let (pod, mut progress) = (Arc::new(requesting("p", "2", "1Gi")), Progress::default());
    let mut choose = |cache: &Cache, names: &[(&str, i64)]| {
        best_of(&Profile::default(), &pod, cache.snapshot(), &mut progress, &allowed(names)).unwrap_or_default()
    };
    assert_eq!(choose(&cache, &[("a", 0), ("b", 0)]), "b", "the emptier one");
    assert_eq!(choose(&cache, &[("a", 1_000), ("b", 0)]), "a", "the one that an extender prefers");
    assert_eq!(choose(&cache, &[("a", i64::MAX), ("b", i64::MAX - 1)]), "a", "scores have bounds");
    assert_eq!(choose(&cache, &[("a", -50), ("gone", 9)]), "a", "the only one");
    cache.assume_pod(Arc::new(requesting("other", "3", "1Gi")), "b");
    assert_eq!(choose(&cache, &[("b", 1_000), ("c", 0)]), "c", "another Pod took the room");
    assert_eq!(choose(&cache, &[("b", 1_000)]), "");
}

#[test]
fn the_message_counts_what_plugins_and_extenders_reject() {
    let mut cache = cluster(&["a", "b", "c", "full"]);
    cache.assume_pod(Arc::new(requesting("running", "4", "1Gi")), "full");
    let (pod, mut progress) = (Arc::new(requesting("p", "1", "1Gi")), Progress::default());
    let offered = offer(&cache, &pod, &mut progress);
    let rejections = [rejected("a", "no GPU"), rejected("b", "no GPU"), rejected("gone", "no GPU")];
    let failure = unschedulable(&Profile::default(), &pod, cache.snapshot(), &mut progress, (offered, &rejections)).expect("a failure");
    assert_eq!(
        failure.error.to_string(),
        "0/4 nodes are available: 1 Insufficient cpu, 2 no GPU. preemption: 0/4 nodes are available: 1 No preemption victims found for \
         incoming pod, 3 Preemption is not helpful for scheduling."
    );
    assert!(failure.error.rejectors().events.contains(&ClusterEvent::WildCard), "any change may help");
    let silent = offer(&cluster(&["a"]), &pod, &mut Progress::default());
    let failure = unschedulable(&Profile::default(), &pod, cluster(&["a"]).snapshot(), &mut Progress::default(), (silent, &[]));
    assert_eq!(
        failure.expect("a failure").error.to_string(),
        "0/1 nodes are available: preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
}

/// The only Pod on a node would be preempted without a look, because it was what ruled the node out.
#[test]
fn nobody_is_preempted_on_a_node_that_an_extender_rejected_or_that_became_free() {
    let important = Arc::new(pod("p", json!({"priority": 9, "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]})));
    let mut cache = cluster(&["a", "b"]);
    cache.assume_pod(Arc::new(requesting("small", "500m", "1Gi")), "a");
    cache.assume_pod(Arc::new(requesting("large", "3", "1Gi")), "b");
    cache.assume_pod(Arc::new(requesting("tiny", "100m", "1Gi")), "b");
    let mut progress = Progress::default();
    let judge = |cache: &Cache, progress: &mut Progress, offered: Offer| {
        let rejections = [rejected("a", "no")];
        unschedulable(&Profile::default(), &important, cache.snapshot(), progress, (offered, &rejections))
    };
    let first = offer(&cache, &important, &mut progress);
    let failure = judge(&cache, &mut progress, first).expect("a failure");
    let Nomination::Preempts { best, others } = failure.nomination else { panic!("a preemption: {:?}", failure.nomination) };
    assert_eq!((best.node.as_str(), best.victims.len(), others.len()), ("b", 1, 0), "the extender's node is no candidate");
    let second = offer(&cache, &important, &mut progress);
    cache.remove_pod("large");
    assert!(judge(&cache, &mut progress, second).is_none(), "it fits on the other node by now");
    let third = offer(&cache, &important, &mut progress);
    cache.remove_node("b");
    assert!(judge(&cache, &mut progress, third).is_none(), "the nodes are others");
}
