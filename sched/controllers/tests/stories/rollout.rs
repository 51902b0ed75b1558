//! A Deployment's life: creation, service, rollout, rollback, scaling, deletion.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, ReplicationController, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

fn deployment(replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 2,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}]}},
    }})
}

/// The condition that `kubectl rollout status` waits for.
fn rolled_out(all: &BTreeMap<String, Deployment>, replicas: i32) -> bool {
    let Some(web) = all.get("web") else { return false };
    let status = web.status.clone().unwrap_or_default();
    let progressed = status
        .conditions
        .iter()
        .flatten()
        .any(|c| c.type_.as_deref() == Some("Progressing") && c.reason.as_deref() == Some("NewReplicaSetAvailable"));
    let wanted = Some(replicas).filter(|count| *count > 0);
    status.observed_generation >= web.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && progressed
}

fn revision(deployment: &Deployment) -> &str {
    deployment.annotations().get("deployment.kubernetes.io/revision").map_or("", String::as_str)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_made_served_rolled_and_deleted() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    cluster.node("n1").await;
    cluster.node("n2").await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}});
    cluster.api::<Service>().create(&PostParams::default(), &from(service)).await.expect("a Service");
    let deployments = cluster.api::<Deployment>();
    deployments.create(&PostParams::default(), &from(deployment(3, "v1"))).await.expect("a Deployment");
    let first = until("first rollout", deployments.clone(), |all| rolled_out(all, 3)).await;
    assert_eq!(revision(&first["web"]), "1");
    until("three endpoints", cluster.api::<EndpointSlice>(), |slices| {
        let own = slices.values().filter(|slice| slice.labels().get("kubernetes.io/service-name").is_some_and(|name| name == "web"));
        let ready =
            own.flat_map(|slice| slice.endpoints.iter().flatten()).filter(|e| e.conditions.as_ref().is_some_and(|c| c.ready == Some(true)));
        ready.count() == 3
    })
    .await;
    until("three addresses", cluster.api::<Endpoints>(), |all| {
        all.get("web").is_some_and(|e| e.subsets.iter().flatten().flat_map(|s| s.addresses.iter().flatten()).count() == 3)
    })
    .await;

    let new_image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(new_image)).await.expect("a new image");
    let second = until("second rollout", deployments.clone(), |all| rolled_out(all, 3) && revision(&all["web"]) == "2").await;
    assert_eq!(second["web"].status.as_ref().and_then(|s| s.unavailable_replicas), None);
    until("old Pods gone", cluster.api::<Pod>(), |pods| {
        pods.len() == 3 && pods.values().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some("v2")))
    })
    .await;
    let sets = until("two ReplicaSets", cluster.api::<ReplicaSet>(), |sets| sets.len() == 2).await;
    let old = sets.values().find(|set| set.spec.replicas == Some(0)).expect("the old one is kept");
    let old_name = old.name_any();
    until("events tell", cluster.api::<Event>(), |events| {
        let has_event = |reason: &str, message: &str| {
            events.values().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref().is_some_and(|m| m.starts_with(message)))
        };
        has_event("ScalingReplicaSet", &format!("Scaled up replica set {old_name} from 0 to 3"))
            && has_event("ScalingReplicaSet", &format!("Scaled down replica set {old_name} from "))
            && has_event("SuccessfulCreate", "Created pod: web-")
            && has_event("SuccessfulDelete", "Deleted pod: web-")
    })
    .await;

    let template = old.spec.template.clone().expect("a template");
    let mut undone = serde_json::to_value(&template).expect("json");
    undone["metadata"]["labels"].as_object_mut().expect("labels").remove("pod-template-hash");
    let undo = json!([{"op": "replace", "path": "/spec/template", "value": undone}]);
    deployments
        .patch("web", &PatchParams::default(), &Patch::Json::<()>(serde_json::from_value(undo).expect("a patch")))
        .await
        .expect("undone");
    until("roll-back", deployments.clone(), |all| rolled_out(all, 3) && revision(&all["web"]) == "3").await;
    let sets = until("still two ReplicaSets", cluster.api::<ReplicaSet>(), |sets| sets.len() == 2).await;
    assert_eq!(sets[&old_name].spec.replicas, Some(3));

    deployments.patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 5}}))).await.expect("scaled");
    until("scaled up", deployments.clone(), |all| rolled_out(all, 5)).await;
    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    until("no ReplicaSets", cluster.api::<ReplicaSet>(), BTreeMap::is_empty).await;
    until("no Pods", cluster.api::<Pod>(), BTreeMap::is_empty).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_image_leaves_the_old_pods_serving() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    cluster.node("n1").await;
    let deployments = cluster.api::<Deployment>();
    deployments.create(&PostParams::default(), &from(deployment(4, "v1"))).await.expect("a Deployment");
    until("first rollout", deployments.clone(), |all| rolled_out(all, 4)).await;
    let patch = json!({"spec": {"progressDeadlineSeconds": 2, "template": {"spec": {"containers": [{"name": "c", "image": "broken"}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.expect("a broken image");
    let stuck = until("deadline", deployments.clone(), |all| {
        let conditions = all["web"].status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.reason.as_deref() == Some("ProgressDeadlineExceeded"))
    })
    .await;
    let status = stuck["web"].status.clone().unwrap_or_default();
    assert_eq!((status.available_replicas, status.updated_replicas), (Some(3), Some(2)), "25 % of four may be missing and more");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_adopted_and_released_by_label() {
    let cluster = Cluster::start(|_| {}).await;
    let pods = cluster.api::<Pod>();
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}}});
    cluster.api::<ReplicaSet>().create(&PostParams::default(), &from(set)).await.expect("a ReplicaSet");
    let owned = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    let stray = until("both made", pods.clone(), |pods| pods.len() == 2 && pods.values().all(owned)).await;
    let stray = stray.keys().next().expect("one of them").clone();
    let label = async |app: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
        pods.patch(&stray, &PatchParams::default(), &patch).await.expect("relabelled");
    };
    label("other").await;
    until("released and replaced", pods.clone(), |pods| pods.len() == 3 && !owned(&pods[&stray])).await;
    label("web").await;
    until("adopted, and one too many", pods.clone(), |pods| pods.len() == 2 && pods.values().all(owned)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_pods_are_made_once_and_deleted_once() {
    let cluster = Cluster::start(|_| {}).await;
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "many"}, "spec": {"replicas": 100, "selector": {"matchLabels": {"app": "many"}},
        "template": {"metadata": {"labels": {"app": "many"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}}});
    let sets = cluster.api::<ReplicaSet>();
    sets.create(&PostParams::default(), &from(set)).await.expect("a ReplicaSet");
    until("a hundred, never more", cluster.api::<Pod>(), |pods| {
        assert!(pods.len() <= 100, "{} Pods", pods.len());
        pods.len() == 100
    })
    .await;
    until("counted", sets.clone(), |sets| sets["many"].status.as_ref().is_some_and(|status| status.replicas == 100)).await;
    sets.patch("many", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 40}}))).await.expect("scaled");
    until("forty, never fewer", cluster.api::<Pod>(), |pods| {
        assert!(pods.len() >= 40, "{} Pods", pods.len());
        pods.len() == 40
    })
    .await;
    until("counted again", sets.clone(), |sets| sets["many"].status.as_ref().is_some_and(|status| status.replicas == 40)).await;
    assert_eq!(cluster.api::<Pod>().list(&Default::default()).await.expect("Pods").items.len(), 40);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replication_controller_scales_adopts_and_leaves_nothing() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    cluster.node("n1").await;
    let (pods, controllers) = (cluster.api::<Pod>(), cluster.api::<ReplicationController>());
    let old = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"}, "spec": {"replicas": 3,
        "template": {"metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}}});
    controllers.create(&PostParams::default(), &from(old)).await.expect("a ReplicationController");
    let owned = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "ReplicationController");
    until("three made", pods.clone(), |pods| pods.len() == 3 && pods.values().all(owned)).await;
    let counts = |all: &BTreeMap<String, ReplicationController>, wanted: i32| {
        let Some(old) = all.get("old") else { return false };
        let status = old.status.clone().unwrap_or_default();
        status.observed_generation == old.metadata.generation
            && status.replicas == wanted
            && status.available_replicas == Some(wanted)
            && status.fully_labeled_replicas == Some(wanted)
    };
    until("three available", controllers.clone(), |all| counts(all, 3)).await;
    let orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": {"app": "old"}},
        "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    pods.create(&PostParams::default(), &from(orphan)).await.expect("a Pod");
    until("adopted, and one too many", pods.clone(), |pods| pods.len() == 3 && pods.values().all(owned)).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    controllers.patch_scale("old", &PatchParams::default(), &scale).await.expect("scaled");
    until("one available", controllers.clone(), |all| counts(all, 1)).await;
    until("events tell", cluster.api::<Event>(), |events| {
        let has_event = |reason: &str| {
            events.values().any(|e| {
                e.reason.as_deref() == Some(reason)
                    && e.involved_object.kind.as_deref() == Some("ReplicationController")
                    && e.source.as_ref().and_then(|source| source.component.as_deref()) == Some("replication-controller")
            })
        };
        has_event("SuccessfulCreate") && has_event("SuccessfulDelete")
    })
    .await;
    controllers.delete("old", &DeleteParams::background()).await.expect("deleted");
    until("no Pods", pods, BTreeMap::is_empty).await;
    cluster.stop().await;
}
