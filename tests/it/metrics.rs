//! What nodes and Pods use, by `kubectl top`, and a Deployment of a `wasi:http` component that is scaled by it: more replicas under
//! load, fewer after it. The metrics are the node's own; no metrics server is installed. While it waits: what takes its time, a client that
//! does not send its request, and Pods that cannot start.

mod waiting;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, Kubectl, eventually, eventually_within};

const OBJECTS: &str = include_str!("metrics/objects.yaml");
/// Applied when there are metrics: an autoscaler without metrics records so many events that its later ones are left out.
const AUTOSCALER: &str = include_str!("metrics/autoscaler.yaml");
/// Metrics are read every ten seconds, and a container counts after two readings.
const MEASURED_WITHIN: Duration = Duration::from_secs(120);
/// The autoscaler follows the metrics, which follow the load.
const SCALED_WITHIN: Duration = Duration::from_secs(180);
/// The load ends after so many requests, even if no autoscaler follows.
const REQUESTS_MAX: u64 = 1_000_000;

#[test]
fn a_loaded_web_server_is_measured_and_autoscaled() {
    let cluster = Cluster::up_with(&["--metric-resolution=10s", "--horizontal-pod-autoscaler-sync-period=1s"]);
    let kubectl = cluster.kubectl();
    kubectl.apply(OBJECTS).ok();
    kubectl.until_ready("two");
    kubectl.until("deployment/web", "/status/readyReplicas", 1);
    let silent = waiting::send_half_a_head(&cluster, &kubectl);
    nodes_are_measured(&kubectl);
    pods_are_measured(&kubectl);
    probes_are_counted(&kubectl);
    the_summary_is_whole(&kubectl);
    dashboards_find_their_families(&kubectl);
    only_readers_see_metrics(&kubectl);

    kubectl.apply(AUTOSCALER).ok();
    kubectl.ok("wait --for=condition=ScalingActive hpa/web --timeout=120s");
    assert_eq!(kubectl.field("deployment/web", "/spec/replicas"), 1, "nobody uses it: {}", kubectl.ok("describe hpa web"));
    let load = Load::start(&cluster, &kubectl);
    let without = waiting::cores_of(&cluster, || scaled(&kubectl, 3));
    describes(&kubectl, "cpu resource utilization (percentage of request) above target");
    waiting::until_pods_wait(&kubectl);
    let requests = load.stop();
    eprintln!("{requests} requests were answered");
    let with = waiting::cores_of(&cluster, || scaled(&kubectl, 1));
    describes(&kubectl, "All metrics below target");
    waiting::costs_no_cpu(without, with);
    waiting::a_head_has_its_time(silent);
}

/// Waits for an event of the autoscaler, which comes after the change.
fn describes(kubectl: &Kubectl<'_>, words: &str) {
    eventually(words, || {
        let text = kubectl.ok("describe hpa web");
        if text.contains(words) { Ok(()) } else { Err(text) }
    });
}

/// Waits by a watch, which costs the server next to nothing.
#[track_caller]
fn scaled(kubectl: &Kubectl<'_>, replicas: u32) {
    let ran = kubectl.run(&[
        "wait",
        &format!("--for=jsonpath={{.spec.replicas}}={replicas}"),
        "deployment/web",
        &format!("--timeout={}s", SCALED_WITHIN.as_secs()),
    ]);
    assert!(ran.succeeded(), "{ran}\n{}{}", kubectl.ok("describe hpa web"), kubectl.ok("top pods"));
}

