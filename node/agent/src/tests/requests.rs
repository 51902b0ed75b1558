//! The HTTP requests that the node reports in its Lease.

use api_client::demand::{REQUESTS, REQUESTS_COUNTED_BY};
use api_client::lease::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use runtimes_contract::{ContainerId, HttpRequests};

use super::*;

impl Cluster {
    /// The report of requests to a Service; null without one.
    async fn requests(&self, service: &str) -> Value {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NODE_LEASE_NAMESPACE);
        let annotations = leases.get_opt(NODE).await.expect("an answer").and_then(|lease| lease.metadata.annotations);
        let text = annotations.and_then(|annotations| annotations.get(REQUESTS).cloned()).unwrap_or_else(|| "{}".to_owned());
        let report: Value = serde_json::from_str(&text).expect("a report");
        assert!(report.get("default/unmarked").is_none(), "{report}");
        report[format!("default/{service}")].clone()
    }

    /// The container of a Pod with one container.
    async fn container(&self, name: &str) -> ContainerId {
        let status = self.ready(name).await;
        let id = status["containerStatuses"][0]["containerID"].as_str().expect("an id").to_owned();
        ContainerId(id.split("//").nth(1).expect("an id").to_owned())
    }

    async fn mark(&self, name: &str, by: Option<&str>) {
        let services: Api<Service> = Api::default_namespaced(self.client.clone());
        let patch = json!({"metadata": {"annotations": {REQUESTS_COUNTED_BY: by}}});
        services.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    }
}

#[tokio::test]
async fn requests_to_marked_services_are_reported() {
    let (cluster, agent) = Cluster::running().await;
    for (name, image) in [("web", "wasm/web:1"), ("linux", "linux:1"), ("other", "wasm/other:1")] {
        cluster.create(name, one(image)).await;
    }
    for name in ["web", "linux"] {
        cluster.patch(name, json!({"metadata": {"labels": {"app": "web"}}})).await;
    }
    let services: Api<Service> = Api::default_namespaced(cluster.client.clone());
    cluster.patch("other", json!({"metadata": {"labels": {"app": "other"}}})).await;
    for (name, app) in [("web", "web"), ("unmarked", "web"), ("other", "other")] {
        let service = json!({"metadata": {"name": name}, "spec": {"selector": {"app": app}, "ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &serde_json::from_value(service).expect("a Service")).await.expect("created");
    }
    let web = cluster.container("web").await;
    let set = |received: u64, in_flight: u64| cluster.wasm.set_http_requests(&web, HttpRequests { received, rejected: 0, in_flight });
    // It has served many requests before anybody wants to know, and the node has looked since.
    set(1_000_000, 0);
    cluster.ready("linux").await;
    cluster.wasm.set_http_requests(&cluster.container("other").await, HttpRequests::default());
    cluster.mark("other", Some("so")).await;
    until("the other Service is reported", async || !cluster.requests("other").await.is_null()).await;
    assert!(cluster.requests("web").await.is_null(), "it has no mark");
    cluster.mark("web", Some("so")).await;
    let idle = json!({"milliPerSecond": 0, "milliInFlight": 0, "containers": 1});
    until("the Service is reported", async || !cluster.requests("web").await.is_null()).await;
    assert_eq!(cluster.requests("web").await, idle, "one container, and no rate from before");

    set(1_000_050, 2);
    until("requests are reported", async || cluster.requests("web").await != idle).await;
    let used = cluster.requests("web").await;
    let rate = used["milliPerSecond"].as_u64().expect("a number");
    assert!((3_000..=10_500).contains(&rate) && used["milliInFlight"].as_u64() > Some(0), "{used}");

    // The next agent reads the same counters, and knows no rate yet.
    agent.kill().await;
    let agent = cluster.start();
    let in_flight = json!({"milliPerSecond": 0, "milliInFlight": 2_000, "containers": 1});
    until("the next agent reports", async || cluster.requests("web").await == in_flight).await;

    cluster.mark("web", None).await;
    cluster.mark("other", None).await;
    until("nothing is reported", async || cluster.requests("web").await.is_null()).await;
    agent.stop().await;
}
