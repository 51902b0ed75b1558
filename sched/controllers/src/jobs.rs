//! What controllers read from a Job: whether and when it finished.

use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// The condition with which the Job finished, `Complete` or `Failed`.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")
}

/// Whether the Job has run to its end without failing.
pub fn is_complete(job: &Job) -> bool {
    finished(job).is_some_and(|condition| condition.type_ == "Complete")
}
