//! Pods that the node gets rid of.

use super::kubelet_metrics::{scrape, value};
use super::*;
use crate::Thresholds;

const VOLUME: &str = "volumes/kubernetes.io~empty-dir/v";

fn failed(status: &Value) -> bool {
    status["phase"] == "Failed"
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
    let nodes: Api<ApiNode> = Api::all(cluster.client.clone());
    let node = serde_json::to_value(nodes.get(NODE).await.expect("the node").status).expect("JSON");
    let of_node = |name: &str| {
        let found = node["conditions"].as_array().and_then(|all| all.iter().find(|one| one["type"] == name)).cloned().unwrap_or_default();
        (found["status"].clone(), found["reason"].clone(), found["message"].clone())
    };
    let short = (json!("True"), json!("KubeletHasInsufficientMemory"), json!("kubelet has insufficient memory available"));
    assert_eq!(of_node("MemoryPressure"), short);
    assert_eq!(of_node("DiskPressure").1, "KubeletHasNoDiskPressure");

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
