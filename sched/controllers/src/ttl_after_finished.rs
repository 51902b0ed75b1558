//! TTL after finished: deletes a Job, and its Pods before it, when `spec.ttlSecondsAfterFinished` have passed since it finished.
//!
//! Watches Jobs. Before it deletes a Job it reads the Job again, and deletes the Job only as it was read: a user may have set a
//! longer time since. It deletes nothing else and writes nothing else.

use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{jobs, meta, metrics, writes};

/// The controller.
pub struct TtlAfterFinished {
    client: kube::Client,
    jobs: Informer<Job>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("ttl_jobs_to_delete"));
    let expiring = |job: &Arc<Job>| (!meta::is_deleting(&job.metadata) && ttl(job).is_some()).then(|| ObjectKey::from(&job.metadata));
    let jobs = context.feed(&queue, move |change: &Change<Job>| change.new.as_ref().and_then(expiring).into_iter().collect());
    let controller = TtlAfterFinished { client: context.client(), jobs };
    context.run(Arc::new(controller), queue);
}

impl Controller for TtlAfterFinished {
    const NAME: &'static str = "ttl-after-finished-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        self.pass(key, api_clock::now()).await
    }
}

impl TtlAfterFinished {
    async fn pass(&self, key: &ObjectKey, now: Timestamp) -> Result<Next, Failure> {
        let cached = self.jobs.get(key).map_or(Ok(Ttl::Never), |job| remaining(&job, now))?;
        if cached != Ttl::Expired {
            return Ok(cached.next());
        }
        let Some(fresh) = writes::get::<Job>(&self.client, key).await? else { return Ok(Next::OnChange) };
        let ttl = remaining(&fresh, now)?;
        if ttl == Ttl::Expired {
            writes::delete_unchanged(&self.client, &fresh, DeleteParams::foreground()).await?;
            let late = expires_at(&fresh).map(|at| api_clock::now().duration_since(at)).unwrap_or_default();
            metrics::JOB_DELETION_DURATION.observe([], metrics::seconds(late));
        }
        Ok(ttl.next())
    }
}

/// How long a Job stays.
#[derive(Debug, PartialEq, Eq)]
enum Ttl {
    /// It is not finished, has no such time, or is being deleted already.
    Never,
    /// This long.
    Left(Duration),
    /// The time has passed.
    Expired,
}

impl Ttl {
    fn next(&self) -> Next {
        match self {
            Self::Left(left) => Next::After(*left),
            Self::Never | Self::Expired => Next::OnChange,
        }
    }
}

/// The time after which a finished Job is deleted.
fn ttl(job: &Job) -> Option<i32> {
    jobs::finished(job).and(job.spec.as_ref()?.ttl_seconds_after_finished)
}

/// The time at which a finished Job expires.
fn expires_at(job: &Job) -> Option<Timestamp> {
    let finished = meta::instant(jobs::finished(job)?.last_transition_time.as_ref())?;
    finished.checked_add(SignedDuration::from_secs(i64::from(ttl(job)?))).ok()
}

