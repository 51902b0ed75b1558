use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use runtimes_contract::RuntimeError;
use runtimes_fake::Behaviour;

use super::*;
use crate::layout::label;

impl Cluster {
    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Status, reason and message of a condition of the node; empty without it.
    pub(super) async fn node_condition(&self, name: &str) -> [String; 3] {
        let node = self.nodes().get_opt(NODE).await.expect("an answer");
        let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == name);
        condition
            .map(|condition| [condition.status, condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()])
            .unwrap_or_default()
    }
}

/// How often the node recorded each event: type, reason and message.
async fn events(cluster: &Cluster) -> BTreeMap<String, i32> {
    let mut all = BTreeMap::new();
    for event in cluster.api_events(NODE).await {
        if event.source.and_then(|source| source.component).as_deref() == Some("kubelet") {
            let object = event.involved_object;
            assert_eq!((object.kind.as_deref(), object.uid.as_deref()), (Some("Node"), Some(NODE)));
            let texts = [event.type_, event.reason, event.message].map(Option::unwrap_or_default);
            *all.entry(texts.join(" ")).or_default() += event.count.unwrap_or_default();
        }
    }
    all
}

async fn event(cluster: &Cluster, text: &str) {
    until(text, async || events(cluster).await.contains_key(text)).await;
}

fn of_status(reason: &str) -> String {
    format!("Normal {reason} Node {NODE} status is now: {reason}")
}

/// The message of the Node's Ready condition once that is false and the message has the text.
async fn problem(cluster: &Cluster, text: &str) -> String {
    let message = Mutex::new(String::new());
    let look = async || {
        let [status, _, problem] = cluster.node_condition("Ready").await;
        let has_text = status == "False" && problem.contains(text);
        *message.lock() = problem;
        has_text
    };
    until(text, look).await;
    message.into_inner()
}

async fn make_unschedulable(cluster: &Cluster, is: bool) {
    let patch = json!({"spec": {"unschedulable": is}});
    cluster.nodes().patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
}

#[tokio::test]
async fn what_becomes_of_a_node_is_recorded_as_the_kubelet_records_it() {
    let mut cluster = Cluster::new(Script::default()).await;
    (cluster.config.status_check, cluster.config.housekeeping) = (Duration::from_millis(50), Duration::from_millis(50));
    let agent = cluster.start();
    event(&cluster, &of_status("NodeReady")).await;
    event(&cluster, "Normal Starting Starting kubelet.").await;
    for reason in ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"] {
        event(&cluster, &of_status(reason)).await;
    }
    assert_eq!(events(&cluster).await.len(), 5, "nothing else has happened: {:?}", events(&cluster).await);
    make_unschedulable(&cluster, true).await;
    event(&cluster, &of_status("NodeNotSchedulable")).await;
    make_unschedulable(&cluster, false).await;
    event(&cluster, &of_status("NodeSchedulable")).await;
    cluster.images.has_no_capacity.store(true, Ordering::SeqCst);
    let no_capacity = "Warning InvalidDiskCapacity invalid capacity 0 on image filesystem";
    event(&cluster, no_capacity).await;
    cluster.images.has_no_capacity.store(false, Ordering::SeqCst);

    // The machine was rebooted while the control plane took the node for lost.
    agent.kill().await;
    let lost = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "nodeInfo": {"bootID": "another"}}});
    cluster.nodes().patch_status(NODE, &PatchParams::default(), &Patch::Strategic(lost)).await.expect("patched");
    let _agent = cluster.start();
    cluster.node_ready().await;
    let status = cluster.nodes().get(NODE).await.expect("the node").status.expect("a status");
    let boot_id = status.node_info.expect("its info").boot_id;
    event(&cluster, &format!("Warning Rebooted Node {NODE} has been rebooted, boot id: {boot_id}")).await;
    until("it is ready again", async || events(&cluster).await[&of_status("NodeReady")] == 2).await;
    let mut all = events(&cluster).await;
    // It may write that it is not ready before it has listed its containers.
    all.remove(&of_status("NodeNotReady"));
    assert_eq!((all.len(), all[&of_status("NodeHasSufficientMemory")], all[no_capacity]), (9, 1, 1), "{all:?}");
}

