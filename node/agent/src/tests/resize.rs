use super::kubelet_metrics::{scrape, value};
use super::*;

fn asks(image: &str, requests: Value, limits: Value) -> Value {
    json!({"containers": [{"name": "c", "image": image, "resources": {"requests": requests, "limits": limits}}]})
}

impl Cluster {
    pub(super) async fn resize(&self, name: &str, resources: Value) {
        let patch = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let patched = self.pods().patch_subresource("resize", name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.expect("resized");
    }

    /// Waits until a resize is reported as pending for that reason; returns the condition.
    pub(super) async fn pending(&self, name: &str, reason: &str) -> Value {
        let status = self.status(name, reason, |status| pending(status)["reason"] == reason).await;
        pending(&status)
    }
}

fn pending(status: &Value) -> Value {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == "PodResizePending").unwrap_or_default()
}

fn has(status: &Value, cpu: &str) -> bool {
    let container = &status["containerStatuses"][0];
    let settled = condition(status, "PodResizePending").is_empty() && condition(status, "PodResizeInProgress").is_empty();
    container["resources"]["requests"]["cpu"] == cpu && container["allocatedResources"]["cpu"] == cpu && settled
}

#[tokio::test]
async fn a_running_container_is_given_what_fits() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", asks("web:1", json!({"cpu": "100m"}), json!({"memory": "64Mi"}))).await;
    assert!(has(&cluster.ready("web").await, "100m"));
    cluster.resize("web", json!({"requests": {"cpu": "200m"}, "limits": {"memory": "128Mi"}})).await;
    let status = cluster.status("web", "200m", |status| has(status, "200m")).await;
    let container = &status["containerStatuses"][0];
    assert_eq!((&container["resources"]["limits"]["memory"], &container["restartCount"]), (&json!("128Mi"), &json!(0)));
    cluster.event("web", "ResizeCompleted: Pod resize completed").await;
    let text = scrape(&cluster).await;
    for (resource, requirement) in [("cpu", "requests"), ("memory", "limits")] {
        let labels = format!("{{operation=\"increase\",requirement=\"{requirement}\",resource=\"{resource}\"}}");
        assert_eq!(value(&text, &format!("kubelet_container_requested_resizes_total{labels}")), Some(1), "{labels}: {text}");
    }
}

#[tokio::test]
async fn what_the_node_does_not_have_is_infeasible_and_changes_nothing() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", asks("web:1", json!({"cpu": "100m"}), json!({}))).await;
    cluster.ready("web").await;
    cluster.resize("web", json!({"requests": {"cpu": "4k"}})).await;
    let pending = cluster.pending("web", "Infeasible").await;
    let text = scrape(&cluster).await;
    let infeasible = "kubelet_pod_infeasible_resizes_total{reason_detail=\"insufficient_node_allocatable\"}";
    assert_eq!(value(&text, infeasible), Some(1), "{text}");
    assert_eq!(value(&text, "kubelet_pod_pending_resizes{reason=\"infeasible\"}"), Some(1), "{text}");
    let message = pending["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("Node didn't have enough capacity: cpu, requested: 4000000, capacity: "), "{pending}");
    assert_eq!((&pending["status"], &pending["observedGeneration"]), (&json!("True"), &json!(2)));
    cluster.event("web", "ResizeInfeasible: Pod resize Infeasible: Node didn't have enough capacity: cpu").await;
    agent.stop().await;
    let _agent = cluster.start();
    cluster.create("web-beside", asks("web:1", json!({"cpu": "100m"}), json!({}))).await;
    let status = cluster.ready("web-beside").await;
    assert!(has(&status, "100m"), "the node has room for others: {status}");
    let status = cluster.status("web", "Ready", |status| condition(status, "Ready") == "True").await;
    assert_eq!(status["containerStatuses"][0]["resources"]["requests"]["cpu"], "100m", "{status}");
    cluster.resize("web", json!({"requests": {"cpu": "100m"}})).await;
    cluster.status("web", "nothing pending", |status| has(status, "100m")).await;
}

#[tokio::test]
async fn what_does_not_fit_beside_others_waits_for_them() {
    let (cluster, _agent) = Cluster::running().await;
    let nodes: Api<ApiNode> = Api::all(cluster.client.clone());
    let node = nodes.get(NODE).await.expect("the node").status.unwrap_or_default().allocatable.unwrap_or_default();
    let all = api_model::quantity::milli(&node["cpu"].0).expect("an amount");
    let part = |n: i128| format!("{}m", all * n / 4);
    cluster.create("large", asks("web:1", json!({"cpu": part(3)}), json!({}))).await;
    cluster.create("small", asks("web:1", json!({"cpu": "1m"}), json!({}))).await;
    cluster.ready("large").await;
    cluster.ready("small").await;
    cluster.resize("small", json!({"requests": {"cpu": part(2)}})).await;
    let condition = cluster.pending("small", "Deferred").await;
    assert!(
        condition["message"].as_str().unwrap_or_default().starts_with("Node didn't have enough resource: cpu, requested: "),
        "{condition}"
    );
    cluster.delete("large", 1).await;
    let wanted = api_model::quantity::milli(&part(2)).expect("an amount");
    let given = |status: &Value| {
        let cpu = status["containerStatuses"][0]["resources"]["requests"]["cpu"].as_str().unwrap_or_default();
        api_model::quantity::milli(cpu) == Ok(wanted) && pending(status).is_null()
    };
    cluster.status("small", "resized", given).await;
}

#[tokio::test]
async fn a_container_that_wants_it_is_restarted() {
    let (cluster, _agent) = Cluster::running().await;
    let mut spec = asks("wasm:1", json!({}), json!({"memory": "64Mi"}));
    spec["containers"][0]["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    cluster.create("web", spec).await;
    cluster.ready("web").await;
    cluster.resize("web", json!({"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}})).await;
    let restarted = |status: &Value| status["containerStatuses"][0]["restartCount"] == 1 && condition(status, "Ready") == "True";
    let status = cluster.status("web", "another instance", restarted).await;
    assert_eq!(status["containerStatuses"][0]["resources"]["limits"]["memory"], "128Mi");
    cluster.event("web", "Killing: Container c resize requires restart").await;
}

#[tokio::test]
async fn a_wasm_containers_memory_does_not_change_while_it_runs() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", asks("wasm:1", json!({"cpu": "100m"}), json!({"memory": "64Mi"}))).await;
    cluster.ready("web").await;
    cluster.resize("web", json!({"limits": {"memory": "128Mi"}})).await;
    let condition = cluster.pending("web", "Infeasible").await;
    let message = "the memory limit of WebAssembly container \"c\" cannot change while it runs; \
                   a resizePolicy RestartContainer for memory allows it";
    assert_eq!(condition["message"], message);
    cluster.resize("web", json!({"requests": {"cpu": "200m"}, "limits": {"memory": "64Mi"}})).await;
    cluster.status("web", "200m", |status| has(status, "200m")).await;
}
