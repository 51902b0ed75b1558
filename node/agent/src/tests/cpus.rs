use super::*;

use crate::{CpuManagerPolicy, CpuSet};

/// A machine of so many CPUs, each a core of one socket.
fn machine(data: &Path, cpus: u32) -> PathBuf {
    let sys = data.join("sys");
    std::fs::create_dir_all(sys.join("cpu")).expect("a directory");
    std::fs::write(sys.join("cpu/online"), format!("0-{}\n", cpus - 1)).expect("a file");
    sys
}

/// A cluster whose node has four CPUs of which the first is reserved, under the policy `static`.
async fn pinning() -> Cluster {
    let mut cluster = Cluster::new(Script::default()).await;
    cluster.config.sys_dir = machine(cluster.data.path(), 4);
    cluster.config.reserved = (1_000, 0);
    cluster.config.cpu_manager.policy = CpuManagerPolicy::Static;
    cluster.config.cpu_manager.reserved_cpus = CpuSet::from_iter([0]);
    // Only events lead to changes here.
    cluster.config.cpu_manager.reconcile_period = Duration::from_secs(3_600);
    cluster
}

fn guaranteed(image: &str, cpu: &str) -> Value {
    let list = json!({"cpu": cpu, "memory": "1Mi"});
    json!({"containers": [{"name": "c", "image": image, "resources": {"requests": list, "limits": list}}]})
}

impl Cluster {
    /// The CPUs of the newest container of a Pod, and its CPU quota.
    fn cpus(&self, pod: &str) -> (String, Option<i64>) {
        let specs = self.linux.specs().into_iter().chain(self.wasm.specs());
        let mut of_pod = specs.filter(|spec| spec.labels.get("io.kubernetes.pod.name").is_some_and(|name| name == pod));
        let resources = of_pod.next_back().map(|spec| spec.resources).unwrap_or_default();
        (resources.cpuset_cpus.unwrap_or_else(|| "none".to_owned()), resources.cpu_quota_us)
    }

    async fn has_cpus(&self, pod: &str, cpus: &str) {
        until(&format!("{pod} runs on {cpus}, not on {}", self.cpus(pod).0), async || self.cpus(pod).0 == cpus).await;
    }

    fn state_file(&self) -> PathBuf {
        self.data.path().join("kubelet/cpu_manager_state")
    }

    fn state(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.state_file()).expect("a file")).expect("JSON")
    }

    async fn uid(&self, pod: &str) -> String {
        self.pods().get(pod).await.expect("the pod").metadata.uid.expect("a uid")
    }

    /// Why the agent does not start.
    async fn start_error(&self) -> String {
        let mut agent = self.start();
        (&mut agent.task).await.expect("joined").expect_err("it is refused").to_string()
    }
}

#[tokio::test]
async fn a_guaranteed_pod_has_cpus_alone_and_gives_them_back() {
    let cluster = pinning().await;
    let _agent = cluster.start();
    cluster.create("pool", one("web:1")).await;
    cluster.ready("pool").await;
    assert_eq!(cluster.cpus("pool").0, "0-3");
    cluster.create("own", guaranteed("wasm:1", "2")).await;
    cluster.ready("own").await;
    assert_eq!(cluster.cpus("own"), ("1-2".to_owned(), None), "it is not throttled there");
    assert_eq!(cluster.cpus("pool").0, "0,3", "before the other one started");
    cluster.create("later", guaranteed("web:1", "500m")).await;
    cluster.ready("later").await;
    assert_eq!(cluster.cpus("later"), ("0,3".to_owned(), Some(50_000)));
    let uid = cluster.uid("own").await;
    assert_eq!(cluster.state()["entries"], json!({uid: {"c": "1-2"}}));
    assert_eq!((&cluster.state()["policyName"], &cluster.state()["defaultCpuSet"]), (&json!("static"), &json!("0,3")));
    cluster.delete("own", 1).await;
    cluster.gone("own").await;
    cluster.has_cpus("pool", "0-3").await;
    cluster.has_cpus("later", "0-3").await;
    until("the file says so", async || cluster.state()["defaultCpuSet"] == "0-3" && cluster.state()["entries"].is_null()).await;
}