#[tokio::test]
async fn a_node_whose_runtime_does_not_list_its_containers_is_not_ready_and_starts_none_of_them_again() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    let before = cluster.ready("web").await;
    agent.kill().await;
    let down = || Fault::Error(RuntimeError::Tool { tool: "runc", message: "injected".to_owned() });
    cluster.linux.inject(Operation::List, (0..1_000).map(|_| down()));
    let agent = cluster.start();
    let message = problem(&cluster, "container runtime is down: listing containers: runc: ").await;
    assert!(message.contains("injected"), "{message}");
    cluster.linux.clear_faults();
    cluster.node_ready().await;
    cluster.create("next", one("web:1")).await;
    cluster.ready("next").await;
    let after = cluster.ready("web").await;
    assert_eq!(starts(&cluster.linux), 2, "one for each Pod");
    assert_eq!(after["containerStatuses"], before["containerStatuses"]);
    agent.stop().await;
}

async fn give_range(cluster: &Cluster, range: &str) {
    let patch = json!({"spec": {"podCIDR": range, "podCIDRs": [range]}});
    cluster.nodes().patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("given");
}

/// Deletes the Node and waits until it is registered again.
async fn delete_node(cluster: &Cluster) {
    let uid = async || cluster.nodes().get_opt(NODE).await.expect("an answer").and_then(|node| node.metadata.uid);
    let first = uid().await;
    cluster.nodes().delete(NODE, &DeleteParams::default()).await.expect("deleted");
    until("it is registered again", async || uid().await.is_some_and(|now| Some(&now) != first.as_ref())).await;
}

#[tokio::test]
async fn a_deleted_node_registers_again_and_takes_its_new_range_when_no_pod_has_an_address_of_the_old_one() {
    let mut cluster = Cluster::new(Script::default()).await;
    (cluster.config.pod_cidr, cluster.config.status_check) = (None, Duration::from_millis(50));
    cluster.config.labels.insert("kept".to_owned(), "yes".to_owned());
    let agent = cluster.start();
    let range = async |wanted: &str| {
        let is = || cluster.network.cidr.lock().is_some_and(|cidr| cidr.to_string() == wanted);
        until(wanted, async || is()).await;
    };
    until("it is registered", async || cluster.nodes().get_opt(NODE).await.expect("an answer").is_some()).await;
    give_range(&cluster, "10.244.0.0/24").await;
    cluster.node_ready().await;
    // No Pod is there: at once.
    delete_node(&cluster).await;
    let labels = cluster.nodes().get(NODE).await.expect("the node").metadata.labels.expect("labels");
    assert_eq!(labels.get("kept").map(String::as_str), Some("yes"));
    give_range(&cluster, "10.244.0.0/25").await;
    range("10.244.0.0/25").await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    // The Pod's address is in the next range too.
    delete_node(&cluster).await;
    give_range(&cluster, "10.244.0.0/24").await;
    range("10.244.0.0/24").await;

    delete_node(&cluster).await;
    give_range(&cluster, "10.244.7.0/24").await;
    let wanted =
        "container runtime network not ready: the Node has the Pod range 10.244.7.0/24, but 1 of its Pods have addresses of 10.244.0.0/24";
    problem(&cluster, wanted).await;
    cluster.create("next", one("web:1")).await;
    cluster.event("next", "FailedCreatePodSandBox").await;
    let uid = cluster.pods().get("next").await.expect("the pod").metadata.uid.expect("a uid");
    assert!(!cluster.network.added.lock().contains(&uid));
    cluster.delete("next", 0).await;
    cluster.delete("web", 1).await;
    range("10.244.7.0/24").await;
    cluster.node_ready().await;
    cluster.create("after", one("web:1")).await;
    cluster.ready("after").await;
    agent.stop().await;
}

