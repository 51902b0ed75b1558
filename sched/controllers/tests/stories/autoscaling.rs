//! HorizontalPodAutoscalers and the metrics of aggregated servers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use sched_controllers::Autoscaling;
use serde_json::{Value, json};

use crate::metrics_server;
use crate::support::{Cluster, from, until};

/// A cluster whose Pods count as soon as they are ready, and whose autoscalers are looked at often.
async fn cluster() -> Cluster {
    Cluster::start(|config| {
        config.autoscaling = Autoscaling {
            sync_period: Duration::from_millis(200),
            cpu_initialization_period: SignedDuration::ZERO,
            ..Autoscaling::default()
        };
    })
    .await
}

fn deployment(name: &str, replicas: i32) -> Deployment {
    let container = json!({"name": "c", "image": "v1", "resources": {"requests": {"cpu": "100m"}}});
    from(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}}}))
}

fn cpu() -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}})
}

/// An autoscaler that goes down at once.
async fn autoscale(cluster: &Cluster, name: &str, target: Value, spec: Value) {
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    let mut object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "maxReplicas": 4, "behavior": behavior}});
    for (field, value) in spec.as_object().expect("a spec") {
        object["spec"][field] = value.clone();
    }
    cluster.api().create(&PostParams::default(), &from::<HorizontalPodAutoscaler>(object)).await.expect("an autoscaler");
}

fn reference(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

/// Status, reason and message of a condition.
fn says(autoscaler: &HorizontalPodAutoscaler, kind: &str) -> (String, String, String) {
    let conditions = autoscaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.into_iter().find(|condition| condition.type_ == kind).cloned().unwrap_or_default();
    (condition.status, condition.reason.unwrap_or_default(), condition.message.unwrap_or_default())
}

/// Waits until a condition has that status and reason; returns its message.
async fn until_says(cluster: &Cluster, name: &str, kind: &str, status: &str, reason: &str) -> String {
    let is_so = |autoscaler: &HorizontalPodAutoscaler| {
        let (has_status, has_reason, _) = says(autoscaler, kind);
        (has_status.as_str(), has_reason.as_str()) == (status, reason)
    };
    let what = format!("{name} says {kind}={status}, {reason}");
    let all = until(&what, cluster.api(), |all| all.get(name).is_some_and(is_so)).await;
    says(&all[name], kind).2
}

async fn until_replicas(cluster: &Cluster, name: &str, replicas: i32) {
    until(&format!("{replicas} replicas"), cluster.api::<Deployment>(), |all| all[name].spec.replicas == Some(replicas)).await;
}

async fn until_event(cluster: &Cluster, reason: &str, message: &str) {
    let is_it = |event: &Event| event.reason.as_deref() == Some(reason) && event.message.as_deref() == Some(message);
    until(&format!("{reason}: {message}"), cluster.api::<Event>(), |all| all.values().any(is_it)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_follows_the_use_of_its_pods() {
    let cluster = cluster().await;
    cluster.schedule();
    let _node = cluster.node("n1").await;
    let values = metrics_server::start(&cluster).await;
    values.cpu_milli.store(200, Ordering::SeqCst);
    cluster.api().create(&PostParams::default(), &deployment("web", 1)).await.expect("a Deployment");
    autoscale(&cluster, "web", reference("web"), json!({"metrics": [cpu()]})).await;
    until_replicas(&cluster, "web", 4).await;
    until_event(&cluster, "SuccessfulRescale", "New size: 4; reason: cpu resource utilization (percentage of request) above target").await;
    // Four Pods that use as much want sixteen.
    until_says(&cluster, "web", "ScalingLimited", "True", "TooManyReplicas").await;
    let all = until("four are counted", cluster.api::<HorizontalPodAutoscaler>(), |all| {
        all["web"].status.as_ref().is_some_and(|status| status.current_replicas == Some(4))
    })
    .await;
    let status = json!(all["web"].status);
    let current =
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 200, "averageValue": "200m"}}}]);
    assert_eq!((&status["currentMetrics"], &status["desiredReplicas"], &status["observedGeneration"]), (&current, &json!(4), &json!(1)));
    assert!(status["lastScaleTime"].is_string(), "{status}");

    values.cpu_milli.store(10, Ordering::SeqCst);
    until_replicas(&cluster, "web", 1).await;
    until_event(&cluster, "SuccessfulRescale", "New size: 1; reason: All metrics below target").await;
    until_says(&cluster, "web", "AbleToScale", "True", "ReadyForNewScale").await;

    // A user's zero switches the autoscaler off.
    let zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
    cluster.api::<Deployment>().patch("web", &PatchParams::default(), &zero).await.expect("zero replicas");
    until_says(&cluster, "web", "ScalingActive", "False", "ScalingDisabled").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_workload_goes_to_zero_and_comes_back() {
    let cluster = cluster().await;
    let values = metrics_server::start(&cluster).await;
    let fleets = fleets(&cluster).await;
    let fleet = json!({"apiVersion": "x.io/v1", "kind": "Fleet", "metadata": {"name": "one"}, "spec": {"replicas": 1}});
    fleets.create(&PostParams::default(), &from(fleet)).await.expect("a Fleet");
    let status = Patch::Merge(json!({"status": {"replicas": 1, "selector": "app=fleet"}}));
    fleets.patch_status("one", &PatchParams::default(), &status).await.expect("a status");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "fleet"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "v1"}]}});
    cluster.api::<Pod>().create(&PostParams::default(), &from(pod)).await.expect("a Pod");
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.api::<Pod>().patch_status("p", &PatchParams::default(), &Patch::Merge(ready)).await.expect("a status");

    let queue = json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}});
    let target = json!({"apiVersion": "x.io/v1", "kind": "Fleet", "name": "one"});
    autoscale(&cluster, "fleet", target, json!({"minReplicas": 0, "metrics": [queue]})).await;
    let replicas = async || fleets.get("one").await.expect("the Fleet").data["spec"]["replicas"].as_i64();
    until_says(&cluster, "fleet", "ScaledToZero", "True", "ScaledToZero").await;
    assert_eq!(replicas().await, Some(0));
    until_says(&cluster, "fleet", "ScalingActive", "True", "ValidMetricFound").await;
    values.queue_len.store(25, Ordering::SeqCst);
    until_says(&cluster, "fleet", "ScaledToZero", "False", "NotScaledToZero").await;
    assert_eq!(replicas().await, Some(3));
    until_event(&cluster, "SuccessfulRescale", "New size: 3; reason: external metric queue(nil) above target").await;
    cluster.stop().await;
}

