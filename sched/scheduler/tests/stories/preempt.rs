//! Preemption with extenders.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::extender::{Extender, Reply};
use crate::support::{Cluster, from};

/// An answer, and what the Pod says then.
type Case = (fn() -> Reply, &'static str);

fn wanting(cpu: &str, class: &str, node: &Value) -> Value {
    let containers = json!([{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}]);
    json!({"containers": containers, "priorityClassName": class, "nodeName": node, "terminationGracePeriodSeconds": 0})
}

/// Nodes `a` and `b`, full of Pods of a low priority: the scheduler itself would choose the one victim on `a`.
async fn full(extender: &Extender, node_cache_capable: bool, ignorable: bool) -> Cluster {
    let extenders = json!([{"urlPrefix": extender.url(), "preemptVerb": "preempt", "nodeCacheCapable": node_cache_capable,
        "ignorable": ignorable}]);
    let cluster = Cluster::start(&["a", "b"], extenders).await;
    for (name, value) in [("low", 1), ("high", 1_000)] {
        let class: PriorityClass = from(json!({"metadata": {"name": name}, "value": value}));
        Api::all(cluster.client.clone()).create(&PostParams::default(), &class).await.expect("a class");
    }
    cluster.pod("on-a", wanting("4", "low", &json!("a"))).await;
    cluster.pod("on-b-1", wanting("2", "low", &json!("b"))).await;
    cluster.pod("on-b-2", wanting("2", "low", &json!("b"))).await;
    cluster
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.api::<Pod>().list(&kube::api::ListParams::default()).await.expect("Pods");
    let mut names: Vec<String> =
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(|pod| pod.metadata.name).collect();
    names.sort();
    names
}

/// The victims on `b` alone, by UID.
fn on_b(request: &Value) -> Value {
    let (victims, uid) = match &request["NodeNameToVictims"] {
        Value::Null => (&request["NodeNameToMetaVictims"]["b"], "/UID"),
        whole => (&whole["b"], "/metadata/uid"),
    };
    let pods: Vec<Value> = victims["Pods"].as_array().expect("victims").iter().map(|pod| json!({"UID": pod.pointer(uid)})).collect();
    json!({"NodeNameToMetaVictims": {"b": {"Pods": pods, "NumPDBViolations": 0}}})
}

#[tokio::test]
async fn an_extender_chooses_among_the_candidates() {
    for node_cache_capable in [true, false] {
        let extender = Extender::start(|_, request| Reply::Json(on_b(&request))).await;
        let cluster = full(&extender, node_cache_capable, false).await;
        cluster.pod("important", wanting("4", "high", &Value::Null)).await;
        assert_eq!(cluster.node_of("important").await, "b");
        assert_eq!(names(&cluster).await, ["important", "on-a"]);
        let request = extender.requests("preempt").into_iter().next().expect("a request");
        assert_eq!(request["Pod"]["metadata"]["name"], "important");
        let (whole, metas) = (&request["NodeNameToVictims"], &request["NodeNameToMetaVictims"]);
        if node_cache_capable {
            assert_eq!((whole, metas["a"]["NumPDBViolations"].as_i64()), (&Value::Null, Some(0)));
        } else {
            assert_eq!((&whole["a"]["Pods"][0]["spec"]["containers"][0]["image"], metas), (&json!("none"), &Value::Null), "whole Pods");
        }
        cluster.stop().await;
    }
}

#[tokio::test]
async fn an_extender_that_fails_or_lies_preempts_nobody() {
    let cases: [Case; 4] = [
        (|| Reply::Status(503), "preemption: failed preempt with extender at URL "),
        (|| Reply::Json(json!({"NodeNameToMetaVictims": {}})), "preemption: no candidate node for preemption"),
        (|| Reply::Json(json!({"NodeNameToMetaVictims": {"a": {}}})), "preemption: expected at least one victim pod on node \"a\""),
        (|| Reply::Json(json!({"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "x"}]}}})), "but the pod is not found on that node"),
    ];
    for (reply, wanted) in cases {
        let extender = Extender::start(move |_, _| reply()).await;
        let cluster = full(&extender, true, false).await;
        cluster.pod("important", wanting("4", "high", &Value::Null)).await;
        let message = cluster.until_unscheduled("important", "Unschedulable", wanted).await;
        assert!(message.starts_with("0/2 nodes are available: 2 Insufficient cpu. "), "{message}");
        assert_eq!(names(&cluster).await, ["important", "on-a", "on-b-1", "on-b-2"]);
        cluster.stop().await;
    }
}

#[tokio::test]
async fn the_scheduler_preempts_without_an_ignorable_extender_that_fails() {
    let extender = Extender::start(|_, _| Reply::Text("garbage")).await;
    let cluster = full(&extender, false, true).await;
    cluster.pod("important", wanting("4", "high", &Value::Null)).await;
    assert_eq!(cluster.node_of("important").await, "a");
    assert_eq!(names(&cluster).await, ["important", "on-b-1", "on-b-2"]);
    cluster.stop().await;
}
