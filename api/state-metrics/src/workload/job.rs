//! Jobs: what is wanted of them, how many of their Pods run, succeeded and failed, and whether they are done.

use api_model::k8s_openapi::api::batch::v1::{Job, JobCondition};

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, exists, namespaced, owners};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

/// The reasons of a failed Job that have a series of their own.
const FAILURE_REASONS: [&str; 3] = ["BackoffLimitExceeded", "DeadlineExceeded", "Evicted"];

impl Kind for Job {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("job_name", self)
    }
}

const FAMILIES: &[Family<Job>] = &[
    gauge("kube_job_info", "A Job.", exists),
    gauge("kube_job_created", "When the Job was created, in Unix seconds.", created),
    gauge("kube_job_spec_parallelism", "How many Pods of the Job may run at a time.", |job, series| {
        series.present(or_empty(&job.spec).parallelism);
    }),
    gauge("kube_job_spec_completions", "How many Pods have to succeed.", |job, series| {
        series.present(or_empty(&job.spec).completions);
    }),
    gauge("kube_job_spec_active_deadline_seconds", "Seconds after its start when the Job fails.", |job, series| {
        series.present(or_empty(&job.spec).active_deadline_seconds);
    }),
    gauge("kube_job_status_succeeded", "How many Pods succeeded.", |job, series| {
        series.count(or_empty(&job.status).succeeded);
    }),
    gauge("kube_job_status_failed", "How many Pods failed, or 1 for the reason for which the Job failed.", failed),
    gauge("kube_job_status_active", "How many Pods are pending or running.", |job, series| {
        series.count(or_empty(&job.status).active);
    }),
    gauge("kube_job_complete", "1 for the status of the Job's condition Complete.", |job, series| {
        condition(job, "Complete", series);
    }),
    gauge("kube_job_failed", "1 for the status of the Job's condition Failed.", |job, series| {
        condition(job, "Failed", series);
    }),
    gauge("kube_job_status_start_time", "When the Job was started, in Unix seconds.", |job, series| {
        series.time(or_empty(&job.status).start_time.as_ref());
    }),
    gauge("kube_job_status_completion_time", "When the Job completed, in Unix seconds.", |job, series| {
        series.time(or_empty(&job.status).completion_time.as_ref());
    }),
    gauge("kube_job_status_suspended", "Whether the Job is suspended, if it has ever been.", |job, series| {
        for condition in conditions(job, "Suspended") {
            series.flag(condition.status == "True");
        }
    }),
    gauge("kube_job_owner", "An owner of the Job; empty labels when it has none.", owners),
];

fn conditions<'a>(job: &'a Job, kind: &'a str) -> impl Iterator<Item = &'a JobCondition> {
    let all = job.status.iter().flat_map(|status| list(&status.conditions));
    all.filter(move |condition| condition.type_ == kind)
}

fn condition(job: &Job, kind: &str, series: &mut Series<'_>) {
    for condition in conditions(job, kind) {
        series.condition(&[], "condition", &condition.status);
    }
}

/// Without failed Pods a plain 0. Otherwise a flag for each reason once the Job has failed, and the number of failed Pods
/// with an empty reason unless the Job failed for one of these reasons.
fn failed(job: &Job, series: &mut Series<'_>) {
    let failed_pods = or_empty(&job.status).failed.unwrap_or_default();
    if failed_pods == 0 {
        return series.value(0.0);
    }
    let mut is_listed = false;
    for condition in conditions(job, "Failed") {
        series.states("reason", &FAILURE_REASONS, text(&condition.reason));
        is_listed |= FAILURE_REASONS.contains(&text(&condition.reason));
    }
    if !is_listed {
        series.sample(&[("reason", "")], f64::from(failed_pods));
    }
}
