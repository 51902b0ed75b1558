//! The three ways in which the deletion of an owner treats its dependents.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

async fn owner(cluster: &Cluster) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let made = cluster.api::<ConfigMap>().create(&PostParams::default(), &from(map)).await.expect("an owner");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made.uid(), "blockOwnerDeletion": true})
}

async fn dependent(cluster: &Cluster, name: &str, owners: &[&Value], finalizers: &[&str]) {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}});
    cluster.api::<Secret>().create(&PostParams::default(), &from(secret)).await.expect("a dependent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_deletion_takes_dependents_along() {
    let cluster = Cluster::start(|_| {}).await;
    let owner = owner(&cluster).await;
    dependent(&cluster, "a", &[&owner], &[]).await;
    dependent(&cluster, "b", &[&owner], &[]).await;
    until("known", cluster.api::<Secret>(), |all| all.len() == 2).await;
    cluster.api::<ConfigMap>().delete("owner", &DeleteParams::background()).await.expect("deleted");
    until("dependents gone", cluster.api::<Secret>(), |all| all.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_owner_never_was_goes_and_one_with_another_owner_stays() {
    let cluster = Cluster::start(|_| {}).await;
    let owner = owner(&cluster).await;
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-4000-8000-000000000000"});
    dependent(&cluster, "orphan", &[&never], &[]).await;
    dependent(&cluster, "half", &[&owner, &never], &[]).await;
    until("one owner each", cluster.api::<Secret>(), |all| {
        all.len() == 1
            && all.get("half").is_some_and(|half| half.owner_references().len() == 1 && half.owner_references()[0].name == "owner")
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreground_deletion_waits_for_dependents() {
    let cluster = Cluster::start(|_| {}).await;
    let owner = owner(&cluster).await;
    dependent(&cluster, "slow", &[&owner], &["example.com/hold"]).await;
    dependent(&cluster, "quick", &[&owner], &[]).await;
    cluster.api::<ConfigMap>().delete("owner", &DeleteParams::foreground()).await.expect("deleted");
    until("only the slow one left", cluster.api::<Secret>(), |all| all.len() == 1 && all["slow"].metadata.deletion_timestamp.is_some())
        .await;
    let owner = cluster.api::<ConfigMap>().get("owner").await.expect("still there");
    assert_eq!(owner.finalizers(), ["foregroundDeletion"]);
    cluster
        .api::<Secret>()
        .patch("slow", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .expect("let go");
    until("owner gone", cluster.api::<ConfigMap>(), |all| !all.contains_key("owner")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaning_lets_dependents_go_free() {
    let cluster = Cluster::start(|_| {}).await;
    let owner = owner(&cluster).await;
    dependent(&cluster, "free", &[&owner], &[]).await;
    until("known", cluster.api::<Secret>(), |all| all.len() == 1).await;
    // A dependent that the collector does not know when its owner is deleted would not be released; upstream's rule is
    // the same. So the test waits until the collector has deleted a later Secret whose owner does not exist.
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-4000-8000-000000000000"});
    dependent(&cluster, "marker", &[&never], &[]).await;
    until("marker gone", cluster.api::<Secret>(), |all| !all.contains_key("marker")).await;
    cluster.api::<ConfigMap>().delete("owner", &DeleteParams::orphan()).await.expect("deleted");
    until("owner gone", cluster.api::<ConfigMap>(), |all| !all.contains_key("owner")).await;
    let free = cluster.api::<Secret>().get("free").await.expect("still there");
    assert!(free.owner_references().is_empty());
    cluster.stop().await;
}

/// The UID is that of an object in another namespace: the owner does not exist where the reference says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_in_another_namespace_is_no_owner() {
    let cluster = Cluster::start(|_| {}).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "kube-system"}});
    let system: kube::Api<ConfigMap> = kube::Api::namespaced(cluster.client.clone(), "kube-system");
    let made = system.create(&PostParams::default(), &from(map)).await.expect("an owner");
    let uid = made.uid().expect("a UID");
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
    dependent(&cluster, "stranger", &[&reference], &[]).await;
    until("stranger gone", cluster.api::<Secret>(), |all| !all.contains_key("stranger")).await;
    let expected = format!("ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace \"default\"");
    until("the event", cluster.api::<Event>(), |all| {
        let mut events = all.values();
        events.any(|event| event.reason.as_deref() == Some("OwnerRefInvalidNamespace") && event.message.as_deref() == Some(&expected))
    })
    .await;
    cluster.stop().await;
}

/// Two objects that own each other, both deleted in the foreground.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_foreground_deletions_ends() {
    let cluster = Cluster::start(|_| {}).await;
    let owner = owner(&cluster).await;
    dependent(&cluster, "child", &[&owner], &[]).await;
    let child = cluster.api::<Secret>().get("child").await.expect("a child");
    let back = json!({"apiVersion": "v1", "kind": "Secret", "name": "child", "uid": child.uid(), "blockOwnerDeletion": true});
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [back]}}));
    cluster.api::<ConfigMap>().patch("owner", &PatchParams::default(), &patch).await.expect("a circle");
    cluster.api::<ConfigMap>().delete("owner", &DeleteParams::foreground()).await.expect("deleted");
    until("owner gone", cluster.api::<ConfigMap>(), |all| !all.contains_key("owner")).await;
    until("child gone", cluster.api::<Secret>(), |all| !all.contains_key("child")).await;
    cluster.stop().await;
}
