//! kubectl with CronJobs, ReplicationControllers and Endpoints written by hand. No Pod runs: the story writes the status of Jobs.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

#[test]
fn what_kubectl_makes_is_acted_on() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-job-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    a_cronjob_starts_jobs(&kubectl);
    a_finished_job_goes(&kubectl);
    a_replication_controller_scales(&kubectl);
    endpoints_are_mirrored(&kubectl);
}

/// The names of the Jobs.
fn jobs(kubectl: &Kubectl<'_>) -> Vec<String> {
    kubectl.ok("get jobs -o name").lines().map(str::to_owned).collect()
}

fn patch(kubectl: &Kubectl<'_>, object: &str, subresource: &[&str], patch: &Value) {
    let patch = patch.to_string();
    kubectl.run(&[&["patch", object, "--type=merge", "-p", &patch], subresource].concat()).ok();
}

fn finish(kubectl: &Kubectl<'_>, job: &str) {
    let now = "2024-06-01T10:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {"startTime": now, "completionTime": now, "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
    patch(kubectl, job, &["--subresource=status"], &status);
}

fn a_cronjob_starts_jobs(kubectl: &Kubectl<'_>) {
    kubectl.run(&["create", "cronjob", "tick", "--image=example.test/tick", "--schedule=0 0 1 1 *"]).ok();
    assert_eq!(jobs(kubectl), Vec::<String>::new(), "its time is not now");
    // Its last Job was years ago: the newest missed one starts at once.
    patch(kubectl, "cronjob/tick", &["--subresource=status"], &json!({"status": {"lastScheduleTime": "2020-06-01T00:00:00Z"}}));
    let job = eventually("the Job of the new year", || jobs(kubectl).pop().ok_or_else(|| kubectl.ok("describe cronjob tick")));
    kubectl.until("cronjob/tick", "/status/active/0/name", job.trim_start_matches("job.batch/"));
    finish(kubectl, &job);
    kubectl.until("cronjob/tick", "/status/active", Value::Null);
    kubectl.until("cronjob/tick", "/status/lastSuccessfulTime", "2024-06-01T10:00:00Z");
    let events = kubectl.ok("describe cronjob tick");
    assert!(events.contains("SuccessfulCreate") && events.contains("SawCompletedJob"), "{events}");
    kubectl.ok("create job by-hand --from=cronjob/tick");
    kubectl.until("cronjob/tick", "/status/active", Value::Null);
    let refused = kubectl.run(&["create", "cronjob", "zoned", "--image=x", "--schedule=TZ=UTC 0 0 * * *"]).fails();
    assert!(refused.contains("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"), "{refused}");
    kubectl.ok("delete cronjob tick");
    eventually("its Jobs are gone", || if jobs(kubectl).is_empty() { Ok(()) } else { Err(jobs(kubectl).join(" ")) });
}

fn a_finished_job_goes(kubectl: &Kubectl<'_>) {
    kubectl.ok("create job done --image=example.test/done");
    patch(kubectl, "job/done", &[], &json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    finish(kubectl, "job/done");
    eventually("the Job is gone", || if jobs(kubectl).is_empty() { Ok(()) } else { Err(jobs(kubectl).join(" ")) });
}

fn a_replication_controller_scales(kubectl: &Kubectl<'_>) {
    kubectl
        .apply(
            "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: old}\nspec:\n  replicas: 1\n  template:\n    \
             metadata: {labels: {app: old}}\n    spec: {containers: [{name: c, image: example.test/old}]}\n",
        )
        .ok();
    kubectl.until("rc/old", "/status/replicas", 1);
    kubectl.ok("scale rc old --replicas=3 --current-replicas=1");
    kubectl.until("rc/old", "/status/replicas", 3);
    assert_eq!(kubectl.json("get pods -l app=old")["items"].as_array().map(Vec::len), Some(3));
    kubectl.ok("delete rc old");
    eventually("its Pods are gone", || match kubectl.ok("get pods -l app=old -o name") {
        none if none.trim().is_empty() => Ok(()),
        left => Err(left),
    });
}

fn endpoints_are_mirrored(kubectl: &Kubectl<'_>) {
    kubectl
        .apply(
            "apiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {ports: [{port: 5432}]}\n---\n\
             apiVersion: v1\nkind: Endpoints\nmetadata: {name: db}\nsubsets:\n- addresses: [{ip: 192.0.2.1}]\n  ports: [{port: 5432}]\n",
        )
        .ok();
    let slices = "get endpointslices -l kubernetes.io/service-name=db";
    eventually("a slice with the address", || {
        let slices = kubectl.json(slices);
        let address = slices.pointer("/items/0/endpoints/0/addresses/0").cloned().unwrap_or_default();
        if address == "192.0.2.1" { Ok(()) } else { Err(slices.to_string()) }
    });
    kubectl.ok("delete endpoints db");
    eventually("the slice is gone", || match kubectl.json(slices)["items"].as_array().map(Vec::len) {
        Some(0) => Ok(()),
        left => Err(format!("{left:?}")),
    });
}
