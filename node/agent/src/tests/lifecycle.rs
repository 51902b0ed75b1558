use runtimes_fake::Behaviour;

use super::*;

#[tokio::test]
async fn a_pod_becomes_ready_and_its_status_is_whole() {
    let (cluster, agent) = Cluster::running().await;
    let started = std::time::Instant::now();
    cluster.create("web", one("web:1")).await;
    let status = cluster.ready("web").await;
    assert!(started.elapsed() < Duration::from_secs(1), "took {:?}", started.elapsed());
    insta::assert_snapshot!(without_chance(&status));
    cluster.event("web", "Started: Container started").await;
    agent.stop().await;
    assert_eq!(cluster.linux.calls().iter().filter(|call| **call == runtimes_fake::Operation::Start).count(), 1);
}

#[tokio::test]
async fn wasm_and_linux_containers_run_side_by_side() {
    let (cluster, _agent) = Cluster::running().await;
    let containers = json!([{"name": "a", "image": "wasm/hello:1"}, {"name": "b", "image": "web:1"}]);
    cluster.create("both", json!({"containers": containers})).await;
    cluster.ready("both").await;
    let started = |world: &World| world.calls().contains(&runtimes_fake::Operation::Start);
    assert!(started(&cluster.wasm) && started(&cluster.linux));
}

#[tokio::test]
async fn a_deleted_pod_ends_and_leaves_nothing() {
    let script = Script::default().containers(|_| Behaviour::IgnoreTerm);
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("stubborn", one("web:1")).await;
    cluster.ready("stubborn").await;
    let logs = cluster.data.path().join("pods");
    assert_eq!(std::fs::read_dir(&logs).expect("logs").count(), 1);
    cluster.delete("stubborn", 1).await;
    cluster.event("stubborn", "Killing: Stopping container c").await;
    cluster.gone("stubborn").await;
    until("all is freed", async || cluster.network.pods.lock().is_empty() && cluster.images.mounts.lock().is_empty()).await;
    assert_eq!(std::fs::read_dir(&logs).expect("logs").count(), 0);
}

#[tokio::test]
async fn a_crashing_container_backs_off_as_upstream() {
    let script = Script::default().containers(|_| Behaviour::Exit { after: Duration::from_millis(20), code: 3 });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let pod = cluster.create("crash", one("web:1")).await;
    let waiting = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let status = cluster.status("crash", "CrashLoopBackOff", waiting).await;
    let container = &status["containerStatuses"][0];
    assert_eq!((container["restartCount"].as_i64(), container["lastState"]["terminated"]["exitCode"].as_i64()), (Some(1), Some(3)));
    let uid = pod.metadata.uid.unwrap_or_default();
    let message = format!("back-off 10s restarting failed container=c pod=crash_default({uid})");
    assert_eq!(container["state"]["waiting"]["message"], json!(message));
    assert_eq!((status["phase"].as_str(), condition(&status, "Ready")), (Some("Running"), "False"));
    cluster.event("crash", &format!("BackOff: Back-off restarting failed container c in pod crash_default({uid})")).await;
}

