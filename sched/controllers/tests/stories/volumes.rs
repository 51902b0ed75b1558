//! Claims and volumes against a real API server: binding, protection, release, provisioning on the node that the scheduler
//! chose, ephemeral volumes, expansion.

use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

const OURS: &str = "skiff.internal/local-path";

fn volume(name: &str, more: &Value) -> PersistentVolume {
    let mut spec = json!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}});
    spec.as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
    from(json!({"metadata": {"name": name}, "spec": spec}))
}

fn claim(name: &str, more: &Value) -> PersistentVolumeClaim {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    spec.as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
    from(json!({"metadata": {"name": name}, "spec": spec}))
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn pod(name: &str, volume: &Value) -> Pod {
    let mut volume = volume.clone();
    volume["name"] = json!("data");
    from(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [volume]}}))
}

async fn until_event(cluster: &Cluster, reason: &str, message: &str) {
    until(reason, cluster.api::<Event>(), |events| {
        events
            .values()
            .any(|event| event.reason.as_deref() == Some(reason) && event.message.as_deref().is_some_and(|text| text.contains(message)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_bound_protected_and_its_volume_released() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.node("n1").await;
    let (claims, volumes, pods) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>(), cluster.api::<Pod>());
    // A claim comes first and waits for a volume.
    claims.create(&PostParams::default(), &claim("c", &json!({}))).await.expect("a claim");
    until_event(&cluster, "FailedBinding", "no persistent volumes available").await;
    volumes.create(&PostParams::default(), &volume("large", &json!({"capacity": {"storage": "9Gi"}}))).await.expect("a volume");
    let bound = until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await.remove("c").expect("it");
    let spec = bound.spec.clone().expect("a spec");
    assert_eq!(spec.volume_name.as_deref(), Some("large"));
    let annotations = bound.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("pv.kubernetes.io/bind-completed").map(String::as_str), Some("yes"));
    assert_eq!(annotations.get("pv.kubernetes.io/bound-by-controller").map(String::as_str), Some("yes"));
    let status = bound.status.expect("a status");
    assert_eq!(status.capacity.and_then(|capacity| capacity.get("storage").map(|size| size.0.clone())).as_deref(), Some("9Gi"));
    let large = until("bound too", volumes.clone(), |all| phase(&all["large"]) == "Bound").await.remove("large").expect("it");
    assert_eq!(large.spec.and_then(|spec| spec.claim_ref).and_then(|reference| reference.uid), bound.metadata.uid);

    // A Pod with a node uses it, so it stays; so does its volume.
    let mut user = pod("p", &json!({"persistentVolumeClaim": {"claimName": "c"}}));
    user.spec.as_mut().expect("a spec").node_name = Some("n1".to_owned());
    user.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    pods.create(&PostParams::default(), &user).await.expect("a Pod");
    claims.delete("c", &DeleteParams::default()).await.expect("a deletion");
    volumes.delete("large", &DeleteParams::default()).await.expect("a deletion");
    // Both controllers have looked at their objects when a later object is gone.
    claims.create(&PostParams::default(), &claim("later", &json!({"storageClassName": ""}))).await.expect("a claim");
    claims.delete("later", &DeleteParams::default()).await.expect("a deletion");
    until("the later claim is gone", claims.clone(), |all| !all.contains_key("later")).await;
    assert_eq!(claim_phase(&claims.get("c").await.expect("it is used")), "Bound");
    volumes.get("large").await.expect("it is bound");
    pods.patch("p", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.expect("let go");
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.expect("a deletion");
    until("the claim is gone", claims.clone(), |all| all.is_empty()).await;
    until("so is its volume", volumes.clone(), |all| all.is_empty()).await;

    // Of two claims that name one volume, one gets it. Its volume is retained.
    volumes.create(&PostParams::default(), &volume("one", &json!({}))).await.expect("a volume");
    for name in ["a", "b"] {
        claims.create(&PostParams::default(), &claim(name, &json!({"volumeName": "one"}))).await.expect("a claim");
    }
    let both = until("one is bound", claims.clone(), |all| all.values().any(|claim| claim_phase(claim) == "Bound")).await;
    until_event(&cluster, "FailedBinding", "volume \"one\" already bound to a different claim.").await;
    let winner = both.iter().find(|(_, claim)| claim_phase(claim) == "Bound").map(|(name, _)| name.clone()).expect("a bound one");
    let loser = if winner == "a" { "b" } else { "a" };
    assert_eq!(claim_phase(&claims.get(loser).await.expect("it waits")), "Pending");
    claims.delete(&winner, &DeleteParams::default()).await.expect("a deletion");
    until("released", volumes.clone(), |all| phase(&all["one"]) == "Released").await;
    volumes.delete("one", &DeleteParams::default()).await.expect("a deletion");
    until("gone", volumes, |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_controller_left_is_completed_and_a_lost_volume_is_reported() {
    let cluster = Cluster::start(|_| {}).await;
    let (claims, volumes) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>());
    let made = claims.create(&PostParams::default(), &claim("c", &json!({"storageClassName": "x"}))).await.expect("a claim");
    until_event(&cluster, "ProvisioningFailed", "storageclass.storage.k8s.io \"x\" not found").await;
    // The first of the four writes of a binding.
    let reference =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": made.metadata.uid});
    let half = volume("half", &json!({"storageClassName": "x", "claimRef": reference}));
    volumes.create(&PostParams::default(), &half).await.expect("a volume");
    let bound = until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await.remove("c").expect("it");
    assert_eq!(bound.spec.and_then(|spec| spec.volume_name).as_deref(), Some("half"));
    let half = until("bound too", volumes.clone(), |all| phase(&all["half"]) == "Bound").await.remove("half").expect("it");
    assert_eq!(half.spec.and_then(|spec| spec.claim_ref).and_then(|reference| reference.uid), bound.metadata.uid);

    volumes.delete("half", &DeleteParams::default()).await.expect("a deletion");
    volumes.patch("half", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.expect("forced");
    until("lost", claims.clone(), |all| claim_phase(&all["c"]) == "Lost").await;
    until_event(&cluster, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_on_the_chosen_node_and_goes_with_its_claim() {
    let cluster = Cluster::start(|_| {}).await;
    let (claims, volumes) = (cluster.api::<PersistentVolumeClaim>(), cluster.all::<PersistentVolume>());
    let (classes, nodes) = (cluster.all::<StorageClass>(), cluster.all::<Node>());
    cluster.node("n1").await;
    let directory = json!({"metadata": {"annotations": {OURS: "/var/lib/skiff/volumes"}}});
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(directory)).await.expect("a directory");
    // The claim comes before there is a class: it gets the default class later.
    claims.create(&PostParams::default(), &claim("c", &json!({}))).await.expect("a claim");
    until_event(&cluster, "FailedBinding", "no storage class is set").await;
    let class = json!({
        "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": OURS, "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
    });
    classes.create(&PostParams::default(), &from(class)).await.expect("a class");
    until_event(&cluster, "WaitForFirstConsumer", "waiting for first consumer to be created before binding").await;
    let user = pod(
        "p",
        &json!({"ephemeral": {"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}),
    );
    cluster.api::<Pod>().create(&PostParams::default(), &user).await.expect("a Pod");
    until("the claim of the ephemeral volume", claims.clone(), |all| all.contains_key("p-data")).await;
    until_event(&cluster, "WaitForPodScheduled", "waiting for pod p to be scheduled").await;

    // A node that does not exist is no choice: the scheduler chooses again.
    let select = |node: &str| Patch::Merge(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}}));
    claims.patch("c", &PatchParams::default(), &select("gone")).await.expect("a choice");
    until_event(&cluster, "ProvisioningFailed", "node \"gone\" not found").await;
    until("taken back", claims.clone(), |all| {
        !all["c"].metadata.annotations.as_ref().is_some_and(|all| all.contains_key("volume.kubernetes.io/selected-node"))
    })
    .await;
    claims.patch("c", &PatchParams::default(), &select("n1")).await.expect("a choice");
    let bound = until("bound", claims.clone(), |all| claim_phase(&all["c"]) == "Bound").await.remove("c").expect("it");
    let name = format!("pvc-{}", bound.metadata.uid.expect("a UID"));
    let made = volumes.get(&name).await.expect("its volume").spec.expect("a spec");
    assert_eq!(made.local.map(|local| local.path), Some(format!("/var/lib/skiff/volumes/{name}")));
    until_event(&cluster, "ProvisioningSucceeded", &format!("Successfully provisioned volume {name}")).await;

    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}}));
    claims.patch("c", &PatchParams::default(), &larger).await.expect("a larger request");
    until("grown", claims.clone(), |all| {
        all["c"].status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage")).is_some_and(|size| size.0 == "3Gi")
    })
    .await;

    // The node cannot be reached: the volume waits for its directory to go, and the claim does not wait.
    claims.delete("c", &DeleteParams::default()).await.expect("a deletion");
    until("released", volumes.clone(), |all| phase(&all[&name]) == "Released").await;
    until_event(&cluster, "VolumeFailedDelete", "").await;
    // With the node its directories went.
    nodes.delete("n1", &DeleteParams::default()).await.expect("a deletion");
    until("gone", volumes, |all| !all.contains_key(&name)).await;
    cluster.stop().await;
}
