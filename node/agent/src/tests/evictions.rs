//! Pods that the node gets rid of.

use std::os::unix::fs::MetadataExt;

use super::kubelet_metrics::{scrape, scraped, value};
use super::*;
use crate::Thresholds;

const VOLUME: &str = "volumes/kubernetes.io~empty-dir/v";

fn failed(status: &Value) -> bool {
    status["phase"] == "Failed"
}

/// What the kernel says of a machine with a GiB of memory and a thousand process ids.
struct Kernel(PathBuf);

impl Kernel {
    const PLENTY: u64 = 500;

    /// The agent's machine has enough of all.
    fn of(cluster: &mut Cluster) -> Self {
        let kernel = Self(cluster.data.path().join("proc"));
        std::fs::create_dir_all(kernel.0.join("sys/kernel")).expect("made");
        std::fs::write(kernel.0.join("sys/kernel/pid_max"), "1000\n").expect("written");
        kernel.has_memory(Self::PLENTY);
        kernel.has_process_ids(Self::PLENTY);
        cluster.config.proc_dir.clone_from(&kernel.0);
        cluster.config.eviction_pressure_transition_period = Duration::ZERO;
        cluster.config.eviction_monitoring_period = Duration::from_millis(100);
        kernel
    }

    fn has_memory(&self, mebibytes: u64) {
        self.write("meminfo", &format!("MemTotal: 1048576 kB\nMemAvailable: {} kB\n", mebibytes << 10));
    }

    fn has_process_ids(&self, free: u64) {
        self.write("loadavg", &format!("0.00 0.00 0.00 1/{} 4242\n", 1_000 - free));
    }

    /// A reader sees the old text or the new one.
    fn write(&self, name: &str, text: &str) {
        let next = self.0.join("next");
        std::fs::write(&next, text).expect("written");
        std::fs::rename(next, self.0.join(name)).expect("renamed");
    }
}

