//! A CronJob runs once for each time of its schedule, and under `Forbid` and `Replace` not while another of its Jobs runs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Recent, are_controllers_steady, owner};
use crate::history::{Change, Check, View};
use crate::object::{condition, is_deleting, text};

const SCHEDULED_AT: &str = "/metadata/annotations/batch.kubernetes.io~1cronjob-scheduled-timestamp";

/// Looks at the Jobs of CronJobs.
#[derive(Default)]
pub struct Runs {
    /// The Job of each CronJob and time.
    jobs: BTreeMap<(String, String), String>,
    /// 1 while the policy is `Allow`.
    allows: Recent,
}

impl Check for Runs {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let Some(new) = &change.new else { return Ok(()) };
        if change.key.resource == "cronjobs" {
            let allows = i64::from(text(new, "/spec/concurrencyPolicy") == "Allow");
            self.allows.add(text(new, "/metadata/uid"), allows, view.now);
        }
        if change.key.resource != "jobs" || change.old.is_some() {
            return Ok(());
        }
        let Some(cron_job) = owner(view, new, "cronjobs", "CronJob") else { return Ok(()) };
        let (uid, at) = (text(cron_job, "/metadata/uid").to_owned(), text(new, SCHEDULED_AT).to_owned());
        if let Some(first) = self.jobs.insert((uid.clone(), at.clone()), text(new, "/metadata/uid").to_owned()) {
            return Err(format!("{} is the second Job for {at}, after {first}", change.key));
        }
        let is_other =
            |job: &&std::sync::Arc<Value>| text(job, "/metadata/name") != change.key.name && !is_finished(job) && !is_deleting(job);
        let other = view.controlled("jobs", cron_job).find(is_other);
        match other {
            Some(other) if self.allows.max(&uid, view.now) == 0 && are_controllers_steady(view) => {
                Err(format!("{} starts while {} runs", change.key, text(other, "/metadata/name")))
            }
            _ => Ok(()),
        }
    }
}

fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| condition(job, kind).is_some_and(|condition| condition["status"] == "True"))
}