/// The rows of a table, without its heads.
fn rows(table: &str) -> Vec<Vec<String>> {
    table.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn nodes_are_measured(kubectl: &Kubectl<'_>) {
    let top = eventually_within(MEASURED_WITHIN, "metrics of the node", || {
        let ran = kubectl.run(&["top", "nodes"]);
        if ran.succeeded() { Ok(ran.stdout) } else { Err(ran.to_string()) }
    });
    assert_eq!(
        top.lines().next().map(|line| line.split_whitespace().collect::<Vec<_>>()).unwrap_or_default(),
        ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"],
        "{top}"
    );
    let [row] = rows(&top).try_into().expect("one node");
    let (cpu, memory) = (row[1].strip_suffix('m').expect("millicores"), row[3].strip_suffix("Mi").expect("mebibytes"));
    assert!(cpu.parse::<u64>().is_ok_and(|cpu| cpu > 0) && memory.parse::<u64>().is_ok_and(|memory| memory > 10), "{top}");
    assert!(row[2].ends_with('%') && row[4].ends_with('%') && !top.contains("unknown"), "{top}");
    let listed = kubectl.ok("get nodes.metrics.k8s.io");
    assert_eq!(listed.split_whitespace().take(4).collect::<Vec<_>>(), ["NAME", "CPU", "MEMORY", "WINDOW"], "{listed}");
}

/// The one probe of the objects has succeeded, and attempts before the server was there have failed or did not happen.
fn probes_are_counted(kubectl: &Kubectl<'_>) {
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let text = kubectl.ok(&format!("get --raw /api/v1/nodes/{node}/proxy/metrics/probes"));
    let pod = kubectl.ok("get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    let labels = format!("container=\"web\",namespace=\"default\",pod=\"{pod}\"");
    let successful = |line: &&str| line.starts_with(&format!("prober_probe_total{{{labels},")) && line.contains("result=\"successful\"");
    let count = text.lines().find(successful).and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    let timed = format!("prober_probe_duration_seconds_count{{{labels},probe_type=\"Readiness\"}} ");
    let timed = text.lines().find_map(|line| line.strip_prefix(&timed)?.parse::<u64>().ok());
    assert!(count > Some(0) && count == timed, "{text}");
}

/// The kubelet's summary has every part, for the node and for a WASM Pod that has answered probes. Rates take two answers.
fn the_summary_is_whole(kubectl: &Kubectl<'_>) {
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let path = format!("get --raw /api/v1/nodes/{node}/proxy/stats/summary");
    let is_web = |pod: &&Value| pod["podRef"]["name"].as_str().is_some_and(|name| name.starts_with("web-"));
    eventually("a summary with every part", || {
        let summary: Value = serde_json::from_str(&kubectl.ok(&path)).expect("JSON");
        let pods = summary["pods"].as_array().expect("Pods");
        let pod = pods.iter().find(is_web).expect("the web server");
        let counts = |object: &Value, pointers: &[&str]| {
            let missing = pointers.iter().find(|pointer| object.pointer(pointer).and_then(Value::as_u64).is_none_or(|count| count == 0));
            missing.map_or(Ok(()), |pointer| Err(format!("{pointer}: {object:#}")))
        };
        let of_all =
            ["/cpu/usageNanoCores", "/cpu/usageCoreNanoSeconds", "/memory/availableBytes", "/memory/rssBytes", "/memory/pageFaults"];
        counts(&summary["node"], &of_all)?;
        counts(
            &summary["node"],
            &[
                "/fs/inodes",
                "/runtime/imageFs/capacityBytes",
                "/runtime/imageFs/usedBytes",
                "/rlimit/maxpid",
                "/systemContainers/1/memory/usageBytes",
            ],
        )?;
        counts(pod, &of_all)?;
        counts(pod, &["/network/rxBytes", "/network/txBytes", "/ephemeral-storage/usedBytes", "/process_stats/process_count"])?;
        counts(&pod["containers"][0], &of_all)?;
        counts(&pod["containers"][0], &["/rootfs/capacityBytes", "/logs/availableBytes"])
    });
    let cadvisor = kubectl.ok(&format!("get --raw /api/v1/nodes/{node}/proxy/metrics/cadvisor"));
    let received = cadvisor.lines().filter(|line| line.starts_with("container_network_receive_bytes_total{"));
    let of_web: Vec<&str> = received.filter(|line| line.contains("interface=\"eth0\"") && line.contains("pod=\"web-")).collect();
    assert_eq!(of_web.len(), 1, "{cadvisor}");
}

/// The series that kubernetes-mixin's dashboards and alerts for the kubelet read, with values that fit the three Pods: two that run,
/// with three containers, and one that never starts. What is on the disk is measured bit by bit.
fn dashboards_find_their_families(kubectl: &Kubectl<'_>) {
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    let path = format!("get --raw /api/v1/nodes/{node}/proxy/metrics");
    eventually("the families of dashboards", || {
        let text = kubectl.ok(&path);
        let value = |series: &str| text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<f64>().ok());
        let exact = [
            (format!("kubelet_node_name{{node=\"{node}\"}}"), 1.0),
            ("kubelet_running_pods".to_owned(), 3.0),
            ("kubelet_running_containers{container_state=\"running\"}".to_owned(), 3.0),
            ("kubelet_desired_pods{static=\"\"}".to_owned(), 3.0),
            ("kubelet_active_pods{static=\"\"}".to_owned(), 3.0),
            ("kubelet_mirror_pods".to_owned(), 0.0),
            ("kubelet_started_pods_total".to_owned(), 3.0),
            ("kubelet_started_pods_errors_total".to_owned(), 0.0),
            ("kubelet_pod_start_duration_seconds_count".to_owned(), 2.0),
            ("kubelet_pod_start_sli_duration_seconds_count".to_owned(), 2.0),
            ("kubelet_pod_worker_start_duration_seconds_count".to_owned(), 3.0),
        ];
        if let Some((series, wanted)) = exact.iter().find(|(series, wanted)| value(series) != Some(*wanted)) {
            return Err(format!("{series} is not {wanted}: {text}"));
        }
        let claim = "{namespace=\"default\",persistentvolumeclaim=\"data\"}";
        let positive = [
            "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"}",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"start_container\",le=\"+Inf\"}",
            "kubelet_pod_start_duration_seconds_bucket{le=\"+Inf\"}",
            "kubelet_pod_worker_duration_seconds_bucket{operation_type=\"create\",le=\"+Inf\"}",
            "kubelet_pod_status_sync_duration_seconds_count",
            "kubelet_started_containers_errors_total{code=\"ErrImageNeverPull\",container_type=\"container\"}",
            "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"metrics/resource\",server_type=\"readwrite\"}",
            "kubelet_certificate_manager_server_ttl_seconds",
            "process_resident_memory_bytes",
            "process_cpu_seconds_total",
        ];
        let stats = ["capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"];
        let stats = stats.map(|name| format!("kubelet_volume_stats_{name}{claim}"));
        let all = positive.into_iter().chain(stats.iter().map(String::as_str));
        match all.into_iter().find(|series| value(series).is_none_or(|value| value <= 0.0)) {
            Some(series) => Err(format!("{series} is missing: {text}")),
            None if text.contains("\ncontainer_cpu_usage_seconds_total{") => Err(format!("it is on other pages: {text}")),
            None => Ok(()),
        }
    });
}