/// The API of a kind with a `scale` subresource.
async fn fleets(cluster: &Cluster) -> Api<DynamicObject> {
    let scale =
        json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"});
    let number = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": number, "status": number}}}});
    let definition: CustomResourceDefinition =
        from(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "fleets.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "fleets", "kind": "Fleet"}, "versions": [version]}}));
    let definitions: Api<CustomResourceDefinition> = cluster.all();
    definitions.create(&PostParams::default(), &definition).await.expect("a definition");
    until("served", definitions, |all| {
        let conditions = all.get("fleets.x.io").and_then(|one| one.status.as_ref()?.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("x.io", "v1", "Fleet"), "fleets");
    Api::namespaced_with(cluster.client.clone(), "default", &resource)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_scaled_says_why() {
    let cluster = cluster().await;
    cluster.schedule();
    let _node = cluster.node("n1").await;
    autoscale(&cluster, "web", reference("web"), json!({"metrics": [cpu()]})).await;
    let message = until_says(&cluster, "web", "AbleToScale", "False", "FailedGetScale").await;
    assert_eq!(message, "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found");
    until_event(&cluster, "FailedGetScale", "deployments.apps \"web\" not found").await;
    let unserved = json!({"apiVersion": "x.io/v1", "kind": "Web", "name": "web"});
    autoscale(&cluster, "odd", unserved, json!({})).await;
    let message = until_says(&cluster, "odd", "AbleToScale", "False", "FailedGetScale").await;
    assert!(message.ends_with("no matches for kind \"Web\" in group \"x.io\""), "{message}");

    // No node is read here.
    cluster.api().create(&PostParams::default(), &deployment("web", 2)).await.expect("a Deployment");
    let message = until_says(&cluster, "web", "ScalingActive", "False", "FailedGetResourceMetric").await;
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    assert_eq!(message, format!("the HPA was unable to compute the replica count: {why}"));
    let error = format!("invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}");
    until_event(&cluster, "FailedComputeMetricsReplicas", &error).await;

    let _values = metrics_server::start(&cluster).await;
    until_says(&cluster, "web", "ScalingActive", "True", "ValidMetricFound").await;
    autoscale(&cluster, "rival", reference("web"), json!({"metrics": [cpu()]})).await;
    let message = until_says(&cluster, "rival", "ScalingActive", "False", "AmbiguousSelector").await;
    assert_eq!(message, "pods by selector app=web are controlled by more than one HPA (e.g. [default/rival default/web])");
    until_says(&cluster, "web", "ScalingActive", "False", "AmbiguousSelector").await;
    cluster.api::<HorizontalPodAutoscaler>().delete("rival", &DeleteParams::default()).await.expect("deleted");
    until_says(&cluster, "web", "ScalingActive", "True", "ValidMetricFound").await;
    cluster.stop().await;
}