#[tokio::test]
async fn a_start_on_cpus_that_become_anothers_comes_first() {
    let cluster = pinning().await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.linux.inject(Operation::Start, [Fault::Delay(Duration::from_millis(500))]);
    cluster.create("pool", one("web:1")).await;
    until("it is being started", async || starts(&cluster.linux) == 1).await;
    cluster.create("own", guaranteed("web:1", "3")).await;
    cluster.ready("own").await;
    cluster.ready("pool").await;
    assert_eq!([cluster.cpus("pool").0, cluster.cpus("own").0], ["0", "1-3"]);
    let calls = cluster.linux.calls();
    let own = calls.iter().rposition(|call| *call == Operation::Create).expect("created");
    let bound = calls.iter().position(|call| *call == Operation::SetCpus).expect("bound");
    assert!(bound < own, "{calls:?}");
}

#[tokio::test]
async fn a_start_that_failed_holds_up_nobody() {
    let cluster = pinning().await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let fault = || Fault::Error(runtimes_contract::RuntimeError::Start("no".to_owned()));
    cluster.linux.inject(Operation::Create, [fault()]);
    let mut spec = one("web:1");
    spec["restartPolicy"] = json!("Never");
    cluster.create("fails", spec).await;
    cluster.status("fails", "failed", |status| !status["containerStatuses"][0]["state"]["waiting"]["message"].is_null()).await;
    cluster.create("own", guaranteed("web:1", "3")).await;
    cluster.ready("own").await;
    assert_eq!(cluster.cpus("own").0, "1-3");
}

#[tokio::test]
async fn a_pod_that_has_ended_gives_its_cpus_back_before_it_says_so() {
    let script = Script::default().containers(|spec| match spec.args.contains(&"end".to_owned()) {
        true => runtimes_fake::Behaviour::Exit { after: Duration::from_millis(20), code: 0 },
        false => runtimes_fake::Behaviour::Run,
    });
    let mut cluster = pinning().await;
    cluster.linux = World::new(script);
    let _agent = cluster.start();
    cluster.node_ready().await;
    // Its containers are not removed as long as the test runs.
    cluster.linux.inject(Operation::Remove, [Fault::Delay(DEADLINE * 2)]);
    let mut job = guaranteed("web:1", "3");
    job["restartPolicy"] = json!("Never");
    job["containers"][0]["args"] = json!(["end"]);
    cluster.create("job", job).await;
    cluster.status("job", "Succeeded", |status| status["phase"] == "Succeeded").await;
    assert_eq!(cluster.state()["defaultCpuSet"], "0-3");
    cluster.create("next", guaranteed("web:1", "3")).await;
    cluster.ready("next").await;
    assert_eq!(cluster.cpus("next").0, "1-3");
}

#[tokio::test]
async fn a_killed_agents_assignments_go_on() {
    let cluster = pinning().await;
    let agent = cluster.start();
    cluster.create("pool", one("web:1")).await;
    cluster.create("own", guaranteed("web:1", "1")).await;
    cluster.create("other", guaranteed("web:1", "1")).await;
    for pod in ["pool", "own", "other"] {
        cluster.ready(pod).await;
    }
    let before = [cluster.cpus("own"), cluster.cpus("other"), cluster.cpus("pool")];
    let state = cluster.state();
    agent.kill().await;
    let agent = cluster.start();
    cluster.create("later", one("web:1")).await;
    cluster.ready("later").await;
    assert_eq!([cluster.cpus("own"), cluster.cpus("other"), cluster.cpus("pool")], before);
    assert_eq!((cluster.state(), starts(&cluster.linux)), (state, 4));
    // One dies while no agent runs, and its Pod is deleted; one is deleted and still runs.
    agent.stop().await;
    cluster.linux.kill(|spec| spec.labels.get("io.kubernetes.pod.name").is_some_and(|name| name == "own"));
    for pod in ["own", "other"] {
        cluster.delete(pod, 0).await;
        cluster.gone(pod).await;
    }
    let _agent = cluster.start();
    cluster.has_cpus("pool", "0-3").await;
    until("the file says so", async || cluster.state()["entries"].is_null()).await;
}

