//! What `/metrics` of the process shows of controllers that work.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use serde_json::json;

use crate::support::{Cluster, from, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_shows_the_queues_and_the_work_of_controllers() {
    let cluster = Cluster::start(|_| {}).await;
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "trafficDistribution": "PreferSameNode", "ports": [{"port": 80}]}});
    cluster.api::<ReplicaSet>().create(&PostParams::default(), &from(set)).await.expect("a ReplicaSet");
    cluster.api::<Service>().create(&PostParams::default(), &from(service)).await.expect("a Service");
    until("two Pods", cluster.api::<Pod>(), |all| all.len() == 2).await;
    until("a slice", cluster.api::<EndpointSlice>(), |all| !all.is_empty()).await;
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = cluster.client.request_text(request).await.expect("metrics");
    for series in [
        "workqueue_adds_total{name=\"replicaset\"}",
        "workqueue_depth{name=\"deployment\"} 0",
        "workqueue_queue_duration_seconds_bucket{name=\"replicaset\",le=\"+Inf\"}",
        "workqueue_work_duration_seconds_count{name=\"endpoint_slice\"}",
        "workqueue_longest_running_processor_seconds{name=\"job\"} 0",
        "endpoint_slice_controller_changes{operation=\"create\"}",
        "endpoint_slice_controller_services_count_by_traffic_distribution{traffic_distribution=\"PreferSameNode\"} 1",
        "root_ca_cert_publisher_sync_total{code=\"200\"}",
    ] {
        assert!(text.lines().any(|line| line.starts_with(series)), "{series} is not in {text}");
    }
    cluster.stop().await;
}
