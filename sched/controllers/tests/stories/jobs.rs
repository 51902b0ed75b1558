//! Jobs: to completion, to failure, with indexes, suspended, and deleted. The story ends the Pods.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

fn job(name: &str, spec: Value) -> Job {
    let mut all = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "work"}]}}});
    spec.as_object().expect("fields").iter().for_each(|(key, value)| all[key] = value.clone());
    from(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": all}))
}

/// Waits until that many Pods of the Job run, then ends them.
async fn end(cluster: &Cluster, job: &str, count: usize, phase: &str) {
    let running = |all: &BTreeMap<String, Pod>| -> Vec<String> {
        let phase = |pod: &Pod| pod.status.clone().unwrap_or_default().phase.unwrap_or_default();
        let own = all.values().filter(|pod| pod.labels().get("batch.kubernetes.io/job-name").is_some_and(|name| name == job));
        own.filter(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none()).map(|pod| pod.name_any()).collect()
    };
    let pods = until("running Pods", cluster.api::<Pod>(), |all| running(all).len() == count).await;
    let code = i32::from(phase == "Failed");
    let terminated = json!({"exitCode": code, "finishedAt": "2020-01-01T00:00:00Z", "reason": phase});
    let container =
        json!({"name": "c", "image": "work", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}});
    let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
    for name in running(&pods) {
        cluster.api::<Pod>().patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("ends");
    }
}

/// The conditions of a Job that are true.
fn conditions(all: &BTreeMap<String, Job>, name: &str) -> Vec<String> {
    let status = all.get(name).and_then(|job| job.status.clone()).unwrap_or_default();
    status.conditions.into_iter().flatten().filter(|condition| condition.status == "True").map(|condition| condition.type_).collect()
}

async fn start() -> Cluster {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    cluster.node("n1").await;
    cluster
}

async fn ends_with(cluster: &Cluster, name: &str, wanted: [&str; 2]) -> k8s_openapi::api::batch::v1::JobStatus {
    let jobs = until(name, cluster.api::<Job>(), |all| conditions(all, name) == wanted).await;
    jobs[name].status.clone().unwrap_or_default()
}

async fn until_released(cluster: &Cluster) {
    until("no Pod has the finalizer", cluster.api::<Pod>(), |all| {
        all.values().all(|pod| !pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_completion_through_a_failure() {
    let cluster = start().await;
    let jobs = cluster.api::<Job>();
    jobs.create(&PostParams::default(), &job("sum", json!({"completions": 3, "parallelism": 2}))).await.expect("a Job");
    end(&cluster, "sum", 2, "Succeeded").await;
    end(&cluster, "sum", 1, "Failed").await;
    end(&cluster, "sum", 1, "Succeeded").await;
    let status = ends_with(&cluster, "sum", ["SuccessCriteriaMet", "Complete"]).await;
    assert_eq!((status.succeeded, status.failed, status.active), (Some(3), Some(1), None));
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    until_released(&cluster).await;
    until("its events", cluster.api::<Event>(), |all| {
        let reasons: Vec<_> = all.values().filter_map(|event| event.reason.as_deref()).collect();
        reasons.contains(&"SuccessfulCreate") && reasons.contains(&"Completed")
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_fails_and_its_other_pods_go() {
    let cluster = start().await;
    let jobs = cluster.api::<Job>();
    let spec = json!({"completions": 3, "parallelism": 3, "backoffLimit": 0});
    jobs.create(&PostParams::default(), &job("bad", spec)).await.expect("a Job");
    let pods = until("three", cluster.api::<Pod>(), |all| {
        all.len() == 3 && all.values().all(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"))
    })
    .await;
    let first = pods.keys().next().expect("a Pod");
    cluster
        .api::<Pod>()
        .patch_status(first, &PatchParams::default(), &Patch::Merge(json!({"status": {"phase": "Failed"}})))
        .await
        .expect("fails");
    let status = ends_with(&cluster, "bad", ["FailureTarget", "Failed"]).await;
    assert_eq!((status.failed, status.active, status.terminating), (Some(3), None, Some(0)));
    let failed = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Failed").expect("failed");
    assert_eq!(failed.reason.as_deref(), Some("BackoffLimitExceeded"));
    until("the others are gone", cluster.api::<Pod>(), |all| all.keys().eq([first])).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_runs_each_index_suspends_and_resumes() {
    let cluster = start().await;
    let jobs = cluster.api::<Job>();
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "suspend": true});
    jobs.create(&PostParams::default(), &job("parts", spec)).await.expect("a Job");
    until("suspended", jobs.clone(), |all| conditions(all, "parts") == ["Suspended"]).await;
    assert!(cluster.api::<Pod>().list(&Default::default()).await.expect("Pods").items.is_empty());
    let suspend = async |value: bool| {
        let patch = json!({"spec": {"suspend": value}});
        jobs.patch("parts", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    };
    suspend(false).await;
    let pods = until("three indexes", cluster.api::<Pod>(), |all| all.len() == 3).await;
    let index = |pod: &Pod| pod.labels().get("batch.kubernetes.io/job-completion-index").cloned().unwrap_or_default();
    let mut indexes: Vec<_> = pods.values().map(index).collect();
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2"]);
    assert!(pods.values().all(|pod| pod.spec.as_ref().and_then(|spec| spec.hostname.clone()) == Some(format!("parts-{}", index(pod)))));
    suspend(true).await;
    until("no Pods", cluster.api::<Pod>(), |all| all.is_empty()).await;
    suspend(false).await;
    end(&cluster, "parts", 3, "Succeeded").await;
    let status = ends_with(&cluster, "parts", ["SuccessCriteriaMet", "Complete"]).await;
    assert_eq!((status.completed_indexes.as_deref(), status.succeeded, status.failed), (Some("0-2"), Some(3), None));
    until_released(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_job_that_is_gone_lose_the_finalizer() {
    let cluster = start().await;
    let jobs = cluster.api::<Job>();
    jobs.create(&PostParams::default(), &job("left", json!({}))).await.expect("a Job");
    until("a Pod", cluster.api::<Pod>(), |all| all.len() == 1).await;
    let orphaning = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    jobs.delete("left", &orphaning).await.expect("deletes");
    until_released(&cluster).await;
    jobs.create(&PostParams::default(), &job("whole", json!({}))).await.expect("a Job");
    let has_pod = |all: &BTreeMap<String, Pod>| all.keys().any(|name| name.starts_with("whole-"));
    until("its Pod", cluster.api::<Pod>(), has_pod).await;
    jobs.delete("whole", &DeleteParams::background()).await.expect("deletes");
    until("its Pod is gone", cluster.api::<Pod>(), |all| !has_pod(all)).await;
    cluster.stop().await;
}
