use runtimes_fake::{Behaviour, ExecReply};

use super::*;

/// An init container `first`, a container `main` with a preStop hook, and `trigger`, which restarts all of them after 42.
fn ruled() -> Value {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let hook = json!({"preStop": {"exec": {"command": ["bye"]}}});
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{"name": "first", "image": "i:1"}],
        "containers": [
            {"name": "main", "image": "web:1", "lifecycle": hook},
            {"name": "trigger", "image": "web:1", "restartPolicy": "Never", "restartPolicyRules": rules},
        ],
    })
}

/// `trigger` ends with 42 as long as its attempt is below `times`; `first` ends well, the others run.
fn script(times: u32) -> Script {
    Script::default().containers(move |spec| {
        let attempt: u32 = spec.labels["io.kubernetes.container.restartCount"].parse().expect("an attempt");
        match spec.labels["io.kubernetes.container.name"].as_str() {
            "first" => Behaviour::Exit { after: Duration::from_millis(10), code: 0 },
            "trigger" if attempt < times => Behaviour::Exit { after: Duration::from_millis(300), code: 42 },
            _ => Behaviour::Run,
        }
    })
}

#[tokio::test]
async fn a_container_restarts_all_others_by_its_rule() {
    let execs = Arc::new(AtomicUsize::new(0));
    let counted = execs.clone();
    let script = script(1).execs(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(ExecReply::default())
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("gang", ruled()).await;
    let restarted = |status: &Value| {
        let counts = status["containerStatuses"].as_array().into_iter().flatten().map(|one| one["restartCount"].clone());
        condition(status, "Ready") == "True" && counts.collect::<Vec<_>>() == [json!(1), json!(1)]
    };
    let status = cluster.status("gang", "a new beginning", restarted).await;
    assert_eq!(starts(&cluster.linux), 6, "the init container too");
    let first = &status["initContainerStatuses"][0];
    assert_eq!((&first["restartCount"], &first["state"]["terminated"]["exitCode"]), (&json!(1), &json!(0)));
    for one in status["containerStatuses"].as_array().expect("statuses").iter().chain([first]) {
        let last = &one["lastState"]["terminated"];
        assert_eq!((&last["exitCode"], &last["reason"]), (&json!(137), &json!("RestartingAllContainers")), "{one}");
    }
    assert_eq!((condition(&status, "AllContainersRestarting"), &status["phase"]), ("False", &json!("Running")));
    cluster.event("gang", "Killing: Container main will be restarted with all containers").await;
    assert_eq!(execs.load(Ordering::SeqCst), 0, "no hook");
    cluster.delete("gang", 1).await;
    cluster.gone("gang").await;
    assert_eq!(execs.load(Ordering::SeqCst), 1, "the hook of the Pod's end");
}

/// The trigger waits in its back-off while the others run. As upstream, the back-off does not survive the agent.
#[tokio::test]
async fn an_agent_that_comes_back_does_not_restart_all_again() {
    let cluster = Cluster::new(script(2)).await;
    let agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("gang", ruled()).await;
    let waits = |status: &Value| {
        let trigger = &status["containerStatuses"][1];
        let main_runs = status["containerStatuses"][0]["state"]["running"].is_object();
        main_runs && trigger["restartCount"] == 2 && trigger["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let before = cluster.status("gang", "a back-off", waits).await;
    let started = starts(&cluster.linux);
    let _agent = cluster.replace_agent(agent).await;
    let after = cluster.ready("gang").await;
    assert_eq!(starts(&cluster.linux), started + 2, "the trigger and the other Pod");
    assert_eq!(after["containerStatuses"][0], before["containerStatuses"][0]);
}

#[tokio::test]
async fn a_containers_own_policy_and_rules_go_before_those_of_its_pod() {
    let script = Script::default().containers(|spec| {
        let attempt = spec.labels["io.kubernetes.container.restartCount"].as_str();
        let exit = |code: i32| Behaviour::Exit { after: Duration::from_millis(20), code };
        match (spec.labels["io.kubernetes.container.name"].as_str(), attempt) {
            ("ruled", "0") => exit(42),
            ("own", "0") => exit(1),
            ("plain", _) => exit(1),
            _ => exit(0),
        }
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let containers = json!([
        {"name": "ruled", "image": "job:1", "restartPolicy": "Never", "restartPolicyRules": rules},
        {"name": "own", "image": "job:1", "restartPolicy": "OnFailure"},
        {"name": "plain", "image": "job:1"},
    ]);
    cluster.create("mixed", json!({"restartPolicy": "Never", "containers": containers})).await;
    let status = cluster.status("mixed", "Failed", |status| status["phase"] == "Failed").await;
    let ends = status["containerStatuses"].as_array().expect("statuses").iter();
    let ends: Vec<_> = ends.map(|one| (one["restartCount"].clone(), one["state"]["terminated"]["exitCode"].clone())).collect();
    assert_eq!(ends, [(json!(1), json!(0)), (json!(0), json!(1)), (json!(1), json!(0))], "by name: own, plain, ruled");
    // An init container that must not run again fails a Pod that would restart it.
    let init = json!([{"name": "plain", "image": "job:1", "restartPolicy": "Never"}]);
    cluster
        .create("strict", json!({"restartPolicy": "Always", "initContainers": init, "containers": [{"name": "c", "image": "web:1"}]}))
        .await;
    let status = cluster.status("strict", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["initContainerStatuses"][0]["restartCount"], 0);
}

/// A container `c` that its node ends because of its liveness probe, and that ends well by then, as long as its attempt is below
/// `times`.
fn failing(times: u32) -> (Script, Value) {
    let attempt = Arc::new(AtomicUsize::new(0));
    let latest = attempt.clone();
    let script = Script::default()
        .containers(move |spec| {
            let attempt: u32 = spec.labels["io.kubernetes.container.restartCount"].parse().expect("an attempt");
            latest.store(usize::try_from(attempt).expect("few"), Ordering::SeqCst);
            if attempt < times { Behaviour::Exit { after: Duration::from_secs(3), code: 0 } } else { Behaviour::Run }
        })
        .execs(move |_| {
            let fails = attempt.load(Ordering::SeqCst) < usize::try_from(times).expect("few");
            Ok(ExecReply { code: i32::from(fails), ..ExecReply::default() })
        });
    let probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1});
    // The stop signal comes after the end.
    let hook = json!({"preStop": {"sleep": {"seconds": 5}}});
    let container = json!({"name": "c", "image": "web:1", "livenessProbe": probe, "lifecycle": hook});
    (script, json!({"restartPolicy": "OnFailure", "containers": [container]}))
}

fn runs_again(restarts: i32) -> impl Fn(&Value) -> bool {
    move |status| {
        let one = &status["containerStatuses"][0];
        one["restartCount"] == restarts && one["state"]["running"].is_object() && one["lastState"]["terminated"]["exitCode"] == 0
    }
}

#[tokio::test]
async fn a_container_that_ended_well_after_a_failed_probe_runs_again_and_its_status_says_so() {
    let (script, spec) = failing(1);
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("web", spec).await;
    cluster.event("web", "Killing: Container c failed liveness probe, will be restarted").await;
    // The status of a container that is about to start is written too.
    cluster.linux.inject(Operation::Create, [runtimes_fake::Fault::Delay(Duration::from_secs(1))]);
    let waits = |status: &Value| {
        let one = &status["containerStatuses"][0];
        one["state"]["waiting"]["reason"] == "ContainerCreating" && one["lastState"]["terminated"]["exitCode"] == 0
    };
    let status = cluster.status("web", "a restart", |status| waits(status) || runs_again(1)(status)).await;
    assert_eq!(status["phase"], "Running");
    let status = cluster.status("web", "the next instance", runs_again(1)).await;
    assert_eq!((&status["phase"], condition(&status, "Ready")), (&json!("Running"), "True"));
}

#[tokio::test]
async fn a_container_that_ended_well_after_a_failed_probe_runs_again_by_an_agent_that_comes_back() {
    let (script, spec) = failing(2);
    let cluster = Cluster::new(script).await;
    let agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("web", spec).await;
    let backs_off = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    cluster.status("web", "a back-off", backs_off).await;
    agent.kill().await;
    let _agent = cluster.start();
    let status = cluster.status("web", "the next instance", runs_again(2)).await;
    assert_eq!(status["phase"], "Running");
}

/// A Pod whose `trigger` restarts all after 42, and its `first`, which waits for `trigger` after that.
fn begins_with_its_trigger() -> Value {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 600});
    let init = json!([
        {"name": "trigger", "image": "i:1", "restartPolicy": "Always", "restartPolicyRules": rules, "startupProbe": probe},
        {"name": "first", "image": "i:1"},
    ]);
    let containers = json!([{"name": "main", "image": "web:1"}]);
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "initContainers": init, "containers": containers})
}

