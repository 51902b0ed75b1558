use runtimes_contract::Processes;
use runtimes_fake::Behaviour;

use super::*;

/// Adds an ephemeral container to a Pod.
async fn debug(cluster: &Cluster, pod: &str, container: Value) {
    let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [container]}}));
    cluster.pods().patch_ephemeral_containers(pod, &PatchParams::default(), &patch).await.expect("patched");
}

fn of_debugger(status: &Value) -> &Value {
    &status["ephemeralContainerStatuses"][0]
}

#[tokio::test]
async fn an_ephemeral_container_runs_once_and_does_not_count_for_the_pod() {
    let script = Script::default().containers(|spec| match spec.labels["io.kubernetes.container.name"].as_str() {
        "debugger" => Behaviour::Exit { after: Duration::from_millis(200), code: 7 },
        _ => Behaviour::Run,
    });
    let cluster = Cluster::new(script).await;
    let agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    debug(&cluster, "web", json!({"name": "debugger", "image": "tools:1"})).await;
    let status = cluster.status("web", "a debugger", |status| of_debugger(status)["state"]["running"].is_object()).await;
    assert_eq!((condition(&status, "Ready"), &of_debugger(&status)["ready"]), ("True", &json!(false)));
    let status = cluster.status("web", "its end", |status| of_debugger(status)["state"]["terminated"].is_object()).await;
    assert_eq!((&of_debugger(&status)["state"]["terminated"]["exitCode"], &of_debugger(&status)["restartCount"]), (&json!(7), &json!(0)));
    assert_eq!((condition(&status, "Ready"), &status["phase"]), ("True", &json!("Running")));
    assert_eq!(starts(&cluster.linux), 2);
    // Also not by the next agent.
    let _agent = cluster.replace_agent(agent).await;
    let after = cluster.ready("web").await;
    let end = |status: &Value| ["containerID", "exitCode", "reason"].map(|field| of_debugger(status)["state"]["terminated"][field].clone());
    assert_eq!((starts(&cluster.linux), end(&after)), (3, end(&status)));
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
}

#[tokio::test]
async fn a_running_ephemeral_container_is_adopted_and_ends_with_its_pod() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    debug(&cluster, "web", json!({"name": "debugger", "image": "tools:1"})).await;
    let before = cluster.status("web", "a debugger", |status| of_debugger(status)["state"]["running"].is_object()).await;
    let _agent = cluster.replace_agent(agent).await;
    let after = cluster.ready("web").await;
    assert_eq!(of_debugger(&after), of_debugger(&before));
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.delete("later", 1).await;
    cluster.gone("later").await;
    until("all is freed", async || cluster.network.pods.lock().is_empty() && cluster.images.mounts.lock().is_empty()).await;
}

#[tokio::test]
async fn an_ephemeral_container_with_a_target_waits_for_it_and_joins_it() {
    let specs = Arc::new(Mutex::new(Vec::new()));
    let started = specs.clone();
    let script = Script::default().containers(move |spec| {
        started.lock().push((spec.id.clone(), spec.processes.clone()));
        Behaviour::Run
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    debug(&cluster, "web", json!({"name": "debugger", "image": "tools:1", "targetContainerName": "c"})).await;
    cluster.status("web", "a debugger", |status| of_debugger(status)["state"]["running"].is_object()).await;
    let all = specs.lock().clone();
    assert_eq!(all[1].1, Processes::OfContainer(all[0].0.clone()));
    let refusals = [
        ("missing", json!([{"name": "c", "image": "missing:1"}]), "CreateContainerConfigError", "unable to find target container c"),
        ("wasm", json!([{"name": "c", "image": "wasm/hello:1"}]), "CreateContainerError", "container \"c\" runs WebAssembly"),
    ];
    for (pod, containers, reason, message) in refusals {
        cluster.create(pod, json!({"containers": containers})).await;
        let has_come = |status: &Value| {
            let state = &status["containerStatuses"][0]["state"];
            state["running"].is_object() || state["waiting"]["reason"] == "ErrImagePull"
        };
        cluster.status(pod, "a status", has_come).await;
        debug(&cluster, pod, json!({"name": "debugger", "image": "tools:1", "targetContainerName": "c"})).await;
        let waits = |status: &Value| of_debugger(status)["state"]["waiting"]["reason"] == reason;
        let status = cluster.status(pod, reason, waits).await;
        let said = of_debugger(&status)["state"]["waiting"]["message"].as_str().unwrap_or_default();
        assert!(said.contains(message), "{said}");
    }
}

/// The Pod was admitted without it.
#[tokio::test]
async fn an_ephemeral_container_gets_no_protection_that_the_node_does_not_have() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    let armor = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    debug(&cluster, "web", json!({"name": "debugger", "image": "tools:1", "securityContext": armor})).await;
    let refused = |status: &Value| {
        let waiting = &of_debugger(status)["state"]["waiting"];
        waiting["reason"] == "CreateContainerError" && waiting["message"].as_str().is_some_and(|text| text.contains("AppArmor"))
    };
    cluster.status("web", "a refusal", refused).await;
}
