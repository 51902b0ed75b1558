use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::plugins::fixtures::{self, labelled, node, snapshot};

const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// Nodes `a1` and `a2` of zone `a`, `b1` of zone `b`, and `none` of no zone. The Pods are on `a1`.
fn cluster(on_a1: Vec<PodInfo>) -> Snapshot {
    let zoned = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    let mut a1 = zoned("a1", "a");
    on_a1.into_iter().for_each(|pod| a1.add_pod(Arc::new(pod)));
    let mut all = snapshot(vec![a1, zoned("a2", "a"), zoned("b1", "b"), node("none", json!({}))]);
    all.namespaces.set("default", Some([("team".to_owned(), "blue".to_owned())].into()));
    all
}

fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

/// A Pod with required terms of a kind, `podAffinity` or `podAntiAffinity`.
fn requiring(name: &str, kind: &str, terms: &[Value]) -> PodInfo {
    labelled(name, json!({"app": name}), json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}))
}

fn plugin() -> InterPodAffinity {
    InterPodAffinity::new(&InterPodAffinityArgs::default())
}

fn plain(name: &str) -> PodInfo {
    labelled(name, json!({"app": name}), json!({}))
}

/// The reason for each node; empty where the Pod fits.
fn reasons(pod: &PodInfo, all: &Snapshot) -> Vec<String> {
    let mut state = CycleState::default();
    assert_eq!(plugin().pre_filter(&mut state, pod, all), Status::Success);
    let reason = |node: &Arc<NodeInfo>| match plugin().filter(&state, pod, node) {
        Status::Success => String::new(),
        Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
    };
    all.nodes.iter().map(reason).collect()
}

#[test]
fn required_terms_rule_nodes_out() {
    let cases = [
        ("no terms", plain("x"), vec![plain("web")], ["", "", "", ""]),
        ("beside web", requiring("x", "podAffinity", &[term("web", "zone")]), vec![plain("web")], ["", "", AFFINITY, AFFINITY]),
        ("one of two terms", requiring("x", "podAffinity", &[term("web", "zone"), term("db", "zone")]), vec![plain("web")], [AFFINITY; 4]),
        ("the first of its group", requiring("x", "podAffinity", &[term("x", "zone")]), vec![], ["", "", "", AFFINITY]),
        ("the second of its group", requiring("x", "podAffinity", &[term("x", "zone")]), vec![plain("x")], ["", "", AFFINITY, AFFINITY]),
        (
            "away from web",
            requiring("x", "podAntiAffinity", &[term("web", "zone")]),
            vec![plain("web")],
            [ANTI_AFFINITY, ANTI_AFFINITY, "", ""],
        ),
        (
            "away from web by host",
            requiring("x", "podAntiAffinity", &[term("web", "kubernetes.io/hostname")]),
            vec![plain("web")],
            [ANTI_AFFINITY, "", "", ""],
        ),
        (
            "web stays away from it",
            plain("x"),
            vec![requiring("web", "podAntiAffinity", &[term("x", "zone")])],
            [EXISTING, EXISTING, "", ""],
        ),
        ("web stays away from others", plain("x"), vec![requiring("web", "podAntiAffinity", &[term("y", "zone")])], ["", "", "", ""]),
    ];
    for (name, pod, on_a1, wanted) in cases {
        assert_eq!(reasons(&pod, &cluster(on_a1)), wanted, "{name}");
    }
}

#[test]
fn terms_select_pods_of_their_namespaces() {
    let elsewhere = |more: Value| {
        let mut term = term("web", "zone");
        term.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let mut pod = labelled("x", json!({}), json!({}));
        pod.namespace = "other".to_owned();
        let object = json!({"metadata": {"name": "x", "namespace": "other"}, "spec": {"containers": [],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
        pod.pod_affinity = sched_framework::PodAffinityTerms::new(&serde_json::from_value(object).expect("a Pod"));
        reasons(&pod, &cluster(vec![plain("web")]))[0].is_empty()
    };
    for (more, wanted) in [
        (json!({}), false),
        (json!({"namespaces": ["default"]}), true),
        (json!({"namespaceSelector": {}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "red"}}, "namespaces": ["default"]}), true),
        (json!({"namespaces": ["default"], "labelSelector": null}), false),
    ] {
        assert_eq!(elsewhere(more.clone()), wanted, "{more}");
    }
}

#[test]
fn preferred_terms_add_to_the_score_from_both_sides() {
    let preferring = |name: &str, kind: &str, app: &str| {
        let terms = json!([{"weight": 10, "podAffinityTerm": term(app, "zone")}]);
        labelled(name, json!({"app": name}), json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}))
    };
    let cases = [
        ("no preference", plain("x"), plain("web"), None),
        ("near web", preferring("x", "podAffinity", "web"), plain("web"), Some([100, 100, 0, 0])),
        ("far from web", preferring("x", "podAntiAffinity", "web"), plain("web"), Some([0, 0, 100, 100])),
        ("web likes it", plain("x"), preferring("web", "podAffinity", "x"), Some([100, 100, 0, 0])),
        ("web dislikes it", plain("x"), preferring("web", "podAntiAffinity", "x"), Some([0, 0, 100, 100])),
        ("web requires it", plain("x"), requiring("web", "podAffinity", &[term("x", "zone")]), Some([100, 100, 0, 0])),
    ];
    for (name, pod, on_a1, wanted) in cases {
        let all = cluster(vec![on_a1]);
        assert_eq!(fixtures::scores(&plugin(), &pod, &all), wanted.map(Vec::from), "{name}");
    }
}

#[test]
fn the_terms_of_other_pods_count_as_configured() {
    let preferring = |name: &str| {
        let term = json!([{"weight": 10, "podAffinityTerm": term("x", "zone")}]);
        labelled(
            name,
            json!({"app": name}),
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": term}}}),
        )
    };
    let all = cluster(vec![preferring("a"), requiring("b", "podAffinity", &[term("x", "zone")])]);
    let raw = |args: &Value, pod: &PodInfo| {
        let plugin = InterPodAffinity::new(&fixtures::arguments("InterPodAffinity", args).inter_pod_affinity);
        let mut state = CycleState::default();
        plugin.count_pods(&mut state, pod, &all);
        let a1 = all.node("a1").expect("a node");
        // As if one more Pod came and left.
        let other = requiring("c", "podAffinity", &[term("x", "zone")]);
        ScorePlugin::pod_changed(&plugin, &mut state, pod, &all, PodChange::added(&other, a1));
        let more = plugin.score(&state, pod, a1);
        ScorePlugin::pod_changed(&plugin, &mut state, pod, &all, PodChange::removed(&other, a1));
        plugin.pre_score(&mut state, pod, &[]).then(|| (plugin.score(&state, pod, a1), more))
    };
    let (weight, ignore) = (json!({"hardPodAffinityWeight": 5}), json!({"ignorePreferredTermsOfExistingPods": true}));
    assert_eq!(raw(&json!({}), &plain("x")), Some((Some(11), Some(12))));
    assert_eq!(raw(&weight, &plain("x")), Some((Some(15), Some(20))));
    assert_eq!(raw(&json!({"hardPodAffinityWeight": 0}), &plain("x")), Some((Some(10), Some(10))));
    assert_eq!(raw(&ignore, &plain("x")), None);
    assert_eq!(raw(&ignore, &preferring("x")), Some((Some(11), Some(12))), "a Pod with preferences of its own");
}
