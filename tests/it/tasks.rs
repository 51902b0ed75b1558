//! No background task fails silently: the story makes each task fail, while a Pod runs. The process names the task and
//! ends with an error within a second. The next start continues everything.

use std::time::Duration;

use tests::tasks::{OF_A_SHARED_STORE, OF_UP};
use tests::{Cluster, Etcd, Net, eventually};

/// One second, and more for a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Tasks that may start after the cluster is ready, and how long they may take. Controllers wait for their caches. The
/// Node object of before the restart is still Ready while the agent takes over its containers. The fault waits for the
/// task.
const LATE: [&str; 3] = ["garbage-collector-controller", "namespace-controller", "node-agent/"];
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Names that several tasks of the process share: a fault hits all of them.
const SEVERAL: [&str; 2] = ["event-recorder", "informer"];

/// The lines of the log after an earlier length.
fn logged_since(cluster: &Cluster, len: usize) -> String {
    cluster.log().split_off(len)
}

/// Makes a task fail. The log must name the task once, and the process must end with an error.
fn fails(cluster: &mut Cluster, fault: &str, task: &str) {
    let len = cluster.log().len();
    let what = format!("the end of skiff after {fault} of {task}");
    cluster.inject(fault, task);
    let limit = if LATE.iter().any(|late| task.starts_with(late)) { BEGINS_WITHIN } else { ENDS_WITHIN };
    let code = cluster.ended_within(limit, &what);
    let log = logged_since(cluster, len);
    assert_eq!(code, 1, "{fault} of {task}:\n{log}");
    let named = format!("task=\"{task}\"");
    let said: Vec<&str> = log.lines().filter(|line| line.contains("ERROR") && line.contains(&named)).collect();
    let words = if fault == "panic" { "panicked" } else { "ended by itself" };
    let times = if SEVERAL.contains(&task) { said.len().max(1) } else { 1 };
    assert_eq!(said.iter().filter(|line| line.contains(words)).count(), times, "{fault} of {task} is said once:\n{log}");
    // Other threads run until the process has ended, so they may log after the final error.
    let last: Vec<&str> = log.lines().filter(|line| line.starts_with("skiff: ")).collect();
    assert!(last.len() == 1 && last[0].contains(task), "the last words name {task}:\n{log}");
}

#[test]
fn a_task_that_fails_ends_the_process_and_the_next_start_goes_on() {
    // Without the flags, the manifests of static Pods, the CPUs of containers and a shutdown of the machine have no task.
    let flags = ["--pod-manifest-path=/nonexistent/manifests", "--cpu-manager-policy=static", "--reserved-cpus=0"];
    let mut cluster = Cluster::prepared(Net::alone(), &[&["up", "--shutdown-grace-period=10s"][..], &flags].concat());
    // Not the bus of this machine.
    cluster.set_env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus".into());
    cluster.take_faults();
    cluster.start();
    cluster.load_samples();
    cluster.kubectl().ok("apply -f samples/quickstart/tools.yaml");
    cluster.kubectl().until_ready("tools");
    let (before, shims) = (container(&cluster), cluster.shims());
    for (number, task) in OF_UP.iter().enumerate() {
        // Both kinds of failure must have the same effect.
        let fault = if number % 5 == 4 { "end" } else { "panic" };
        fails(&mut cluster, fault, task);
        assert_eq!(cluster.shims(), shims, "containers go on after {fault} of {task}");
        cluster.start();
    }
    cluster.kubectl().until_ready("tools");
    assert_eq!(container(&cluster), before);
    assert_eq!(cluster.stop(), 0, "{}", cluster.log());
}

/// The id of the container, and the number of its restarts.
fn container(cluster: &Cluster) -> (serde_json::Value, serde_json::Value) {
    let pod = cluster.kubectl().json("get pod tools");
    let status = &pod["status"]["containerStatuses"][0];
    (status["containerID"].clone(), status["restartCount"].clone())
}

#[test]
fn tasks_of_a_server_on_a_shared_store_fail_alike() {
    let net = Net::alone();
    let etcd = Etcd::cluster(&net, 1);
    let servers = format!("--etcd-servers={}", Etcd::urls(&etcd));
    let mut server = Cluster::prepared(net.shared(), &["server", &servers]);
    server.take_faults();
    for task in OF_A_SHARED_STORE {
        server.start();
        fails(&mut server, "panic", task);
    }
}

#[test]
fn what_belongs_to_one_request_or_one_pod_fails_alone() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.take_faults();
    cluster.start();
    cluster.load_samples();
    cluster.kubectl().ok("apply -f samples/quickstart/tools.yaml");
    cluster.kubectl().until_ready("tools");
    let before = container(&cluster);
    for task in ["node-agent/pod-worker", "node-agent/status-writer", "node-agent/pod-wait"] {
        let named = format!("task=\"{task}\"");
        // The worker that failed before is replaced only after a pause.
        eventually(&format!("the panic of {task} in the log"), || {
            cluster.inject("panic", task);
            let log = cluster.log();
            if log.lines().any(|line| line.contains(&named) && line.contains("panicked")) { Ok(()) } else { Err(log) }
        });
        let metrics = cluster.kubectl().ok("get --raw /metrics");
        let counted = format!("skiff_task_failures_total{{reason=\"panic\",task=\"{task}\"}} ");
        assert!(metrics.lines().any(|line| line.starts_with(&counted)), "{counted} in\n{metrics}");
    }
    assert!(cluster.is_running());
    // A new worker has taken over the running container and handles its end.
    cluster.kubectl().ok("exec tools -- true");
    assert_eq!(container(&cluster), before, "the container is the same");
    cluster.kubectl().ok("delete pod tools --grace-period=1 --timeout=60s");
    for path in ["healthz", "livez", "readyz"] {
        assert_eq!(cluster.net.run("curl", &["-s", &format!("http://127.0.0.1:10248/{path}")]).ok(), "ok", "{path}");
    }
    assert_eq!(cluster.stop(), 0, "{}", cluster.log());
    let log = cluster.log();
    assert!(!log.contains('\u{1b}'), "colours for nobody:\n{log}");
    assert!(!log.contains("Status {"), "an answer of the API server as a dump:\n{log}");
    let is_whole = |line: &str| line.starts_with("20") || line.starts_with("skiff: ");
    assert!(log.lines().all(is_whole), "an event is one line:\n{log}");
}

#[test]
fn a_log_in_json_is_json_to_the_last_word() {
    let mut server = Cluster::prepared(Net::alone(), &["server", "--log-format=json"]);
    server.take_faults();
    server.start();
    server.inject("panic", "api-server/aggregation");
    assert_eq!(server.ended_within(ENDS_WITHIN, "the end of skiff"), 1);
    let log = server.log();
    let events: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    assert!(events.iter().all(|event| event["level"].is_string()), "{log}");
    let panicked = events.iter().find(|event| event["message"] == "panicked").unwrap_or_else(|| panic!("{log}"));
    assert_eq!(panicked["task"], "api-server/aggregation");
    let ends =
        |event: &serde_json::Value| event["message"].as_str().is_some_and(|text| text.contains("task api-server/aggregation panicked"));
    assert!(events.iter().any(ends), "the last words:\n{log}");
}
