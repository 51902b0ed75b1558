//! Evictions and their disruption budgets.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DynamicObject, EvictParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

fn budget(name: &str, spec: &Value) -> PodDisruptionBudget {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": name}});
    from(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}))
}

fn pod(name: &str, app: &str, owner: Option<Value>) -> Pod {
    let owners: Vec<Value> = owner.into_iter().collect();
    from(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": owners},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "v1"}]}}))
}

async fn create<K>(cluster: &Cluster, object: &K) -> K
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    cluster.api::<K>().create(&PostParams::default(), object).await.expect("created")
}

/// Waits until the budget allows this number of disruptions, and returns the budget.
async fn allowing(cluster: &Cluster, name: &str, allowed: i32, reason: &str) -> PodDisruptionBudget {
    let is_so = |budget: &PodDisruptionBudget| {
        let Some(status) = &budget.status else { return false };
        let says = status.conditions.iter().flatten().find(|condition| condition.type_ == "DisruptionAllowed");
        status.disruptions_allowed == Some(allowed)
            && status.observed_generation == budget.metadata.generation
            && says.is_some_and(|condition| condition.reason == reason)
    };
    let what = format!("{name} allows {allowed}, {reason}");
    let is_there = |all: &BTreeMap<String, PodDisruptionBudget>| all.get(name).is_some_and(is_so);
    until(&what, cluster.api(), is_there).await.remove(name).expect("it was waited for")
}

/// The server's answer to an eviction: its code and message.
async fn evict(cluster: &Cluster, pod: &str) -> (u16, String) {
    match cluster.api::<Pod>().evict(pod, &EvictParams::default()).await {
        Ok(_) => (201, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

async fn make_ready(cluster: &Cluster, pod: &str, ready: &str) {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    cluster.api::<Pod>().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.expect("a status");
}

const NO_SCALE: &str = "singles.x.io does not implement the scale subresource";
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_loses_no_more_pods_than_its_budget_allows() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    let node = cluster.node("n1").await;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "v1"}]}}}});
    create::<Deployment>(&cluster, &from(web)).await;
    create(&cluster, &budget("web", &json!({"maxUnavailable": "30%"}))).await;
    let status = allowing(&cluster, "web", 1, "SufficientPods").await.status.expect("a status");
    assert_eq!((status.expected_pods, status.desired_healthy, status.current_healthy), (Some(3), Some(2), Some(3)));

    // The replacement of an evicted Pod does not become ready any more.
    node.cancel();
    let pods: Vec<String> =
        cluster.api::<Pod>().list(&Default::default()).await.expect("Pods").into_iter().map(|pod| pod.name_any()).collect();
    assert_eq!(evict(&cluster, &pods[0]).await.0, 201);
    assert_eq!(evict(&cluster, &pods[1]).await, (429, VIOLATES.to_owned()));
    allowing(&cluster, "web", 0, "InsufficientPods").await;
    // The eviction writes the condition; the controller counts afterwards.
    until("counted", cluster.api::<PodDisruptionBudget>(), |all| {
        let status = all.get("web").and_then(|budget| budget.status.clone()).unwrap_or_default();
        (status.expected_pods, status.desired_healthy, status.current_healthy) == (Some(3), Some(2), Some(2))
    })
    .await;

    let replaced = until("a replacement", cluster.api::<Pod>(), |all| {
        all.values().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count() == 3
    })
    .await;
    let replacement = replaced.keys().find(|name| !pods.contains(name)).expect("a new Pod");
    make_ready(&cluster, replacement, "True").await;
    allowing(&cluster, "web", 1, "SufficientPods").await;
    assert_eq!(evict(&cluster, &pods[1]).await.0, 201);

    // A changed budget is valid as soon as the controller has seen it.
    let patch = Patch::Merge(json!({"spec": {"maxUnavailable": "70%"}}));
    cluster.api::<PodDisruptionBudget>().patch("web", &PatchParams::default(), &patch).await.expect("a larger budget");
    allowing(&cluster, "web", 2, "SufficientPods").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_without_a_workload_are_counted_by_number_alone() {
    let cluster = Cluster::start(|_| {}).await;
    for name in ["p", "q"] {
        create(&cluster, &pod(name, "bare", None)).await;
        make_ready(&cluster, name, "True").await;
    }
    create(&cluster, &budget("bare", &json!({"minAvailable": 1}))).await;
    let status = allowing(&cluster, "bare", 1, "SufficientPods").await.status.expect("a status");
    assert_eq!((status.expected_pods, status.current_healthy), (Some(2), Some(2)));
    assert_eq!(evict(&cluster, "p").await.0, 201);
    let evicted = cluster.api::<Pod>().get("p").await.expect("nobody ends it here");
    assert!(evicted.metadata.deletion_timestamp.is_some());
    let conditions = evicted.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").expect("the reason");
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("EvictionByEvictionAPI")));
    let charged = allowing(&cluster, "bare", 0, "InsufficientPods").await;
    assert_eq!(evict(&cluster, "q").await, (429, VIOLATES.to_owned()), "{charged:?}");

    // Without a workload, a percentage has no base.
    let patch = Patch::Merge(json!({"spec": {"minAvailable": "50%"}}));
    cluster.api::<PodDisruptionBudget>().patch("bare", &PatchParams::default(), &patch).await.expect("a share");
    let status = allowing(&cluster, "bare", 0, "InsufficientPods").await.status.expect("a status");
    assert_eq!((status.expected_pods, status.desired_healthy), (Some(0), Some(0)));
    assert_eq!(evict(&cluster, "q").await.0, 429);

    // The eviction does not support a second budget for the same Pod.
    let mut second = budget("bare", &json!({"minAvailable": 0}));
    second.metadata.name = Some("second".to_owned());
    create(&cluster, &second).await;
    allowing(&cluster, "second", 1, "SufficientPods").await;
    let (code, message) = evict(&cluster, "q").await;
    assert_eq!(code, 500);
    assert!(message.contains("This pod has more than one PodDisruptionBudget"), "{message}");
    cluster.stop().await;
}