#[tokio::test]
async fn entries_of_pods_that_left_nothing_are_released() {
    let cluster = pinning().await;
    let agent = cluster.start();
    cluster.create("own", guaranteed("web:1", "2")).await;
    cluster.ready("own").await;
    agent.stop().await;
    // As after a reboot of the machine.
    let ids = cluster.linux.containers();
    let runtime = FakeRuntime::new("runc", ContentKind::Linux, cluster.linux.clone());
    for id in ids {
        runtimes_contract::Runtime::remove(&runtime, &id).await.expect("removed");
    }
    cluster.network.remove_all().await.expect("removed");
    cluster.images.mounts.lock().clear();
    cluster.delete("own", 0).await;
    cluster.gone("own").await;
    assert_eq!(cluster.state()["defaultCpuSet"], "0,3");
    // One that was bound meanwhile needs all of them.
    cluster.create("next", guaranteed("web:1", "3")).await;
    let _agent = cluster.start();
    cluster.ready("next").await;
    assert_eq!(cluster.cpus("next").0, "1-3");
    cluster.delete("next", 1).await;
    cluster.gone("next").await;
    until("the file says so", async || cluster.state()["defaultCpuSet"] == "0-3").await;
}

#[tokio::test]
async fn cpus_that_are_not_there_are_not_given() {
    let cluster = pinning().await;
    let _agent = cluster.start();
    cluster.create("own", guaranteed("web:1", "2")).await;
    cluster.ready("own").await;
    cluster.create("second", guaranteed("web:1", "2")).await;
    let status = cluster.status("second", "Failed", |status| status["phase"] == "Failed").await;
    let message = "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=2, available=1, \
                   which is unexpected";
    assert_eq!((&status["reason"], &status["message"]), (&json!("UnexpectedAdmissionError"), &json!(message)));
    // One CPU is left, but not the memory: nothing stays assigned.
    let mut large = guaranteed("web:1", "1");
    large["containers"][0]["resources"]["limits"]["memory"] = json!("1Pi");
    large["containers"][0]["resources"]["requests"]["memory"] = json!("1Pi");
    cluster.create("large", large).await;
    let status = cluster.status("large", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "OutOfmemory");
    assert_eq!(cluster.state()["defaultCpuSet"], "0,3");
    cluster.create("third", guaranteed("web:1", "1")).await;
    cluster.ready("third").await;
    assert_eq!(cluster.cpus("third").0, "3");
    let port = over_https::port(&cluster).await;
    let (_, metrics) = over_https::send(port, over_https::ADMIN, http::Method::GET, "/metrics").await.expect("metrics");
    for sample in [
        "kubelet_cpu_manager_pinning_requests_total 4",
        "kubelet_cpu_manager_pinning_errors_total 1",
        "kubelet_cpu_manager_shared_pool_size_millicores 0",
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 3",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "{sample}: {metrics}");
    }
}

#[tokio::test]
async fn a_guaranteed_pod_is_not_resized() {
    let cluster = pinning().await;
    let _agent = cluster.start();
    cluster.create("own", guaranteed("web:1", "1")).await;
    cluster.ready("own").await;
    let list = json!({"cpu": "2", "memory": "1Mi"});
    cluster.resize("own", json!({"requests": list, "limits": list})).await;
    let message = cluster.pending("own", "Infeasible").await["message"].clone();
    assert_eq!(message, "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy");
    assert_eq!(cluster.cpus("own").0, "1");
}

