use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::plugins::fixtures::{self, labelled, node, snapshot};

const SKEW: &str = "node(s) didn't match pod topology spread constraints";
const LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// Nodes `a1` and `a2` of zone `a`, `b1` of zone `b`, and `none` of no zone, with so many Pods of the app `web`.
fn cluster(pods: [usize; 4]) -> Snapshot {
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    let mut nodes = vec![node("a1", zone("a")), node("a2", zone("a")), node("b1", zone("b")), node("none", json!({}))];
    for (node, count) in nodes.iter_mut().zip(pods) {
        for number in 0..count {
            node.add_pod(Arc::new(labelled(&format!("{}-{number}", node.name), json!({"app": "web"}), json!({}))));
        }
    }
    snapshot(nodes)
}

/// A Pod of the app `web` with a constraint; `more` is merged over it.
fn spread(more: &Value, spec: &Value) -> PodInfo {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
    constraint.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let mut spec = spec.clone();
    spec["topologySpreadConstraints"] = json!([constraint]);
    labelled("x", json!({"app": "web", "hash": "1"}), spec)
}

fn reasons(pod: &PodInfo, all: &Snapshot) -> Vec<String> {
    let mut state = CycleState::default();
    assert_eq!(PodTopologySpread.pre_filter(&mut state, pod, all), Status::Success);
    let reason = |node: &Arc<NodeInfo>| match PodTopologySpread.filter(&state, pod, node) {
        Status::Success => String::new(),
        Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
    };
    all.nodes.iter().map(reason).collect()
}

#[test]
fn a_required_constraint_bounds_the_skew() {
    let hostname = json!({"topologyKey": "kubernetes.io/hostname"});
    let cases = [
        ("nothing yet", [0, 0, 0, 0], json!({}), json!({}), ["", "", "", LABEL]),
        ("zone a has one", [1, 0, 0, 0], json!({}), json!({}), [SKEW, SKEW, "", LABEL]),
        ("a Pod outside of the zones does not count", [0, 0, 0, 3], json!({}), json!({}), ["", "", "", LABEL]),
        ("a larger skew", [1, 0, 0, 0], json!({"maxSkew": 2}), json!({}), ["", "", "", LABEL]),
        ("by host", [1, 0, 0, 0], hostname, json!({}), [SKEW, "", "", ""]),
        ("fewer domains than wanted", [1, 0, 1, 0], json!({"minDomains": 3}), json!({}), [SKEW, SKEW, SKEW, LABEL]),
        (
            "a selector of other Pods",
            [1, 0, 0, 0],
            json!({"labelSelector": {"matchLabels": {"app": "db"}}}),
            json!({}),
            ["", "", "", LABEL],
        ),
        ("a label of its own that the others lack", [2, 0, 0, 0], json!({"matchLabelKeys": ["hash"]}), json!({}), ["", "", "", LABEL]),
        ("a selector that leaves zone b out", [1, 0, 0, 0], json!({}), json!({"nodeSelector": {"zone": "a"}}), ["", "", "", LABEL]),
        (
            "the same, ignored",
            [1, 0, 0, 0],
            json!({"nodeAffinityPolicy": "Ignore"}),
            json!({"nodeSelector": {"zone": "a"}}),
            [SKEW, SKEW, "", LABEL],
        ),
    ];
    for (name, pods, more, spec, wanted) in cases {
        assert_eq!(reasons(&spread(&more, &spec), &cluster(pods)), wanted, "{name}");
    }
}

#[test]
fn tainted_nodes_count_unless_taints_are_honored() {
    let taints = json!({"metadata": {"labels": {"zone": "b"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let mut a = node("a1", json!({"metadata": {"labels": {"zone": "a"}}}));
    a.add_pod(Arc::new(labelled("w", json!({"app": "web"}), json!({}))));
    let all = snapshot(vec![a, node("b1", taints)]);
    assert_eq!(reasons(&spread(&json!({}), &json!({})), &all), [SKEW, ""]);
    assert_eq!(reasons(&spread(&json!({"nodeTaintsPolicy": "Honor"}), &json!({})), &all), ["", ""]);
}

#[test]
fn pods_that_are_being_deleted_do_not_count() {
    let mut a = node("a1", json!({"metadata": {"labels": {"zone": "a"}}}));
    a.add_pod(Arc::new(PodInfo { deleting: true, ..labelled("w", json!({"app": "web"}), json!({})) }));
    let all = snapshot(vec![a, node("b1", json!({"metadata": {"labels": {"zone": "b"}}}))]);
    assert_eq!(reasons(&spread(&json!({}), &json!({})), &all), ["", ""]);
}

#[test]
fn other_constraints_prefer_emptier_domains() {
    let soft = |key: &str| spread(&json!({"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": key}), &json!({}));
    for (name, pods, key, wanted) in [
        ("equal", [0, 0, 0, 0], "zone", [100, 100, 100, 0]),
        ("zone a has two", [1, 1, 0, 0], "zone", [0, 0, 100, 0]),
        ("hosts", [2, 1, 0, 0], "kubernetes.io/hostname", [0, 50, 100, 100]),
    ] {
        let (pod, all) = (soft(key), cluster(pods));
        assert_eq!(fixtures::scores(&PodTopologySpread, &pod, &all), Some(Vec::from(wanted)), "{name}");
    }
}
