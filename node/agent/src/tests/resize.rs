use runtimes_contract::{ContainerState, ContainerStatus};

use super::kubelet_metrics::{scrape, value};
use super::*;
use crate::layout::label;

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

/// A function that returns so many quarters of the node's CPUs.
async fn quarters(cluster: &Cluster) -> impl Fn(i128) -> String {
    let node = cluster.nodes().get(NODE).await.expect("the node").status.unwrap_or_default().allocatable.unwrap_or_default();
    let all = api_model::quantity::milli(&node["cpu"].0).expect("an amount");
    move |count: i128| format!("{}m", all * count / 4)
}

/// Deletes the Pod `large`, and waits until `small` has that CPU at this place of its status and no resize is pending.
async fn small_gets_room(cluster: &Cluster, pointer: &str, cpu: &str) {
    cluster.delete("large", 1).await;
    let wanted = api_model::quantity::milli(cpu).expect("an amount");
    let given = |status: &Value| {
        let cpu = status.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        api_model::quantity::milli(cpu) == Ok(wanted) && pending(status).is_null()
    };
    cluster.status("small", "resized", given).await;
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
    let part = quarters(&cluster).await;
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
    small_gets_room(&cluster, "/containerStatuses/0/resources/requests/cpu", &part(2)).await;
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

/// A Pod with resources as a whole: the container `open` has none of its own, `own` has its limits.
fn whole(image: &str, resources: Value) -> Value {
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let own = json!({"limits": {"cpu": "50m", "memory": "16Mi"}});
    let containers = json!([
        {"name": "open", "image": image, "resizePolicy": policy},
        {"name": "own", "image": "web:1", "resizePolicy": policy, "resources": own},
    ]);
    json!({"resources": resources, "containers": containers})
}

impl Cluster {
    async fn resize_whole(&self, name: &str, resources: Value) {
        let patch = json!({"spec": {"resources": resources}});
        let patched = self.pods().patch_subresource("resize", name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.expect("resized");
    }
}

/// Whether the Pod has those limits as a whole and its resize is over.
fn has_as_a_whole(status: &Value, cpu: &str, memory: &str) -> bool {
    let settled = condition(status, "PodResizePending").is_empty() && condition(status, "PodResizeInProgress").is_empty();
    let requests = json!({"cpu": "100m", "memory": memory});
    let total = json!({"requests": requests, "limits": {"cpu": cpu, "memory": memory}});
    settled && status["resources"] == total && status["allocatedResources"] == requests
}

fn restarts_of(status: &Value) -> [i64; 2] {
    [0, 1].map(|index| status["containerStatuses"][index]["restartCount"].as_i64().unwrap_or(-1))
}

#[tokio::test]
async fn a_whole_pod_is_resized_and_restarts_what_its_policy_says() {
    let (cluster, agent) = Cluster::running().await;
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    cluster.create("web", whole("web:1", resources)).await;
    assert!(has_as_a_whole(&cluster.ready("web").await, "200m", "64Mi"));
    cluster.resize_whole("web", json!({"limits": {"cpu": "400m"}})).await;
    let status = cluster.status("web", "400m", |status| has_as_a_whole(status, "400m", "64Mi")).await;
    assert_eq!(restarts_of(&status), [0, 0], "the policy is for memory alone");
    cluster.event("web", "ResizeCompleted: Pod resize completed").await;
    cluster.resize_whole("web", json!({"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}})).await;
    let over = |status: &Value| has_as_a_whole(status, "400m", "128Mi") && condition(status, "Ready") == "True";
    let status = cluster.status("web", "128Mi", |status| over(status) && restarts_of(status) == [1, 0]).await;
    assert_eq!(status["containerStatuses"][0]["name"], "open", "{status}");
    cluster.event("web", "Killing: Container open resize requires restart").await;
    // Another agent takes up what the Pod has.
    agent.stop().await;
    let _agent = cluster.start();
    cluster.create("beside", asks("web:1", json!({"cpu": "100m"}), json!({}))).await;
    cluster.ready("beside").await;
    assert!(over(&cluster.ready("web").await));
    assert_eq!(restarts_of(&cluster.ready("web").await), [1, 0]);
}

#[tokio::test]
async fn a_resize_of_a_whole_pod_outlives_a_kill_of_the_agent() {
    let (cluster, agent) = Cluster::running().await;
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    cluster.create("web", whole("web:1", resources)).await;
    cluster.ready("web").await;
    cluster.resize_whole("web", json!({"requests": {"memory": "96Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}})).await;
    agent.kill().await;
    let agent = cluster.start();
    cluster.status("web", "allocated", |status| status["allocatedResources"]["memory"] == "96Mi").await;
    agent.kill().await;
    let _agent = cluster.start();
    let over = |status: &Value| has_as_a_whole(status, "300m", "96Mi") && condition(status, "Ready") == "True";
    let status = cluster.status("web", "96Mi", over).await;
    assert_eq!(restarts_of(&status), [1, 0], "{status}");
}

/// A cluster whose agent has begun. As long as the flag is set, no status of a Pod is written.
async fn silenced() -> (Cluster, Running, Arc<AtomicBool>) {
    let mut cluster = Cluster::new(Script::default()).await;
    let is_silent = Arc::new(AtomicBool::new(false));
    let (client, flag) = (cluster.client.clone(), is_silent.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path();
        let is_status = request.method() == http::Method::PATCH && path.contains("/pods/") && path.ends_with("/status");
        let (client, is_lost) = (client.clone(), is_status && flag.load(Ordering::SeqCst));
        async move {
            if is_lost {
                std::future::pending::<()>().await;
            }
            client.send(request).await
        }
    });
    cluster.client = kube::Client::new(service, "default");
    let agent = cluster.start();
    cluster.node_ready().await;
    (cluster, agent, is_silent)
}

/// A container that is restarted for other memory.
fn restarted_for_memory() -> Value {
    let mut spec = asks("web:1", json!({}), json!({"memory": "64Mi"}));
    spec["containers"][0]["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    spec
}

impl Cluster {
    /// How many containers are in a state.
    fn count(&self, is_meant: impl Fn(&ContainerStatus) -> bool) -> usize {
        self.linux.list().iter().filter(|one| is_meant(one)).count()
    }

    /// Makes one Pod whose container has its limits, and one with limits as a whole.
    async fn create_both(&self) {
        let limits = json!({"cpu": "200m", "memory": "64Mi"});
        self.create("web", restarted_for_memory()).await;
        self.create("whole", whole("web:1", json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": limits}))).await;
        self.ready("web").await;
        self.ready("whole").await;
    }

    /// Kills the agent and starts the next one, whose statuses are written.
    async fn next_agent(&self, agent: Running, is_silent: &AtomicBool) -> Running {
        agent.kill().await;
        self.linux.clear_faults();
        is_silent.store(false, Ordering::SeqCst);
        self.start()
    }

    /// Has both get more memory.
    async fn resize_both(&self) {
        let memory = json!({"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}});
        self.resize("web", memory.clone()).await;
        self.resize_whole("whole", memory).await;
    }

    /// Waits until both have more memory. Each resize has restarted one container once.
    async fn both_were_restarted_once(&self) {
        let is_over = |status: &Value| condition(status, "Ready") == "True" && condition(status, "PodResizeInProgress").is_empty();
        let has = |status: &Value| is_over(status) && status["containerStatuses"][0]["resources"]["limits"]["memory"] == "128Mi";
        let web = self.status("web", "128Mi", has).await;
        assert_eq!(web["containerStatuses"][0]["restartCount"], 1, "{web}");
        let whole = self.status("whole", "128Mi", |status| is_over(status) && has_as_a_whole(status, "200m", "128Mi")).await;
        assert_eq!(restarts_of(&whole), [1, 0], "{whole}");
        assert_eq!(starts(&self.linux), 5);
    }
}

#[tokio::test]
async fn a_container_that_was_restarted_for_a_resize_is_not_restarted_for_it_by_the_next_agent() {
    let (cluster, agent, is_silent) = silenced().await;
    cluster.create_both().await;
    is_silent.store(true, Ordering::SeqCst);
    cluster.resize_both().await;
    let is_second = |one: &ContainerStatus| one.labels[label::ATTEMPT] == "1" && matches!(one.state, ContainerState::Running { .. });
    until("both run again", async || cluster.count(is_second) == 2).await;
    let _agent = cluster.next_agent(agent, &is_silent).await;
    cluster.both_were_restarted_once().await;
}

#[tokio::test]
async fn a_container_that_was_ended_for_a_resize_starts_with_its_new_resources_under_the_next_agent() {
    let (cluster, agent, is_silent) = silenced().await;
    cluster.create_both().await;
    is_silent.store(true, Ordering::SeqCst);
    let never = || Fault::Delay(Duration::from_secs(3_600));
    cluster.linux.inject(Operation::Create, [never(), never()]);
    cluster.resize_both().await;
    let has_ended = |one: &ContainerStatus| matches!(one.state, ContainerState::Exited(_));
    until("both have ended", async || cluster.count(has_ended) == 2).await;
    let _agent = cluster.next_agent(agent, &is_silent).await;
    cluster.both_were_restarted_once().await;
}

#[tokio::test]
async fn a_resize_of_a_running_container_is_made_again_by_the_next_agent_and_restarts_nothing() {
    let (cluster, agent, is_silent) = silenced().await;
    cluster.create("web", asks("web:1", json!({"cpu": "100m"}), json!({"memory": "64Mi"}))).await;
    cluster.ready("web").await;
    is_silent.store(true, Ordering::SeqCst);
    cluster.resize("web", json!({"requests": {"cpu": "200m"}, "limits": {"memory": "128Mi"}})).await;
    cluster.event("web", "ResizeCompleted: Pod resize completed").await;
    let agent = cluster.next_agent(agent, &is_silent).await;
    let is_resized = |status: &Value| has(status, "200m") && status["containerStatuses"][0]["resources"]["limits"]["memory"] == "128Mi";
    let before = cluster.status("web", "200m", is_resized).await;
    assert_eq!((&before["containerStatuses"][0]["restartCount"], starts(&cluster.linux)), (&json!(0), 1), "{before}");
    // Nor does one that finds the resize over, though the container had less when it started.
    let _agent = cluster.replace_agent(agent).await;
    let after = cluster.status("web", "200m", is_resized).await;
    assert_eq!((&after["containerStatuses"], starts(&cluster.linux)), (&before["containerStatuses"], 2), "one for each Pod");
}

#[tokio::test]
async fn a_whole_pod_waits_for_room_and_keeps_what_it_has() {
    let (cluster, agent) = Cluster::running().await;
    let part = quarters(&cluster).await;
    cluster.create("large", asks("web:1", json!({"cpu": part(3)}), json!({}))).await;
    cluster.create("small", whole("web:1", json!({"requests": {"cpu": "100m", "memory": "64Mi"}}))).await;
    cluster.ready("large").await;
    cluster.ready("small").await;
    cluster.resize_whole("small", json!({"requests": {"cpu": "4k"}})).await;
    let condition = cluster.pending("small", "Infeasible").await;
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("Node didn't have enough capacity: cpu, requested: 4000000, capacity: "), "{condition}");
    cluster.resize_whole("small", json!({"requests": {"cpu": part(2)}})).await;
    cluster.pending("small", "Deferred").await;
    agent.kill().await;
    let _agent = cluster.start();
    cluster.create("beside", asks("web:1", json!({"cpu": "1m"}), json!({}))).await;
    cluster.ready("beside").await;
    let status = cluster.status("small", "still deferred", |status| pending(status)["reason"] == "Deferred").await;
    assert_eq!((&status["allocatedResources"]["cpu"], &status["resources"]["requests"]["cpu"]), (&json!("100m"), &json!("100m")));
    small_gets_room(&cluster, "/resources/requests/cpu", &part(2)).await;
}

#[tokio::test]
async fn a_guest_without_a_limit_of_its_own_has_the_whole_pods() {
    let (cluster, _agent) = Cluster::running().await;
    let container = json!({"name": "c", "image": "wasm:1"});
    let limits = |cpu: &str, memory: &str| json!({"limits": {"cpu": cpu, "memory": memory}});
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    cluster.create("web", json!({"resources": resources, "containers": [container]})).await;
    cluster.ready("web").await;
    cluster.resize_whole("web", limits("300m", "128Mi")).await;
    let message = "the memory limit of WebAssembly container \"c\" cannot change while it runs; \
                   a resizePolicy RestartContainer for memory allows it";
    assert_eq!(cluster.pending("web", "Infeasible").await["message"], message);
    cluster.resize_whole("web", limits("400m", "64Mi")).await;
    cluster.status("web", "400m", |status| has_as_a_whole(status, "400m", "64Mi")).await;
}
