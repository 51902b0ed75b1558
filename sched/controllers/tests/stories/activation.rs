//! ScaledObjects whose trigger is connections or requests to a Service. The nodes' reports are written here; the proxies and agents write
//! them otherwise.

use api_client::demand::{ACTIVATED_BY, CONNECTIONS, REQUESTS, REQUESTS_COUNTED_BY};
use api_client::lease::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::scaling::{api, change, cluster, condition, deploy, scale, until_condition, until_event, until_object, until_replicas};
use crate::support::{Cluster, from, until};

async fn serve(cluster: &Cluster, name: &str) {
    let spec = json!({"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    cluster.api::<Service>().create(&PostParams::default(), &from(service)).await.expect("a Service");
}

async fn report(cluster: &Cluster, report: Value) {
    annotate(cluster, CONNECTIONS, report).await;
}

async fn annotate(cluster: &Cluster, annotation: &str, report: Value) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NODE_LEASE_NAMESPACE);
    let patch = json!({"metadata": {"annotations": {annotation: report.to_string()}}});
    leases.patch("n1", &PatchParams::default(), &Patch::Merge(patch)).await.expect("the node has a Lease");
}

async fn until_marked(cluster: &Cluster, name: &str, by: Option<&str>) {
    until_annotated(cluster, name, ACTIVATED_BY, by).await;
}

async fn until_annotated(cluster: &Cluster, name: &str, annotation: &str, value: Option<&str>) {
    until(&format!("{name} has the annotation {annotation} {value:?}"), cluster.api::<Service>(), |services| {
        let annotations = services.get(name).and_then(|service| service.metadata.annotations.as_ref());
        annotations.and_then(|annotations| annotations.get(annotation)).map(String::as_str) == value
    })
    .await;
}

fn trigger(service: &str) -> Value {
    json!({"type": "service-connections", "metadata": {"service": service, "targetConnectionRate": "10"}})
}

#[tokio::test]
async fn a_waiting_connection_wakes_a_workload_and_rates_scale_it() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 0).await;
    serve(&cluster, "web").await;
    // Nobody looks by himself within the time of this story.
    scale(&cluster, "web", trigger("web"), json!({"pollingInterval": 3600, "maxReplicaCount": 4})).await;
    until_marked(&cluster, "web", Some("web")).await;
    until_condition(&cluster, "ScaledObject", "web", "Active", "False", "ScalerNotActive").await;
    report(&cluster, json!({"other/web": {"waiting": 1}, "default/api": {"waiting": 1}})).await;
    report(&cluster, json!({"default/web": {"waiting": 2}})).await;
    until_replicas(&cluster, "web", 1).await;
    until_event(&cluster, "web", "KEDAScaleTargetActivated", "from 0 to 1, triggered by s0-connections-web").await;

    // From here on the autoscaler reads the rate.
    report(&cluster, json!({"default/web": {"milliPerSecond": 25_000}})).await;
    until_replicas(&cluster, "web", 3).await;
    report(&cluster, json!({"default/web": {"milliPerSecond": 900_000}})).await;
    until_replicas(&cluster, "web", 4).await;
    report(&cluster, json!({})).await;
    until_replicas(&cluster, "web", 1).await;
    change(&cluster, "ScaledObject", "web", json!({"spec": {"pollingInterval": 1}})).await;
    until_replicas(&cluster, "web", 0).await;

    // The mark follows the trigger and goes with the object.
    serve(&cluster, "next").await;
    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [trigger("next")]}})).await;
    until_marked(&cluster, "web", None).await;
    until_marked(&cluster, "next", Some("web")).await;
    api(&cluster, "ScaledObject").delete("web", &DeleteParams::default()).await.expect("deleted");
    until_marked(&cluster, "next", None).await;
}

#[tokio::test]
async fn requests_scale_a_workload_and_their_absence_ends_it() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 0).await;
    serve(&cluster, "web").await;
    let by_requests = json!({"type": "service-requests", "metadata": {"service": "web", "targetRequestRate": "10"}});
    scale(&cluster, "web", by_requests, json!({"pollingInterval": 3600, "maxReplicaCount": 4})).await;
    until_marked(&cluster, "web", Some("web")).await;
    until_annotated(&cluster, "web", REQUESTS_COUNTED_BY, Some("web")).await;
    until_condition(&cluster, "ScaledObject", "web", "Active", "False", "ScalerNotActive").await;
    report(&cluster, json!({"default/web": {"waiting": 1}})).await;
    until_replicas(&cluster, "web", 1).await;
    until_event(&cluster, "web", "KEDAScaleTargetActivated", "from 0 to 1, triggered by s0-requests-web").await;

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "web", "image": "v1"}]}});
    cluster.api::<Pod>().create(&PostParams::default(), &from(pod)).await.expect("a Pod");
    report(&cluster, json!({})).await;
    annotate(&cluster, REQUESTS, json!({"default/web": {"milliPerSecond": 25_000, "containers": 1}})).await;
    until_replicas(&cluster, "web", 3).await;
    annotate(&cluster, REQUESTS, json!({"default/web": {"milliInFlight": 1, "containers": 1}})).await;
    until_replicas(&cluster, "web", 1).await;
    change(&cluster, "ScaledObject", "web", json!({"spec": {"pollingInterval": 1}})).await;
    until_condition(&cluster, "ScaledObject", "web", "Active", "True", "ScalerActive").await;
    annotate(&cluster, REQUESTS, json!({"default/web": {"containers": 1}})).await;
    until_replicas(&cluster, "web", 0).await;

    // Each mark goes with the trigger that needs it.
    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [trigger("web")]}})).await;
    until_annotated(&cluster, "web", REQUESTS_COUNTED_BY, None).await;
    until_marked(&cluster, "web", Some("web")).await;
}

#[tokio::test]
async fn a_service_that_cannot_count_is_a_problem_of_its_object() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 1).await;
    scale(&cluster, "web", trigger("web"), json!({})).await;
    until_event(&cluster, "web", "KEDAScalerFailed", "service default/web not found").await;
    until_object(&cluster, "ScaledObject", "web", "it is not ready", |object| condition(object, "Ready")["reason"] == "TriggerError").await;
    // The Service comes later.
    serve(&cluster, "web").await;
    until_marked(&cluster, "web", Some("web")).await;
    until_replicas(&cluster, "web", 0).await;
    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [trigger("kube-system/web")]}})).await;
    until_event(&cluster, "web", "KEDAScalerFailed", "must be the name of a Service in the same namespace").await;

    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "v1"}]}});
    let spec = json!({"jobTargetRef": {"template": template}, "triggers": [trigger("web")]});
    let job = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob", "metadata": {"name": "work"}, "spec": spec});
    api(&cluster, "ScaledJob").create(&PostParams::default(), &from(job)).await.expect("a ScaledJob");
    until_event(&cluster, "work", "ScaledJobCheckFailed", "service-connections is a trigger of ScaledObjects, not of ScaledJobs").await;
}
