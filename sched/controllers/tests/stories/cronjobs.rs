//! CronJobs and the time to live of finished Jobs. Nothing runs the Jobs here: the stories write their status.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

/// A CronJob of each minute, which begins suspended.
fn cron_job(name: &str, spec: Value) -> CronJob {
    let template = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "v1"}]}}}});
    let mut whole = json!({"schedule": "* * * * *", "suspend": true, "jobTemplate": template});
    for (key, value) in spec.as_object().expect("an object") {
        whole[key] = value.clone();
    }
    from(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": whole}))
}

fn ago(seconds: i64) -> String {
    let then = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - seconds).expect("in range");
    then.to_string()
}

/// Creates a CronJob whose last Job was two hours ago, and resumes it: the newest missed Job starts at once.
async fn start(cluster: &Cluster, name: &str, spec: Value) {
    let api = cluster.api::<CronJob>();
    api.create(&PostParams::default(), &cron_job(name, spec)).await.expect("a CronJob");
    let last = Patch::Merge(json!({"status": {"lastScheduleTime": ago(2 * 3600)}}));
    api.patch_status(name, &PatchParams::default(), &last).await.expect("a status");
    resume(cluster, name).await;
}

async fn resume(cluster: &Cluster, name: &str) {
    let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
    cluster.api::<CronJob>().patch(name, &PatchParams::default(), &patch).await.expect("resumed");
}

async fn finish(cluster: &Cluster, job: &str, kind: &str) {
    let now = ago(0);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
    let (target, completed) = if kind == "Complete" { ("SuccessCriteriaMet", Some(&now)) } else { ("FailureTarget", None) };
    let status = json!({"startTime": now, "completionTime": completed, "conditions": [condition(target), condition(kind)],
        "uncountedTerminatedPods": {}});
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api::<Job>().patch_status(job, &PatchParams::default(), &patch).await.expect("finished");
}

/// The only Job of a CronJob.
fn job_of<'a>(jobs: &'a BTreeMap<String, Job>, name: &str) -> Option<&'a Job> {
    let mut own = jobs.values().filter(|job| job.metadata.owner_references.iter().flatten().any(|owner| owner.name == name));
    own.next().filter(|_| own.next().is_none())
}

fn lists(cron_jobs: &BTreeMap<String, CronJob>, name: &str, job: Option<&str>) -> bool {
    let status = cron_jobs.get(name).and_then(|cron_job| cron_job.status.clone()).unwrap_or_default();
    let active: Vec<_> = status.active.iter().flatten().filter_map(|job| job.name.as_deref()).collect();
    active == Vec::from_iter(job)
}

async fn has_event(cluster: &Cluster, name: &str, reason: &str, message: &str) {
    until(&format!("{name} has event {reason}"), cluster.api::<Event>(), |events| {
        events.values().any(|event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|text| text.starts_with(message))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cronjob_starts_a_job_and_forgets_it_when_it_is_done() {
    let cluster = Cluster::start(|_| {}).await;
    start(&cluster, "tick", json!({"successfulJobsHistoryLimit": 0, "concurrencyPolicy": "Forbid"})).await;
    let jobs = until("a Job", cluster.api::<Job>(), |jobs| job_of(jobs, "tick").is_some()).await;
    let job = job_of(&jobs, "tick").expect("it was waited for");
    let minute = job.metadata.annotations.as_ref().expect("annotations")["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        .parse::<jiff::Timestamp>()
        .expect("a time")
        .as_second()
        / 60;
    let name = job.name_any();
    assert_eq!(name, format!("tick-{minute}"));
    let listed = until("it is listed", cluster.api::<CronJob>(), |all| lists(all, "tick", Some(&name))).await;
    let status = listed["tick"].status.clone().unwrap_or_default();
    assert_eq!(status.last_schedule_time.map(|time| time.0.as_second()), Some(minute * 60));
    has_event(&cluster, "tick", "SuccessfulCreate", &format!("Created job {name}")).await;
    has_event(&cluster, "tick", "TooManyMissedTimes", "too many missed start times").await;
    finish(&cluster, &name, "Complete").await;
    until("the history is short", cluster.api::<Job>(), |jobs| !jobs.contains_key(&name)).await;
    let done = until("none is listed", cluster.api::<CronJob>(), |all| lists(all, "tick", None)).await;
    assert!(done["tick"].status.as_ref().is_some_and(|status| status.last_successful_time.is_some()));
    has_event(&cluster, "tick", "SuccessfulDelete", &format!("Deleted job {name}")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_lost_starts_no_second_job() {
    let cluster = Cluster::start(|_| {}).await;
    start(&cluster, "yearly", json!({"schedule": "@yearly"})).await;
    // No time of the schedule has passed; the last Job was two years ago.
    let api = cluster.api::<CronJob>();
    let long_ago = Patch::Merge(json!({"status": {"lastScheduleTime": ago(2 * 366 * 24 * 3600)}}));
    api.patch_status("yearly", &PatchParams::default(), &long_ago).await.expect("a status");
    let jobs = until("a Job", cluster.api::<Job>(), |jobs| job_of(jobs, "yearly").is_some()).await;
    let (name, uid) = job_of(&jobs, "yearly").map(|job| (job.name_any(), job.metadata.uid.clone())).expect("it was waited for");
    until("it is listed", api.clone(), |all| lists(all, "yearly", Some(&name))).await;
    let lost = Patch::Merge(json!({"status": {"active": null, "lastScheduleTime": ago(2 * 366 * 24 * 3600)}}));
    api.patch_status("yearly", &PatchParams::default(), &lost).await.expect("a status");
    let listed = until("it is listed again", api, |all| lists(all, "yearly", Some(&name))).await;
    let active = listed["yearly"].status.clone().unwrap_or_default().active.unwrap_or_default();
    assert_eq!(active.first().and_then(|job| job.uid.clone()), uid, "the same Job");
    cluster.api::<Job>().delete(&name, &DeleteParams::background()).await.expect("deleted");
    has_event(&cluster, "yearly", "MissingJob", &format!("Active job went missing: {name}")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_goes_after_its_time() {
    let cluster = Cluster::start(|_| {}).await;
    let jobs = cluster.api::<Job>();
    for (name, ttl) in [("soon", Some(1)), ("later", Some(3600)), ("never", None)] {
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "v1"}]}});
        let spec = json!({"ttlSecondsAfterFinished": ttl, "template": template});
        let job: Job = from(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}));
        jobs.create(&PostParams::default(), &job).await.expect("a Job");
        finish(&cluster, name, if name == "soon" { "Failed" } else { "Complete" }).await;
    }
    until("the first is gone", jobs.clone(), |jobs| !jobs.contains_key("soon")).await;
    let shorter = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    jobs.patch("later", &PatchParams::default(), &shorter).await.expect("a shorter time");
    let left = until("the second is gone", jobs, |jobs| !jobs.contains_key("later")).await;
    assert_eq!(left.keys().collect::<Vec<_>>(), ["never"]);
    cluster.stop().await;
}
