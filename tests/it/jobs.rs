//! The story of Jobs, with WASM Pods that really end: to completion, with indexes, to failure, from a CronJob, and across kills
//! of the whole process.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually_within};

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A Job whose Pods end with a code.
fn job(name: &str, code: &str, spec: &Value) -> String {
    let container = json!({"name": "c", "image": "samples/job:latest", "imagePullPolicy": "IfNotPresent", "args": [code]});
    let mut all = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
    spec.as_object().expect("fields").iter().for_each(|(key, value)| all[key] = value.clone());
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": all}).to_string()
}

#[test]
fn jobs_run_to_their_end_also_through_kills() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    cluster.load_samples();
    jobs_end(&cluster.kubectl());
    kills_lose_and_double_nothing(&mut cluster);
}

fn jobs_end(kubectl: &Kubectl<'_>) {
    kubectl.apply(&job("sum", "0", &json!({"completions": 3, "parallelism": 2}))).ok();
    kubectl.apply(&job("parts", "0", &json!({"completions": 10, "parallelism": 10, "completionMode": "Indexed"}))).ok();
    kubectl.apply(&job("bad", "4", &json!({"backoffLimit": 0}))).ok();
    kubectl.ok("wait --for=condition=complete job/sum job/parts --timeout=60s");
    kubectl.ok("wait --for=condition=failed job/bad --timeout=60s");
    assert_eq!(kubectl.field("job/sum", "/status/succeeded"), 3);
    assert_eq!(kubectl.field("job/parts", "/status/completedIndexes"), "0-9");
    assert_eq!(kubectl.field("job/bad", "/status/failed"), 1);
    let row = kubectl.ok("get job sum bad --no-headers");
    let rows: Vec<Vec<&str>> = row.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows, [["sum", "Complete", "3/3"], ["bad", "Failed", "0/1"]], "{row}");
    assert_eq!(kubectl.ok("logs job/bad"), "ending with code 4\n");
    let description = kubectl.ok("describe job bad");
    assert!(description.contains("BackoffLimitExceeded") && description.contains("SuccessfulCreate"), "{description}");

    let template: Value = serde_json::from_str(&job("tick", "0", &json!({}))).expect("JSON");
    let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": template["spec"]}});
    kubectl.apply(&json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}).to_string()).ok();
    kubectl.ok("create job now --from=cronjob/tick");
    kubectl.ok("wait --for=jsonpath={.status.succeeded}=1 job/now --timeout=60s");
    // The finalizers are gone, so the Pods can go with their Jobs.
    kubectl.ok("delete cronjob tick");
    kubectl.ok("delete job --all --timeout=60s");
    eventually_within(LIMIT, "their Pods are gone", || none_left(kubectl));
}

fn none_left(kubectl: &Kubectl<'_>) -> Result<(), String> {
    let pods = kubectl.ok("get pods -o name");
    if pods.is_empty() { Ok(()) } else { Err(pods) }
}

/// Every end counts once, and no index runs again after it succeeded.
fn kills_lose_and_double_nothing(cluster: &mut Cluster) {
    cluster.kubectl().apply(&job("long", "0", &json!({"completions": 60, "parallelism": 4}))).ok();
    cluster.kubectl().apply(&job("rows", "0", &json!({"completions": 60, "parallelism": 4, "completionMode": "Indexed"}))).ok();
    for wanted in [5, 20, 35] {
        let kubectl = cluster.kubectl();
        eventually_within(LIMIT, "some Pods have ended", || {
            let succeeded = kubectl.field("job/long", "/status/succeeded").as_i64().unwrap_or(0);
            if succeeded >= wanted { Ok(()) } else { Err(format!("{succeeded} of {wanted}")) }
        });
        cluster.kill();
        cluster.start();
    }
    let kubectl = cluster.kubectl();
    kubectl.ok("wait --for=condition=complete job/long job/rows --timeout=120s");
    for name in ["long", "rows"] {
        let status = kubectl.field(&format!("job/{name}"), "/status");
        assert_eq!((&status["succeeded"], &status["uncountedTerminatedPods"]), (&json!(60), &json!({})), "{status}");
        let pods = kubectl.json(&format!("get pods -l batch.kubernetes.io/job-name={name} -o json"));
        let phase = |pod: &Value| pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let succeeded = pods["items"].as_array().expect("Pods").iter().filter(|pod| phase(pod) == "Succeeded").count();
        assert_eq!(succeeded, 60, "as many Pods of {name} succeeded as the status says");
    }
}