fn name_and_attempt(spec: &runtimes_contract::ContainerSpec) -> (&str, u32) {
    let attempt = spec.labels["io.kubernetes.container.restartCount"].parse().expect("an attempt");
    (spec.labels["io.kubernetes.container.name"].as_str(), attempt)
}

/// Starts the agent anew, and waits until it works.
async fn comes_back(cluster: &Cluster, agent: Running, probe: &str) -> Running {
    agent.kill().await;
    let agent = cluster.start();
    cluster.create(probe, one("web:1")).await;
    cluster.ready(probe).await;
    agent
}

#[tokio::test]
async fn a_pod_that_begins_again_does_not_fail_by_an_agent_that_comes_back() {
    // `trigger` starts up by its probe as its first instance, and as its third one once the gate is open.
    let passes = Arc::new(AtomicUsize::new(1));
    let gate = passes.clone();
    let script = Script::default()
        .containers(move |spec| match name_and_attempt(spec) {
            ("trigger", 0) => Behaviour::Exit { after: Duration::from_secs(2), code: 42 },
            ("trigger", 1) => {
                passes.store(0, Ordering::SeqCst);
                Behaviour::Exit { after: Duration::from_millis(20), code: 42 }
            }
            ("first", attempt) if attempt > 0 => Behaviour::Exit { after: Duration::from_millis(10), code: 0 },
            _ => Behaviour::Run,
        })
        .execs({
            let passes = gate.clone();
            move |_| Ok(ExecReply { code: i32::from(passes.load(Ordering::SeqCst) == 0), ..ExecReply::default() })
        });
    let cluster = Cluster::new(script).await;
    let mut agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("gang", begins_with_its_trigger()).await;
    let backs_off = |status: &Value| {
        let trigger = &status["initContainerStatuses"][0];
        trigger["restartCount"] == 2 && trigger["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let before = cluster.status("gang", "a back-off", backs_off).await;
    for probe in ["later", "last"] {
        agent = comes_back(&cluster, agent, probe).await;
        let runs = |status: &Value| status["initContainerStatuses"][0]["state"]["running"].is_object();
        let after = cluster.status("gang", "the next instance of the trigger", runs).await;
        assert_eq!((&after["phase"], &after["initContainerStatuses"][1]), (&json!("Pending"), &before["initContainerStatuses"][1]));
    }
    gate.store(1, Ordering::SeqCst);
    let status = cluster.ready("gang").await;
    let counts = [0, 1].map(|index| status["initContainerStatuses"][index]["restartCount"].clone());
    assert_eq!(counts, [json!(2), json!(1)]);
}

#[tokio::test]
async fn agents_that_come_back_while_a_pod_begins_again_end_nothing() {
    let script = Script::default().containers(|spec| match name_and_attempt(spec) {
        ("first", 0) => Behaviour::Exit { after: Duration::from_millis(10), code: 0 },
        ("trigger", 0) => Behaviour::Exit { after: Duration::from_millis(300), code: 42 },
        _ => Behaviour::Run,
    });
    let cluster = Cluster::new(script).await;
    let mut agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("gang", ruled()).await;
    let waits = |status: &Value| {
        let first = &status["initContainerStatuses"][0];
        first["restartCount"] == 1 && first["state"]["running"].is_object()
    };
    let before = cluster.status("gang", "a new beginning", waits).await;
    for probe in ["later", "last"] {
        agent = comes_back(&cluster, agent, probe).await;
    }
    assert_eq!(starts(&cluster.linux), 6, "those of the other Pods");
    let after = cluster.status("gang", "the same", waits).await;
    let lists = ["initContainerStatuses", "containerStatuses"];
    assert_eq!(lists.map(|list| &after[list]), lists.map(|list| &before[list]));
}

/// Its containers are on the node still, or are gone with the node's memory.
#[tokio::test]
async fn an_agent_that_is_killed_when_a_pod_begins_again_goes_on_with_that() {
    for reboots in [false, true] {
        let script = Script::default().containers(|spec| match name_and_attempt(spec) {
            ("first", _) => Behaviour::Exit { after: Duration::from_millis(10), code: 0 },
            ("trigger", 0) => Behaviour::Exit { after: Duration::from_secs(2), code: 42 },
            _ => Behaviour::Run,
        });
        let cluster = Cluster::new(script).await;
        let agent = cluster.start();
        cluster.node_ready().await;
        cluster.create("gang", ruled()).await;
        let runs = |status: &Value| status["containerStatuses"].as_array().is_some_and(|all| all.iter().all(|one| one["ready"] == true));
        cluster.status("gang", "a beginning", runs).await;
        cluster.linux.inject(Operation::Create, [runtimes_fake::Fault::Delay(DEADLINE)]);
        let creates = || cluster.linux.calls().iter().filter(|call| **call == Operation::Create).count();
        let starts_first = |status: &Value| creates() == 4 && status["initContainerStatuses"][0]["restartCount"] == 1;
        let status = cluster.status("gang", "a new beginning", starts_first).await;
        let first = &status["initContainerStatuses"][0];
        assert_eq!((&first["state"]["waiting"]["reason"], &first["ready"]), (&json!("RestartingAllContainers"), &json!(false)));
        agent.kill().await;
        if reboots {
            for runtime in cluster.parts().runtimes {
                for container in runtime.list().await.expect("a list") {
                    runtime.remove(&container.id).await.expect("removed");
                }
            }
        }
        let _agent = cluster.start();
        let status = cluster.ready("gang").await;
        assert_eq!(starts(&cluster.linux), 6, "the init container too");
        for list in ["initContainerStatuses", "containerStatuses"] {
            for one in status[list].as_array().expect("statuses") {
                let last = &one["lastState"]["terminated"];
                assert_eq!((&one["restartCount"], &last["reason"]), (&json!(1), &json!("RestartingAllContainers")), "{one}");
            }
        }
    }
}

#[tokio::test]
async fn a_restart_of_all_goes_on_although_the_trigger_is_in_back_off() {
    let script = Script::default().containers(|spec| match name_and_attempt(spec) {
        ("first", _) => Behaviour::Exit { after: Duration::from_millis(10), code: 0 },
        ("trigger", 0 | 1) => Behaviour::Exit { after: Duration::from_millis(300), code: 42 },
        ("main", 1) => Behaviour::IgnoreTerm,
        _ => Behaviour::Run,
    });
    let cluster = Cluster::new(script).await;
    let agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("gang", ruled()).await;
    let restarts_all = |status: &Value| {
        let trigger = &status["containerStatuses"][1];
        trigger["restartCount"] == 1
            && trigger["state"]["waiting"].is_object()
            && trigger["lastState"]["terminated"]["exitCode"] == 42
            && condition(status, "AllContainersRestarting") == "True"
    };
    cluster.status("gang", "a restart of all", restarts_all).await;
    agent.kill().await;
    let _agent = cluster.start();
    let status = cluster.status("gang", "a new beginning", |status| condition(status, "Ready") == "True").await;
    let counts = [0, 1].map(|index| status["containerStatuses"][index]["restartCount"].clone());
    assert_eq!(counts, [json!(2), json!(2)]);
}

/// `main` is being ended because of its probe, and does not hear its stop signal, when all are restarted.
#[tokio::test]
async fn a_restart_of_all_cuts_a_long_grace_short() {
    let execs = AtomicUsize::new(0);
    let script = Script::default()
        .containers(|spec| match name_and_attempt(spec) {
            ("main", 0) => Behaviour::IgnoreTerm,
            ("trigger", 0) => Behaviour::Exit { after: Duration::from_secs(4), code: 42 },
            ("first", _) => Behaviour::Exit { after: Duration::from_millis(10), code: 0 },
            _ => Behaviour::Run,
        })
        .execs(move |_| Ok(ExecReply { code: i32::from(execs.fetch_add(1, Ordering::SeqCst) == 0), ..ExecReply::default() }));
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let mut spec = ruled();
    spec["terminationGracePeriodSeconds"] = json!(3_600);
    spec["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster.create("gang", spec).await;
    cluster.event("gang", "Killing: Container main failed liveness probe").await;
    // The condition of the restart itself may be true for a moment only.
    let is_restarted = |status: &Value| {
        let all = status["containerStatuses"].as_array().is_some_and(|all| {
            all.iter().all(|one| one["lastState"]["terminated"]["reason"] == "RestartingAllContainers" && one["restartCount"] == 1)
        });
        all && condition(status, "Ready") == "True"
    };
    cluster.status("gang", "a restart of all", is_restarted).await;
}