#[tokio::test]
async fn a_state_that_does_not_fit_stops_the_start() {
    let mut cluster = pinning().await;
    let agent = cluster.start();
    cluster.node_ready().await;
    agent.stop().await;
    let file = cluster.state_file().display().to_string();
    let refused = |why: &str| {
        format!(
            "CPU manager: could not restore state from checkpoint: {why}, please drain this node and delete the CPU manager checkpoint \
             file \"{file}\" before starting it again"
        )
    };
    machine(cluster.data.path(), 3);
    let other = "current set of available CPUs \"0-2\" doesn't match with CPUs in state \"0-3\"";
    assert_eq!(cluster.start_error().await, refused(other));
    machine(cluster.data.path(), 4);
    cluster.config.cpu_manager.policy = CpuManagerPolicy::None;
    let policy = "configured policy \"none\" differs from state checkpoint policy \"static\"";
    assert_eq!(cluster.start_error().await, refused(policy));
    cluster.config.cpu_manager.policy = CpuManagerPolicy::Static;
    let content = std::fs::read_to_string(cluster.state_file()).expect("a file");
    std::fs::write(cluster.state_file(), content.replace("0-3", "0-2")).expect("a file");
    assert_eq!(cluster.start_error().await, refused("checkpoint is corrupted"));
    Agent::remove_all(&cluster.config, &cluster.parts()).await.expect("removed");
    assert!(!cluster.state_file().exists(), "a node without containers may have another policy");
    cluster.config.cpu_manager.policy = CpuManagerPolicy::None;
    let _agent = cluster.start();
    cluster.create("pool", one("web:1")).await;
    cluster.ready("pool").await;
    assert_eq!(cluster.cpus("pool").0, "none");
    assert!(!cluster.state_file().exists() && !cluster.linux.calls().contains(&Operation::SetCpus));
}

#[tokio::test]
async fn nothing_reserved_stops_the_start() {
    let mut cluster = pinning().await;
    cluster.config.reserved = (0, 0);
    cluster.config.cpu_manager.reserved_cpus = CpuSet::default();
    let nothing = "CPU manager: [cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero";
    assert_eq!(cluster.start_error().await, nothing);
    assert!(!cluster.state_file().exists());
    cluster.config.reserved = (5_000, 0);
    assert!(cluster.start_error().await.starts_with("invalid Node Allocatable configuration."));
    cluster.config.reserved = (1_000, 0);
    cluster.config.cpu_manager.policy = CpuManagerPolicy::None;
    cluster.config.cpu_manager.options = "full-pcpus-only=true".parse().expect("an option");
    assert_eq!(cluster.start_error().await, "CPU manager: None policy: received unsupported options=map[full-pcpus-only:true]");
}

#[tokio::test]
async fn what_others_changed_is_set_again() {
    let mut cluster = pinning().await;
    cluster.config.cpu_manager.reconcile_period = Duration::from_millis(20);
    let _agent = cluster.start();
    cluster.create("own", guaranteed("web:1", "1")).await;
    cluster.ready("own").await;
    let id = cluster.linux.containers().pop().expect("a container");
    let runtime = FakeRuntime::new("runc", ContentKind::Linux, cluster.linux.clone());
    runtimes_contract::Runtime::set_cpus(&runtime, &id, "0-3").await.expect("set");
    cluster.has_cpus("own", "1").await;
    // A container that cannot be bound now is bound later.
    runtimes_contract::Runtime::set_cpus(&runtime, &id, "0-3").await.expect("set");
    let fault = || Fault::Error(runtimes_contract::RuntimeError::Start("no".to_owned()));
    cluster.linux.inject(Operation::SetCpus, [fault(), fault()]);
    cluster.has_cpus("own", "1").await;
}