#[tokio::test]
async fn a_node_that_was_registered_again_without_a_range_gives_out_no_address() {
    let mut cluster = Cluster::new(Script::default()).await;
    (cluster.config.pod_cidr, cluster.config.status_check) = (None, Duration::from_millis(50));
    let agent = cluster.start();
    until("it is registered", async || cluster.nodes().get_opt(NODE).await.expect("an answer").is_some()).await;
    give_range(&cluster, "10.244.0.0/24").await;
    cluster.node_ready().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    delete_node(&cluster).await;
    problem(&cluster, "the node has no Pod range yet").await;
    assert!(cluster.network.is_withdrawn.load(Ordering::SeqCst));
    cluster.create("next", one("web:1")).await;
    cluster.event("next", "FailedCreatePodSandBox").await;
    cluster.delete("next", 0).await;
    give_range(&cluster, "10.244.0.0/24").await;
    cluster.node_ready().await;
    cluster.create("after", one("web:1")).await;
    cluster.ready("after").await;
    assert_eq!(starts(&cluster.linux), 2, "one for each Pod");
    agent.stop().await;
}

#[tokio::test]
async fn an_ended_container_keeps_its_user() {
    let script = Script::default().containers(|spec| match spec.labels[label::CONTAINER].as_str() {
        "brief" => Behaviour::Exit { after: Duration::ZERO, code: 3 },
        _ => Behaviour::Run,
    });
    let (cluster, agent) = Cluster::running_by(script).await;
    let user = json!({"linux": {"uid": 1000, "gid": 2000, "supplementalGroups": [2000, 3000]}});
    let context = json!({"runAsUser": 1000, "runAsGroup": 2000, "supplementalGroups": [3000]});
    let containers = json!([{"name": "brief", "image": "web:1"}, {"name": "long", "image": "web:1"}]);
    cluster.create("both", json!({"restartPolicy": "Never", "securityContext": context, "containers": containers})).await;
    let ended = |status: &Value| status["containerStatuses"][0]["state"]["terminated"].is_object();
    let status =
        cluster.status("both", "one end", |status| ended(status) && !status["containerStatuses"][1]["state"]["running"].is_null()).await;
    assert_eq!((&status["containerStatuses"][0]["user"], &status["containerStatuses"][1]["user"]), (&user, &user));
    let _agent = cluster.replace_agent(agent).await;
    cluster.linux.kill(|spec| spec.labels[label::CONTAINER] == "long");
    let status = cluster.status("both", "its end", |status| status["phase"] == "Failed").await;
    assert_eq!((&status["containerStatuses"][0]["user"], &status["containerStatuses"][1]["user"]), (&user, &user));
}

#[tokio::test]
async fn a_deleted_runtime_class_still_holds_for_the_pods_that_have_a_sandbox() {
    let (cluster, agent) = Cluster::running().await;
    let classes: Api<RuntimeClass> = Api::all(cluster.client.clone());
    let class = json!({"metadata": {"name": "bounded", "annotations": {"wasm.skiff.internal/fuel": "8"}}, "handler": "wasmtime"});
    classes.create(&PostParams::default(), &serde_json::from_value(class).expect("a class")).await.expect("created");
    let mut spec = one("wasm:1");
    spec["runtimeClassName"] = json!("bounded");
    cluster.create("guest", spec).await;
    cluster.ready("guest").await;
    agent.kill().await;
    classes.delete("bounded", &DeleteParams::default()).await.expect("deleted");
    let _agent = cluster.start();
    cluster.create("later", one("web:1")).await;
    cluster.ready("later").await;
    cluster.wasm.kill_all();
    let again = |status: &Value| status["containerStatuses"][0]["restartCount"] == 1 && condition(status, "Ready") == "True";
    cluster.status("guest", "a restart", again).await;
    assert_eq!(cluster.wasm.specs().last().and_then(|spec| spec.fuel), Some(8));
    let events = cluster.events("guest").await;
    assert!(events.iter().all(|event| !event.contains("not found")), "{events:?}");
}
