//! CronJobs: their schedule, the Jobs that run, and when the last ones were started and succeeded.

use api_model::k8s_openapi::api::batch::v1::CronJob;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, namespaced, resource_version};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

impl Kind for CronJob {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("cronjob", self)
    }
}

const FAMILIES: &[Family<CronJob>] = &[
    gauge("kube_cronjob_info", "A CronJob with its schedule, time zone and concurrency policy.", info),
    gauge("kube_cronjob_created", "When the CronJob was created, in Unix seconds.", created),
    gauge("kube_cronjob_status_active", "How many Jobs of the CronJob run.", |cron_job, series| {
        series.len(list(&or_empty(&cron_job.status).active).len());
    }),
    gauge("kube_cronjob_status_last_schedule_time", "When the last Job was started, in Unix seconds.", |cron_job, series| {
        series.time(or_empty(&cron_job.status).last_schedule_time.as_ref());
    }),
    gauge("kube_cronjob_status_last_successful_time", "When a Job last succeeded, in Unix seconds.", |cron_job, series| {
        series.time(or_empty(&cron_job.status).last_successful_time.as_ref());
    }),
    gauge("kube_cronjob_spec_suspend", "Whether no further Jobs are started.", |cron_job, series| {
        if let Some(suspend) = cron_job.spec.suspend {
            series.flag(suspend);
        }
    }),
    gauge("kube_cronjob_spec_starting_deadline_seconds", "How many seconds late a Job may start.", |cron_job, series| {
        series.present(cron_job.spec.starting_deadline_seconds);
    }),
    gauge("kube_cronjob_metadata_resource_version", "Resource version of the CronJob.", resource_version),
    gauge("kube_cronjob_spec_successful_job_history_limit", "How many succeeded Jobs are retained.", |cron_job, series| {
        series.present(cron_job.spec.successful_jobs_history_limit);
    }),
    gauge("kube_cronjob_spec_failed_job_history_limit", "How many failed Jobs are retained.", |cron_job, series| {
        series.present(cron_job.spec.failed_jobs_history_limit);
    }),
];

fn info(cron_job: &CronJob, series: &mut Series<'_>) {
    let spec = &cron_job.spec;
    series.info(&[
        ("schedule", &spec.schedule),
        ("concurrency_policy", text(&spec.concurrency_policy)),
        ("timezone", spec.time_zone.as_deref().unwrap_or("local")),
    ]);
}
