//! Debian's Prometheus with the account and the configuration of docs/monitoring.md: it scrapes all that the page names, and answers
//! what dashboards query.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, eventually_within};

const PAGE: &str = include_str!("../../docs/monitoring.md");
/// Where the page puts its files.
const ON_THE_PAGE: &str = "/etc/prometheus/skiff-";
/// Time for two scrapes of all targets, which are at odd times of the interval.
const SCRAPED_WITHIN: Duration = Duration::from_secs(90);

/// Pods with all that the queries need.
const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      runtimeClassName: wasmtime
      containers:
        - name: web
          image: samples/web:latest
          imagePullPolicy: Never
          ports: [{containerPort: 8080}]
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
          resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: tools}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: tools, image: "samples/tools:latest", imagePullPolicy: Never, command: [sleep, "1000000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec: {containers: [{name: waits, image: "samples/absent:latest", imagePullPolicy: Never}]}
"#;

/// Queries in the manner of kubernetes-mixin, each with its result.
const QUERIES: &[(&str, &str)] = &[
    ("count(up == 1)", "6"),
    ("sum(kube_pod_status_phase{phase=\"Running\", namespace=\"default\"})", "3"),
    ("kube_deployment_status_replicas_available{namespace=\"default\", deployment=\"web\"}", "2"),
    ("sum(kube_pod_container_resource_requests{resource=\"cpu\", unit=\"core\", namespace=\"default\"})", "0.1"),
    ("sum(kube_pod_container_status_waiting_reason{reason=\"ErrImageNeverPull\", pod=\"waits\"})", "1"),
    ("sum(kube_node_status_condition{condition=\"Ready\", status=\"true\"})", "1"),
    ("sum(kubelet_running_pods{job=\"kubelet\", metrics_path=\"/metrics\"})", "4"),
    ("count(apiserver_request_total{job=\"apiserver\", resource=\"pods\", verb=\"LIST\"}) > bool 0", "1"),
    // The working set of each Pod of the Deployment, by way of the Pods' owners, as in the dashboards of workloads.
    (
        "count(sum by (namespace, pod) (container_memory_working_set_bytes{job=\"kubelet\", metrics_path=\"/metrics/cadvisor\", \
         container=\"web\"}) * on (namespace, pod) group_left (owner_kind) kube_pod_owner{owner_kind=\"ReplicaSet\"} > 100000)",
        "2",
    ),
    ("count(container_start_time_seconds{metrics_path=\"/metrics/resource\", namespace=\"default\"})", "3"),
    ("count(sum by (pod) (prober_probe_total{probe_type=\"Readiness\", result=\"successful\", container=\"web\"}) > 0)", "2"),
];

#[test]
fn prometheus_scrapes_a_cluster_as_the_page_says() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    let work = tempfile::tempdir().expect("a directory");
    let (account, configuration) = (block(0), block(1));
    kubectl.apply(account).ok();
    kubectl.until_usable("default");
    kubectl.apply(WORKLOADS).ok();
    kubectl.ok("rollout status deployment/web --timeout=60s");
    kubectl.until_ready("tools");
    for command in PAGE.lines().filter_map(|line| line.strip_prefix("# kubectl ")) {
        let (command, file) = command.split_once(" > ").expect("a command with a file");
        let output = kubectl.ok(&command.replace('\'', ""));
        fs::write(work.path().join(file.strip_prefix(ON_THE_PAGE).expect("a file of Prometheus")), output.trim()).expect("written");
    }
    let here = format!("{}/", work.path().display());
    let configuration = configuration.replace(ON_THE_PAGE, &here).replace("SERVER", &cluster.net.ip);
    let configuration = configuration.replace("NODE", &cluster.net.ip).replace("30s", "2s");
    fs::write(work.path().join("prometheus.yml"), configuration).expect("written");
    let prometheus = Prometheus::start(&cluster, &here);
    for (query, wanted) in QUERIES {
        eventually_within(SCRAPED_WITHIN, query, || {
            let value = prometheus.query(query)?;
            if value == *wanted { Ok(()) } else { Err(format!("{value:?}, not {wanted:?}\n{}", prometheus.targets())) }
        });
    }
}

/// A block of YAML of the page.
fn block(number: usize) -> &'static str {
    let block = PAGE.split("```yaml\n").nth(number + 1).expect("a block");
    block.split("```").next().expect("its end")
}

/// Prometheus in the cluster's namespace, until dropped.
struct Prometheus<'a> {
    cluster: &'a Cluster,
    log: String,
    child: Child,
}

impl<'a> Prometheus<'a> {
    fn start(cluster: &'a Cluster, dir: &str) -> Self {
        let log = format!("{dir}log");
        let errors = fs::File::create(&log).expect("a file");
        let mut command = cluster.net.command("prometheus");
        command.args([format!("--config.file={dir}prometheus.yml"), format!("--storage.tsdb.path={dir}data")]);
        command.arg("--web.listen-address=127.0.0.1:9090").stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        Self { cluster, log, child: command.spawn().expect("prometheus (Debian's prometheus) starts") }
    }

    fn get(&self, path: &str, query: &[&str]) -> Value {
        let url = format!("http://127.0.0.1:9090/api/v1/{path}");
        let answer = self.cluster.net.run("curl", &[&["-sSG", "--max-time", "10", &url], query].concat());
        serde_json::from_str(&answer.stdout).unwrap_or_default()
    }

    /// The only value of a query's result.
    fn query(&self, query: &str) -> Result<String, String> {
        let answer = self.get("query", &["--data-urlencode", &format!("query={query}")]);
        let value = answer.pointer("/data/result/0/value/1").and_then(Value::as_str);
        value.map(str::to_owned).ok_or_else(|| format!("{answer}\n{}{}", self.targets(), self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What Prometheus scrapes, and what went wrong.
    fn targets(&self) -> String {
        let targets = self.get("targets", &[]);
        let active = targets["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
        active.iter().map(|target| format!("{} {} {}\n", target["scrapeUrl"], target["health"], target["lastError"])).collect()
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        // The kill fails if Prometheus has ended already. Wait for its end in both cases.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
