//! Nodes that join, get lost and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::support::{Cluster, from, until};

fn ready(node: &Node) -> Option<(&str, &str)> {
    let ready = node.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == "Ready")?;
    Some((ready.status.as_str(), ready.reason.as_deref().unwrap_or_default()))
}

fn living_on<'a>(pods: &'a BTreeMap<String, Pod>, node: &'a str) -> impl Iterator<Item = &'a Pod> {
    pods.values().filter(move |pod| {
        pod.metadata.deletion_timestamp.is_none() && pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_lost_node_are_replaced_elsewhere() {
    let cluster = Cluster::start(|config| config.nodes.grace_period = Duration::from_secs(3)).await;
    cluster.schedule();
    let first = cluster.node("n1").await;
    cluster.node("n2").await;
    let nodes: Api<Node> = cluster.all();
    let has_range = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.pod_cidr.is_some());
    let joined = until("Pod ranges", nodes.clone(), |all| all.len() == 2 && all.values().all(has_range)).await;
    let ranges: BTreeSet<String> = joined.values().filter_map(|n| n.spec.as_ref()?.pod_cidr.clone()).collect();
    assert_eq!(ranges, BTreeSet::from(["10.244.0.0/24".to_owned(), "10.244.1.0/24".to_owned()]));

    let tolerate = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"tolerations": [tolerate("unreachable"), tolerate("not-ready")], "containers": [{"name": "c", "image": "v1"}]}}}});
    cluster.api::<Deployment>().create(&PostParams::default(), &from(deployment)).await.expect("a Deployment");
    let is_ready =
        |pod: &Pod| pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == "Ready" && c.status == "True");
    let spread = until("Pods on both", cluster.api::<Pod>(), |all| all.len() == 4 && all.values().all(is_ready)).await;
    assert_eq!((living_on(&spread, "n1").count(), living_on(&spread, "n2").count()), (2, 2));

    first.cancel();
    until("lost", nodes.clone(), |all| {
        let taints = all["n1"].spec.iter().flat_map(|s| s.taints.iter().flatten()).filter(|t| t.key == "node.kubernetes.io/unreachable");
        let effects: BTreeSet<&str> = taints.map(|t| t.effect.as_str()).collect();
        ready(&all["n1"]) == Some(("Unknown", "NodeStatusUnknown")) && effects == BTreeSet::from(["NoExecute", "NoSchedule"])
    })
    .await;
    let moved = until("replaced", cluster.api::<Pod>(), |all| living_on(all, "n2").filter(|pod| is_ready(pod)).count() == 4).await;
    let left: Vec<&Pod> = moved.values().filter(|pod| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some("n1")).collect();
    assert_eq!(left.len(), 2, "they wait for their kubelet");
    for pod in left {
        assert!(pod.metadata.deletion_timestamp.is_some() && !is_ready(pod));
        let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        assert!(conditions.into_iter().any(|c| c.type_ == "DisruptionTarget" && c.reason.as_deref() == Some("DeletionByTaintManager")));
    }
    assert_eq!(moved.len(), 6, "nothing double");
    until("events tell", cluster.api::<Event>(), |events| events.values().any(|e| e.reason.as_deref() == Some("TaintManagerEviction")))
        .await;

    nodes.delete("n1", &DeleteParams::default()).await.expect("deleted");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_deleted_node_are_collected() {
    let cluster = Cluster::start(|config| {
        config.pod_gc_period = Duration::from_millis(100);
        config.pod_gc_quarantine = Duration::from_millis(300);
    })
    .await;
    cluster.schedule();
    let alive = cluster.node("n1").await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    cluster.api::<Pod>().create(&PostParams::default(), &from(pod)).await.expect("a Pod");
    until("runs", cluster.api::<Pod>(), |all| all["p"].status.as_ref().is_some_and(|s| s.pod_ip.is_some())).await;
    alive.cancel();
    cluster.all::<Node>().delete("n1", &DeleteParams::default()).await.expect("deleted");
    until("collected", cluster.api::<Pod>(), |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_every_node_is_lost_nobody_is_evicted() {
    let cluster = Cluster::start(|config| config.nodes.grace_period = Duration::from_secs(2)).await;
    let alive = cluster.node("n1").await;
    alive.cancel();
    let nodes: Api<Node> = cluster.all();
    let lost = until("lost and tainted", nodes, |all| {
        ready(&all["n1"]).is_some_and(|(status, _)| status == "Unknown")
            && all["n1"].spec.as_ref().is_some_and(|s| s.taints.as_ref().is_some_and(|t| !t.is_empty()))
    })
    .await;
    let effects: Vec<&str> = lost["n1"].spec.iter().flat_map(|s| s.taints.iter().flatten()).map(|t| t.effect.as_str()).collect();
    assert_eq!(effects, ["NoSchedule"]);
    assert_eq!(lost["n1"].name_any(), "n1");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taint_that_says_no_time_counts_from_when_it_is_seen() {
    let cluster = Cluster::start(|_| {}).await;
    let _alive = cluster.node("n1").await;
    for (name, seconds) in [("short", 1), ("long", 3_600)] {
        let toleration = json!({"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "v1"}], "tolerations": [toleration]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        cluster.api::<Pod>().create(&PostParams::default(), &from(pod)).await.expect("a Pod");
    }
    let taint = json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
    let patch = kube::api::Patch::Merge(&taint);
    cluster.all::<Node>().patch("n1", &kube::api::PatchParams::default(), &patch).await.expect("tainted");
    let deleting = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    let left = until("one leaves", cluster.api::<Pod>(), |all| deleting(all.get("short"))).await;
    assert!(!deleting(left.get("long")));
    cluster.stop().await;
}
