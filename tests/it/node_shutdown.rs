//! A machine that shuts down, with the real logind: the machine waits until the Pods have ended, in the order of their priorities.

use tests::logind::Logind;
use tests::{Cluster, Kubectl, Net, eventually};

/// Two Pods that need time to end, one for each runtime, a critical one, a static one and a Deployment.
const WORKLOAD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: saves, labels: {app: saves}}
spec:
  terminationGracePeriodSeconds: 20
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'sleep 1; echo saved; exit 0' TERM; echo begun; while true; do sleep 0.1; done"]
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - {name: main, image: "samples/web:latest", imagePullPolicy: Never}
---
apiVersion: v1
kind: Pod
metadata: {name: critical}
spec:
  priorityClassName: system-node-critical
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: site}
spec:
  selector: {matchLabels: {app: site}}
  template:
    metadata: {labels: {app: site}}
    spec:
      containers:
        - {name: main, image: "samples/web:latest", imagePullPolicy: Never}
"#;

const STATIC: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: static}
spec:
  containers:
    - {name: main, image: "samples/web:latest", imagePullPolicy: Never}
"#;

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

#[test]
fn the_machine_waits_for_its_pods() {
    let (net, manifests) = (Net::alone(), tempfile::tempdir().unwrap());
    let mut logind = Logind::start();
    assert_eq!((logind.delay_max(), logind.locks()), (5, vec![]));
    std::fs::write(manifests.path().join("static.yaml"), STATIC).unwrap();
    let manifests = format!("--pod-manifest-path={}", manifests.path().display());
    let flags = ["up", "--node-name=n1", &manifests, "--shutdown-grace-period=30s", "--shutdown-grace-period-critical-pods=10s"];
    let mut cluster = Cluster::prepared(net, &flags);
    cluster.set_env("DBUS_SYSTEM_BUS_ADDRESS", logind.bus_address());
    cluster.start();
    cluster.load_samples();
    until_locked(&logind);
    assert_eq!(logind.delay_max(), 34, "the agent has extended it");
    cluster.kubectl().apply(WORKLOAD).ok();
    for pod in ["saves", "web", "critical", "static-n1"] {
        cluster.kubectl().until_ready(pod);
    }
    cluster.kubectl().ok("rollout status deployment site --timeout=60s");

    it_shuts_down(&cluster.kubectl(), &logind);
    it_starts_again(&mut cluster, &mut logind);
    it_stays_on(&cluster.kubectl(), &logind);

    cluster.stop();
    let settings = || std::fs::read_dir("/etc/systemd/logind.conf.d").unwrap().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let text = settings().into_iter().map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>();
    assert!(text.contains("InhibitDelayMaxSec=34"), "{text}");
    cluster.skiff(&["down"]).ok();
    assert_eq!(settings(), Vec::<std::path::PathBuf>::new());
}

fn until_locked(logind: &Logind) {
    eventually("a lock", || {
        let locks = logind.locks();
        if locks == ["skiff: shutdown delay"] { Ok(()) } else { Err(format!("{locks:?}")) }
    });
}

/// The time of a container's end.
fn finished_at(kubectl: &Kubectl<'_>, pod: &str) -> String {
    let at = kubectl.field(&format!("pod/{pod}"), "/status/containerStatuses/0/state/terminated/finishedAt");
    at.as_str().unwrap_or_else(|| panic!("{pod} runs")).to_owned()
}

fn it_shuts_down(kubectl: &Kubectl<'_>, logind: &Logind) {
    logind.power_off();
    eventually("systemd powers the machine off", || {
        if logind.started() == ["poweroff.target"] { Ok(()) } else { Err(kubectl.run(&["get", "pods"]).to_string()) }
    });
    // Everything was in the API by then, and nothing changes any more.
    for pod in ["saves", "web", "critical", "static-n1"] {
        let status = kubectl.field(&format!("pod/{pod}"), "/status");
        let found = [&status["phase"], &status["reason"], &status["message"]];
        assert_eq!(found, ["Failed", "Terminated", MESSAGE], "{pod}: {status:#}");
    }
    assert_eq!(kubectl.ok("logs saves"), "begun\nsaved\n");
    let [saves, critical] = ["saves", "critical"].map(|pod| finished_at(kubectl, pod));
    assert!(saves <= critical, "critical Pods are last: {saves}, {critical}");
    let described = kubectl.ok("describe node n1");
    assert!(described.contains("node is shutting down") && described.contains("Shutdown manager detected shutdown event"), "{described}");
    let late = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": {"nodeName": "n1", "containers": [
        {"name": "main", "image": "samples/web:latest", "imagePullPolicy": "Never"}]}}"#;
    kubectl.apply(late).ok();
    kubectl.until("pod/late", "/status/reason", "NodeShutdown");
}

/// What ran begins again as after any boot: static Pods and those of controllers.
fn it_starts_again(cluster: &mut Cluster, logind: &mut Logind) {
    cluster.lose_power();
    logind.start_again();
    assert_eq!((logind.delay_max(), logind.locks()), (34, vec![]), "its setting is kept");
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_ready("static-n1");
    kubectl.ok("wait --for=condition=Available deployment site --timeout=60s");
    assert_eq!(kubectl.field("pod/web", "/status/reason"), "Terminated", "nobody replaces it");
    until_locked(logind);
    let metrics = kubectl.ok("get --raw /api/v1/nodes/n1/proxy/metrics");
    let time = |which: &str| {
        let name = format!("kubelet_graceful_shutdown_{which}_time_seconds ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok()).unwrap_or_default()
    };
    assert!(time("start") > 1e9 && time("end") > time("start"), "{} {}", time("start"), time("end"));
}

/// A shutdown that does not take place: the node is ready again, and the next one waits too.
fn it_stays_on(kubectl: &Kubectl<'_>, logind: &Logind) {
    logind.power_off();
    eventually("systemd powers the machine off", || if logind.started().is_empty() { Err(String::new()) } else { Ok(()) });
    assert_eq!(logind.locks(), Vec::<String>::new());
    logind.cancel();
    kubectl.ok("wait --for=condition=Ready node n1 --timeout=60s");
    until_locked(logind);
    kubectl.ok("wait --for=condition=Available deployment site --timeout=60s");
}