/// How long the Job stays. A Job that finished in the future, by another machine's clock, stays longer, as upstream.
fn remaining(job: &Job, now: Timestamp) -> Result<Ttl, Failure> {
    let (Some(finished), Some(seconds)) = (jobs::finished(job), ttl(job)) else { return Ok(Ttl::Never) };
    if meta::is_deleting(&job.metadata) {
        return Ok(Ttl::Never);
    }
    let (namespace, name) = (meta::namespace(&job.metadata), meta::name(&job.metadata));
    let unusable = || Failure::Unusable {
        object: format!("Job {}", ObjectKey::from(&job.metadata)),
        problem: format!("unable to find the time when the Job {namespace}/{name} finished"),
    };
    let finished = meta::instant(finished.last_transition_time.as_ref()).ok_or_else(unusable)?;
    let left = finished.duration_since(now).saturating_add(SignedDuration::from_secs(i64::from(seconds)));
    Ok(if left.is_positive() { Ttl::Left(Duration::try_from(left).unwrap_or_default()) } else { Ttl::Expired })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(ttl: Option<i32>, condition: &str, at: Value) -> Job {
        let conditions = json!([{"type": condition, "status": "True", "lastTransitionTime": at}]);
        let metadata = json!({"name": "j", "namespace": "ns", "uid": "u"});
        let spec = json!({"ttlSecondsAfterFinished": ttl, "template": {}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}})).expect("a Job")
    }

    #[test]
    fn a_finished_job_stays_for_its_time() {
        let (now, finished): (Timestamp, _) = ("2024-06-01T10:00:00Z".parse().expect("a time"), json!("2024-06-01T09:59:30Z"));
        let left = |seconds| Ttl::Left(Duration::from_secs(seconds));
        let cases = [
            (job(Some(60), "Complete", finished.clone()), left(30)),
            (job(Some(60), "Failed", finished.clone()), left(30)),
            (job(Some(30), "Complete", finished.clone()), Ttl::Expired),
            (job(Some(0), "Complete", finished.clone()), Ttl::Expired),
            (job(None, "Complete", finished.clone()), Ttl::Never),
            (job(Some(0), "Suspended", finished.clone()), Ttl::Never),
            (job(Some(10), "Complete", json!("2024-06-01T10:00:20Z")), left(30)),
        ];
        for (job, wanted) in cases {
            assert_eq!(remaining(&job, now).expect("a time"), wanted, "{job:?}");
        }
        let mut deleting = job(Some(0), "Complete", finished);
        deleting.metadata.deletion_timestamp = Some(meta::whole_seconds(now));
        assert_eq!(remaining(&deleting, now).expect("a time"), Ttl::Never);
        let problem = remaining(&job(Some(0), "Complete", Value::Null), now).expect_err("no time").to_string();
        assert_eq!(problem, "Job ns/j: unable to find the time when the Job ns/j finished");
    }

    /// A server with one Job, which accepts a deletion only of that version.
    async fn deletes(cached: Job, mut stored: Job) -> (Result<Next, Failure>, Vec<Value>) {
        use http_body_util::BodyExt;
        use kube::client::Body;
        stored.metadata.resource_version = Some("9".to_owned());
        let bodies = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let deleted = Arc::clone(&bodies);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (deleted, stored) = (Arc::clone(&deleted), serde_json::to_vec(&stored).expect("json"));
            async move {
                let (parts, body) = request.into_parts();
                if parts.method == http::Method::DELETE {
                    let body = body.collect().await?.to_bytes();
                    deleted.lock().push(serde_json::from_slice(&body).expect("options"));
                }
                Ok::<_, kube::Error>(http::Response::new(Body::from(stored)))
            }
        });
        let controller = TtlAfterFinished { client: kube::Client::new(service, "default"), jobs: Informer::detached() };
        controller.jobs.put(cached);
        let next = controller.pass(&ObjectKey::new("ns", "j"), "2024-06-01T10:00:00Z".parse().expect("a time")).await;
        let bodies = bodies.lock().clone();
        (next, bodies)
    }

    #[tokio::test]
    async fn the_newest_job_decides() {
        let finished = json!("2024-06-01T09:59:30Z");
        let expired = || job(Some(30), "Complete", finished.clone());
        let (next, deleted) = deletes(expired(), expired()).await;
        assert_eq!(next.expect("a pass"), Next::OnChange);
        assert_eq!(deleted, [json!({"preconditions": {"uid": "u", "resourceVersion": "9"}, "propagationPolicy": "Foreground"})]);
        let (next, deleted) = deletes(expired(), job(Some(90), "Complete", finished.clone())).await;
        assert_eq!((next.expect("a pass"), deleted), (Next::After(Duration::from_secs(60)), vec![]), "a user set a longer time");
        let (next, deleted) = deletes(job(Some(90), "Complete", finished.clone()), expired()).await;
        assert_eq!((next.expect("a pass"), deleted), (Next::After(Duration::from_secs(60)), vec![]), "the cache has not expired");
    }
}