/// WASM and Linux Pods, their containers, and a Pod without a container that runs.
fn pods_are_measured(kubectl: &Kubectl<'_>) {
    let measured = eventually_within(MEASURED_WITHIN, "metrics of both Pods", || {
        let top = kubectl.run(&["top", "pods", "--sort-by=cpu"]);
        let names: Vec<String> = rows(&top.stdout).into_iter().map(|row| row[0].clone()).collect();
        if names.len() == 2 && names[0] == "two" && names[1].starts_with("web-") { Ok(top.stdout) } else { Err(top.to_string()) }
    });
    for row in rows(&measured) {
        let memory = row[2].strip_suffix("Mi").expect("mebibytes");
        assert!(row[1].ends_with('m') && memory.parse::<u64>().is_ok_and(|memory| memory < 64), "{measured}");
    }
    let containers = kubectl.ok("top pods --containers -l app=two --sort-by=cpu");
    let of_two: Vec<[String; 2]> = rows(&containers).into_iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
    assert_eq!(of_two, [["two", "busy"], ["two", "idle"]].map(|row| row.map(str::to_owned)), "{containers}");
    let busy = rows(&containers)[0][2].trim_end_matches('m').parse::<u64>().expect("millicores");
    assert!((50..=150).contains(&busy), "its limit is a tenth of a CPU: {containers}");
    let everywhere = kubectl.ok("top pods -A --sort-by=memory");
    assert!(everywhere.starts_with("NAMESPACE") && rows(&everywhere).iter().all(|row| row[0] == "default"), "{everywhere}");
    let waits = kubectl.fails("top pod waits");
    assert!(waits.contains("Error from server (NotFound): podmetrics.metrics.k8s.io \"default/waits\" not found"), "{waits}");
    let none = kubectl.fails("top pod none");
    assert!(none.contains("Error from server (NotFound): pods \"none\" not found"), "{none}");
    let nothing = kubectl.run(&["top", "pods", "-n", "other"]);
    assert!(nothing.stderr.contains("No resources found in other namespace."), "{nothing}");
}

fn only_readers_see_metrics(kubectl: &Kubectl<'_>) {
    kubectl.ok("get pods.metrics.k8s.io -n other --as=jane");
    for words in ["top pods --as=jane", "top nodes --as=jane", "top pods -A --as=jane"] {
        let refused = kubectl.fails(words);
        assert!(refused.contains("User \"jane\" cannot list resource") && refused.contains("API group \"metrics.k8s.io\""), "{refused}");
    }
}

/// A client that sends one request after the other, at most `REQUESTS_MAX`.
struct Load {
    is_over: Arc<AtomicBool>,
    client: JoinHandle<u64>,
}

impl Load {
    fn start(cluster: &Cluster, kubectl: &Kubectl<'_>) -> Self {
        let ip = kubectl.ok("get service web -o jsonpath={.spec.clusterIP}");
        let address: SocketAddr = format!("{ip}:80").parse().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let client = cluster.net.enter(move || {
            let mut answered = 0;
            while !ends.load(Ordering::SeqCst) && answered < REQUESTS_MAX {
                answered += requests(address, &ends);
            }
            answered
        });
        Self { is_over, client }
    }

    /// Ends the load; returns how many requests were answered.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        let answered = self.client.join().expect("no panic");
        assert!(answered > 0);
        answered
    }
}

/// Sends some requests over one connection, so that the next connection may reach another replica.
fn requests(address: SocketAddr, ends: &AtomicBool) -> u64 {
    let mut stream = eventually("a connection to the Service", || {
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(|error| error.to_string())
    });
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let mut answered = 0;
    let mut buffer = [0; 4_096];
    while answered < 500 && !ends.load(Ordering::SeqCst) {
        if stream.write_all(b"GET /load HTTP/1.1\r\nhost: web\r\n\r\n").is_err() {
            break;
        }
        let mut answer = Vec::new();
        while !answer.windows(6).any(|bytes| bytes == b"/load\n") {
            match stream.read(&mut buffer) {
                // The replica has ended.
                Ok(0) | Err(_) => return answered,
                Ok(len) => answer.extend_from_slice(&buffer[..len]),
            }
        }
        answered += 1;
    }
    answered
}
