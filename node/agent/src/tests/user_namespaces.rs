use runtimes_contract::{ContainerSpec, USER_NAMESPACE_IDS};

use super::recorded::Specs;
use super::*;
use crate::layout::label;

fn in_namespace(image: &str, context: Value) -> Value {
    json!({"hostUsers": false, "containers": [{"name": "c", "image": image, "securityContext": context}]})
}

/// A cluster, and the specs of the containers that it makes.
async fn recorded() -> (Cluster, Running, Specs) {
    let (cluster, specs) = recorded::cluster().await;
    let agent = cluster.start();
    cluster.node_ready().await;
    (cluster, agent, specs)
}

fn first_id(specs: &Mutex<Vec<ContainerSpec>>, pod: &Pod) -> u32 {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let of_pod = |spec: &&ContainerSpec| spec.labels.get(label::POD_UID).is_some_and(|of| *of == uid);
    let specs = specs.lock();
    let ids: Vec<_> = specs.iter().filter(of_pod).map(|spec| spec.sandbox.user.as_ref().map(|user| user.first_id)).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    ids[0].expect("a user namespace")
}

#[tokio::test]
async fn each_pod_has_its_range_until_it_is_freed() {
    let (cluster, agent, specs) = recorded().await;
    let one_of = cluster.create("one", in_namespace("web:1", json!({"procMount": "Unmasked"}))).await;
    let other = cluster.create("two", in_namespace("web:1", json!({}))).await;
    let plain = cluster.create("plain", one("web:1")).await;
    for name in ["one", "two", "plain"] {
        cluster.ready(name).await;
    }
    let (first, second) = (first_id(&specs, &one_of), first_id(&specs, &other));
    assert!(first != second && first >= USER_NAMESPACE_IDS && first.is_multiple_of(USER_NAMESPACE_IDS), "{first} {second}");
    let of_plain = specs.lock().iter().filter(|spec| spec.sandbox.user.is_none()).count();
    assert_eq!((of_plain, specs.lock().iter().filter(|spec| spec.security.unmasked_proc).count()), (1, 1));
    let file = |pod: &Pod| cluster.data.path().join(format!("kubelet/pods/{}/userns", pod.metadata.uid.clone().unwrap_or_default()));
    assert!(file(&one_of).exists() && !file(&plain).exists());

    // A new agent knows the ranges before it sees the Pods.
    let _agent = cluster.replace_agent(agent).await;
    let third = cluster.create("three", in_namespace("web:1", json!({}))).await;
    cluster.ready("three").await;
    assert!(![first, second].contains(&first_id(&specs, &third)));
    cluster.delete("one", 0).await;
    cluster.gone("one").await;
    until("its directory is gone", async || !file(&one_of).exists()).await;
    // The range is freed after the directory is gone; a Pod that comes between has another one.
    let mut ranges = Vec::new();
    while ranges.last() != Some(&first) {
        let name = format!("later-{}", ranges.len());
        let later = cluster.create(&name, in_namespace("web:1", json!({}))).await;
        cluster.ready(&name).await;
        ranges.push(first_id(&specs, &later));
        assert!(ranges.len() < 10, "no Pod has the freed range {first}: {ranges:?}");
    }
}

#[tokio::test]
async fn a_wasm_guest_is_nobody_in_its_namespace() {
    let (cluster, _agent, specs) = recorded().await;
    cluster.create("guest", in_namespace("wasm:1", json!({}))).await;
    cluster.ready("guest").await;
    let ids: Vec<_> = specs.lock().iter().map(|spec| (spec.user.uid, spec.user.gid, spec.sandbox.user.is_some())).collect();
    assert_eq!(ids, [(Some(65_534), Some(65_534), true)]);
    cluster.create("far", in_namespace("wasm:1", json!({"runAsUser": 70_000}))).await;
    let waits = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError";
    let status = cluster.status("far", "refused", waits).await;
    let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
    assert!(message.as_str().is_some_and(|text| text.contains("the container runs as 70000")), "{status}");
}

#[tokio::test]
async fn a_runtime_without_user_namespaces_is_refused_in_the_kubelets_words() {
    let cluster = Cluster::new(Script::default()).await;
    cluster.linux.forget_user_namespaces("runc");
    let _agent = cluster.start();
    cluster.node_ready().await;
    let mut spec = in_namespace("web:1", json!({}));
    spec["runtimeClassName"] = json!("runc");
    cluster.create("classed", spec).await;
    let fault = "can't set `spec.hostUsers: false`, RuntimeClass handler \"runc\" does not support user namespaces";
    cluster.event("classed", &format!("FailedCreatePodSandBox: Failed to create pod sandbox: {fault}")).await;
    cluster.create("unclassed", in_namespace("web:1", json!({}))).await;
    let waits = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError";
    cluster.status("unclassed", "its image needs that runtime", waits).await;
    cluster.create("wasm", in_namespace("wasm:1", json!({}))).await;
    cluster.ready("wasm").await;
    let handlers = cluster.nodes().get(NODE).await.expect("the node").status.and_then(|status| status.runtime_handlers).unwrap_or_default();
    let has = |name: &str| {
        let handler = handlers.iter().find(|handler| handler.name.as_deref() == Some(name));
        handler.and_then(|handler| handler.features.as_ref()?.user_namespaces)
    };
    assert_eq!((has("runc"), has("wasmtime"), has("")), (Some(false), Some(true), Some(true)));
}

#[tokio::test]
async fn a_pod_with_an_invalid_file_gets_no_sandbox() {
    let (cluster, agent) = Cluster::running().await;
    let pod = cluster.create("torn", in_namespace("web:1", json!({}))).await;
    cluster.ready("torn").await;
    let file = cluster.data.path().join(format!("kubelet/pods/{}/userns", pod.metadata.uid.clone().unwrap_or_default()));
    agent.kill().await;
    std::fs::write(&file, "{").expect("written");
    let _agent = cluster.start();
    cluster.event("torn", "FailedCreatePodSandBox: Failed to create pod sandbox: user namespace: ").await;
    cluster.create("next", in_namespace("web:1", json!({}))).await;
    cluster.event("next", "FailedCreatePodSandBox: Failed to create pod sandbox: create user namespace: the range of Pod").await;
    cluster.delete("torn", 0).await;
    cluster.gone("torn").await;
    cluster.ready("next").await;
}