#[tokio::test]
async fn jobs_end_as_succeeded_or_failed() {
    let script = Script::default().containers(|spec| {
        let code = spec.env.iter().find(|(name, _)| name == "CODE").map_or(0, |(_, code)| code.parse().expect("a code"));
        Behaviour::Exit { after: Duration::from_millis(10), code }
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let job = |code: &str| json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:1", "env": [{"name": "CODE", "value": code}]}]});
    cluster.create("good", job("0")).await;
    cluster.create("bad", job("7")).await;
    let good = cluster.status("good", "Succeeded", |status| status["phase"] == "Succeeded").await;
    let reason = |status: &Value| {
        let ready = status["conditions"].as_array().expect("conditions").iter().find(|condition| condition["type"] == "Ready").cloned();
        ready.expect("Ready")["reason"].clone()
    };
    assert_eq!(
        (good["containerStatuses"][0]["state"]["terminated"]["reason"].as_str(), reason(&good)),
        (Some("Completed"), json!("PodCompleted"))
    );
    let bad = cluster.status("bad", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(bad["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    until("the networks are freed", async || cluster.network.pods.lock().is_empty()).await;
}

#[tokio::test]
async fn init_containers_run_in_order_and_sidecars_stay() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let names = order.clone();
    let script = Script::default().containers(move |spec| {
        let name = spec.labels["io.kubernetes.container.name"].clone();
        names.lock().push(name.clone());
        if name.starts_with("init") { Behaviour::Exit { after: Duration::from_millis(10), code: 0 } } else { Behaviour::Run }
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let init = json!([{"name": "init-a", "image": "i:1"}, {"name": "side", "image": "s:1", "restartPolicy": "Always"}, {"name": "init-b", "image": "i:1"}]);
    cluster
        .create(
            "staged",
            json!({"initContainers": init, "containers": [{"name": "main", "image": "web:1"}], "terminationGracePeriodSeconds": 5}),
        )
        .await;
    let status = cluster.ready("staged").await;
    assert_eq!(*order.lock(), ["init-a", "side", "init-b", "main"]);
    let names: Vec<_> = status["initContainerStatuses"]
        .as_array()
        .expect("statuses")
        .iter()
        .map(|status| (status["name"].clone(), status["ready"].clone()))
        .collect();
    assert_eq!(names, [(json!("init-a"), json!(true)), (json!("side"), json!(true)), (json!("init-b"), json!(true))]);
    cluster.delete("staged", 5).await;
    cluster.gone("staged").await;
}

/// Whether it waits, runs or has failed: an init container is done when it ended well, and not before.
#[tokio::test]
async fn the_condition_names_every_init_container_that_is_not_done() {
    let script = Script::default().containers(|spec| match spec.labels["io.kubernetes.container.name"].as_str() {
        "init1" => Behaviour::Run,
        _ => Behaviour::Exit { after: Duration::from_millis(10), code: 1 },
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    for (name, init, state) in [("runs", ["init1", "init2"], "running"), ("fails", ["init3", "init4"], "terminated")] {
        let init_containers = json!([{"name": init[0], "image": "i:1"}, {"name": init[1], "image": "i:1"}]);
        let spec =
            json!({"initContainers": init_containers, "containers": [{"name": "c", "image": "web:1"}], "terminationGracePeriodSeconds": 1});
        cluster.create(name, spec).await;
        let has_come = |status: &Value| {
            let first = &status["initContainerStatuses"][0];
            first["state"][state].is_object() || first["lastState"][state].is_object()
        };
        let status = cluster.status(name, state, has_come).await;
        assert_eq!(status["initContainerStatuses"][0]["ready"], false, "{status}");
        let conditions = status["conditions"].as_array().expect("conditions").clone();
        let initialized = conditions.iter().find(|condition| condition["type"] == "Initialized").expect("a condition");
        let message = format!("containers with incomplete status: [{} {}]", init[0], init[1]);
        assert_eq!((&initialized["reason"], &initialized["message"]), (&json!("ContainersNotInitialized"), &json!(message)));
    }
}

#[tokio::test]
async fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let script = Script::default().containers(|_| Behaviour::Exit { after: Duration::from_millis(10), code: 1 });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i", "image": "i:1"}], "containers": [{"name": "c", "image": "web:1"}]});
    cluster.create("doomed", spec).await;
    let status = cluster.status("doomed", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[tokio::test]
async fn a_pod_past_its_deadline_fails() {
    let (cluster, _agent) = Cluster::running().await;
    let mut spec = one("web:1");
    spec["activeDeadlineSeconds"] = json!(1);
    spec["terminationGracePeriodSeconds"] = json!(1);
    cluster.create("late", spec).await;
    let status = cluster.status("late", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "DeadlineExceeded");
    assert_eq!(status["message"], "Pod was active on the node longer than the specified deadline");
}

#[tokio::test]
async fn a_force_deleted_pod_is_ended_all_the_same() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("forced", one("web:1")).await;
    cluster.ready("forced").await;
    cluster.delete("forced", 0).await;
    cluster.gone("forced").await;
    until("all is freed", async || cluster.network.pods.lock().is_empty() && cluster.images.mounts.lock().is_empty()).await;
}

#[tokio::test]
async fn a_wasm_container_is_probed_by_a_command() {
    let (cluster, _agent) = Cluster::running().await;
    let container = json!({"name": "c", "image": "wasm:1", "readinessProbe": {"exec": {"command": ["/check.wasm"]}}});
    cluster.create("probed", json!({"containers": [container]})).await;
    cluster.ready("probed").await;
    assert!(cluster.wasm.calls().contains(&runtimes_fake::Operation::Exec));
}

#[tokio::test]
async fn probes_decide_on_ready_and_on_restarts() {
    let script = Script::default().execs(|spec| {
        let code = i32::from(spec.args.first().map(String::as_str) == Some("fail"));
        Ok(runtimes_fake::ExecReply { code, ..runtimes_fake::ExecReply::default() })
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster
        .create(
            "good",
            json!({"containers": [{"name": "c", "image": "web:1", "readinessProbe": probe("ok"), "startupProbe": probe("ok")}]}),
        )
        .await;
    cluster.ready("good").await;
    cluster.create("bad", json!({"containers": [{"name": "c", "image": "web:1", "readinessProbe": probe("fail")}]})).await;
    cluster.event("bad", "Unhealthy: Readiness probe failed").await;
    cluster
        .create(
            "dead",
            json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "web:1", "livenessProbe": probe("fail")}]}),
        )
        .await;
    cluster.event("dead", "Killing: Container c failed liveness probe, will be restarted").await;
    cluster.status("dead", "a restart", |status| status["containerStatuses"][0]["restartCount"] == 1).await;
    let bad = cluster.status("bad", "Running", |status| status["phase"] == "Running").await;
    assert_eq!(condition(&bad, "Ready"), "False");
}

#[tokio::test]
async fn a_changed_image_replaces_the_container() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    cluster.patch("web", json!({"spec": {"containers": [{"name": "c", "image": "web:2"}]}})).await;
    let changed = |status: &Value| status["containerStatuses"][0]["imageID"] == "sha256:web:2" && condition(status, "Ready") == "True";
    let status = cluster.status("web", "the new image", changed).await;
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
}

/// Whether the Pod's directory of logs is there.
fn has_logs(cluster: &Cluster, pod: &Pod) -> bool {
    let (name, uid) = (pod.metadata.name.as_deref().expect("a name"), pod.metadata.uid.as_deref().expect("a uid"));
    cluster.data.path().join(format!("pods/default_{name}_{uid}")).exists()
}

#[tokio::test]
async fn logs_of_an_ended_pod_stay_until_it_is_deleted() {
    let script = Script::default().containers(|_| Behaviour::Exit { after: Duration::from_millis(10), code: 0 });
    let cluster = Cluster::new(script).await;
    let agent = cluster.start();
    cluster.node_ready().await;
    let job = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:1"}]});
    let freed = |status: &Value| status["phase"] == "Succeeded" && condition(status, "PodReadyToStartContainers") == "False";
    let mut pods = Vec::new();
    for name in ["first", "second"] {
        pods.push(cluster.create(name, job.clone()).await);
        cluster.status(name, "Succeeded and freed", freed).await;
    }
    assert!(pods.iter().all(|pod| has_logs(&cluster, pod)));
    cluster.delete("first", 5).await;
    cluster.gone("first").await;
    until("the first one's logs are gone", async || !has_logs(&cluster, &pods[0])).await;
    agent.stop().await;
    cluster.delete("second", 0).await;
    cluster.gone("second").await;
    let _agent = cluster.start();
    until("the second one's logs are gone", async || !has_logs(&cluster, &pods[1])).await;
}

#[tokio::test]
async fn a_worker_that_dies_is_replaced() {
    let panics = Arc::new(std::sync::atomic::AtomicUsize::new(1));
    let script = Script::default().containers(move |_| {
        let left =
            panics.fetch_update(std::sync::atomic::Ordering::SeqCst, std::sync::atomic::Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "a defect in a runtime");
        Behaviour::Run
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
}

#[tokio::test]
async fn a_restart_with_a_long_grace_is_cut_short_by_a_deletion() {
    let fail = |_: &runtimes_contract::ExecSpec| Ok(runtimes_fake::ExecReply { code: 1, ..runtimes_fake::ExecReply::default() });
    let script = Script::default().containers(|_| Behaviour::IgnoreTerm).execs(fail);
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1});
    let containers = json!([{"name": "c", "image": "web:1", "livenessProbe": probe}]);
    cluster.create("slow", json!({"terminationGracePeriodSeconds": 3_600, "containers": containers})).await;
    cluster.event("slow", "Killing: Container c failed liveness probe, will be restarted").await;
    cluster.delete("slow", 1).await;
    cluster.gone("slow").await;
}

#[tokio::test]
async fn a_pod_that_ends_does_not_wait_for_what_only_its_start_needs() {
    let (cluster, _agent) = Cluster::running().await;
    // A module that compiles for an hour.
    cluster.linux.inject(runtimes_fake::Operation::Prepare, [runtimes_fake::Fault::Delay(Duration::from_secs(3_600))]);
    cluster.create("compiles", one("web:1")).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !cluster.linux.calls().contains(&runtimes_fake::Operation::Prepare) {
        assert!(std::time::Instant::now() < deadline, "the start has come so far");
        tokio::task::yield_now().await;
    }
    cluster.delete("compiles", 30).await;
    cluster.gone("compiles").await;
    assert!(!cluster.linux.calls().contains(&runtimes_fake::Operation::Create));
    assert!(cluster.images.mounts.lock().is_empty());
}

#[tokio::test]
async fn a_pod_stays_until_its_containers_are_removed() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("stuck", one("web:1")).await;
    cluster.ready("stuck").await;
    let fault = || runtimes_fake::Fault::Error(runtimes_contract::RuntimeError::Missing("the kernel holds it".to_owned()));
    cluster.linux.inject(runtimes_fake::Operation::Remove, [fault(), fault()]);
    cluster.delete("stuck", 1).await;
    cluster.event("stuck", "FailedKillPod: error killing pod: removing container").await;
    cluster.gone("stuck").await;
    assert!(cluster.images.mounts.lock().is_empty(), "removed before the Pod was");
}

/// A status without times and ids.
fn without_chance(status: &Value) -> String {
    let text = serde_json::to_string_pretty(status).expect("JSON");
    let blank = |line: &str| {
        let (head, _) = line.split_once(": ").unwrap_or((line, ""));
        let chance =
            ["startTime", "lastTransitionTime", "startedAt", "containerID"].iter().any(|field| head.trim() == format!("\"{field}\""));
        if chance { format!("{head}: …") } else { line.to_owned() }
    };
    text.lines().map(blank).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_ready_that_somebody_took_is_given_back_however_soon() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    // Faster than the clock of conditions, which counts seconds.
    for _ in 0..5 {
        let taken = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        cluster.pods().patch_status("web", &PatchParams::default(), &Patch::Strategic(taken)).await.expect("patched");
        cluster.ready("web").await;
    }
}

#[tokio::test]
async fn the_deadline_is_reported_once_nothing_runs_any_more() {
    let cluster = Cluster::new(Script::default().containers(|_| Behaviour::IgnoreTerm)).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let mut spec = one("web:1");
    spec["activeDeadlineSeconds"] = json!(1);
    spec["terminationGracePeriodSeconds"] = json!(2);
    cluster.create("late", spec).await;
    let unready = |status: &Value| condition(status, "Ready") == "False" && !status["containerStatuses"][0]["state"]["running"].is_null();
    cluster.event("late", "DeadlineExceeded: Pod was active on the node longer than the specified deadline").await;
    let status = cluster.status("late", "a container on its way out", unready).await;
    assert_eq!([&status["phase"], &status["reason"], &status["message"]], [&json!("Running"), &Value::Null, &Value::Null]);
    let status = cluster.status("late", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "DeadlineExceeded");
}
