//! A DaemonSet's life: one Pod a node, rollout, roll-back by revision, nodes that come and change, failed Pods, deletion.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

fn set(strategy: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "updateStrategy": strategy, "revisionHistoryLimit": 1,
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}},
    }})
}

/// The condition that `kubectl rollout status` waits for.
fn rolled_out(all: &BTreeMap<String, DaemonSet>, nodes: i32) -> bool {
    let Some(set) = all.get("d") else { return false };
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation >= set.metadata.generation
        && status.desired_number_scheduled == nodes
        && status.updated_number_scheduled == Some(nodes)
        && status.number_available == Some(nodes)
}

/// Binds Pods to the node that their affinity names, as the scheduler does.
fn bind(cluster: &Cluster) {
    use futures::StreamExt;
    use kube::runtime::{WatchStreamExt, watcher};
    let (pods, client) = (cluster.api::<Pod>(), cluster.client.clone());
    tokio::spawn(async move {
        let config = watcher::Config::default().fields("spec.nodeName=");
        let mut events = std::pin::pin!(watcher(pods.clone(), config).default_backoff().touched_objects());
        while let Some(Ok(pod)) = events.next().await {
            let spec = json!(pod.spec);
            let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
            if let Some(node) = spec.pointer(terms).filter(|_| pod.metadata.deletion_timestamp.is_none() && spec.get("nodeName").is_none())
            {
                let name = pod.name_any();
                let binding =
                    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
                let pods = kube::Api::<Pod>::namespaced(client.clone(), "default");
                let bound: kube::Result<Value> = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
                drop(bound);
            }
        }
    });
}

fn on_node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn new_image(image: &str) -> Patch<Value> {
    Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_has_a_pod_on_each_node_through_updates() {
    let cluster = Cluster::start(|_| {}).await;
    bind(&cluster);
    cluster.node("n1").await;
    cluster.node("n2").await;
    let (sets, pods, revisions) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>(), cluster.api::<ControllerRevision>());
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    sets.create(&PostParams::default(), &from(set(&strategy))).await.expect("a DaemonSet");
    until("first rollout", sets.clone(), |all| rolled_out(all, 2)).await;
    cluster.node("n3").await;
    until("a new node", sets.clone(), |all| rolled_out(all, 3)).await;

    sets.patch("d", &PatchParams::default(), &new_image("v2")).await.expect("a new image");
    until("second rollout", sets.clone(), |all| rolled_out(all, 3) && all["d"].metadata.generation == Some(2)).await;
    let two = until("two revisions", revisions.clone(), |all| all.len() == 2).await;
    let old = two.values().find(|revision| revision.revision == Some(1)).expect("the first one");
    // `kubectl rollout undo` applies the revision's data as it is.
    sets.patch("d", &PatchParams::default(), &Patch::Strategic(old.data.0.clone())).await.expect("undone");
    until("roll-back", sets.clone(), |all| rolled_out(all, 3) && all["d"].metadata.generation == Some(3)).await;
    until("the old revision is the newest", revisions.clone(), |all| all.len() == 2 && all[&old.name_any()].revision == Some(3)).await;
    let now = pods.list(&Default::default()).await.expect("Pods");
    let mut nodes: Vec<_> = now.iter().map(on_node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n1", "n2", "n3"]);

    let failed = now.items[0].name_any();
    pods.patch_status(&failed, &PatchParams::default(), &Patch::Merge(json!({"status": {"phase": "Failed"}}))).await.expect("failed");
    until("the failed Pod is replaced", pods.clone(), |pods| pods.len() == 3 && !pods.contains_key(&failed)).await;
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    cluster.all::<Node>().patch("n2", &PatchParams::default(), &Patch::Merge(taint)).await.expect("a taint");
    until("n2 is not for it", pods.clone(), |pods| pods.len() == 2 && pods.values().all(|pod| on_node(pod) != "n2")).await;
    until("counted", sets.clone(), |all| rolled_out(all, 2)).await;
    until("events tell", cluster.api::<Event>(), |events| {
        let has = |reason: &str, message: &str| {
            events.values().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref().is_some_and(|m| m.starts_with(message)))
        };
        has("SuccessfulCreate", "Created pod: d-")
            && has("SuccessfulDelete", "Deleted pod: d-")
            && has("FailedDaemonPod", &format!("Found failed daemon pod default/{failed} on node "))
    })
    .await;
    sets.delete("d", &DeleteParams::background()).await.expect("deleted");
    until("no Pods", pods, BTreeMap::is_empty).await;
    until("no revisions", revisions, BTreeMap::is_empty).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_surging_update_never_leaves_a_node_without_a_ready_pod() {
    let cluster = Cluster::start(|_| {}).await;
    bind(&cluster);
    cluster.node("n1").await;
    cluster.node("n2").await;
    let (sets, pods) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>());
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    sets.create(&PostParams::default(), &from(set(&strategy))).await.expect("a DaemonSet");
    until("first rollout", sets.clone(), |all| rolled_out(all, 2)).await;
    sets.patch("d", &PatchParams::default(), &new_image("v2")).await.expect("a new image");
    until("all are new, and each node always has a Pod", pods, |pods| {
        let on = |node: &str| pods.values().filter(|pod| on_node(pod) == node).count();
        assert!(on("n1") >= 1 && on("n2") >= 1 && pods.len() <= 3, "{:?}", pods.keys());
        pods.len() == 2 && pods.values().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some("v2")))
    })
    .await;
    until("rolled out", sets, |all| rolled_out(all, 2)).await;
    cluster.stop().await;
}