/// A Pod that is not ready does not count as healthy, so its eviction costs the budget nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_eviction_of_an_unhealthy_pod_is_free() {
    let cluster = Cluster::start(|_| {}).await;
    for (name, policy) in [("careful", "IfHealthyBudget"), ("always", "AlwaysAllow")] {
        for number in 0..3 {
            let pod_name = format!("{name}-{number}");
            create(&cluster, &pod(&pod_name, name, None)).await;
            make_ready(&cluster, &pod_name, if number == 0 { "True" } else { "False" }).await;
        }
        create(&cluster, &budget(name, &json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": policy}))).await;
        allowing(&cluster, name, 0, "InsufficientPods").await;
    }
    assert_eq!(evict(&cluster, "always-1").await.0, 201);
    assert_eq!(evict(&cluster, "careful-1").await, (429, VIOLATES.to_owned()), "the budget lacks healthy Pods already");
    make_ready(&cluster, "careful-2", "True").await;
    let is_healthy =
        |all: &BTreeMap<String, PodDisruptionBudget>| all["careful"].status.as_ref().is_some_and(|s| s.current_healthy == Some(2));
    until("two are healthy", cluster.api::<PodDisruptionBudget>(), is_healthy).await;
    let dry = EvictParams { post_options: PostParams { dry_run: true, ..PostParams::default() }, ..EvictParams::default() };
    cluster.api::<Pod>().evict("careful-1", &dry).await.expect("it may go");
    let stays = cluster.api::<Pod>().get("careful-1").await.is_ok_and(|pod| pod.metadata.deletion_timestamp.is_none());
    assert!(stays, "nobody evicted it yet");
    assert_eq!(evict(&cluster, "careful-1").await.0, 201);
    let budget = cluster.api::<PodDisruptionBudget>().get("careful").await.expect("the budget");
    assert_eq!(budget.status.expect("a status").disrupted_pods, None, "nothing was charged");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_workload_counts_by_its_scale() {
    let cluster = Cluster::start(|_| {}).await;
    let definition = |plural: &str, kind: &str, subresources: Value| -> CustomResourceDefinition {
        from(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.x.io")},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}}]}}),
        )
    };
    let scale = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    for (plural, kind, subresources) in [("fleets", "Fleet", scale), ("singles", "Single", json!({}))] {
        let definitions: Api<CustomResourceDefinition> = cluster.all();
        definitions.create(&PostParams::default(), &definition(plural, kind, subresources)).await.expect("a definition");
        let name = format!("{plural}.x.io");
        until("served", definitions, |all| {
            let conditions = all.get(&name).and_then(|one| one.status.as_ref()?.conditions.clone()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("x.io", "v1", kind), plural);
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "default", &resource);
        let object = json!({"apiVersion": "x.io/v1", "kind": kind, "metadata": {"name": "one"}, "spec": {"replicas": 4}});
        let owner = api.create(&PostParams::default(), &from(object)).await.expect("an object");
        let reference = json!({"apiVersion": "x.io/v1", "kind": kind, "name": "one", "uid": owner.metadata.uid, "controller": true});
        for number in 0..3 {
            let name = format!("{plural}-{number}");
            create(&cluster, &pod(&name, plural, Some(reference.clone()))).await;
            make_ready(&cluster, &name, "True").await;
        }
        create(&cluster, &budget(plural, &json!({"minAvailable": "50%"}))).await;
    }
    let status = allowing(&cluster, "fleets", 1, "SufficientPods").await.status.expect("a status");
    assert_eq!((status.expected_pods, status.desired_healthy), (Some(4), Some(2)));
    until("one without a scale", cluster.api::<PodDisruptionBudget>(), |all| {
        let status = all["singles"].status.clone().unwrap_or_default();
        let failed = |condition: &Condition| condition.reason == "SyncFailed" && condition.message == NO_SCALE;
        status.disruptions_allowed == Some(0) && status.conditions.iter().flatten().any(failed)
    })
    .await;
    assert_eq!(evict(&cluster, "singles-0").await.0, 429);
    cluster.stop().await;
}