fn greedy() -> Value {
    json!({"containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"memory": "1Ki"}}}]})
}

/// A cluster whose node has less memory than it should.
async fn pressed() -> (Cluster, Running) {
    let mut cluster = Cluster::new(Script::default().containers(|_| runtimes_fake::Behaviour::IgnoreTerm)).await;
    cluster.config.eviction_thresholds = "memory.available<1Ei".parse().expect("a threshold");
    cluster.config.eviction_monitoring_period = Duration::from_millis(100);
    let agent = cluster.start();
    cluster.node_ready().await;
    (cluster, agent)
}

#[tokio::test]
async fn a_node_under_pressure_says_so_and_evicts() {
    let (cluster, agent) = pressed().await;
    let short = ["True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"];
    assert_eq!(cluster.node_condition("MemoryPressure").await, short);
    assert_eq!(cluster.node_condition("DiskPressure").await[1], "KubeletHasNoDiskPressure");

    let mut critical = greedy();
    critical["priorityClassName"] = json!("system-node-critical");
    cluster.create("critical", critical).await;
    cluster.ready("critical").await;
    let started = std::time::Instant::now();
    cluster.create("greedy", greedy()).await;
    let status = cluster.status("greedy", "Failed", failed).await;
    // It does not hear SIGTERM, and its grace period is 30 s.
    assert!(started.elapsed() < Duration::from_secs(15), "took {:?}", started.elapsed());
    assert_eq!(status["reason"], "Evicted");
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: 1Ei, available: "), "{message}");
    assert!(message.ends_with("Container c was using 1Mi, request is 1Ki, has larger consumption of memory. "), "{message}");
    let target = status["conditions"].as_array().and_then(|all| all.iter().find(|one| one["type"] == "DisruptionTarget"));
    let target = target.expect("it was disrupted");
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (&json!("True"), &json!("TerminationByKubelet"), &json!(message))
    );
    cluster.event("greedy", "Evicted: The node was low on resource: memory. ").await;
    let text = scrape(&cluster).await;
    assert_eq!(value(&text, "kubelet_evictions{eviction_signal=\"memory.available\"}"), Some(1), "{text}");
    cluster.event(NODE, "EvictionThresholdMet: Attempting to reclaim memory").await;
    assert_eq!(condition(&cluster.ready("critical").await, "DisruptionTarget"), "", "what the system needs stays");
    agent.stop().await;
}

#[tokio::test]
async fn under_memory_pressure_only_pods_with_requests_are_taken_in() {
    let (cluster, _agent) = pressed().await;
    cluster.create("effortless", one("web:1")).await;
    let status = cluster.status("effortless", "Failed", failed).await;
    assert_eq!(
        (status["reason"].as_str(), status["message"].as_str()),
        (Some("Evicted"), Some("Pod was rejected: The node had condition: [MemoryPressure]. "))
    );
    assert_eq!(status["containerStatuses"], Value::Null);
    let text = scrape(&cluster).await;
    assert_eq!(value(&text, "kubelet_admission_rejections_total{reason=\"Evicted\"}"), Some(1), "{text}");
    let asks = json!({"containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"memory": "2Mi"}}}]});
    cluster.create("asks", asks).await;
    // It was taken in, and has to go as soon as it runs.
    let status = cluster.status("asks", "Failed", failed).await;
    assert_eq!(status["containerStatuses"][0]["name"], "c", "{status}");
}

#[tokio::test]
async fn a_full_disk_costs_the_logs_of_pods_that_are_over() {
    let mut cluster = Cluster::new(Script::default().containers(|spec| match spec.labels.values().any(|label| label == "ends") {
        true => runtimes_fake::Behaviour::Exit { after: Duration::from_millis(20), code: 0 },
        false => runtimes_fake::Behaviour::Run,
    }))
    .await;
    cluster.config.eviction_thresholds = "nodefs.available<1Ei".parse().expect("a threshold");
    cluster.config.eviction_monitoring_period = Duration::from_millis(100);
    let agent = cluster.start();
    cluster.node_ready().await;
    // Under pressure nothing but what the system needs is taken in.
    for name in ["ends", "runs"] {
        let mut spec = one("web:1");
        (spec["priorityClassName"], spec["restartPolicy"]) = (json!("system-node-critical"), json!("Never"));
        cluster.create(name, spec).await;
    }
    cluster.ready("runs").await;
    cluster.status("ends", "Succeeded", |status| status["phase"] == "Succeeded").await;
    let logs = || {
        let found = std::fs::read_dir(cluster.data.path().join("pods")).expect("logs").flatten();
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    until("its logs are gone", async || logs().len() == 1).await;
    assert!(logs()[0].starts_with("default_runs_"), "{:?}", logs());
    cluster.event(NODE, "EvictionThresholdMet: Attempting to reclaim ephemeral-storage").await;
    agent.stop().await;
}

#[tokio::test]
async fn a_volume_over_its_limit_takes_its_pod_along_and_nobody_else() {
    let mut cluster = Cluster::new(Script::default()).await;
    cluster.config.eviction_monitoring_period = Duration::from_millis(100);
    let agent = cluster.start();
    cluster.node_ready().await;
    let with = |limit: &str| {
        let container = json!({"name": "c", "image": "web:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": limit}}], "containers": [container]})
    };
    let mut volumes = Vec::new();
    for (name, limit) in [("over", "1Mi"), ("within", "4Mi")] {
        let uid = cluster.create(name, with(limit)).await.metadata.uid.expect("a UID");
        cluster.ready(name).await;
        volumes.push(cluster.data.path().join("kubelet/pods").join(uid).join(VOLUME));
    }
    for volume in &volumes {
        std::fs::write(volume.join("file"), vec![1; 2 << 20]).expect("written");
    }
    let status = cluster.status("over", "Failed", failed).await;
    let words = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    assert_eq!((status["reason"].as_str(), status["message"].as_str()), (Some("Evicted"), Some(words)));
    assert_eq!(condition(&status, "DisruptionTarget"), "", "as upstream: nobody but the Pod itself is the cause");
    cluster.event("over", "Evicted: Usage of EmptyDir volume").await;
    until("its volume and logs are freed", async || {
        let logs = std::fs::read_dir(cluster.data.path().join("pods")).expect("logs").flatten();
        !volumes[0].exists() && logs.count() == 1
    })
    .await;
    assert!(volumes[1].join("file").exists());
    cluster.ready("within").await;
    agent.stop().await;
}

/// A cluster whose node has less memory than it should for a second, and then evicts gently.
async fn softly_pressed(grace_period_max: i64, script: Script) -> (Cluster, Running) {
    let mut cluster = Cluster::new(script).await;
    let (amounts, periods) = ("memory.available<1Ei".parse().expect("amounts"), "memory.available=1s".parse().expect("periods"));
    let none: Thresholds = "".parse().expect("no thresholds");
    cluster.config.eviction_thresholds = none.with_soft(amounts, &periods).expect("thresholds");
    cluster.config.eviction_pod_grace_period_max = grace_period_max;
    cluster.config.eviction_monitoring_period = Duration::from_millis(100);
    let dir = cluster.data.path().join("manifests");
    std::fs::create_dir(&dir).expect("made");
    let of_file = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-file"}, "spec": one("web:1")});
    std::fs::write(dir.join("pod.json"), of_file.to_string()).expect("written");
    cluster.config.pod_manifest_path = Some(dir);
    let agent = cluster.start();
    cluster.node_ready().await;
    (cluster, agent)
}

fn patient() -> Value {
    let mut spec = greedy();
    spec["terminationGracePeriodSeconds"] = json!(600);
    spec
}

#[tokio::test]
async fn a_pod_has_time_to_end_when_a_soft_threshold_is_met() {
    for (grace_period_max, behaviour, code) in
        [(i64::MAX, runtimes_fake::Behaviour::Run, 143), (1, runtimes_fake::Behaviour::IgnoreTerm, 137)]
    {
        let (cluster, agent) = softly_pressed(grace_period_max, Script::default().containers(move |_| behaviour.clone())).await;
        cluster.create("greedy", patient()).await;
        let status = cluster.status("greedy", "Failed", failed).await;
        let found = (&status["reason"], &status["containerStatuses"][0]["state"]["terminated"]["exitCode"]);
        assert_eq!(found, (&json!("Evicted"), &json!(code)), "{status:#}");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: 1Ei, available: "), "{message}");
        assert_eq!(condition(&status, "DisruptionTarget"), "True");
        // As upstream, no eviction ends a static Pod, and no shortage keeps it from running.
        assert_eq!(condition(&cluster.ready("of-file-n1").await, "DisruptionTarget"), "");
        agent.stop().await;
    }
}

#[tokio::test]
async fn one_pod_at_a_time_is_evicted_for_a_soft_threshold() {
    let (cluster, agent) = softly_pressed(i64::MAX, Script::default().containers(|_| runtimes_fake::Behaviour::IgnoreTerm)).await;
    for name in ["first", "second"] {
        cluster.create(name, patient()).await;
    }
    let evicted = async || {
        let of = async |name| cluster.events(name).await.iter().any(|event| event.starts_with("Evicted"));
        [of("first").await, of("second").await]
    };
    until("one is evicted", async || evicted().await.contains(&true)).await;
    let ending = if evicted().await[0] { ["first", "second"] } else { ["second", "first"] };
    // A user may be less patient. Then it is the other one's turn.
    cluster.delete(ending[0], 1).await;
    until("it is gone", async || {
        assert!(!evicted().await.iter().all(|evicted| *evicted), "the other one is not evicted meanwhile");
        cluster.pods().get_opt(ending[0]).await.expect("an answer").is_none()
    })
    .await;
    cluster.event(ending[1], "Evicted: The node was low on resource: memory. ").await;
    agent.kill().await;
}

#[tokio::test]
async fn a_node_short_of_process_ids_says_so_and_evicts() {
    let mut cluster = Cluster::new(Script::default()).await;
    let kernel = Kernel::of(&mut cluster);
    cluster.config.eviction_thresholds = "pid.available<100".parse().expect("a threshold");
    let agent = cluster.start();
    cluster.node_ready().await;
    assert_eq!(cluster.node_condition("PIDPressure").await[1], "KubeletHasSufficientPID");
    let mut critical = one("web:1");
    critical["priorityClassName"] = json!("system-node-critical");
    for (name, spec) in [("forks", one("web:1")), ("critical", critical)] {
        cluster.create(name, spec).await;
        cluster.ready(name).await;
    }
    kernel.has_process_ids(3);
    let status = cluster.status("forks", "Failed", failed).await;
    let message = "The node was low on resource: pids. Threshold quantity: 100, available: 3. ";
    assert_eq!((status["reason"].as_str(), status["message"].as_str()), (Some("Evicted"), Some(message)));
    assert_eq!(condition(&status, "DisruptionTarget"), "True");
    cluster.event("forks", &format!("Evicted: {}", message.trim_end())).await;
    cluster.event(NODE, "EvictionThresholdMet: Attempting to reclaim pids").await;
    let short = ["True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"];
    until("the node says so", async || cluster.node_condition("PIDPressure").await == short).await;
    let text = scrape(&cluster).await;
    assert_eq!(value(&text, "kubelet_evictions{eviction_signal=\"pid.available\"}"), Some(1), "{text}");

    // It asks for memory, which is not short.
    cluster.create("late", greedy()).await;
    let status = cluster.status("late", "Failed", failed).await;
    assert_eq!(status["message"], "Pod was rejected: The node had condition: [PIDPressure]. ");
    kernel.has_process_ids(100);
    until("there are enough", async || cluster.node_condition("PIDPressure").await[1] == "KubeletHasSufficientPID").await;
    cluster.create("later", greedy()).await;
    for name in ["later", "critical"] {
        assert_eq!(condition(&cluster.ready(name).await, "DisruptionTarget"), "");
    }
    agent.stop().await;
}

#[tokio::test]
async fn evictions_go_on_until_the_minimum_reclaim_is_free() {
    let mut cluster = Cluster::new(Script::default()).await;
    let kernel = Kernel::of(&mut cluster);
    let thresholds: Thresholds = "memory.available<100Mi".parse().expect("a threshold");
    cluster.config.eviction_thresholds = thresholds.with_minimum_reclaim("memory.available=50Mi".parse().expect("an amount"));
    let agent = cluster.start();
    cluster.node_ready().await;
    // Less than both together, but the threshold is not met.
    kernel.has_memory(149);
    cluster.create("first", greedy()).await;
    cluster.ready("first").await;
    for (name, available) in [("first", 99), ("second", 149)] {
        kernel.has_memory(available);
        if name != "first" {
            cluster.create(name, greedy()).await;
        }
        let status = cluster.status(name, "Failed", failed).await;
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        let wanted = format!("The node was low on resource: memory. Threshold quantity: 100Mi, available: {available}Mi. ");
        assert!(message.starts_with(&wanted), "{name}: {message}");
        until("the node says so", async || cluster.node_condition("MemoryPressure").await[0] == "True").await;
    }
    kernel.has_memory(150);
    until("the pressure is over", async || cluster.node_condition("MemoryPressure").await[0] == "False").await;
    cluster.create("third", greedy()).await;
    cluster.ready("third").await;
    let text = scrape(&cluster).await;
    assert_eq!(value(&text, "kubelet_evictions{eviction_signal=\"memory.available\"}"), Some(2), "{text}");
    agent.stop().await;
}

/// A directory of another file system than this one's.
fn another_disk(dir: &Path) -> PathBuf {
    let device = |dir: &Path| std::fs::metadata(dir).map(|of| of.dev()).ok();
    let mut others = ["/dev/shm", "/var/tmp", "/"].into_iter().map(Path::new);
    others.find(|other| device(other).is_some_and(|of| Some(of) != device(dir))).expect("two file systems").to_owned()
}

/// Images on the node's disk, or on one of their own, whose shortage costs no logs.
#[tokio::test]
async fn a_full_disk_of_images_costs_unused_images_and_then_a_pod() {
    for is_dedicated in [false, true] {
        let mut cluster = Cluster::new(Script::default().containers(|spec| match spec.labels.values().any(|label| label == "ends") {
            true => runtimes_fake::Behaviour::Exit { after: Duration::from_millis(20), code: 0 },
            false => runtimes_fake::Behaviour::Run,
        }))
        .await;
        let data = cluster.data.path().to_owned();
        let dir = if is_dedicated { another_disk(&data) } else { data };
        *cluster.images.dir.lock() = Some(dir);
        let agent = cluster.start();
        cluster.node_ready().await;
        for name in ["ends", "runs"] {
            let mut spec = one("web:1");
            spec["restartPolicy"] = json!("Never");
            cluster.create(name, spec).await;
        }
        cluster.ready("runs").await;
        cluster.status("ends", "Succeeded", |status| status["phase"] == "Succeeded").await;
        agent.stop().await;

        cluster.config.eviction_thresholds = "imagefs.available<1Ei".parse().expect("a threshold");
        cluster.config.eviction_monitoring_period = Duration::from_millis(100);
        let agent = cluster.start();
        let status = cluster.status("runs", "Failed", failed).await;
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        let wanted = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Ei, available: ";
        assert!(status["reason"] == "Evicted" && message.starts_with(wanted), "{status:#}");
        assert!(cluster.images.purges.load(Ordering::SeqCst) > 0, "unused images went first");
        let has_logs = || {
            let logs = std::fs::read_dir(cluster.data.path().join("pods")).expect("logs").flatten();
            logs.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|name| name.starts_with("default_ends_"))
        };
        until("logs go if they are on the node's disk", async || has_logs() == is_dedicated).await;
        let short = ["True", "KubeletHasDiskPressure", "kubelet has disk pressure"];
        until("the node says so", async || cluster.node_condition("DiskPressure").await == short).await;
        let series = "kubelet_evictions{eviction_signal=\"imagefs.available\"}";
        scraped(&cluster, "the eviction", |text| value(text, series) == Some(1)).await;
        agent.stop().await;
    }
}
