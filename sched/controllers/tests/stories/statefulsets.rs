//! A StatefulSet's life: ordered creation, claims, rollout, roll-back by revision, scaling, deletion.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

fn set(replicas: i32, policy: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "replicas": replicas, "serviceName": "dbs", "selector": {"matchLabels": {"app": "db"}}, "podManagementPolicy": policy, "revisionHistoryLimit": 1,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }})
}

/// The condition that `kubectl rollout status` waits for.
fn rolled_out(all: &BTreeMap<String, StatefulSet>, replicas: i32) -> bool {
    let Some(db) = all.get("db") else { return false };
    let status = db.status.clone().unwrap_or_default();
    status.observed_generation >= db.metadata.generation
        && status.ready_replicas == Some(replicas)
        && status.replicas == replicas
        && status.updated_replicas == Some(replicas)
        && status.update_revision == status.current_revision
}

fn image(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.first()?.image.as_deref()
}

fn new_image(image: &str) -> Patch<Value> {
    Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_is_made_updated_rolled_back_scaled_and_deleted() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    cluster.node("n1").await;
    let (sets, pods, claims) = (cluster.api::<StatefulSet>(), cluster.api::<Pod>(), cluster.api::<PersistentVolumeClaim>());
    let revisions = cluster.api::<ControllerRevision>();
    sets.create(&PostParams::default(), &from(set(3, "OrderedReady"))).await.expect("a StatefulSet");
    until("first rollout", sets.clone(), |all| rolled_out(all, 3)).await;
    let made = pods.list(&Default::default()).await.expect("Pods");
    let names: Vec<_> = made.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    let first = &made.items[0];
    assert_eq!(first.spec.as_ref().and_then(|spec| spec.hostname.as_deref()), Some("db-0"));
    until("the set owns the claims", claims.clone(), |all| {
        all.len() == 3 && all.values().all(|claim| claim.owner_references().iter().any(|owner| owner.kind == "StatefulSet"))
    })
    .await;

    sets.patch("db", &PatchParams::default(), &new_image("v2")).await.expect("a new image");
    until("second rollout", sets.clone(), |all| rolled_out(all, 3) && all["db"].metadata.generation == Some(2)).await;
    assert!(pods.list(&Default::default()).await.expect("Pods").iter().all(|pod| image(pod) == Some("v2")));
    let two = until("two revisions", revisions.clone(), |all| all.len() == 2).await;
    let old = two.values().find(|revision| revision.revision == Some(1)).expect("the first one");

    // `kubectl rollout undo` applies the revision's data as it is.
    let undo = Patch::Strategic(old.data.0.clone());
    sets.patch("db", &PatchParams::default(), &undo).await.expect("undone");
    until("roll-back", sets.clone(), |all| rolled_out(all, 3) && all["db"].metadata.generation == Some(3)).await;
    assert!(pods.list(&Default::default()).await.expect("Pods").iter().all(|pod| image(pod) == Some("v1")));
    until("the old revision is the newest", revisions.clone(), |all| all.len() == 2 && all[&old.name_any()].revision == Some(3)).await;
    for image in ["v3", "v4"] {
        sets.patch("db", &PatchParams::default(), &new_image(image)).await.expect("a new image");
        until("another rollout", sets.clone(), |all| {
            rolled_out(all, 3)
                && all["db"].spec.template.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some(image))
        })
        .await;
    }
    until("one old revision", revisions.clone(), |all| all.len() == 2 && all.values().all(|revision| revision.revision > Some(3))).await;

    sets.patch("db", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 1}}))).await.expect("scaled");
    until("scaled down", sets.clone(), |all| rolled_out(all, 1)).await;
    until("the claims of what was scaled away are deleted", claims.clone(), |all| {
        all.values().filter(|claim| claim.metadata.deletion_timestamp.is_none()).count() == 1
    })
    .await;
    until("events tell", cluster.api::<Event>(), |events| {
        let has = |reason: &str, message: &str| {
            events.values().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref() == Some(message))
        };
        has("SuccessfulCreate", "create Pod db-2 in StatefulSet db successful")
            && has("SuccessfulCreate", "create Claim data-db-0 Pod db-0 in StatefulSet db success")
            && has("SuccessfulDelete", "delete Pod db-2 in StatefulSet db successful")
    })
    .await;
    sets.delete("db", &DeleteParams::background()).await.expect("deleted");
    until("no Pods", pods, BTreeMap::is_empty).await;
    until("no revisions", revisions, BTreeMap::is_empty).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_on_a_lost_node_is_not_replaced_before_it_is_gone() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    let node = cluster.node("n1").await;
    let (sets, pods) = (cluster.api::<StatefulSet>(), cluster.api::<Pod>());
    sets.create(&PostParams::default(), &from(set(2, "Parallel"))).await.expect("a StatefulSet");
    until("rollout", sets.clone(), |all| rolled_out(all, 2)).await;
    node.cancel();
    let before = pods.get("db-1").await.expect("db-1");
    pods.delete("db-1", &DeleteParams::default()).await.expect("a request");
    // The pass that reads the ending Pod counts it.
    until("counted", sets.clone(), |all| all["db"].status.as_ref().is_some_and(|status| status.updated_replicas == Some(1))).await;
    assert_eq!(pods.get("db-1").await.expect("it waits for its node").metadata.uid, before.metadata.uid);
    cluster.node("n2").await;
    pods.delete("db-1", &DeleteParams::default().grace_period(0)).await.expect("forced");
    until("made again", pods, |pods| pods.get("db-1").is_some_and(|pod| pod.metadata.uid != before.metadata.uid)).await;
    cluster.stop().await;
}
