use serde_json::{Value, json};

use crate::tests::{samples, text};

const CREATED: &str = "2026-10-14T03:00:00Z";

fn metadata() -> Value {
    json!({"name": "web", "namespace": "shop", "generation": 4, "creationTimestamp": CREATED})
}

#[test]
fn a_deployment_has_its_families() {
    let deployment = json!({
        "metadata": metadata(),
        "spec": {
            "replicas": 5,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        },
        "status": {
            "replicas": 6, "readyReplicas": 4, "availableReplicas": 4, "unavailableReplicas": 2, "updatedReplicas": 2,
            "observedGeneration": 4,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {"type": "Progressing", "status": "False", "reason": "SomethingNew"},
            ],
        },
    });
    insta::assert_snapshot!(text("apps", "deployments", &deployment));
}

#[test]
fn limits_of_rolling_updates_are_numbers_or_percentages_of_the_replicas() {
    let limit = |limit: Value| {
        let rolling = json!({"maxUnavailable": limit, "maxSurge": limit});
        let deployment = json!({"metadata": metadata(), "spec": {"replicas": 7, "strategy": {"rollingUpdate": rolling}}});
        let samples = samples("apps", "deployments", &deployment);
        let values = samples.lines().filter(|line| line.contains("rollingupdate")).filter_map(|line| line.rsplit(' ').next());
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(limit(json!(3)), ["3", "3"]);
    assert_eq!(limit(json!("50%")), ["3", "4"]);
    assert_eq!(limit(json!("0%")), ["0", "0"]);
    assert_eq!(limit(json!("half")), Vec::<String>::new());
}

fn job(failed: i32, conditions: &Value) -> Value {
    json!({
        "metadata": {"name": "report", "namespace": "shop", "creationTimestamp": CREATED, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c", "controller": true},
        ]},
        "spec": {"parallelism": 2, "completions": 3, "activeDeadlineSeconds": 3600},
        "status": {
            "active": 0, "succeeded": 3, "failed": failed, "startTime": CREATED, "completionTime": "2026-10-14T03:05:00Z",
            "conditions": conditions,
        },
    })
}

#[test]
fn a_job_has_its_families() {
    let conditions = json!([{"type": "Suspended", "status": "False"}, {"type": "Complete", "status": "True"}]);
    insta::assert_snapshot!(text("batch", "jobs", &job(0, &conditions)));
}

#[test]
fn failed_pods_of_a_job_have_the_reason_for_which_the_job_failed() {
    let failed = |reason: &str| {
        let conditions = json!([{"type": "Failed", "status": "True", "reason": reason}]);
        let samples = samples("batch", "jobs", &job(2, &conditions));
        samples.lines().filter(|line| line.starts_with("kube_job_status_failed")).map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!([failed("DeadlineExceeded"), failed("Other")].join("\n\n"));
}

#[test]
fn the_other_workloads_have_their_families() {
    let status = json!({
        "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "fullyLabeledReplicas": 3, "currentReplicas": 1, "updatedReplicas": 2,
        "currentRevision": "web-1", "updateRevision": "web-2", "observedGeneration": 4,
        "currentNumberScheduled": 3, "desiredNumberScheduled": 4, "numberReady": 2, "numberMisscheduled": 0, "numberUnavailable": 2,
        "updatedNumberScheduled": 3,
    });
    let spec = json!({
        "replicas": 3,
        "ordinals": {"start": 1},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
    });
    let object = json!({"metadata": metadata(), "spec": spec, "status": status});
    let cron_job = json!({
        "metadata": {"name": "nightly", "namespace": "shop", "resourceVersion": "87"},
        "spec": {
            "schedule": "0 3 * * *", "concurrencyPolicy": "Forbid", "timeZone": "Europe/Berlin", "suspend": false,
            "startingDeadlineSeconds": 60, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        },
        "status": {"active": [{"name": "nightly-1"}], "lastScheduleTime": CREATED, "lastSuccessfulTime": CREATED},
    });
    insta::assert_snapshot!(
        [
            samples("apps", "replicasets", &object),
            samples("apps", "statefulsets", &object),
            samples("apps", "daemonsets", &object),
            samples("", "replicationcontrollers", &object),
            samples("batch", "cronjobs", &cron_job),
        ]
        .concat()
    );
}
